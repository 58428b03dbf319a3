//! What can go wrong between a client command and its server.

use identity::ScramError;
use std::io;

use wire::{Status, TooLong};

use crate::exit::{Failure, Sysexit};

/// Why a request has no useful answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// There is no password, or it cannot be read.
    #[error("--connect: {0}")]
    Password(String),
    /// No connection could be made.
    #[error("cannot connect to {address}: {source}")]
    Unreachable {
        /// Connect string without secrets.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke, or the server did not answer in time.
    #[error("connection lost during {during}: {source}")]
    Lost {
        /// What was going on.
        during: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The server sent what the protocol does not allow.
    #[error("the server broke the protocol during {during}: {reason}")]
    Protocol {
        /// What was going on.
        during: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// What was given does not fit a request.
    #[error("cannot ask: {0}")]
    TooLong(#[from] TooLong),
    /// The server answered with an error.
    #[error("{}", refusal(*status, during, about, context.as_deref()))]
    Refused {
        /// What was asked.
        during: &'static str,
        /// What it was asked about: a key, a bucket, a group; may be empty.
        about: String,
        /// The status.
        status: Status,
        /// What the server said beyond the status.
        context: Option<String>,
    },
    /// The SCRAM exchange failed on our side.
    #[error("cannot log in: {0}")]
    Scram(#[from] ScramError),
    /// No way of logging in is known to both sides.
    #[error("cannot log in: the server offers only {0:?}")]
    Mechanisms(String),
}

fn refusal(status: Status, during: &str, about: &str, context: Option<&str>) -> String {
    let context = context.map(|text| format!(" ({text})")).unwrap_or_default();
    let gap = if about.is_empty() { "" } else { " " };
    format!(
        "{during}{gap}{about}: {}, status 0x{:02x}{context}",
        status.description(),
        status.0
    )
}

impl ClientError {
    /// The server sent what it must not.
    pub(crate) fn broken(during: &'static str, reason: &impl ToString) -> Self {
        Self::Protocol {
            during,
            reason: reason.to_string(),
        }
    }

    /// Whether a new connection may help.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Lost { .. })
    }

    fn code(&self) -> Sysexit {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => Sysexit::Unavailable,
            Self::Protocol { .. } | Self::Scram(ScramError::Malformed(_)) => Sysexit::Protocol,
            Self::Scram(ScramError::ServerNotGenuine) | Self::Mechanisms(_) => Sysexit::NoPerm,
            Self::Password(_) => Sysexit::Usage,
            Self::TooLong(_) => Sysexit::Data,
            Self::Refused { status, .. } => code_of_status(*status),
        }
    }
}

/// The exit code that says what a user can do about a status.
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

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::new(error.code(), error.to_string())
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
        assert_eq!(code(Status::ETMPFAIL), Sysexit::TempFail);
        assert_eq!(code(Status::NO_BUCKET), Sysexit::Unavailable);
        assert_eq!(code(Status::KEY_EEXISTS), Sysexit::Data);
        let genuine = Failure::from(ClientError::from(ScramError::ServerNotGenuine));
        assert_eq!(genuine.code(), Sysexit::NoPerm);
    }

    #[test]
    fn a_refusal_names_command_status_and_context() {
        let text = refusal(Status::LOCKED, "SET", "key-1", Some("held by another"));
        assert!(
            text.starts_with("SET key-1: ") && text.ends_with("0x09 (held by another)"),
            "{text}"
        );
    }
}
