//! Why a run ends early, by what the caller can do about it.

use std::io;
use std::time::Duration;

use client::ClientError;
use wire::Status;

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

/// Why a job cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// A connection broke.
    #[error("connection {connection} lost: {source}")]
    Lost {
        /// Number of the connection.
        connection: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The server broke the protocol.
    #[error("connection {connection}: the server broke the protocol: {reason}")]
    Protocol {
        /// Number of the connection.
        connection: u32,
        /// What is wrong.
        reason: String,
    },
    /// The server did not take a key while loading.
    #[error("cannot load: the server answers {}, status 0x{:02x}", .0.description(), .0.0)]
    LoadRefused(Status),
    /// No answer for too long.
    #[error("no answer for {0:?}, {1} requests outstanding")]
    Stalled(Duration, u64),
    /// Waiting for events failed.
    #[error("cannot wait for events: {0}")]
    Poll(#[from] io::Error),
}

/// A connection broke.
pub(crate) fn lost(connection: u32, source: io::Error) -> JobError {
    JobError::Lost { connection, source }
}

/// The server broke the protocol.
pub(crate) fn protocol(connection: u32, reason: String) -> JobError {
    JobError::Protocol { connection, reason }
}
