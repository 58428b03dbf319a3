//! Sync writes: prepared, then committed or aborted, and what a replica acknowledges.

use model::Seqno;

use crate::DurabilityLevel;
use crate::message::message;

/// DCP_PREPARE: a sync write that is not visible yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepare<'a> {
    /// Position of the prepare.
    pub seqno: Seqno,
    /// How often the document was changed.
    pub rev: u64,
    /// Flags of the client.
    pub flags: u32,
    /// Absolute expiry in Unix seconds, 0 for never.
    pub expiry: u32,
    /// Until when the document is locked; mostly 0.
    pub lock_time: u32,
    /// How much it is used, 0 to 255.
    pub heat: u8,
    /// Whether the write is a deletion.
    pub deleted: bool,
    /// What must have happened before it may be committed.
    pub level: DurabilityLevel,
    /// The document's key, with a collection prefix where negotiated.
    pub key: &'a [u8],
    /// The value to be, as the datatype of the envelope says.
    pub value: &'a [u8],
}

message! {
    Prepare<'a> = DCP_PREPARE;
    extras: seqno, rev, flags, expiry, lock_time, heat, deleted, level;
    key: key;
    value: value;
}

/// DCP_COMMIT: a prepared write is the document now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit<'a> {
    /// Position of the prepare.
    pub prepared: Seqno,
    /// Position of the commit.
    pub seqno: Seqno,
    /// The document's key, with a collection prefix where negotiated.
    pub key: &'a [u8],
}

message! { Commit<'a> = DCP_COMMIT; extras: prepared, seqno; key: key; }

/// DCP_ABORT: a prepared write will never be the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort<'a> {
    /// Position of the prepare.
    pub prepared: Seqno,
    /// Position of the abort.
    pub seqno: Seqno,
    /// The document's key, with a collection prefix where negotiated.
    pub key: &'a [u8],
}

message! { Abort<'a> = DCP_ABORT; extras: prepared, seqno; key: key; }

/// DCP_SEQNO_ACKNOWLEDGED: the replica has every prepare up to a seqno as its level demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoAcknowledged {
    /// The seqno.
    pub prepared: Seqno,
}

message! { SeqnoAcknowledged = DCP_SEQNO_ACKNOWLEDGED; extras: prepared; }
