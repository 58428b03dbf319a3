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
    /// Seed of the hash function; random per process, so that clients cannot aim at one slot.
    pub hash_seed: u64,
    /// Bytes of changes after which a checkpoint is closed and the next one opened.
    pub checkpoint_bytes_max: usize,
    /// How long get-and-lock locks when the client does not say, seconds.
    pub getl_default_s: u32,
    /// Longest lock a client may ask for, seconds; more means the default.
    pub getl_max_s: u32,
    /// Longest value: body and attributes of users.
    pub value_bytes_max: usize,
    /// Most bytes of attributes of the system, which come on top.
    pub system_bytes_max: usize,
    /// Whether eviction takes keys and metadata as well as values.
    pub evicts_keys: bool,
    /// Longest time to live, seconds; 0 for no limit.
    pub max_ttl_s: u32,
    /// What every write asks for at least, also one that asks for nothing.
    pub durability_min: Option<DurabilityLevel>,
    /// The most that a write may ask for: nothing is on disk where no store is.
    pub durability_max: DurabilityLevel,
    /// Whether a durable write needs this node alone where no majority of the nodes is there.
    pub durability_falls_back: bool,
    /// Whether replaced versions of documents are kept where their collections have history.
    pub keeps_history: bool,
    /// How long a durable write waits that does not say, milliseconds.
    pub durability_timeout_ms: u64,
    /// How conflicts with versions from elsewhere are resolved.
    pub conflicts: ConflictResolution,
    /// How far CAS values from elsewhere may be from the clock.
    pub drift: DriftLimits,
    /// Asked for keys that left memory.
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

/// What became of an operation that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It is done.
    Done(T),
    /// A durable write waits to be decided; the seqno told is that of its prepare, and names it
    /// in [`Outbox::decided`]. Nothing of it is visible yet.
    Prepared(T),
    /// The value is only in the store: fetch it, [`restore`](crate::VBucket::restore) it, run
    /// the same operation again.
    NeedsFetch(FetchKey),
}

impl<T> Outcome<T> {
    /// The same with another result.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(result) => Outcome::Done(f(result)),
            Self::Prepared(result) => Outcome::Prepared(f(result)),
            Self::NeedsFetch(key) => Outcome::NeedsFetch(key),
        }
    }
}

/// Names a document that must be read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchKey {
    /// The stored key.
    pub key: Box<[u8]>,
    /// What of it.
    pub wanted: Wanted,
}

/// What is wanted of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The value of the revision with this seqno, which memory knows.
    Value(Seqno),
    /// Its newest row, if there is one: memory knows nothing of the key. The number tells the answers to two questions
    /// apart.
    Row(u64),
    /// The metadata of that row: what replaces a document does not need its value in memory.
    Metadata(u64),
}

/// Which keys the store may have.
pub trait KeyFilter: fmt::Debug + Send + Sync {
    /// Whether the store may have a row of a key, a tombstone's too. `false` is certain as long as the vBucket is locked.
    ///
    /// Cost: less than a microsecond, no read.
    fn may_have(&self, vb: VbId, key: &[u8]) -> bool;
}

/// The store's [`KeyFilter`]; without one all keys may be there.
#[derive(Clone, Debug, Default)]
pub struct StoredKeys(pub Option<Arc<dyn KeyFilter>>);

impl StoredKeys {
    pub(crate) fn may_have(&self, vb: VbId, key: &[u8]) -> bool {
        self.0
            .as_ref()
            .is_none_or(|filter| filter.may_have(vb, key))
    }
}

/// Settings are the same whichever store they are for.
impl PartialEq for StoredKeys {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for StoredKeys {}

/// A document as a reader sees it.
#[derive(Clone, Debug)]
pub struct Got {
    /// The document, shared with the vBucket.
    pub document: Document,
    /// The CAS to show: the lock's own for the client that just took it, else [`Cas::LOCKED`] of a
    /// locked document, else the document's.
    pub cas: Cas,
}

/// Metadata of a document or of its tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GotMeta {
    /// The metadata; `meta.cas` is the real one even while locked.
    pub meta: Meta,
    /// Whether the document is gone: a tombstone, or its expiry has come.
    pub deleted: bool,
    /// The CAS to show: [`Cas::LOCKED`] while locked.
    pub cas: Cas,
}

/// When a [`Write`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// Always (but with a CAS only over the document that has it).
    Set,
    /// Only when there is no such document.
    Add,
    /// Only over an existing document.
    Replace,
}

/// A whole document to be stored.
#[derive(Debug)]
pub struct Write {
    /// When it applies.
    pub mode: StoreMode,
    /// The document: key, value, flags, datatype and the *absolute* expiry. Taken when the
    /// write is done; still here after an error or [`Outcome::NeedsFetch`], so that the same
    /// `Write` can be run again.
    pub draft: Option<Draft>,
    /// The revision to be replaced, [`Cas::ANY`] for whichever.
    pub cas: Cas,
    /// Whether a document that exists keeps its expiry.
    pub preserve_expiry: bool,
    /// How durable it must be before it is visible; `None` for a plain write.
    pub durability: Option<Requirement>,
}

/// A document or a tombstone that comes with the metadata that another node gave it.
#[derive(Debug)]
pub struct WithMeta {
    /// What is to be there: with CAS, revision, flags, kind, attributes and the *absolute* expiry. Taken
    /// when it is done.
    pub draft: Option<Draft>,
    /// Whether it applies only where there is no document.
    pub adds: bool,
    /// The revision to be replaced, [`Cas::ANY`] for whichever.
    pub cas: Cas,
    /// Whether it applies only if it is newer than what is here.
    pub resolves: bool,
    /// Whether it gets a CAS of this vBucket.
    pub regenerates_cas: bool,
}

/// A document or tombstone that was made of what was read, and is to take its place.
#[derive(Debug)]
pub struct Exchange {
    /// What is to be there: with its attributes, and the *absolute* expiry. Taken when it is done.
    pub draft: Option<Draft>,
    /// Seqno of the document or tombstone that was read; `None` where there was neither.
    pub seen: Option<Seqno>,
    /// The revision that a live document must have, [`Cas::ANY`] for whichever. That of a
    /// tombstone is for the caller to judge.
    pub cas: Cas,
    /// Whether a document that exists keeps its expiry.
    pub preserve_expiry: bool,
    /// How durable it must be before it is visible; `None` for a plain write.
    pub durability: Option<Requirement>,
    /// Set when something else is there by now: all of it is to be done again.
    pub raced: bool,
}

/// Where [`Concat`] puts the new bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcatPlace {
    /// After the value.
    Append,
    /// Before the value.
    Prepend,
}

/// Bytes to be joined to a document.
#[derive(Clone, Copy, Debug)]
pub struct Concat<'a> {
    /// The stored key.
    pub key: &'a [u8],
    /// The bytes, not compressed.
    pub bytes: &'a [u8],
    /// Where they go.
    pub place: ConcatPlace,
    /// The revision to be changed, [`Cas::ANY`] for whichever.
    pub cas: Cas,
    /// As for [`Write::durability`].
    pub durability: Option<Requirement>,
}

/// A counter operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// How much.
    pub delta: u64,
    /// Down instead of up. Up wraps around, down stops at zero.
    pub decrement: bool,
    /// The value of a counter that does not exist yet; `None` to not create it.
    pub initial: Option<u64>,
    /// Absolute expiry of a counter that is created, Unix seconds, 0 for never.
    pub expiry: u32,
    /// The revision that a counter must have that is there already; [`Cas::ANY`] for any.
    pub cas: Cas,
    /// Absolute expiry that a counter gets that is there already; `None` to keep its own.
    pub touch: Option<u32>,
    /// As for [`Write::durability`].
    pub durability: Option<Requirement>,
}

/// Answer of [`observe`](crate::VBucket::observe).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What is known of the key.
    pub state: ObserveState,
    /// CAS of the document or tombstone; 0 when not found.
    pub cas: Cas,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveState {
    /// The document exists, its newest revision is not durable yet.
    FoundNotPersisted,
    /// The document exists and its newest revision is durable.
    FoundPersisted,
    /// No document, and the store knows none either.
    NotFound,
    /// The document was deleted; its deletion is not durable yet.
    Deleted,
}

/// Answer of [`observe_seqno`](crate::VBucket::observe_seqno).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqno {
    /// The vBucket.
    pub vb: VbId,
    /// The current history.
    pub vb_uuid: VbUuid,
    /// Everything up to here is durable.
    pub persisted: Seqno,
    /// The newest change.
    pub current: Seqno,
    /// When the caller named an older history: that one, and the last seqno it shares with
    /// the current one.
    pub failover: Option<FailoverEntry>,
}

/// What an operation wants done once the vBucket's lock is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outbox {
    /// There is something for the flusher since the last time.
    pub needs_flush: bool,
    /// There is something for streams, and one of them has looked since they were told so.
    pub changed: bool,
    /// Everything up to here became durable since the last time.
    pub persisted: Option<Seqno>,
    /// Durable writes that were decided since the last time, in the order of their decisions.
    pub decided: Vec<Decided>,
    /// Call [`VBucket::abort_overdue`](crate::VBucket::abort_overdue) at this time of the
    /// monotonic clock, nanoseconds: a durable write may have to be given up then.
    pub deadline_ns: Option<u64>,
    /// A durable write waits for the flusher: it should not wait for more changes.
    pub hurry: bool,
    /// Of a replica: it counts itself for prepares up to here now, and should tell its active.
    pub high_prepared: Option<Seqno>,
}

/// How much memory an operation took or gave back, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryDelta {
    /// Of everything, see [`VBucket::memory_bytes`](crate::VBucket::memory_bytes).
    pub bytes: i64,
    /// Of it, what checkpoints take for themselves: slots, and documents that only they hold.
    pub checkpoint_bytes: i64,
}

impl MemoryDelta {
    /// The way from nothing to these totals.
    pub(crate) fn to(bytes: usize, checkpoint_bytes: usize) -> Self {
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        Self {
            bytes: signed(bytes),
            checkpoint_bytes: signed(checkpoint_bytes),
        }
    }

    /// The way from `before` to here.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            checkpoint_bytes: self.checkpoint_bytes - before.checkpoint_bytes,
        }
    }
}

/// How far a bounded pass over the table came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanProgress {
    /// Table slots looked at; the cost of the pass.
    pub slots: usize,
    /// Documents changed or evicted.
    pub changed: usize,
    /// Whether the pass reached the end of the table; the next one starts at its beginning.
    pub finished: bool,
}

impl ScanProgress {
    /// There was nothing to look for.
    pub(crate) const FINISHED: Self = Self {
        slots: 0,
        changed: 0,
        finished: true,
    };
}
