//! Refusals that the peer should see: one variant for each distinct reaction of a client.

use std::fmt;

/// Reason for which an operation was refused. A refused operation has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpError {
    /// This node does not serve the operation for this vBucket; the client looks for the right
    /// node.
    NotMyVbucket,
    /// The vBucket is about to become active; the caller parks the operation and runs it again.
    WouldBlockPending,
    /// The collection of the key does not exist in this vBucket, or was dropped.
    UnknownCollection,
    /// The document does not exist.
    KeyNotFound,
    /// The document exists already, or its CAS differs.
    KeyExists,
    /// Append or prepend to a missing document.
    NotStored,
    /// The document is locked and the request does not carry the lock's CAS.
    Locked,
    /// Unlock of a document without a lock.
    NotLocked,
    /// The stored value is not a decimal number of 64 bits.
    DeltaBadValue,
    /// The value would exceed [`VbConfig::value_bytes_max`](crate::VbConfig::value_bytes_max).
    TooBig,
    /// The node cannot serve the operation at the moment; the client tries again.
    TemporaryFailure,
    /// The memory quota is used up and nothing can be freed.
    OutOfMemory,
    /// The CAS that comes with a document is not a CAS that a node generates.
    InvalidCas,
    /// The request is not valid; the text is the reason.
    InvalidArgument(&'static str),
    /// The failover log does not have this history.
    UnknownVbUuid,
    /// A durable write of this key waits for its decision; the client tries again.
    SyncWriteInProgress,
    /// A durable write of this key was taken over from a previous active node and waits for its
    /// decision. Neither the old nor the new value may be shown.
    SyncWriteReCommitInProgress,
    /// There are too few nodes for a majority.
    DurabilityImpossible,
    /// The bucket does not offer this durability level.
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
