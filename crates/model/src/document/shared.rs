//! An immutable document: key, value and metadata in one shared allocation.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::Ordering;

use prefetch_index::prefetch_index;
use triomphe::ThinArc;

use super::header::{Header, KIND, LEVEL, LEVEL_SHIFT, Meta, NON_RESIDENT, trailer_bytes};
use crate::{Cas, Datatype, DurabilityLevel, Kind, Seqno};

/// Overhead of a document beyond key and value, in bytes: reference count, metadata, length.
pub const DOCUMENT_OVERHEAD_BYTES: usize = 16 + size_of::<Header>();

/// Number of cache lines that [`Document::prefetch`] loads.
const FORESEEN_LINES: usize = 5;
const CACHE_LINE_BYTES: usize = 64;

/// Maximum length up to which key and value are joined without a separate allocation.
const JOINED_ON_STACK_MAX: usize = 256;

/// Length from which parts are joined in their final place: a little slower, but half the memory.
pub(super) const PUT_TOGETHER_IN_PLACE_MIN: usize = 256 << 10;

/// Returns the size of the block for an allocation of `bytes`. The allocators in use have four
/// sizes per doubling, so up to a fifth of a block is unused: too much to ignore in a quota.
pub(super) fn allocated_bytes(bytes: usize) -> usize {
    if bytes <= 64 {
        return bytes.next_multiple_of(8);
    }
    let quarter = 1 << ((bytes - 1).ilog2() - 2);
    bytes.next_multiple_of(quarter)
}

/// Compares short slices without a call.
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
/// Shape: one reference-counted allocation of [`DOCUMENT_OVERHEAD_BYTES`] + key + value bytes; the
/// handle itself is 8 bytes. The key has its collection prefix. A commit or an abort takes 8 more
/// bytes, for the seqno of its prepare.
#[derive(Clone)]
pub struct Document {
    pub(super) block: ThinArc<Header, u8>,
}

impl Document {
    /// Creates a document with all its metadata, as read from a store.
    pub fn from_parts(key: &[u8], value: &[u8], meta: &Meta) -> Self {
        Self::from_pieces(key, value, meta, true)
    }

    /// Creates a document from key and value in one slice: one copy less.
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

    /// Creates a document whose value `read` writes. A large value is written into its final place, so it is in memory once.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<E>(
        key: &[u8],
        value_bytes: usize,
        meta: &Meta,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let (value_at, end) = (key.len(), key.len() + value_bytes);
        let prepare_seqno = meta.prepare_seqno.0.to_be_bytes();
        let trailer = &prepare_seqno[..trailer_bytes(meta.kind)];
        let fill = |block: &mut [u8]| {
            block[..value_at].copy_from_slice(key);
            block[end..].copy_from_slice(trailer);
            read(&mut block[value_at..end])
        };
        let (header, bytes) = (Header::new(key.len(), meta, true), end + trailer.len());
        if bytes >= PUT_TOGETHER_IN_PLACE_MIN {
            return Self::filled(header, bytes, fill);
        }
        let mut block = vec![0; bytes];
        fill(&mut block)?;
        let block = ThinArc::from_header_and_slice(header, &block);
        Ok(Self { block })
    }

    fn from_pieces(key: &[u8], value: &[u8], meta: &Meta, resident: bool) -> Self {
        let header = Header::new(key.len(), meta, resident);
        let prepare_seqno = meta.prepare_seqno.0.to_be_bytes();
        let trailer = &prepare_seqno[..trailer_bytes(meta.kind)];
        let block_of = |block: &[u8]| Self {
            block: ThinArc::from_header_and_slice(header, block),
        };
        // The block is created from one slice.
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

    /// Copies the parts into the final block: no second copy of them is in memory.
    pub(super) fn in_place(key_len: usize, meta: &Meta, resident: bool, parts: &[&[u8]]) -> Self {
        let header = Header::new(key_len, meta, resident);
        let bytes = parts.iter().map(|part| part.len()).sum();
        let filled = Self::filled(header, bytes, |mut rest| {
            for part in parts {
                let (here, behind) = rest.split_at_mut(part.len());
                here.copy_from_slice(part);
                rest = behind;
            }
            Ok::<(), Infallible>(())
        });
        match filled {
            Ok(document) => document,
        }
    }

    /// Creates a document whose block, of this many bytes, `fill` writes.
    fn filled<E>(
        header: Header,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut block = ThinArc::from_header_and_iter(header, std::iter::repeat_n(0, bytes));
        block.with_arc_mut(|arc| {
            let block = triomphe::Arc::get_mut(arc).expect("the new block has one owner");
            fill(block.slice_mut())
        })?;
        Ok(Self { block })
    }

    /// Returns this document without its value, which is only in the store.
    #[must_use]
    pub fn to_non_resident(&self) -> Self {
        Self::non_resident(self.key(), &self.meta())
    }

    /// Creates a document whose value is only in the store.
    pub fn non_resident(key: &[u8], meta: &Meta) -> Self {
        Self::from_pieces(key, b"", meta, false)
    }

    /// Returns this document with its value in another form.
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

    /// Prefetches the memory that a reader of this document reads: of large values only the
    /// beginning.
    #[inline]
    pub fn prefetch(&self) {
        let block = &self.block.slice;
        for line in 0..FORESEEN_LINES {
            prefetch_index(block, line * CACHE_LINE_BYTES);
        }
    }

    /// Prefetches the memory for [`Document::meta`] and [`Document::key`], without the value.
    #[inline]
    pub fn prefetch_head(&self) {
        prefetch_index(std::slice::from_ref(self.header()), 0);
        prefetch_index(&self.block.slice, 0);
    }

    /// Collection prefix and user's key.
    pub fn key(&self) -> &[u8] {
        &self.block.slice[..usize::from(self.header().key_len)]
    }

    /// Whether the document has this key. Keys are short, so their ends are compared instead of all
    /// bytes one by one.
    #[inline]
    pub fn has_key(&self, key: &[u8]) -> bool {
        same_bytes(self.key(), key)
    }

    /// The value; empty for tombstones and while not resident.
    pub fn value(&self) -> &[u8] {
        &self.key_and_value()[usize::from(self.header().key_len)..]
    }

    /// Key and value in one slice.
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

    /// CAS of the revision.
    pub fn cas(&self) -> Cas {
        Cas(self.header().cas)
    }

    /// Sequence number in the vBucket.
    pub fn seqno(&self) -> Seqno {
        let header = self.header();
        Seqno(u64::from(header.seqno_high) << 32 | u64::from(header.seqno_low))
    }

    /// Revision number: counts changes of the document.
    pub fn rev(&self) -> u64 {
        let header = self.header();
        u64::from(header.rev_high) << 32 | u64::from(header.rev_low)
    }

    /// Client flags.
    pub fn flags(&self) -> u32 {
        self.header().flags
    }

    /// Absolute expiry in Unix seconds, 0 for never; for a tombstone, the time of the deletion.
    pub fn expiry(&self) -> u32 {
        self.header().expiry
    }

    /// Format of the value.
    pub fn datatype(&self) -> Datatype {
        Datatype(self.header().datatype)
    }

    /// Kind of the change.
    pub fn kind(&self) -> Kind {
        Kind::from_number(self.header().state & KIND).unwrap_or(Kind::Mutation)
    }

    /// Durability level of a prepare.
    pub fn level(&self) -> Option<DurabilityLevel> {
        DurabilityLevel::from_number(self.header().state >> LEVEL_SHIFT & LEVEL)
    }

    /// Seqno of the prepare that a commit or an abort decides; zero for all other kinds.
    pub fn prepare_seqno(&self) -> Seqno {
        let block = &self.block.slice;
        let trailer = &block[block.len() - trailer_bytes(self.kind())..];
        Seqno(trailer.try_into().map_or(0, u64::from_be_bytes))
    }

    /// Whether the value is in memory; true for tombstones.
    pub fn is_resident(&self) -> bool {
        self.header().state & NON_RESIDENT == 0
    }

    /// Whether a live document has expired.
    pub fn is_expired(&self, now_s: u32) -> bool {
        let expiry = self.expiry();
        expiry != 0 && expiry <= now_s && !self.kind().is_tombstone()
    }

    /// Recent use of the document, for eviction; a plain relaxed counter.
    pub fn heat(&self) -> u8 {
        self.header().heat.load(Ordering::Relaxed)
    }

    /// Sets [`Document::heat`].
    pub fn set_heat(&self, heat: u8) {
        self.header().heat.store(heat, Ordering::Relaxed);
    }

    /// Returns the same key and value with other metadata.
    ///
    /// Cost: copies the value.
    #[must_use]
    pub fn with_meta(&self, meta: &Meta) -> Self {
        Self::from_joined(self.key_and_value(), self.key().len(), meta)
    }

    /// Returns the commit of this prepare at `seqno`: the prepared document, with its CAS and
    /// revision.
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

    /// Returns the form for stores: a commit becomes a plain mutation or deletion.
    ///
    /// Cost: shares the document; copies the value of commits.
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

    /// Returns this change as the commit of a prepare that it turned out to decide.
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

    /// Returns the abort of this prepare at `seqno`. Its expiry is the time of the prepare, as for
    /// a tombstone.
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

    /// Returns [`Document::memory_bytes`] for a key and a value of these lengths.
    pub fn memory_bytes_of(key_bytes: usize, value_bytes: usize) -> usize {
        allocated_bytes(DOCUMENT_OVERHEAD_BYTES + key_bytes + value_bytes)
    }

    /// Whether both handles refer to the same allocation.
    pub fn same_as(&self, other: &Self) -> bool {
        std::ptr::eq(self.block.slice.as_ptr(), other.block.slice.as_ptr())
    }
}

impl fmt::Debug for Document {
    /// Shows metadata and key, never the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("value_bytes", &self.value().len())
            .field("meta", &self.meta())
            .finish()
    }
}
