//! Conversion of refusals to status numbers; there is no other.

use engine::OpError;
use wire::{Feature, FeatureSet, Status};

/// Returns the status of an [`OpError`].
pub(crate) fn of_op_error(error: OpError) -> Status {
    match error {
        OpError::NotMyVbucket => Status::NOT_MY_VBUCKET,
        OpError::WouldBlockPending | OpError::TemporaryFailure => Status::ETMPFAIL,
        OpError::UnknownCollection => Status::UNKNOWN_COLLECTION,
        OpError::KeyNotFound | OpError::UnknownVbUuid => Status::KEY_ENOENT,
        OpError::KeyExists => Status::KEY_EEXISTS,
        OpError::NotStored => Status::NOT_STORED,
        OpError::Locked => Status::LOCKED,
        OpError::NotLocked => Status::NOT_LOCKED,
        OpError::DeltaBadValue => Status::DELTA_BADVAL,
        OpError::TooBig => Status::E2BIG,
        OpError::OutOfMemory => Status::ENOMEM,
        OpError::InvalidCas => Status::CAS_VALUE_INVALID,
        OpError::InvalidArgument(_) => Status::EINVAL,
        OpError::SyncWriteInProgress => Status::SYNC_WRITE_IN_PROGRESS,
        OpError::SyncWriteReCommitInProgress => Status::SYNC_WRITE_RE_COMMIT_IN_PROGRESS,
        OpError::DurabilityImpossible => Status::DURABILITY_IMPOSSIBLE,
        OpError::DurabilityInvalidLevel => Status::DURABILITY_INVALID_LEVEL,
    }
}

/// Maps a status for a peer that does not know the newer ones. `None`: the connection is closed instead.
///
/// Source: protocol section 2, "Remapping for connections without XERROR".
pub(crate) fn for_peer(
    status: Status,
    features: FeatureSet,
    authenticated: bool,
) -> Option<Status> {
    if features.contains(Feature::XERROR) {
        return Some(status);
    }
    match status {
        Status::LOCKED => Some(Status::KEY_EEXISTS),
        Status::NOT_LOCKED
        | Status::SYNC_WRITE_IN_PROGRESS
        | Status::SYNC_WRITE_RE_COMMIT_IN_PROGRESS => Some(Status::ETMPFAIL),
        Status::UNKNOWN_COLLECTION | Status::UNKNOWN_SCOPE
            if !features.contains(Feature::COLLECTIONS) =>
        {
            Some(Status::EINVAL)
        }
        // A peer that has not authenticated learns only that.
        Status::EACCESS | Status::NO_BUCKET if !authenticated => Some(Status::EACCESS),
        Status::NO_BUCKET
        | Status::AUTH_STALE
        | Status::DURABILITY_INVALID_LEVEL
        | Status::DURABILITY_IMPOSSIBLE
        | Status::SYNC_WRITE_AMBIGUOUS => None,
        status => Some(status),
    }
}
