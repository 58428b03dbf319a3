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
    /// The command was answered, or needs no answer.
    Next,
    /// The command waits: run it again after a wake, or after this time.
    Parked(Duration),
    /// A part of the answer is in the output: run the command again for the next part once this is sent.
    More,
    /// The command has run, and its answer is owed.
    Owed,
    /// Close the connection once its output is sent.
    Close,
}

/// Result of a command.
pub(crate) type CommandResult = Result<CommandOutcome, Refusal>;

/// Reason why a command was refused.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// Refused by the engine.
    Op(OpError),
    /// Refused by the server, with a text for the error context.
    Status(Status, Option<Cow<'static, str>>),
    /// Like `Status`, and the connection is closed after the answer.
    Last(Status, &'static str),
    /// Privileges are missing. The set is empty if the peer has no privilege at all in the bucket.
    MissingPrivileges(PrivilegeSet),
    /// The collection does not exist in the bucket.
    UnknownCollection,
    /// There is no free memory at this moment: the request is parked for this time.
    NoMemoryYet(Duration),
    /// The request waits for something else: it runs again after a wake, or after this time.
    Parked(Duration),
}

impl Refusal {
    /// A refusal with a status and a text.
    pub fn because(status: Status, context: impl Into<Cow<'static, str>>) -> Self {
        Self::Status(status, Some(context.into()))
    }

    /// A temporary failure with its reason; the request may be sent again.
    pub(crate) fn not_now(context: impl Into<Cow<'static, str>>) -> Self {
        Self::because(Status::ETMPFAIL, context)
    }

    /// An invalid request, with the reason.
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

/// Returns the refusal of a compressed value that cannot be stored.
pub(crate) fn value_refusal(error: InflateError) -> Refusal {
    match error {
        InflateError::Damaged => Refusal::because(Status::EINVAL, "the value is no valid Snappy"),
        InflateError::TooBig => OpError::TooBig.into(),
    }
}

/// Error context of the reference for an unknown scope or collection.
pub(crate) const UNKNOWN_COLLECTION_CONTEXT: &str = "Unknown scope or collection in operation";
