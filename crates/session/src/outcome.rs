//! Outcomes of commands, and reasons of refusals.

use std::borrow::Cow;
use std::time::Duration;

use bucket::Shortage;
use consumer::InboundError;
use engine::OpError;
use identity::PrivilegeSet;
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

/// What a command gives back.
pub(crate) type CommandResult = Result<CommandOutcome, Refusal>;

/// Why a command was refused.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// By the engine.
    Op(OpError),
    /// By the server, with a text for the error context.
    Status(Status, Option<Cow<'static, str>>),
    /// The same, and the connection ends with the answer.
    Last(Status, &'static str),
    /// Privileges are missing; none are named where the peer has none at all in the bucket.
    MissingPrivileges(PrivilegeSet),
    /// The collection is not known here.
    UnknownCollection,
    /// There is no memory at this moment: the request is parked for so long.
    NoMemoryYet(Duration),
    /// It waits for something else: it runs again once woken, or after this long.
    Parked(Duration),
}

impl Refusal {
    /// A status with a text.
    pub fn because(status: Status, context: impl Into<Cow<'static, str>>) -> Self {
        Self::Status(status, Some(context.into()))
    }

    /// It cannot be done now, and why; it may be tried again.
    pub(crate) fn not_now(context: impl Into<Cow<'static, str>>) -> Self {
        Self::because(Status::ETMPFAIL, context)
    }

    /// The request is not valid, and why.
    pub(crate) fn invalid(context: impl Into<Cow<'static, str>>) -> Self {
        Self::because(Status::EINVAL, context)
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

impl From<Shortage> for Refusal {
    fn from(shortage: Shortage) -> Self {
        Self::because(status::of_op_error(shortage.error()), shortage.to_string())
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status, None)
    }
}

impl From<InboundError> for Refusal {
    fn from(InboundError(status, context): InboundError) -> Self {
        Self::Status(status, context)
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
