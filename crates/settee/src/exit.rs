//! How a command ends: exit codes by `sysexits.h` and a one-line reason.

use std::fmt;
use std::process::ExitCode;

/// Exit codes of `sysexits.h` in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sysexit {
    /// The command line is wrong.
    Usage = 64,
    /// Data is wrong: what was given, or what a server returned.
    Data = 65,
    /// What was asked for is not there.
    NoInput = 66,
    /// The server cannot be reached, or does not serve this.
    Unavailable = 69,
    /// A file or process of this machine failed.
    Os = 71,
    /// A file cannot be created.
    CantCreate = 73,
    /// Trying again later may help.
    TempFail = 75,
    /// The server broke the protocol.
    Protocol = 76,
    /// The server does not let this user do it.
    NoPerm = 77,
    /// The configuration is wrong.
    Config = 78,
}

/// Why a command failed: one line for the user and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Sysexit,
    message: String,
}

impl Failure {
    /// A failure with its reason.
    pub(crate) fn new(code: Sysexit, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The command line is wrong; the message names the flag, the value and what is allowed.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Sysexit::Usage, message)
    }

    /// Prints the reason to standard error and yields the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("settee: {}", self.message);
        ExitCode::from(self.code as u8)
    }

    /// The exit code.
    #[cfg(test)]
    pub(crate) fn code(&self) -> Sysexit {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
