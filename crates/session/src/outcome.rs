//! Outcomes of commands, and reasons of refusals.

use std::borrow::Cow;
use std::time::Duration;

use bucket::MemoryRefusal;
use engine::OpError;
use value::InflateError;
use wire::{InfoError, Malformed, Status};

use crate::status;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// It was answered, or needs no answer.
    Next,
    /// It waits: run it again once woken, or after this long.
    Parked(Duration),
    /// A part of its answer is there: run it again once that is sent, for the next one.
    More,
    /// It is done with, and its answer is owed.
    Owed,
    /// The connection is to be closed once its output is sent.
    Close,
}

/// Why a command was refused.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// By the engine.
    Op(OpError),
    /// By the server, with a text for the error context.
    Status(Status, Option<Cow<'static, str>>),
    /// The same, and the connection ends with the answer.
    Last(Status, &'static str),
    /// The collection is not known here.
    UnknownCollection,
    /// There is no room in memory at this moment: the request waits a little for it.
    NoRoomYet,
}

impl Refusal {
    /// A status with a text.
    pub fn because(status: Status, context: impl Into<Cow<'static, str>>) -> Self {
        Self::Status(status, Some(context.into()))
    }
}

impl From<OpError> for Refusal {
    fn from(error: OpError) -> Self {
        if error == OpError::UnknownCollection {
            return Self::UnknownCollection;
        }
        Self::Op(error)
    }
}

impl From<MemoryRefusal> for Refusal {
    fn from(refusal: MemoryRefusal) -> Self {
        Self::because(status::of_op_error(refusal.error), refusal.to_string())
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status, None)
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::because(malformed.status(), malformed.reason)
    }
}

impl From<InfoError> for Refusal {
    fn from(error: InfoError) -> Self {
        Self::because(error.status(), error.reason())
    }
}

/// The answer to a compressed value that is not stored.
pub(crate) fn value_refusal(error: InflateError) -> Refusal {
    match error {
        InflateError::Damaged => Refusal::because(Status::EINVAL, "the value is no valid Snappy"),
        InflateError::TooBig => OpError::TooBig.into(),
    }
}

/// What the reference says of a scope or collection that it does not know.
pub(crate) const UNKNOWN_COLLECTION_CONTEXT: &str = "Unknown scope or collection in operation";
