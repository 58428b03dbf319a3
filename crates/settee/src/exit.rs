//! The end of a command: exit codes of `sysexits.h` and a one-line reason.

use std::fmt;
use std::process::ExitCode;

use bench::Cause;
use client::ClientError;
use identity::ScramError;
use wire::Status;

use crate::stderr::note;

/// The exit codes of `sysexits.h` that are used, and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Sysexit {
    /// A search found damage.
    Found = 1,
    /// The command line is wrong.
    Usage = 64,
    /// Input data, or data from a server, is wrong.
    Data = 65,
    /// The requested item does not exist.
    NoInput = 66,
    /// The server cannot be reached, or does not offer the service.
    Unavailable = 69,
    /// A file or process of this machine failed.
    Os = 71,
    /// A file cannot be created.
    CantCreate = 73,
    /// A later attempt may succeed.
    TempFail = 75,
    /// The server broke the protocol.
    Protocol = 76,
    /// The server denies this to the user.
    NoPerm = 77,
    /// The configuration is wrong.
    Config = 78,
}

/// Reason of a failure: one line for the user, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Sysexit,
    message: String,
}

impl Failure {
    /// Creates a failure with its reason.
    pub(crate) fn new(code: Sysexit, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Creates a failure for a wrong command line; the message names the flag, the value and the allowed values.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Sysexit::Usage, message)
    }

    /// Prints the reason to standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        note(&self.message);
        ExitCode::from(self.code as u8)
    }

    /// The exit code.
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

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Unreachable { .. } | ClientError::Lost { .. } => Sysexit::Unavailable,
            ClientError::Protocol { .. } | ClientError::Scram(ScramError::Malformed(_)) => {
                Sysexit::Protocol
            }
            ClientError::Scram(ScramError::ServerNotGenuine) | ClientError::Mechanisms(_) => {
                Sysexit::NoPerm
            }
            ClientError::TooLong(_) => Sysexit::Data,
            ClientError::Refused { status, .. } => code_of_status(*status),
        };
        Self::new(code, error.to_string())
    }
}

impl From<bench::Error> for Failure {
    fn from(error: bench::Error) -> Self {
        let (cause, reason) = match error {
            bench::Error::Client(error) => return error.into(),
            bench::Error::Run { cause, reason } => (cause, reason),
        };
        let code = match cause {
            Cause::Usage => Sysexit::Usage,
            Cause::Machine => Sysexit::Os,
            Cause::Unavailable => Sysexit::Unavailable,
            Cause::Protocol => Sysexit::Protocol,
            Cause::Refused(status) => code_of_status(status),
            Cause::WrongData => Sysexit::Data,
            Cause::Overload => Sysexit::TempFail,
        };
        Self::new(code, reason)
    }
}

/// Returns the exit code for a status, chosen by its remedy.
pub(crate) fn code_of_status(status: Status) -> Sysexit {
    match status {
        Status::KEY_ENOENT => Sysexit::NoInput,
        Status::EACCESS | Status::AUTH_ERROR | Status::AUTH_STALE => Sysexit::NoPerm,
        Status::ENOMEM
        | Status::EBUSY
        | Status::ETMPFAIL
        | Status::LOCKED
        | Status::SYNC_WRITE_IN_PROGRESS => Sysexit::TempFail,
        Status::NOT_MY_VBUCKET
        | Status::NO_BUCKET
        | Status::NOT_SUPPORTED
        | Status::UNKNOWN_COMMAND
        | Status::NOT_INITIALIZED
        | Status::ECONFIG_ONLY => Sysexit::Unavailable,
        _ => Sysexit::Data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_sysexits() {
        let code = |status| {
            let error = ClientError::Refused {
                during: "GET",
                about: String::new(),
                status,
                context: None,
            };
            Failure::from(error).code()
        };
        assert_eq!(code(Status::KEY_ENOENT), Sysexit::NoInput);
        assert_eq!(code(Status::AUTH_ERROR), Sysexit::NoPerm);
        assert_eq!(code(Status::EACCESS), Sysexit::NoPerm);
        assert_eq!(code(Status::ETMPFAIL), Sysexit::TempFail);
        assert_eq!(code(Status::NO_BUCKET), Sysexit::Unavailable);
        assert_eq!(code(Status::UNKNOWN_COMMAND), Sysexit::Unavailable);
        assert_eq!(code(Status::KEY_EEXISTS), Sysexit::Data);
        let code = |error: ClientError| Failure::from(error).code();
        let genuine = ClientError::from(ScramError::ServerNotGenuine);
        assert_eq!(code(genuine), Sysexit::NoPerm);
        let broken = ClientError::broken("GET", &"no frame");
        assert_eq!(code(broken), Sysexit::Protocol);
        let (during, source) = ("GET", std::io::ErrorKind::UnexpectedEof.into());
        let lost = ClientError::Lost { during, source };
        assert_eq!(code(lost), Sysexit::Unavailable);
    }
}
