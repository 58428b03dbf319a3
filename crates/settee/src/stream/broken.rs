//! Errors that end a command or a connection with streams.

use std::time::Duration;

use client::ClientError;
use model::VbId;
use wire::{Malformed, Status};

use crate::exit::{Failure, Sysexit, code_of_status};

/// Failure of a command.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The reason.
    pub(crate) failure: Failure,
    /// Whether another attempt with new connections may succeed.
    pub(crate) again: bool,
}

impl From<ClientError> for Broken {
    fn from(error: ClientError) -> Self {
        let again = error.is_lost();
        Self {
            failure: error.into(),
            again,
        }
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        broken.failure
    }
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            again: false,
        }
    }
}

/// Reason why a connection is not read further.
#[derive(Debug)]
pub(super) enum Unread {
    /// The connection is lost; its streams must be requested again.
    Lost(Failure),
    /// The command fails.
    Broken(Broken),
}

impl From<ClientError> for Unread {
    fn from(error: ClientError) -> Self {
        if error.is_lost() {
            Self::Lost(error.into())
        } else {
            Self::Broken(error.into())
        }
    }
}

impl From<Broken> for Unread {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<Failure> for Unread {
    fn from(failure: Failure) -> Self {
        Self::Broken(failure.into())
    }
}

/// Returns the failure of a server that violates the protocol.
pub(super) fn violation(reason: impl AsRef<str>) -> Failure {
    ClientError::broken("streaming", &reason.as_ref()).into()
}

/// Returns the failure of a message that cannot be decoded.
pub(super) fn malformed(error: Malformed) -> Failure {
    violation(error.to_string())
}

/// Returns the failure of a connection without any message, even a noop, for `silence`.
pub(super) fn silent(silence: Duration) -> Failure {
    let source = std::io::Error::other(format!("silent for {silence:?}"));
    let during = "streaming";
    ClientError::Lost { during, source }.into()
}

/// Returns the failure of a refused stream request.
pub(super) fn refused(vbucket: VbId, status: Status) -> Failure {
    let (vbucket, reason, number) = (vbucket.0, status.description(), status.0);
    let reason = format!("stream of vBucket {vbucket}: {reason}, status 0x{number:02x}");
    Failure::new(code_of_status(status), reason)
}

/// Returns the failure of a vBucket without an active node in the map.
pub(super) fn unserved(vbucket: VbId) -> Failure {
    let reason = format!("vBucket {} is active on no node", vbucket.0);
    Failure::new(Sysexit::Unavailable, reason)
}
