//! An immutable document: key, value and metadata in one shared allocation.

use std::fmt;
use std::sync::atomic::Ordering;

use prefetch_index::prefetch_index;
use triomphe::ThinArc;

use super::header::{Header, KIND, LEVEL, LEVEL_SHIFT, Meta, NON_RESIDENT, trailer_bytes};
use crate::{Cas, Datatype, DurabilityLevel, Kind, Seqno};

/// Bytes that a document takes beyond its key and value: reference count, metadata, length.
pub const DOCUMENT_OVERHEAD_BYTES: usize = 16 + size_of::<Header>();

/// What [`Document::prefetch`] asks for.
const FORESEEN_LINES: usize = 5;
const CACHE_LINE_BYTES: usize = 64;

/// Up to this length, key and value are joined without an allocation of its own.
const JOINED_ON_STACK_MAX: usize = 256;

/// From this length on they are put together where they will stay, which takes a little longer than
/// elsewhere, and half the memory.
pub(super) const PUT_TOGETHER_IN_PLACE_MIN: usize = 256 << 10;

/// What an allocation of `bytes` takes. The allocators in use have four sizes to each doubling,
/// so that up to a fifth of a block is lost: too much to be left out of a quota.
pub(super) fn allocated_bytes(bytes: usize) -> usize {
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

fn commit_kind(deletion: bool) -> Kind {
    if deletion {
        Kind::CommitDeletion
    } else {
        Kind::Commit
    }
}

/// An immutable document, shared by hash table, checkpoints, flusher and streams.
///
/// Shape: one reference-counted allocation of [`DOCUMENT_OVERHEAD_BYTES`] + key + value bytes;
/// the handle itself is 8 bytes. The key carries its collection prefix. A commit or an abort
/// takes 8 bytes more, for the seqno of its prepare.
#[derive(Clone)]
pub struct Document {
    pub(super) block: ThinArc<Header, u8>,
}

impl Document {
    /// A document with all its metadata known: one that was read back from a store.
    pub fn from_parts(key: &[u8], value: &[u8], meta: &Meta) -> Self {
        Self::from_pieces(key, value, meta, true)
    }

    /// The same from key and value that already lie next to each other: one copy less.
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
    pub(super) fn in_place(key_len: usize, meta: &Meta, resident: bool, parts: &[&[u8]]) -> Self {
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
        Self::non_resident(self.key(), &self.meta())
    }

    /// A document whose value is in the store only.
    pub fn non_resident(key: &[u8], meta: &Meta) -> Self {
        Self::from_pieces(key, b"", meta, false)
    }

    /// This document with its value in another form.
    #[must_use]
    pub fn with_form(&self, value: &[u8], datatype: Datatype) -> Self {
        let meta = Meta {
            datatype,
            ..self.meta()
        };
        Self::from_pieces(self.key(), value, &meta, true)
    }

    pub(super) fn header(&self) -> &Header {
        &self.block.header.header
    }

    /// Asks for the memory that a reader of this document will look at, without waiting for it:
    /// of large values the beginning.
    #[inline]
    pub fn prefetch(&self) {
        let block = &self.block.slice;
        for line in 0..FORESEEN_LINES {
            prefetch_index(block, line * CACHE_LINE_BYTES);
        }
    }

    /// Asks for what [`Document::meta`] and [`Document::key`] look at, and nothing of the value.
    #[inline]
    pub fn prefetch_head(&self) {
        prefetch_index(std::slice::from_ref(self.header()), 0);
        prefetch_index(&self.block.slice, 0);
    }

    /// Collection prefix and user's key.
    pub fn key(&self) -> &[u8] {
        &self.block.slice[..usize::from(self.header().key_len)]
    }

    /// Whether this is its key. Keys are short, so their ends are compared rather than all of
    /// their bytes one after the other.
    #[inline]
    pub fn has_key(&self, key: &[u8]) -> bool {
        same_bytes(self.key(), key)
    }

    /// The value; empty for tombstones and while not resident.
    pub fn value(&self) -> &[u8] {
        &self.key_and_value()[usize::from(self.header().key_len)..]
    }

    /// Key and value as they lie next to each other.
    pub fn key_and_value(&self) -> &[u8] {
        let block = &self.block.slice;
        &block[..block.len() - trailer_bytes(self.kind())]
    }

    /// All metadata.
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
    pub fn cas(&self) -> Cas {
        Cas(self.header().cas)
    }

    /// Position among the changes of its vBucket.
    pub fn seqno(&self) -> Seqno {
        let header = self.header();
        Seqno(u64::from(header.seqno_high) << 32 | u64::from(header.seqno_low))
    }

    /// How often the document was changed.
    pub fn rev(&self) -> u64 {
        let header = self.header();
        u64::from(header.rev_high) << 32 | u64::from(header.rev_low)
    }

    /// Flags of the client.
    pub fn flags(&self) -> u32 {
        self.header().flags
    }

    /// Absolute expiry in Unix seconds, 0 for never; of a tombstone: when it was deleted.
    pub fn expiry(&self) -> u32 {
        self.header().expiry
    }

    /// How to read the value.
    pub fn datatype(&self) -> Datatype {
        Datatype(self.header().datatype)
    }

    /// What the change did.
    pub fn kind(&self) -> Kind {
        Kind::from_number(self.header().state & KIND).unwrap_or(Kind::Mutation)
    }

    /// Of a prepare: what it waits for.
    pub fn level(&self) -> Option<DurabilityLevel> {
        DurabilityLevel::from_number(self.header().state >> LEVEL_SHIFT & LEVEL)
    }

    /// Of a commit or an abort: seqno of the prepare that it decides. Zero for everything else.
    pub fn prepare_seqno(&self) -> Seqno {
        let block = &self.block.slice;
        let trailer = &block[block.len() - trailer_bytes(self.kind())..];
        Seqno(trailer.try_into().map_or(0, u64::from_be_bytes))
    }

    /// Whether the value is in memory. Tombstones are.
    pub fn is_resident(&self) -> bool {
        self.header().state & NON_RESIDENT == 0
    }

    /// Whether the document is alive but its time has come.
    pub fn is_expired(&self, now_s: u32) -> bool {
        let expiry = self.expiry();
        expiry != 0 && expiry <= now_s && !self.kind().is_tombstone()
    }

    /// How often the document was used lately, for eviction; a plain relaxed counter.
    pub fn heat(&self) -> u8 {
        self.header().heat.load(Ordering::Relaxed)
    }

    /// Sets [`Document::heat`].
    pub fn set_heat(&self, heat: u8) {
        self.header().heat.store(heat, Ordering::Relaxed);
    }

    /// The same key and value with other metadata.
    ///
    /// Cost: copies the value.
    #[must_use]
    pub fn with_meta(&self, meta: &Meta) -> Self {
        Self::from_joined(self.key_and_value(), self.key().len(), meta)
    }

    /// What this prepare becomes when it is committed at `seqno`: the document that it prepared,
    /// with its CAS and revision.
    ///
    /// Cost: copies the value.
    #[must_use]
    pub fn committed(&self, seqno: Seqno) -> Self {
        let meta = Meta {
            kind: commit_kind(self.kind() == Kind::PrepareDeletion),
            ..self.decided(seqno)
        };
        self.with_meta(&meta)
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
        self.with_meta(&meta)
    }

    /// This committed change, with the prepare that it turned out to decide.
    ///
    /// Cost: copies the value.
    #[must_use]
    pub fn as_commit_of(&self, prepare_seqno: Seqno) -> Self {
        let meta = Meta {
            kind: commit_kind(self.kind().is_tombstone()),
            prepare_seqno,
            ..self.meta()
        };
        self.with_meta(&meta)
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
    pub fn memory_bytes(&self) -> usize {
        Self::memory_bytes_of(self.block.slice.len(), 0)
    }

    /// [`Document::memory_bytes`] of one with a key and a value of these lengths.
    pub fn memory_bytes_of(key_bytes: usize, value_bytes: usize) -> usize {
        allocated_bytes(DOCUMENT_OVERHEAD_BYTES + key_bytes + value_bytes)
    }

    /// Whether both handles are the same allocation.
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
