//! Why a run ends early, by what the caller can do about it.

use std::{fmt, io};

use client::ClientError;
use wire::{Opcode, Status};

/// Why a run ended without a result, or with a bad one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Anything else.
    #[error("{reason}")]
    Run {
        /// What is to blame.
        cause: Cause,
        /// One line for the user.
        reason: String,
    },
}

/// What a failed run is to be blamed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The options do not fit each other or the server: give others.
    Usage,
    /// A resource of this machine is missing, or a process on it does not run.
    Machine,
    /// The server does not answer, or lacks what the run needs.
    Unavailable,
    /// The server broke the protocol.
    Protocol,
    /// The server refused a request with this status.
    Refused(Status),
    /// The server returned wrong data, or lost some.
    WrongData,
    /// The server refused operations for lack of resources, or stands still: try again later.
    Overload,
}

impl Error {
    /// An error with its reason.
    pub(crate) fn new(cause: Cause, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Run { cause, reason }
    }

    /// The options are wrong; the reason names option, value and what is allowed.
    pub(crate) fn usage(reason: impl Into<String>) -> Self {
        Self::new(Cause::Usage, reason)
    }
}

/// The server refused a request.
pub(crate) fn refused(opcode: Opcode, status: Status) -> Error {
    let reason = format!("{}: {}", opcode.name(), status.description());
    Error::new(Cause::Refused(status), reason)
}

/// The server broke the protocol of change streams.
pub(crate) fn broken_stream(reason: &str) -> Error {
    ClientError::broken("streaming", &reason).into()
}

/// A connection of a job broke.
pub(crate) fn lost(connection: u32, source: &io::Error) -> Error {
    let reason = format!("connection {connection} lost: {source}");
    Error::new(Cause::Unavailable, reason)
}

/// The server broke the protocol on a connection of a job.
pub(crate) fn broken(connection: u32, reason: &impl fmt::Display) -> Error {
    let reason = format!("connection {connection}: the server broke the protocol: {reason}");
    Error::new(Cause::Protocol, reason)
}
