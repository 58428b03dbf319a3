//! What a client is told of its change.

use model::{Cas, Seqno, VbUuid};

/// What a change got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The new CAS; of a delete, the tombstone's.
    pub cas: Cas,
    /// The seqno of the change.
    pub seqno: Seqno,
    /// The history in which `seqno` counts.
    pub vb_uuid: VbUuid,
}

/// What a counter got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its new number.
    pub number: u64,
    /// When it expires, Unix seconds, 0 for never.
    pub expiry: u32,
    /// Its change.
    pub mutated: Mutated,
}
