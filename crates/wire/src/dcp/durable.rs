//! Durable writes (sync writes): prepare, commit, abort, and the acknowledgement of a replica.

use model::Seqno;

use crate::DurabilityLevel;
use crate::message::message;

/// `DCP_PREPARE`: a durable write that is not visible yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepare<'a> {
    /// Seqno of the prepare.
    pub seqno: Seqno,
    /// Revision number of the document.
    pub rev: u64,
    /// Client flags.
    pub flags: u32,
    /// Absolute expiry in Unix seconds, 0 for never.
    pub expiry: u32,
    /// Time until which the document is locked; mostly 0.
    pub lock_time: u32,
    /// Use frequency of the document, 0 to 255.
    pub heat: u8,
    /// Whether the write is a deletion.
    pub deleted: bool,
    /// Durability level required for the commit.
    pub level: DurabilityLevel,
    /// Key of the document, with a collection prefix if negotiated.
    pub key: &'a [u8],
    /// The prepared value, in the format given by the envelope's datatype.
    pub value: &'a [u8],
}

message! {
    Prepare<'a> = DCP_PREPARE;
    extras: seqno, rev, flags, expiry, lock_time, heat, deleted, level;
    key: key;
    value: value;
}

/// `DCP_COMMIT`: a prepared write becomes visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit<'a> {
    /// Seqno of the prepare.
    pub prepared: Seqno,
    /// Seqno of the commit.
    pub seqno: Seqno,
    /// Key of the document, with a collection prefix if negotiated.
    pub key: &'a [u8],
}

message! { Commit<'a> = DCP_COMMIT; extras: prepared, seqno; key: key; }

/// `DCP_ABORT`: a prepared write never becomes visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort<'a> {
    /// Seqno of the prepare.
    pub prepared: Seqno,
    /// Seqno of the abort.
    pub seqno: Seqno,
    /// Key of the document, with a collection prefix if negotiated.
    pub key: &'a [u8],
}

message! { Abort<'a> = DCP_ABORT; extras: prepared, seqno; key: key; }

/// `DCP_SEQNO_ACKNOWLEDGED`: the replica has every prepare up to a seqno with its durability level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoAcknowledged {
    /// Seqno of the last prepare.
    pub prepared: Seqno,
}

message! { SeqnoAcknowledged = DCP_SEQNO_ACKNOWLEDGED; extras: prepared; }
