//! A document: key, value and metadata in one shared allocation.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use prefetch_index::prefetch_index;
use triomphe::ThinArc;

use crate::{Cas, Datatype, DurabilityLevel, Kind, Seqno};

/// Bytes that a document takes beyond its key and value: reference count, metadata, length.
pub const DOCUMENT_OVERHEAD_BYTES: usize = 16 + size_of::<Header>();

/// Metadata of a document, by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Revision for compare-and-swap.
    pub cas: Cas,
    /// Position among the changes of its vBucket.
    pub seqno: Seqno,
    /// How often the document was changed; 48 bits are stored.
    pub rev: u64,
    /// Flags of the client, stored and returned unchanged.
    pub flags: u32,
    /// Absolute expiry in Unix seconds, 0 for never; of a tombstone: when it was deleted.
    pub expiry: u32,
    /// How to read the value.
    pub datatype: Datatype,
    /// What the change did.
    pub kind: Kind,
    /// Of a prepare: what it waits for. `None` for everything else.
    pub level: Option<DurabilityLevel>,
    /// Of a commit or an abort: seqno of the prepare that it decides. Zero for everything else.
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
const KIND: u8 = 0x0f;
const LEVEL_SHIFT: u32 = 4;
const LEVEL: u8 = 0x03;
const NON_RESIDENT: u8 = 0x80;

/// What [`Document::foresee`] asks for.
const FORESEEN_LINES: usize = 5;
const CACHE_LINE_BYTES: usize = 64;

/// Bytes behind the value of a commit or an abort: the prepare's seqno.
const PREPARE_SEQNO_BYTES: usize = 8;

/// Up to this length, key and value are joined without an allocation of its own.
const JOINED_ON_STACK_MAX: usize = 256;

/// From this length on they are put together where they will stay, which takes a little longer than
/// elsewhere, and half the memory.
const PUT_TOGETHER_IN_PLACE_MIN: usize = 256 << 10;

/// Bytes behind the value.
fn trailer_bytes(kind: Kind) -> usize {
    if kind as u8 >= Kind::Commit as u8 {
        PREPARE_SEQNO_BYTES
    } else {
        0
    }
}

/// 32 bytes; seqno and rev are split to 48 bits each.
struct Header {
    cas: u64,
    seqno_low: u32,
    rev_low: u32,
    seqno_high: u16,
    rev_high: u16,
    flags: u32,
    expiry: u32,
    key_len: u8,
    datatype: u8,
    state: u8,
    heat: AtomicU8,
}

impl Header {
    fn new(key_len: usize, meta: &Meta, resident: bool) -> Self {
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

    fn set_position(&mut self, cas: Cas, seqno: Seqno, rev: u64) {
        self.cas = cas.0;
        self.seqno_low = seqno.0 as u32;
        self.seqno_high = (seqno.0 >> 32) as u16;
        self.rev_low = rev as u32;
        self.rev_high = (rev >> 32) as u16;
    }
}

/// What an allocation of `bytes` takes. The allocators in use have four sizes to each doubling,
/// so that up to a fifth of a block is lost: too much to be left out of a quota.
fn allocated_bytes(bytes: usize) -> usize {
    if bytes <= 64 {
        return bytes.next_multiple_of(8);
    }
    let quarter = 1 << ((bytes - 1).ilog2() - 2);
    bytes.next_multiple_of(quarter)
}

/// Whether both are the same, for a few bytes: without a call.
#[inline]
fn same_bytes(one: &[u8], other: &[u8]) -> bool {
    fn ends<const N: usize>(bytes: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
        bytes.first_chunk().zip(bytes.last_chunk())
    }
    if one.len() != other.len() {
        return false;
    }
    match one.len() {
        8..=16 => ends::<8>(one) == ends::<8>(other),
        17..=32 => ends::<16>(one) == ends::<16>(other),
        _ => one == other,
    }
}

/// An immutable document, shared by hash table, checkpoints, flusher and streams.
///
/// Shape: one reference-counted allocation of [`DOCUMENT_OVERHEAD_BYTES`] + key + value bytes;
/// the handle itself is 8 bytes. The key carries its collection prefix. A commit or an abort
/// takes 8 bytes more, for the seqno of its prepare.
#[derive(Clone)]
pub struct Document {
    block: ThinArc<Header, u8>,
}

impl Document {
    /// A document with all its metadata known: one that was read back from a store.
    #[must_use]
    pub fn from_parts(key: &[u8], value: &[u8], meta: &Meta) -> Self {
        Self::from_pieces(key, value, meta, true)
    }

    /// The same from key and value that already lie next to each other: one copy less.
    #[must_use]
    pub fn from_joined(key_and_value: &[u8], key_len: usize, meta: &Meta) -> Self {
        if trailer_bytes(meta.kind) > 0 {
            let (key, value) = key_and_value.split_at(key_len);
            return Self::from_parts(key, value, meta);
        }
        let header = Header::new(key_len, meta, true);
        Self {
            block: ThinArc::from_header_and_slice(header, key_and_value),
        }
    }

    fn from_pieces(key: &[u8], value: &[u8], meta: &Meta, resident: bool) -> Self {
        let header = Header::new(key.len(), meta, resident);
        let prepare_seqno = meta.prepare_seqno.0.to_be_bytes();
        let trailer = &prepare_seqno[..trailer_bytes(meta.kind)];
        let block_of = |block: &[u8]| Self {
            block: ThinArc::from_header_and_slice(header, block),
        };
        // The block is made of bytes that lie next to each other.
        let mut short = [0; JOINED_ON_STACK_MAX];
        let (value_at, end) = (key.len(), key.len() + value.len());
        let Some(block) = short.get_mut(..end + trailer.len()) else {
            if end >= PUT_TOGETHER_IN_PLACE_MIN {
                return Self::in_place(key.len(), meta, resident, &[key, value, trailer]);
            }
            return block_of(&[key, value, trailer].concat());
        };
        block[..value_at].copy_from_slice(key);
        block[value_at..end].copy_from_slice(value);
        block[end..].copy_from_slice(trailer);
        block_of(block)
    }

    /// Puts parts next to each other in the block itself: they are never in memory once more.
    fn in_place(key_len: usize, meta: &Meta, resident: bool, parts: &[&[u8]]) -> Self {
        let header = Header::new(key_len, meta, resident);
        let bytes = parts.iter().map(|part| part.len()).sum();
        let mut block = ThinArc::from_header_and_iter(header, std::iter::repeat_n(0, bytes));
        block.with_arc_mut(|arc| {
            let block = triomphe::Arc::get_mut(arc).expect("the new block has one owner");
            let mut rest = block.slice_mut();
            for part in parts {
                let (here, behind) = rest.split_at_mut(part.len());
                here.copy_from_slice(part);
                rest = behind;
            }
        });
        Self { block }
    }

    /// This document without its value, which remains in the store only.
    #[must_use]
    pub fn to_non_resident(&self) -> Self {
        Self::from_pieces(self.key(), b"", &self.meta(), false)
    }

    fn header(&self) -> &Header {
        &self.block.header.header
    }

    /// Asks for the memory that a reader of this document will look at, without waiting for it:
    /// of large values the beginning.
    #[inline]
    pub fn foresee(&self) {
        let block = &self.block.slice;
        for line in 0..FORESEEN_LINES {
            prefetch_index(block, line * CACHE_LINE_BYTES);
        }
    }

    /// Asks for what [`Document::meta`] and [`Document::key`] look at, and nothing of the value.
    #[inline]
    pub fn foresee_head(&self) {
        prefetch_index(std::slice::from_ref(self.header()), 0);
        prefetch_index(&self.block.slice, 0);
    }

    /// Collection prefix and user's key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.block.slice[..usize::from(self.header().key_len)]
    }

    /// Whether this is its key. Keys are short, so their ends are compared rather than all of
    /// their bytes one after the other.
    #[inline]
    #[must_use]
    pub fn has_key(&self, key: &[u8]) -> bool {
        same_bytes(self.key(), key)
    }

    /// The value; empty for tombstones and while not resident.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.key_and_value()[usize::from(self.header().key_len)..]
    }

    /// Key and value as they lie next to each other.
    #[must_use]
    pub fn key_and_value(&self) -> &[u8] {
        let block = &self.block.slice;
        &block[..block.len() - trailer_bytes(self.kind())]
    }

    /// All metadata.
    #[must_use]
    pub fn meta(&self) -> Meta {
        Meta {
            cas: self.cas(),
            seqno: self.seqno(),
            rev: self.rev(),
            flags: self.flags(),
            expiry: self.expiry(),
            datatype: self.datatype(),
            kind: self.kind(),
            level: self.level(),
            prepare_seqno: self.prepare_seqno(),
        }
    }

    /// Revision for compare-and-swap.
    #[must_use]
    pub fn cas(&self) -> Cas {
        Cas(self.header().cas)
    }

    /// Position among the changes of its vBucket.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        let header = self.header();
        Seqno(u64::from(header.seqno_high) << 32 | u64::from(header.seqno_low))
    }

    /// How often the document was changed.
    #[must_use]
    pub fn rev(&self) -> u64 {
        let header = self.header();
        u64::from(header.rev_high) << 32 | u64::from(header.rev_low)
    }

    /// Flags of the client.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.header().flags
    }

    /// Absolute expiry in Unix seconds, 0 for never; of a tombstone: when it was deleted.
    #[must_use]
    pub fn expiry(&self) -> u32 {
        self.header().expiry
    }

    /// How to read the value.
    #[must_use]
    pub fn datatype(&self) -> Datatype {
        Datatype(self.header().datatype)
    }

    /// What the change did.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::from_number(self.header().state & KIND).unwrap_or(Kind::Mutation)
    }

    /// Of a prepare: what it waits for.
    #[must_use]
    pub fn level(&self) -> Option<DurabilityLevel> {
        DurabilityLevel::from_number(self.header().state >> LEVEL_SHIFT & LEVEL)
    }

    /// Of a commit or an abort: seqno of the prepare that it decides. Zero for everything else.
    #[must_use]
    pub fn prepare_seqno(&self) -> Seqno {
        let block = &self.block.slice;
        let trailer = &block[block.len() - trailer_bytes(self.kind())..];
        Seqno(trailer.try_into().map_or(0, u64::from_be_bytes))
    }

    /// Whether the value is in memory. Tombstones are.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        self.header().state & NON_RESIDENT == 0
    }

    /// Whether the document is alive but its time has come.
    #[must_use]
    pub fn is_expired(&self, now_s: u32) -> bool {
        let expiry = self.expiry();
        expiry != 0 && expiry <= now_s && !self.kind().is_tombstone()
    }

    /// How often the document was used lately, for eviction; a plain relaxed counter.
    #[must_use]
    pub fn heat(&self) -> u8 {
        self.header().heat.load(Ordering::Relaxed)
    }

    /// Sets [`Document::heat`].
    pub fn set_heat(&self, heat: u8) {
        self.header().heat.store(heat, Ordering::Relaxed);
    }

    /// What this prepare becomes when it is committed at `seqno`: the document that it prepared,
    /// with its CAS and revision.
    ///
    /// Cost: copies the value.
    #[must_use]
    pub fn committed(&self, seqno: Seqno) -> Self {
        let kind = if self.kind() == Kind::PrepareDeletion {
            Kind::CommitDeletion
        } else {
            Kind::Commit
        };
        let meta = Meta {
            kind,
            ..self.decided(seqno)
        };
        Self::from_joined(self.key_and_value(), self.key().len(), &meta)
    }

    /// The form in which stores keep it: of a commit nothing tells that it was one.
    ///
    /// Cost: shares the document, but for commits, whose value is copied.
    #[must_use]
    pub fn as_stored(&self) -> Self {
        if !self.kind().is_commit() {
            return self.clone();
        }
        let meta = Meta {
            kind: self.kind().plain(),
            prepare_seqno: Seqno(0),
            ..self.meta()
        };
        Self::from_joined(self.key_and_value(), self.key().len(), &meta)
    }

    /// This committed change, with the prepare that it turned out to decide.
    ///
    /// Cost: copies the value.
    #[must_use]
    pub fn as_commit_of(&self, prepare_seqno: Seqno) -> Self {
        let kind = if self.kind().is_tombstone() {
            Kind::CommitDeletion
        } else {
            Kind::Commit
        };
        let meta = Meta {
            kind,
            prepare_seqno,
            ..self.meta()
        };
        Self::from_joined(self.key_and_value(), self.key().len(), &meta)
    }

    /// What this prepare becomes when it is given up at `seqno`. Its expiry tells when the
    /// prepare was made, as that of a tombstone does.
    #[must_use]
    pub fn aborted(&self, seqno: Seqno) -> Self {
        let meta = Meta {
            kind: Kind::Abort,
            flags: 0,
            datatype: Datatype::RAW,
            expiry: u32::try_from(self.cas().0 / 1_000_000_000).unwrap_or(u32::MAX),
            ..self.decided(seqno)
        };
        Self::from_parts(self.key(), b"", &meta)
    }

    fn decided(&self, seqno: Seqno) -> Meta {
        Meta {
            seqno,
            level: None,
            prepare_seqno: self.seqno(),
            ..self.meta()
        }
    }

    /// Bytes of the allocation, rounded up as allocators do.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        allocated_bytes(DOCUMENT_OVERHEAD_BYTES + self.block.slice.len())
    }

    /// Whether both handles are the same allocation.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        std::ptr::eq(self.block.slice.as_ptr(), other.block.slice.as_ptr())
    }
}

impl fmt::Debug for Document {
    /// Metadata and the key, never the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("value_bytes", &self.value().len())
            .field("meta", &self.meta())
            .finish()
    }
}

/// A document that is not shared yet; `VBucket::commit` stamps it and freezes it.
///
/// The allocation and the copy of key and value happen here, before any lock is taken.
#[derive(Debug)]
pub struct Draft {
    document: Document,
}

impl Draft {
    /// A draft from key and value that lie next to each other, as they do in a frame.
    ///
    /// Shape: the first `key_len` (at most 251) bytes are the key with its collection prefix.
    #[must_use]
    pub fn from_joined(key_and_value: &[u8], key_len: usize, meta: &Meta) -> Self {
        Self {
            document: Document::from_joined(key_and_value, key_len, meta),
        }
    }

    /// A draft from separate key and value.
    #[must_use]
    pub fn new(key: &[u8], value: &[u8], meta: &Meta) -> Self {
        Self {
            document: Document::from_parts(key, value, meta),
        }
    }

    /// A draft of a value in several parts.
    #[must_use]
    pub fn of_parts(key: &[u8], value: &[&[u8]], meta: &Meta) -> Self {
        debug_assert_eq!(trailer_bytes(meta.kind), 0, "a draft decides no prepare");
        let parts: Vec<&[u8]> = std::iter::once(key).chain(value.iter().copied()).collect();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes < PUT_TOGETHER_IN_PLACE_MIN {
            return Self::from_joined(&parts.concat(), key.len(), meta);
        }
        Self {
            document: Document::in_place(key.len(), meta, true, &parts),
        }
    }

    /// Read access to what will be frozen.
    #[must_use]
    pub fn document(&self) -> &Document {
        &self.document
    }

    fn edit(&mut self, change: impl FnOnce(&mut Header)) {
        self.document.block.with_arc_mut(|arc| {
            let block = triomphe::Arc::get_mut(arc).expect("a draft has a single owner");
            change(block.header_mut());
        });
    }

    /// Sets what the value is.
    pub fn set_datatype(&mut self, datatype: Datatype) {
        self.edit(|header| header.datatype = datatype.0);
    }

    /// Sets the absolute expiry.
    pub fn set_expiry(&mut self, expiry: u32) {
        self.edit(|header| header.expiry = expiry);
    }

    /// Lets `change` write into the value, whose length stays.
    pub fn edit_value(&mut self, change: impl FnOnce(&mut [u8])) {
        let at = usize::from(self.document.header().key_len);
        let end = self.document.key_and_value().len();
        self.document.block.with_arc_mut(|arc| {
            let block = triomphe::Arc::get_mut(arc).expect("a draft has a single owner");
            change(&mut block.slice_mut()[at..end]);
        });
    }

    /// Makes it a durable write (or, of a tombstone, deletion) that waits to be decided.
    pub fn prepare(&mut self, level: DurabilityLevel) {
        let kind = if self.document.kind().is_tombstone() {
            Kind::PrepareDeletion
        } else {
            Kind::Prepare
        };
        self.edit(|header| header.state = kind as u8 | (level as u8) << LEVEL_SHIFT);
    }

    /// Gives the draft its revision and position, and freezes it.
    #[must_use]
    pub fn stamp(mut self, cas: Cas, seqno: Seqno, rev: u64) -> Document {
        self.edit(|header| header.set_position(cas, seqno, rev));
        self.document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_a_pointer_and_the_overhead_is_48_bytes() {
        assert_eq!(size_of::<Option<Document>>(), 8);
        assert_eq!(DOCUMENT_OVERHEAD_BYTES, 48);
    }

    #[test]
    fn memory_is_counted_as_allocators_give_it() {
        for (asked, given) in [
            (48, 48),
            (49, 56),
            (65, 80),
            (128, 128),
            (129, 160),
            (159, 160),
            (4096, 4096),
            (4161, 5120),
            (1 << 20, 1 << 20),
        ] {
            assert_eq!(allocated_bytes(asked), given, "{asked}");
        }
    }

    #[test]
    fn parts_lie_next_to_each_other_however_large_they_are() {
        for bytes in [3, 300, PUT_TOGETHER_IN_PLACE_MIN] {
            let large = vec![b'l'; bytes];
            let parts: [&[u8]; 3] = [b"first", &large, b"last"];
            let mut draft = Draft::of_parts(b"\0key", &parts, &Meta::default());
            draft.set_datatype(Datatype::JSON);
            let document = draft.document();
            assert_eq!(document.key(), b"\0key");
            assert!(document.value() == parts.concat(), "{bytes}");
            assert_eq!(document.datatype(), Datatype::JSON);
            let meta = Meta {
                kind: Kind::Commit,
                prepare_seqno: Seqno(7),
                ..Meta::default()
            };
            let commit = Document::from_parts(b"\0key", &large, &meta);
            assert!(commit.value() == large, "{bytes}");
            assert_eq!(
                (commit.prepare_seqno(), commit.key()),
                (Seqno(7), &b"\0key"[..])
            );
        }
    }

    #[test]
    fn stamping_keeps_the_rest() {
        let meta = Meta {
            flags: 0x0200_0006,
            expiry: 99,
            datatype: Datatype::JSON,
            ..Meta::default()
        };
        let mut draft = Draft::from_joined(b"\0key{}", 4, &meta);
        draft.set_expiry(100);
        let document = draft.stamp(Cas(7), Seqno(0xffff_0000_0001), 0x1_0000_0002);
        assert_eq!(document.key(), b"\0key");
        assert_eq!(document.value(), b"{}");
        let expected = Meta {
            cas: Cas(7),
            seqno: Seqno(0xffff_0000_0001),
            rev: 0x1_0000_0002,
            expiry: 100,
            ..meta
        };
        assert_eq!(document.meta(), expected);
    }

    #[test]
    fn a_non_resident_document_keeps_its_metadata() {
        let meta = Meta {
            cas: Cas(5),
            seqno: Seqno(9),
            rev: 3,
            ..Meta::default()
        };
        let document = Document::from_parts(b"\0k", b"value", &meta);
        let evicted = document.to_non_resident();
        assert!(!evicted.is_resident());
        assert_eq!(evicted.key(), b"\0k");
        assert_eq!(evicted.value(), b"");
        assert_eq!(evicted.meta(), meta);
    }

    #[test]
    fn changes_of_durable_writes_carry_what_they_need() {
        let prepare = Meta {
            kind: Kind::Prepare,
            level: Some(DurabilityLevel::PersistToMajority),
            ..Meta::default()
        };
        let document = Document::from_parts(b"\0k", b"value", &prepare);
        assert_eq!(document.meta(), prepare);
        assert_eq!(document.key_and_value(), b"\0kvalue");
        for (kind, value) in [
            (Kind::Commit, b"value".as_slice()),
            (Kind::CommitDeletion, b""),
            (Kind::Abort, b""),
        ] {
            let meta = Meta {
                kind,
                prepare_seqno: Seqno(0xffff_0000_0001),
                ..Meta::default()
            };
            let joined = [b"\0k", value].concat();
            let document = Document::from_joined(&joined, 2, &meta);
            assert_eq!(document.meta(), meta);
            assert_eq!(document.value(), value);
            assert_eq!(document.key(), b"\0k");
            let evicted = document.to_non_resident();
            assert_eq!(evicted.meta(), meta);
            assert_eq!(evicted.value(), b"");
            assert!(!evicted.is_resident());
        }
    }

    #[test]
    fn a_prepare_is_committed_or_aborted() {
        let meta = Meta {
            flags: 7,
            expiry: 99,
            datatype: Datatype::JSON,
            ..Meta::default()
        };
        let mut draft = Draft::new(b"\0k", b"value", &meta);
        draft.prepare(DurabilityLevel::Majority);
        let cas = Cas(1_700_000_000_123_456_789);
        let prepare = draft.stamp(cas, Seqno(4), 2);
        assert_eq!(prepare.kind(), Kind::Prepare);
        assert_eq!(prepare.level(), Some(DurabilityLevel::Majority));
        let commit = prepare.committed(Seqno(6));
        let expected = Meta {
            cas,
            seqno: Seqno(6),
            rev: 2,
            kind: Kind::Commit,
            prepare_seqno: Seqno(4),
            ..meta
        };
        assert_eq!((commit.value(), commit.meta()), (&b"value"[..], expected));
        let abort = prepare.aborted(Seqno(5));
        let expected = Meta {
            cas,
            seqno: Seqno(5),
            rev: 2,
            expiry: 1_700_000_000,
            kind: Kind::Abort,
            prepare_seqno: Seqno(4),
            ..Meta::default()
        };
        assert_eq!((abort.value(), abort.meta()), (&b""[..], expected));
        let deletion = Meta {
            kind: Kind::Deletion,
            ..Meta::default()
        };
        let mut draft = Draft::new(b"\0k", b"", &deletion);
        draft.prepare(DurabilityLevel::PersistToMajority);
        let prepare = draft.stamp(cas, Seqno(4), 2);
        assert_eq!(prepare.kind(), Kind::PrepareDeletion);
        assert_eq!(prepare.committed(Seqno(5)).kind(), Kind::CommitDeletion);
    }
}
