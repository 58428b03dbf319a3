//! Why a worker's job cannot go on.

use std::io;
use std::time::Duration;

use wire::Status;

use super::connection::Connection;

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
pub(super) fn lost(connection: &Connection, source: io::Error) -> JobError {
    JobError::Lost {
        connection: connection.number,
        source,
    }
}

/// The server broke the protocol.
pub(super) fn protocol(connection: u32, reason: String) -> JobError {
    JobError::Protocol { connection, reason }
}
