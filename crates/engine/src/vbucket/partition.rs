//! The `VBucket` type, and the checks that its operations share.

use std::sync::Arc;

use model::{
    Cas, Document, FailoverEntry, FailoverLog, Now, Seqno, SnapshotRange, VbId, VbRecord, VbState,
};

use crate::checkpoint::{CheckpointLog, Flight, FlightId, LogStart, PrepareProgress};
use crate::drift::{DriftLimits, ForeignCounts};
use crate::durability::Durability;
use crate::error::OpError;
use crate::hlc::Hlc;
use crate::locks::Locks;
use crate::table::{SlotIndex, Table, TablePlace};
use crate::types::{DocumentPart, FetchKey, MemoryDelta, Outbox, Outcome, VbConfig};
use collections::VbCollections;

/// Heat of a document that was just read; below, of one that was just written.
pub(super) const HEAT_READ: u8 = 3;
pub(super) const HEAT_WRITTEN: u8 = 1;

/// Number of kinds of passes over the table.
pub(super) const PASSES: usize = 3;

/// Counters since the vBucket was created or loaded.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) ops_get: u64,
    pub(super) ops_create: u64,
    pub(super) ops_update: u64,
    pub(super) ops_delete: u64,
    pub(super) expired: u64,
    pub(super) evicted: u64,
    pub(super) fetches: u64,
    pub(super) foreign: Option<Box<ForeignCounts>>,
}

/// A flush under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlightInfo {
    pub(super) id: FlightId,
    pub(super) changes: Flight,
    pub(super) record_version: u32,
    pub(super) snapshot: SnapshotRange,
}

/// Progress of the pass that removes documents of dropped collections from the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Erasing {
    /// Seqno of the last dropped collection when the pass began; zero if no pass runs.
    pub(super) end: Seqno,
    /// Documents of collections that ended up to this seqno are out of the table.
    pub(super) done: Seqno,
    /// Whether the pass found a document; below, the number of passes before it that found none.
    pub(super) found: bool,
    pub(super) empty: u8,
}

/// Durability of the changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Durable {
    /// Last seqno of the flushed changes: a document of the table is durable if it is not above.
    pub(super) flushed: Seqno,
    /// The persisted seqno for clients: every change up to it is durable, or was replaced by a
    /// durable one. It stays behind `flushed` while a flush ended inside a checkpoint, since a
    /// change replaced before that end may have its newest version after it.
    pub(super) promised: Seqno,
    /// Snapshot that contains `flushed`.
    pub(super) snapshot: SnapshotRange,
}

/// One vBucket.
///
/// Every operation takes `&mut self` and the time, and returns its result; a refused operation has
/// changed nothing. Remaining work is in the outbox ([`VBucket::take_outbox`]).
///
/// Cost: operations are O(1); those that derive a new value from an old one copy it. Growing the
/// table hashes a few hundred keys. An idle vBucket takes less than 1.5 KiB.
#[derive(Debug)]
pub struct VBucket {
    pub(super) id: VbId,
    pub(super) state: VbState,
    pub(super) config: Arc<VbConfig>,
    pub(super) table: Table,
    pub(super) checkpoints: CheckpointLog,
    pub(super) locks: Locks,
    pub(super) hlc: Hlc,
    pub(super) failover_log: FailoverLog,
    pub(super) topology: Box<str>,
    pub(super) term: u64,
    pub(super) high_seqno: Seqno,
    pub(super) purge_seqno: Seqno,
    /// Last seqno that is visible to readers: neither a prepare nor an abort.
    pub(super) visible_seqno: Seqno,
    pub(super) durability: Durability,
    pub(super) collections: VbCollections,
    pub(super) erasing: Erasing,
    pub(super) durable: Durable,
    pub(super) max_deleted_rev: u64,
    /// Version of the record, without its document counts; below, the flushed version.
    pub(super) record_version: u32,
    pub(super) record_flushed: u32,
    /// The first version that has the newest history.
    pub(super) history_version: u32,
    /// Number of end events of collections and scopes that can be purged.
    pub(super) purgeable_ends: u32,
    /// Whether the bucket keeps replaced versions for a while.
    pub(super) keeps_history: bool,
    pub(super) flight: Option<Box<FlightInfo>>,
    pub(super) flights: u64,
    pub(super) outbox: Outbox,
    /// Whether streams were notified of changes, and none has looked since.
    pub(super) streams_notified: bool,
    /// Whether eviction removes keys as well as values.
    pub(super) evicts_keys: bool,
    pub(super) counters: Counters,
    /// Memory use as reported last: the total and the checkpoints' share.
    pub(super) reported: MemoryDelta,
    /// Position of each [`Pass`](super::pass::Pass) over the table.
    pub(super) next_slot: [SlotIndex; PASSES],
}

/// A node has 1,024 vBuckets per bucket: with eight bytes for the allocator, blocks of 1,280 bytes.
const _: () = assert!(size_of::<VBucket>() <= 1_272);

impl VBucket {
    /// Creates a vBucket without documents. Its record must be flushed.
    pub fn new(id: VbId, state: VbState, first: FailoverEntry, config: Arc<VbConfig>) -> Self {
        let record = VbRecord::new(state, first);
        let mut vbucket = Self::from_record(id, record, config);
        vbucket.touch_record();
        vbucket
    }

    /// Creates a vBucket from its stored record, without documents. Call [`VBucket::load`] for each
    /// row, then [`VBucket::finish_warmup`].
    pub fn from_record(id: VbId, record: VbRecord, config: Arc<VbConfig>) -> Self {
        let high = record.high_seqno;
        let origin = LogStart {
            high,
            snapshot: record.snapshot,
            prepares: PrepareProgress {
                prepared: record.high_prepared,
                completed: record.high_completed,
            },
            cursors_made: record.failover_log.newest().uuid.0 << 16,
        };
        let prepared = record.high_prepared.min(high);
        let completed = record.high_completed.min(high);
        let mut checkpoints = CheckpointLog::new(&origin, config.checkpoint_bytes_max);
        checkpoints.set_historical(config.keeps_history);
        let promised = checkpoints.last_complete();
        let mut durability = Durability::new(prepared, completed, &record.topology);
        durability.set_falls_back(config.durability_falls_back);
        Self {
            id,
            state: record.state,
            // The tables of a bucket use different seeds, so that they do not all grow at the same
            // time.
            table: Table::new(config.hash_seed.wrapping_add(u64::from(id.0))),
            checkpoints,
            keeps_history: config.keeps_history,
            evicts_keys: config.evicts_keys,
            config,
            locks: Locks::default(),
            hlc: Hlc::new(record.max_cas, record.failover_log.newest().uuid.0),
            failover_log: record.failover_log,
            durability,
            collections: VbCollections::default(),
            erasing: Erasing::default(),
            topology: record.topology.into_boxed_str(),
            term: record.term,
            high_seqno: high,
            purge_seqno: record.purge_seqno,
            visible_seqno: high,
            durable: Durable {
                flushed: high,
                promised,
                snapshot: record.snapshot,
            },
            max_deleted_rev: record.max_deleted_rev,
            record_version: 0,
            record_flushed: 0,
            history_version: 0,
            purgeable_ends: 0,
            flight: None,
            flights: 0,
            outbox: Outbox::default(),
            streams_notified: false,
            counters: Counters::default(),
            reported: MemoryDelta::default(),
            next_slot: [SlotIndex::default(); PASSES],
        }
    }

    /// Marks the record as changed, apart from its document counts.
    pub(super) fn touch_record(&mut self) {
        self.record_version += 1;
        self.outbox.needs_flush = true;
    }

    /// Refuses client operations unless the vBucket is active.
    #[inline]
    pub(super) fn check_active(&self) -> Result<(), OpError> {
        if self.state == VbState::Active {
            return Ok(());
        }
        self.refusal()
    }

    /// Refuses client operations on this key unless the vBucket is active and has the collection.
    #[inline]
    pub(super) fn check_key(&self, key: &[u8]) -> Result<(), OpError> {
        self.check_active()?;
        self.check_collection(key)
    }

    #[cold]
    fn refusal(&self) -> Result<(), OpError> {
        match self.state {
            VbState::Active => Ok(()),
            VbState::Pending => Err(OpError::WouldBlockPending),
            VbState::Replica | VbState::Dead => Err(OpError::NotMyVbucket),
        }
    }

    /// Returns the document at `place` if it is live: neither deleted nor expired.
    pub(super) fn live(&self, place: TablePlace, now: Now) -> Option<&Document> {
        let document = self.table.at(place)?;
        let gone = document.kind().is_tombstone() || document.is_expired(now.unix_s());
        (!gone).then_some(document)
    }

    /// Refuses a writer that may not change the live document at `place`. Checks the lock before
    /// the CAS.
    pub(super) fn check_writer(
        &mut self,
        place: TablePlace,
        cas: Cas,
        now: Now,
    ) -> Result<(), OpError> {
        let Some(document) = self.table.at(place) else {
            return Ok(());
        };
        match self.locks.cas_of(place.hash, document.key(), now) {
            Some(lock) if lock == cas => Ok(()),
            Some(_) => Err(OpError::Locked),
            None if cas == Cas::ANY || cas == document.cas() => Ok(()),
            None => Err(OpError::KeyExists),
        }
    }

    pub(super) fn needs_fetch<T>(&mut self, document: &Document) -> Outcome<T> {
        Outcome::NeedsFetch(self.fetch_key(document))
    }

    pub(super) fn fetch_key(&mut self, document: &Document) -> FetchKey {
        self.counters.fetches += 1;
        FetchKey {
            key: document.key().into(),
            wanted: DocumentPart::Value(document.seqno()),
        }
    }

    /// Looks up `key`. Every operation on a key begins here: if its document may be only in the
    /// store, its row must be read first.
    ///
    /// # Errors
    /// The row to fetch, and to [`VBucket::restore`].
    #[expect(
        clippy::inline_always,
        reason = "what it answers is four words: a fifth of a look-up's time when not inlined"
    )]
    #[inline(always)]
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<TablePlace, FetchKey> {
        let place = self.table.place(key);
        if self.table.is_known(place) {
            return Ok(place);
        }
        self.seek_away(place, key)
    }

    /// Returns the expiry that applies: the maximum TTL of the collection, or else of the bucket,
    /// caps it, and replaces "never".
    pub(super) fn effective_expiry(&self, key: &[u8], expiry: u32, now: Now) -> u32 {
        let of_collection = self.collections.max_ttl_s(key);
        let max_ttl_s = of_collection.unwrap_or(self.config.max_ttl_s);
        if max_ttl_s == 0 {
            return expiry;
        }
        let latest = now.expiry_after(max_ttl_s).unwrap_or(u32::MAX);
        if expiry == 0 {
            latest
        } else {
            expiry.min(latest)
        }
    }

    /// The vBucket's id.
    pub fn id(&self) -> VbId {
        self.id
    }

    /// The vBucket's state.
    pub fn state(&self) -> VbState {
        self.state
    }

    /// Last seqno.
    pub fn high_seqno(&self) -> Seqno {
        self.high_seqno
    }

    /// Last seqno that is visible to readers: neither a prepare nor an abort.
    pub fn visible_seqno(&self) -> Seqno {
        self.visible_seqno
    }

    /// Persisted seqno: every change up to it is durable, or was replaced by a durable one.
    pub fn persisted_seqno(&self) -> Seqno {
        self.durable.promised
    }

    /// Purge seqno: the highest purged tombstone.
    pub fn purge_seqno(&self) -> Seqno {
        self.purge_seqno
    }

    /// Sets whether replaced versions are kept in collections with history. On a replica, this
    /// applies from the next snapshot on.
    pub fn set_keeps_history(&mut self, keeps: bool) {
        self.keeps_history = keeps;
        if self.state == VbState::Active || !keeps || self.checkpoints.next_position() == 0 {
            self.checkpoints.set_historical(keeps);
        }
    }

    /// Applies new settings from the next operation on. The size of checkpoints, the hash seed, and
    /// the settings of [`VBucket::set_keeps_history`] and [`VBucket::set_evicts_keys`] stay.
    pub fn set_config(&mut self, config: Arc<VbConfig>) {
        self.durability.set_falls_back(config.durability_falls_back);
        self.config = config;
        self.decide_anew();
    }

    /// Whether changes of collections with history are kept.
    pub fn is_historical(&self) -> bool {
        self.checkpoints.open().historical
    }

    /// Makes all later CAS values greater than this one.
    pub fn raise_cas(&mut self, cas: Cas) {
        self.hlc.observe(cas);
    }

    /// Limits for the distance between foreign CAS values and the clock.
    pub fn drift_limits(&self) -> DriftLimits {
        self.config.drift
    }

    /// Counts the distance between a foreign change's CAS and the clock.
    pub fn note_drift(&mut self, cas: Cas, now: Now) {
        let counts = self.counters.foreign.get_or_insert_default();
        counts.drift.note(cas, now, &self.config.drift);
    }

    /// Highest CAS that was generated or seen.
    pub fn max_cas(&self) -> Cas {
        self.hlc.max()
    }

    /// Highest revision of a deleted document.
    pub fn max_deleted_rev(&self) -> u64 {
        self.max_deleted_rev
    }

    /// The failover log.
    pub fn failover_log(&self) -> &FailoverLog {
        &self.failover_log
    }

    /// Replication topology as JSON text; empty if none was set.
    pub fn topology(&self) -> &str {
        &self.topology
    }

    /// Takes the work to be done once the lock is dropped. Cheap; call it after every operation.
    ///
    /// Streams are notified once until one of them [looks](VBucket::take_from), however much is
    /// written meanwhile.
    pub fn take_outbox(&mut self) -> Outbox {
        let mut outbox = std::mem::take(&mut self.outbox);
        if outbox.changed {
            outbox.changed = !self.streams_notified;
            self.streams_notified = true;
        }
        outbox
    }
}
