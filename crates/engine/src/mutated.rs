//! Results of a change for its client.

use model::{Cas, Seqno, VbUuid};

/// Result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The new CAS; for a delete, the CAS of the tombstone.
    pub cas: Cas,
    /// The seqno of the change.
    pub seqno: Seqno,
    /// UUID of the history to which `seqno` belongs.
    pub vb_uuid: VbUuid,
}

/// Result of a counter operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterResult {
    /// New number of the counter.
    pub number: u64,
    /// Expiry of the counter in Unix seconds; 0 for never.
    pub expiry: u32,
    /// Result of the change.
    pub mutated: Mutated,
}
