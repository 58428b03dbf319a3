//! A process started by the demo.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use server::names;

use crate::stderr::note;

/// Interval between two checks of an awaited condition.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// Prefix of the names of variables that are settings of this program.
const OURS: &str = "SETTEE_";

/// Returns a command that runs this program without the settings of this process.
pub(super) fn own_command() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    forget(&mut command, OURS);
    Ok(command)
}

/// Removes the variables with this prefix from a command's environment.
pub(super) fn forget(command: &mut Command, prefix: &str) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(prefix) {
            command.env_remove(name);
        }
    }
}

/// A process that writes to its own log. Signals of the terminal do not reach it.
pub(super) struct Process {
    pub(super) name: String,
    pub(super) command: String,
    log: PathBuf,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Process {
    pub(super) fn start(name: &str, mut command: Command, directory: &Path) -> io::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let file = names::create(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<_> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        Ok(Self {
            name: name.to_owned(),
            command: words.join(" "),
            child: command.spawn()?,
            log,
            ended: None,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns how the process ended, if it has ended since the last call.
    pub(super) fn news(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_some() {
            return Ok(None);
        }
        self.ended = self.child.try_wait()?;
        Ok(self.ended)
    }

    /// Returns the last line of the log.
    pub(super) fn last_line(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().last().unwrap_or_default();
        line.strip_prefix("settee: ").unwrap_or(line).to_owned()
    }

    pub(super) fn log(&self) -> String {
        self.log.display().to_string()
    }

    /// Asks the process to end.
    pub(super) fn terminate(&self) {
        if self.ended.is_none() {
            // The process may have ended already.
            let _gone = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// Waits until the process ends.
    pub(super) fn wait(&mut self) {
        if let Err(error) = self.child.wait() {
            note(format_args!("{}: {error}", self.name));
        }
    }
}
