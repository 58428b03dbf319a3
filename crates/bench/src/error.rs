//! Errors of a run, by the remedy of the caller.

use std::{fmt, io};

use client::ClientError;
use wire::{Opcode, Status};

/// Reason why a run ended without a result, or with a bad one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Anything else.
    #[error("{reason}")]
    Run {
        /// The cause.
        cause: Cause,
        /// One line for the user.
        reason: String,
    },
}

/// Cause of a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The options do not fit each other or the server. Remedy: other options.
    Usage,
    /// A resource of this machine is missing, or a process on it does not run.
    Machine,
    /// The server does not answer, or lacks a feature that the run needs.
    Unavailable,
    /// The server broke the protocol.
    Protocol,
    /// The server refused a request with this status.
    Refused(Status),
    /// The server returned wrong data, or lost some.
    WrongData,
    /// The server refused operations for lack of resources, or makes no progress. Remedy: a later attempt.
    Overload,
}

impl Error {
    /// Creates an error with its reason.
    pub(crate) fn new(cause: Cause, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Run { cause, reason }
    }

    /// Creates a usage error; the reason names option, value and allowed values.
    pub(crate) fn usage(reason: impl Into<String>) -> Self {
        Self::new(Cause::Usage, reason)
    }
}

/// Returns the error for a refused request.
pub(crate) fn refused(opcode: Opcode, status: Status) -> Error {
    let reason = format!("{}: {}", opcode.name(), status.description());
    Error::new(Cause::Refused(status), reason)
}

/// Returns the error for a violation of the protocol of change streams.
pub(crate) fn broken_stream(reason: &str) -> Error {
    ClientError::broken("streaming", &reason).into()
}

/// Returns the error for a lost connection of a job.
pub(crate) fn lost(connection: u32, source: &io::Error) -> Error {
    let reason = format!("connection {connection} lost: {source}");
    Error::new(Cause::Unavailable, reason)
}

/// Returns the error for a violation of the protocol on a connection of a job.
pub(crate) fn broken(connection: u32, reason: &impl fmt::Display) -> Error {
    let reason = format!("connection {connection}: the server broke the protocol: {reason}");
    Error::new(Cause::Protocol, reason)
}
