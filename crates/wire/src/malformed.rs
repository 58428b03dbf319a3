//! Errors of one message.

use std::fmt;

use crate::Status;

/// The peer broke a rule of one message; its frame is valid, so the connection stays open.
///
/// The reason goes into the error context of the answer, and contains no data of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The error, as a short phrase.
    pub reason: &'static str,
}

impl Malformed {
    /// Creates an error with its reason.
    pub const fn new(reason: &'static str) -> Self {
        Self { reason }
    }

    /// Status of the answer.
    pub fn status(self) -> Status {
        Status::EINVAL
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for Malformed {}

/// A part of a message is too long for its length field; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Name of the part: `"frame infos"`, `"extras"`, `"key"` or `"body"`.
    pub part: &'static str,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} longer than a frame can carry", self.part)
    }
}

impl std::error::Error for TooLong {}
