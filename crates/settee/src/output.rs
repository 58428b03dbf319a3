//! Standard output and the terminal.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use crate::exit::{Failure, Sysexit};

/// Returns standard output as a file, for long answers in large pieces.
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

/// Returns the result of the command after a write to standard output.
///
/// # Errors
/// Standard output cannot be written. A closed pipe (`settee stat | head`) is no error.
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

/// Whether standard output is a terminal, and `NO_COLOR` is empty or not set.
pub(crate) fn stdout_is_coloured() -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stdout_is_terminal() && !forbidden
}

/// A line on standard error that is overwritten by the next one; silent without a terminal.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    visible: bool,
}

impl ProgressLine {
    /// Creates the line: visible if standard error is a terminal, unless `quiet` is set.
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            visible: !quiet && io::stderr().is_terminal(),
        }
    }

    /// Replaces the line.
    pub(crate) fn show(&self, text: &str) {
        if self.visible {
            eprint!("{}", replacing_line(text));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.show("");
    }
}

/// Clears the line and writes `text`, cut at the edge of the terminal: the next one would clear only the last row of a
/// text that goes on in further rows.
fn replacing_line(text: &str) -> String {
    const CUT_AT_EDGE: &str = "\x1b[?7l";
    const GO_ON_IN_NEXT_ROW: &str = "\x1b[?7h";
    format!("\r\x1b[2K{CUT_AT_EDGE}{text}{GO_ON_IN_NEXT_ROW}")
}

#[cfg(test)]
mod tests {
    use super::replacing_line;

    #[test]
    fn progress_is_cut_at_the_edge_of_the_terminal() {
        assert_eq!(replacing_line("1 of 2"), "\r\x1b[2K\x1b[?7l1 of 2\x1b[?7h");
    }
}
