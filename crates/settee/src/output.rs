//! Standard output and the terminal: what is printed, and whether it may be coloured.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use crate::exit::{Failure, Sysexit};

/// Standard output itself, for long answers in large pieces.
///
/// # Errors
/// There is no standard output.
pub(crate) fn stdout() -> Result<File, Failure> {
    let descriptor = io::stdout().as_fd().try_clone_to_owned();
    descriptor.map(File::from).map_err(|error| broken(&error))
}

/// Writes `bytes` to standard output at once.
///
/// # Errors
/// As [`ended`].
pub(crate) fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    ended(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// What it means for the command how writing to standard output ended.
///
/// # Errors
/// Standard output cannot be written. A reader that went away (`settee stat | head`) is no error.
pub(crate) fn ended(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(broken(&error)),
        _ => Ok(()),
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Sysexit::Os, format!("standard output: {error}"))
}

/// Writes one JSON value and a newline to standard output.
///
/// # Errors
/// As [`ended`].
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).expect("what is printed has texts as keys");
    text.push('\n');
    print(text.as_bytes())
}

/// Whether standard output is a terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// How text may be emphasised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    coloured: bool,
}

impl Style {
    /// Plain text.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { coloured: false };

    /// Colours when standard output is a terminal and `NO_COLOR` is not set to anything.
    pub(crate) fn of_stdout() -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            coloured: stdout_is_terminal() && !forbidden,
        }
    }

    /// `text` in bold.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// `text` in red: something is wrong.
    pub(crate) fn alarm(self, text: &str) -> String {
        self.wrap("31", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.coloured {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A line on standard error that is written over and over; silent where there is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    visible: bool,
}

impl Progress {
    /// Visible when standard error is a terminal and the user does not want to be spared.
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            visible: !quiet && io::stderr().is_terminal(),
        }
    }

    /// Replaces the line.
    pub(crate) fn show(&self, text: &str) {
        if self.visible {
            eprint!("\r\x1b[2K{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_style_adds_nothing() {
        assert_eq!(Style::PLAIN.bold("x"), "x");
        assert_eq!(Style { coloured: true }.alarm("x"), "\x1b[31mx\x1b[0m");
    }
}
