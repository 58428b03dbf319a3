//! Requests, answers and settings of a vBucket.

use std::fmt;
use std::sync::Arc;

use model::{
    Cas, ConflictResolution, Document, Draft, DurabilityLevel, FailoverEntry, Meta, Seqno, VbId,
    VbUuid,
};

use crate::drift::DriftLimits;
use crate::durability::{Decided, Requirement};

/// Settings of all vBuckets of a bucket; shared by `Arc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbConfig {
    /// Seed of the hash function. Random per process, so that clients cannot aim at one slot.
    pub hash_seed: u64,
    /// Size in bytes at which a checkpoint is closed and the next one is opened.
    pub checkpoint_bytes_max: usize,
    /// Lock time of get-and-lock if the client names none, in seconds.
    pub getl_default_s: u32,
    /// Longest lock time that a client may ask for, in seconds; the default applies above it.
    pub getl_max_s: u32,
    /// Maximum size of a value in bytes: body and user attributes.
    pub value_bytes_max: usize,
    /// Maximum size of the system attributes in bytes, in addition to `value_bytes_max`.
    pub system_bytes_max: usize,
    /// Whether eviction removes keys and metadata as well as values (full eviction).
    pub evicts_keys: bool,
    /// Longest time to live in seconds; 0 for no limit.
    pub max_ttl_s: u32,
    /// Minimum durability level of every write, also of one that asks for none.
    pub durability_min: Option<DurabilityLevel>,
    /// Highest durability level that a write may ask for: an ephemeral bucket persists nothing.
    pub durability_max: DurabilityLevel,
    /// Whether this node alone is enough for a durable write while no majority is available.
    pub durability_falls_back: bool,
    /// Whether the store keeps replaced versions of documents in collections with history.
    pub keeps_history: bool,
    /// Timeout of a durable write that names none, in milliseconds.
    pub durability_timeout_ms: u64,
    /// Conflict resolution for versions from other clusters.
    pub conflicts: ConflictResolution,
    /// Limits for the distance between foreign CAS values and the clock.
    pub drift: DriftLimits,
    /// Filter of the store's keys; answers for keys that left memory.
    pub stored_keys: StoredKeys,
}

impl Default for VbConfig {
    fn default() -> Self {
        Self {
            hash_seed: 0,
            checkpoint_bytes_max: 256 << 10,
            getl_default_s: 15,
            getl_max_s: 30,
            value_bytes_max: 20 << 20,
            system_bytes_max: 1 << 20,
            evicts_keys: false,
            max_ttl_s: 0,
            durability_min: None,
            durability_max: DurabilityLevel::PersistToMajority,
            durability_falls_back: false,
            keeps_history: false,
            durability_timeout_ms: 30_000,
            conflicts: ConflictResolution::Revision,
            drift: DriftLimits::default(),
            stored_keys: StoredKeys::default(),
        }
    }
}

/// Result of an operation that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The operation is done.
    Done(T),
    /// The durable write waits for its decision. Its result holds the seqno of the prepare, which
    /// also identifies it in [`Outbox::decided`]. Nothing of the write is visible yet.
    Prepared(T),
    /// The value is only in the store: fetch it, [`restore`](crate::VBucket::restore) it, then run
    /// the same operation again.
    NeedsFetch(FetchKey),
}

impl<T> Outcome<T> {
    /// Returns the outcome with its result mapped by `f`.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(result) => Outcome::Done(f(result)),
            Self::Prepared(result) => Outcome::Prepared(f(result)),
            Self::NeedsFetch(key) => Outcome::NeedsFetch(key),
        }
    }
}

/// Identifies a document that must be read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchKey {
    /// The stored key.
    pub key: Box<[u8]>,
    /// Part of the document to be read.
    pub wanted: DocumentPart,
}

/// Part of a document that is read from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentPart {
    /// The value of the revision with this seqno; its metadata is in memory.
    Value(Seqno),
    /// The newest row, if there is one; nothing of the key is in memory. The number distinguishes
    /// the answers to two requests.
    Row(u64),
    /// The metadata of that row: what replaces a document does not need its value in memory.
    Metadata(u64),
}

/// Filter of the keys that the store may have.
pub trait KeyFilter: fmt::Debug + Send + Sync {
    /// Whether the store may have a row of the key, also a tombstone. `false` is certain while the
    /// vBucket is locked.
    ///
    /// Cost: less than a microsecond, no read.
    fn may_have(&self, vb: VbId, key: &[u8]) -> bool;
}

/// The store's [`KeyFilter`]. Without a filter, every key may be in the store.
#[derive(Clone, Debug, Default)]
pub struct StoredKeys(pub Option<Arc<dyn KeyFilter>>);

impl StoredKeys {
    pub(crate) fn may_have(&self, vb: VbId, key: &[u8]) -> bool {
        self.0
            .as_ref()
            .is_none_or(|filter| filter.may_have(vb, key))
    }
}

/// Always equal: the filter is not part of the settings that are compared.
impl PartialEq for StoredKeys {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for StoredKeys {}

/// A document as a reader sees it.
#[derive(Clone, Debug)]
pub struct GetResult {
    /// The document, shared with the vBucket.
    pub document: Document,
    /// CAS to show. For the client that has just locked the document: the lock's CAS. For others:
    /// [`Cas::LOCKED`] while it is locked, else the document's CAS.
    pub cas: Cas,
}

/// Metadata of a document or of its tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GotMeta {
    /// The metadata; `meta.cas` is the real CAS even while the document is locked.
    pub meta: Meta,
    /// Whether the document is deleted (a tombstone) or expired.
    pub deleted: bool,
    /// CAS to show: [`Cas::LOCKED`] while the document is locked.
    pub cas: Cas,
}

/// Condition under which a [`Write`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Always; but with a CAS only over the document that has this CAS.
    Set,
    /// Only if the document does not exist.
    Add,
    /// Only if the document exists.
    Replace,
}

/// A whole document to be stored.
#[derive(Debug)]
pub struct Write {
    /// Condition under which the write applies.
    pub mode: StoreMode,
    /// The document: key, value, flags, datatype and *absolute* expiry. Taken when the write is
    /// done. Left in place after an error or [`Outcome::NeedsFetch`], so that the same `Write` can
    /// run again.
    pub draft: Option<Draft>,
    /// CAS of the revision to be replaced; [`Cas::ANY`] for any.
    pub cas: Cas,
    /// Whether an existing document keeps its expiry.
    pub preserve_expiry: bool,
    /// Durability that must be reached before the write is visible; `None` for a plain write.
    pub durability: Option<Requirement>,
}

/// A document or a tombstone with metadata from another node.
#[derive(Debug)]
pub struct WithMeta {
    /// New document or tombstone: CAS, revision, flags, kind, attributes and *absolute* expiry.
    /// Taken when the write is done.
    pub draft: Option<Draft>,
    /// Whether the write applies only if the document does not exist.
    pub adds: bool,
    /// CAS of the revision to be replaced; [`Cas::ANY`] for any.
    pub cas: Cas,
    /// Whether conflict resolution applies: the write is taken only if it wins over the local
    /// version.
    pub resolves: bool,
    /// Whether the document gets a new CAS of this vBucket.
    pub regenerates_cas: bool,
}

/// The newest history of a vBucket, and its high seqno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPoint {
    /// The history.
    pub vb_uuid: VbUuid,
    /// The high seqno.
    pub seqno: Seqno,
}

/// A document or tombstone that was derived from a read version and is to replace it.
#[derive(Debug)]
pub struct Exchange {
    /// New version with its attributes and the *absolute* expiry. Taken when the exchange is done.
    pub draft: Option<Draft>,
    /// The document or tombstone that was read; `None` if there was neither.
    pub seen: Option<Document>,
    /// History and high seqno of the vBucket when it was read.
    pub as_of: HistoryPoint,
    /// CAS that a live document must have; [`Cas::ANY`] for any. The caller checks the CAS of a
    /// tombstone.
    pub cas: Cas,
    /// Whether an existing document keeps its expiry.
    pub preserve_expiry: bool,
    /// Durability that must be reached before the write is visible; `None` for a plain write.
    pub durability: Option<Requirement>,
    /// True if another version replaced the one that was read: the caller repeats the whole
    /// operation.
    pub raced: bool,
}

/// Side of the value at which [`Concat`] adds bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcatPlace {
    /// After the value.
    Append,
    /// Before the value.
    Prepend,
}

/// Bytes to be appended or prepended to a document's value.
#[derive(Clone, Copy, Debug)]
pub struct Concat<'a> {
    /// The stored key.
    pub key: &'a [u8],
    /// The bytes to add, not compressed.
    pub bytes: &'a [u8],
    /// Side of the value.
    pub place: ConcatPlace,
    /// CAS of the revision to be changed; [`Cas::ANY`] for any.
    pub cas: Cas,
    /// Durability, as in [`Write::durability`].
    pub durability: Option<Requirement>,
}

/// A counter operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// Amount to add or subtract.
    pub delta: u64,
    /// Whether to subtract instead of add. Addition wraps around, subtraction stops at zero.
    pub decrement: bool,
    /// Value of a counter that does not exist yet; `None` to not create it.
    pub initial: Option<u64>,
    /// Absolute expiry of a created counter in Unix seconds; 0 for never.
    pub expiry: u32,
    /// CAS that an existing counter must have; [`Cas::ANY`] for any.
    pub cas: Cas,
    /// New absolute expiry of an existing counter; `None` to keep its own.
    pub touch: Option<u32>,
    /// Durability, as in [`Write::durability`].
    pub durability: Option<Requirement>,
}

/// Answer of [`observe`](crate::VBucket::observe).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// State of the key.
    pub state: ObserveState,
    /// CAS of the document or tombstone; 0 if not found.
    pub cas: Cas,
}

/// State of a key, as OBSERVE reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveState {
    /// The document exists; its newest revision is not persisted yet.
    FoundNotPersisted,
    /// The document exists; its newest revision is persisted.
    FoundPersisted,
    /// The document is neither in memory nor in the store.
    NotFound,
    /// The document was deleted and its deletion is not persisted yet, or it is expired.
    Deleted,
}

/// Answer of [`observe_seqno`](crate::VBucket::observe_seqno).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqno {
    /// The vBucket.
    pub vb: VbId,
    /// UUID of the current history.
    pub vb_uuid: VbUuid,
    /// Last persisted seqno.
    pub persisted: Seqno,
    /// Last seqno.
    pub current: Seqno,
    /// Set if the caller named an older history: that history, with the last seqno that it shares
    /// with the current one.
    pub failover: Option<FailoverEntry>,
}

/// Work to be done after the vBucket's lock is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outbox {
    /// True if there are new changes for the flusher since the last delivery.
    pub needs_flush: bool,
    /// True if there are new changes for streams, and a stream has looked since the last
    /// notification.
    pub changed: bool,
    /// Last persisted seqno, if it rose since the last delivery.
    pub persisted: Option<Seqno>,
    /// Durable writes decided since the last delivery, in the order of their decisions.
    pub decided: Vec<Decided>,
    /// Time to call [`VBucket::abort_overdue`](crate::VBucket::abort_overdue), in nanoseconds of
    /// the monotonic clock: a durable write may time out then.
    pub deadline_ns: Option<u64>,
    /// True if a durable write waits for the flusher: the flusher should not wait for more changes.
    pub hurry: bool,
    /// On a replica: last prepare that this node acknowledges; it should report it to the active
    /// node.
    pub high_prepared: Option<Seqno>,
}

/// Change of the memory use by an operation, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryDelta {
    /// Change of the total, see [`VBucket::memory_bytes`](crate::VBucket::memory_bytes).
    pub bytes: i64,
    /// Change of the checkpoints' share: slots, and documents that only checkpoints hold.
    pub checkpoint_bytes: i64,
}

impl MemoryDelta {
    /// Returns the difference between nothing and these totals.
    pub(crate) fn to(bytes: usize, checkpoint_bytes: usize) -> Self {
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        Self {
            bytes: signed(bytes),
            checkpoint_bytes: signed(checkpoint_bytes),
        }
    }

    /// Returns the difference between `before` and `self`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            checkpoint_bytes: self.checkpoint_bytes - before.checkpoint_bytes,
        }
    }
}

/// Progress of a bounded pass over the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanProgress {
    /// Table slots visited; the cost of the pass.
    pub slots: usize,
    /// Documents changed or evicted.
    pub changed: usize,
    /// Whether the pass reached the end of the table; the next one starts at its beginning.
    pub finished: bool,
}

impl ScanProgress {
    /// Progress of a pass that had nothing to visit.
    pub(crate) const FINISHED: Self = Self {
        slots: 0,
        changed: 0,
        finished: true,
    };
}
