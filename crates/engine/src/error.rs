//! Outcomes that the peer should hear: one variant per distinct reaction of a client.

use std::fmt;

/// Why an operation was refused. A refused operation has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpError {
    /// This vBucket does not serve the operation here; the client looks for the right node.
    NotMyVbucket,
    /// The vBucket is about to become active; the caller parks the operation and runs it again.
    WouldBlockPending,
    /// The collection of the key is not here (any more).
    UnknownCollection,
    /// There is no such document.
    KeyNotFound,
    /// The document exists already, or its CAS is another one.
    KeyExists,
    /// Append or prepend to a document that does not exist.
    NotStored,
    /// The document is locked and the request does not carry the lock's CAS.
    Locked,
    /// Unlock of a document that is not locked.
    NotLocked,
    /// The stored value is no decimal number of 64 bits.
    DeltaBadValue,
    /// The value would exceed [`VbConfig::value_bytes_max`](crate::VbConfig::value_bytes_max).
    TooBig,
    /// Not now; the client tries again.
    TemporaryFailure,
    /// The memory quota is used up and nothing can be freed.
    OutOfMemory,
    /// A CAS that comes with a document is none that a node gives.
    InvalidCas,
    /// The request makes no sense; the text says why.
    InvalidArgument(&'static str),
    /// The failover log does not know this history.
    UnknownVbUuid,
    /// A durable write of this key waits to be decided; the client tries again.
    SyncWriteInProgress,
    /// A durable write of this key was taken over from an earlier active and waits to be decided;
    /// neither its old nor its new value may be shown.
    SyncWriteReCommitInProgress,
    /// There are not enough nodes for a majority.
    DurabilityImpossible,
    /// This bucket cannot be as durable as was asked.
    DurabilityInvalidLevel,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotMyVbucket => "not my vBucket",
            Self::WouldBlockPending => "vBucket is pending",
            Self::UnknownCollection => "unknown collection",
            Self::KeyNotFound => "key not found",
            Self::KeyExists => "key exists or its CAS differs",
            Self::NotStored => "not stored",
            Self::Locked => "locked",
            Self::NotLocked => "not locked",
            Self::DeltaBadValue => "the value is not a number",
            Self::TooBig => "too big",
            Self::TemporaryFailure => "temporary failure",
            Self::OutOfMemory => "out of memory",
            Self::InvalidCas => "invalid CAS",
            Self::InvalidArgument(reason) => reason,
            Self::UnknownVbUuid => "unknown vBucket UUID",
            Self::SyncWriteInProgress => "a durable write of the key is in progress",
            Self::SyncWriteReCommitInProgress => "a durable write of the key is being recommitted",
            Self::DurabilityImpossible => "not enough nodes for a majority",
            Self::DurabilityInvalidLevel => "the bucket does not offer this durability level",
        })
    }
}

impl std::error::Error for OpError {}
