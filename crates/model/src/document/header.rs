//! Metadata of a document, and its packed form.

use std::sync::atomic::AtomicU8;

use crate::{Cas, Datatype, DurabilityLevel, Kind, Seqno};

/// Metadata of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// CAS of the revision.
    pub cas: Cas,
    /// Sequence number in the vBucket.
    pub seqno: Seqno,
    /// Revision number: counts changes of the document; 48 bits are stored.
    pub rev: u64,
    /// Client flags, stored and returned unchanged.
    pub flags: u32,
    /// Absolute expiry in Unix seconds, 0 for never; for a tombstone, the time of the deletion.
    pub expiry: u32,
    /// Format of the value.
    pub datatype: Datatype,
    /// Kind of the change.
    pub kind: Kind,
    /// Durability level of a prepare; `None` for all other kinds.
    pub level: Option<DurabilityLevel>,
    /// Seqno of the prepare that a commit or an abort decides; zero for all other kinds.
    pub prepare_seqno: Seqno,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            cas: Cas(0),
            seqno: Seqno(0),
            rev: 0,
            flags: 0,
            expiry: 0,
            datatype: Datatype::RAW,
            kind: Kind::Mutation,
            level: None,
            prepare_seqno: Seqno(0),
        }
    }
}

/// Bits of `Header::state`: the kind, the durability level, whether the value is missing.
pub(super) const KIND: u8 = 0x0f;
pub(super) const LEVEL_SHIFT: u32 = 4;
pub(super) const LEVEL: u8 = 0x03;
pub(super) const NON_RESIDENT: u8 = 0x80;

/// Trailer of a commit or an abort, in bytes: the prepare's seqno.
const PREPARE_SEQNO_BYTES: usize = 8;

/// Size of the trailer after the value, in bytes.
pub(super) fn trailer_bytes(kind: Kind) -> usize {
    if kind as u8 >= Kind::Commit as u8 {
        PREPARE_SEQNO_BYTES
    } else {
        0
    }
}

/// Packed metadata, 32 bytes; seqno and revision have 48 bits each, in two fields.
pub(super) struct Header {
    pub(super) cas: u64,
    pub(super) seqno_low: u32,
    pub(super) rev_low: u32,
    pub(super) seqno_high: u16,
    pub(super) rev_high: u16,
    pub(super) flags: u32,
    pub(super) expiry: u32,
    pub(super) key_len: u8,
    pub(super) datatype: u8,
    pub(super) state: u8,
    pub(super) heat: AtomicU8,
}

impl Header {
    pub(super) fn new(key_len: usize, meta: &Meta, resident: bool) -> Self {
        let key_len = u8::try_from(key_len).expect("a stored key has at most 251 bytes");
        Self {
            cas: meta.cas.0,
            seqno_low: meta.seqno.0 as u32,
            rev_low: meta.rev as u32,
            seqno_high: (meta.seqno.0 >> 32) as u16,
            rev_high: (meta.rev >> 32) as u16,
            flags: meta.flags,
            expiry: meta.expiry,
            key_len,
            datatype: meta.datatype.0,
            state: meta.kind as u8
                | meta.level.map_or(0, |level| (level as u8) << LEVEL_SHIFT)
                | if resident { 0 } else { NON_RESIDENT },
            heat: AtomicU8::new(0),
        }
    }

    pub(super) fn set_position(&mut self, cas: Cas, seqno: Seqno, rev: u64) {
        self.cas = cas.0;
        self.seqno_low = seqno.0 as u32;
        self.seqno_high = (seqno.0 >> 32) as u16;
        self.rev_low = rev as u32;
        self.rev_high = (rev >> 32) as u16;
    }
}
