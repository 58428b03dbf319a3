//! What can be wrong with one message.

use std::fmt;

use crate::Status;

/// The peer broke a rule of one message; the frame around it is sound, so the connection stays.
///
/// The reason is for the error context of the answer and names no data of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What is wrong, as a short phrase.
    pub reason: &'static str,
}

impl Malformed {
    /// An error with its reason.
    pub const fn new(reason: &'static str) -> Self {
        Self { reason }
    }

    /// The status to answer with.
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

/// A part of a message to be sent is longer than its length field can say; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The part: `"frame infos"`, `"extras"`, `"key"` or `"body"`.
    pub part: &'static str,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} longer than a frame can carry", self.part)
    }
}

impl std::error::Error for TooLong {}
