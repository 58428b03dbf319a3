//! Why streams break off.

use std::time::Duration;

use client::ClientError;
use model::VbId;
use wire::{Malformed, Status};

use crate::exit::{Failure, Sysexit, code_of_status};

/// Why a command broke off.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The reason.
    pub(crate) failure: Failure,
    /// Whether other connections may go better.
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

/// Why a connection is not read any further.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is lost; its streams are to be asked for again.
    Lost(Failure),
    /// The command breaks off.
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

/// The server says what the protocol does not allow.
pub(super) fn violation(reason: impl AsRef<str>) -> Failure {
    ClientError::broken("streaming", &reason.as_ref()).into()
}

/// A message cannot be read.
pub(super) fn malformed(error: Malformed) -> Failure {
    violation(error.to_string())
}

/// Nothing came for so long, not even a noop.
pub(super) fn silent(silence: Duration) -> Failure {
    let source = std::io::Error::other(format!("silent for {silence:?}"));
    let during = "streaming";
    ClientError::Lost { during, source }.into()
}

/// A stream was not granted.
pub(super) fn refused(vbucket: VbId, status: Status) -> Failure {
    let (vbucket, reason, number) = (vbucket.0, status.description(), status.0);
    let reason = format!("stream of vBucket {vbucket}: {reason}, status 0x{number:02x}");
    Failure::new(code_of_status(status), reason)
}

/// A map names no node that serves a vBucket.
pub(super) fn unserved(vbucket: VbId) -> Failure {
    let reason = format!("vBucket {} is active on no node", vbucket.0);
    Failure::new(Sysexit::Unavailable, reason)
}
