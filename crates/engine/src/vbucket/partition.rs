//! The vBucket itself: what it consists of, and the checks that its operations share.

use std::sync::Arc;

use model::{
    Cas, Document, FailoverEntry, FailoverLog, Now, Seqno, SnapshotRange, VbId, VbRecord, VbState,
};

use crate::checkpoint::{CheckpointLog, Flight, FlightId, Origin, PrepareProgress};
use crate::drift::{DriftLimits, ForeignCounts};
use crate::durability::Durability;
use crate::error::OpError;
use crate::hlc::Hlc;
use crate::locks::Locks;
use crate::table::{Place, Spot, Table};
use crate::types::{FetchKey, MemoryDelta, Outbox, Outcome, VbConfig, Wanted};
use collections::VbCollections;

/// Heat of a document that was just read, and of one that was just written.
pub(super) const HEAT_READ: u8 = 3;
pub(super) const HEAT_WRITTEN: u8 = 1;

/// Passes over the table that are made a step at a time.
pub(super) const PASSES: usize = 3;

/// What happened since the vBucket was made or loaded.
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

/// Where the pass is that takes documents of dropped collections out of the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Erasing {
    /// The newest end of a collection when the pass began; zero while there is none.
    pub(super) end: Seqno,
    /// Everything that ended up to here is out of the table.
    pub(super) done: Seqno,
    /// Whether the pass found anything, and how many passes before it did not.
    pub(super) found: bool,
    pub(super) empty: u8,
}

/// What is known to be durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Durable {
    /// A document of the table is durable if its seqno is not above this.
    pub(super) flushed: Seqno,
    /// Every change up to here is durable or was replaced by one that is: what clients are
    /// told. It stays behind `flushed` while a flush ended inside of a checkpoint, since a
    /// change replaced before its end may have its successor beyond it.
    pub(super) promised: Seqno,
    /// The snapshot to which `flushed` belongs.
    pub(super) snapshot: SnapshotRange,
}

/// One vBucket.
///
/// Every operation takes `&mut self` and the time, and returns what became of it; a refused
/// operation has changed nothing. What is to be done afterwards lies in the outbox
/// ([`VBucket::take_outbox`]).
///
/// Cost: operations are O(1), a copy of the value for those that make a new value of an old
/// one; growing the table hashes a few hundred of its keys. An idle vBucket takes less than 1.5 KiB.
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
    /// The newest change that is visible to readers: no prepare, no abort.
    pub(super) visible_seqno: Seqno,
    pub(super) durability: Durability,
    pub(super) collections: VbCollections,
    pub(super) erasing: Erasing,
    pub(super) durable: Durable,
    pub(super) max_deleted_rev: u64,
    /// Changes of the record besides those that documents bring: made, and flushed.
    pub(super) record_version: u32,
    pub(super) record_flushed: u32,
    /// The first of these with the newest history in it.
    pub(super) history_version: u32,
    /// Whether the bucket keeps replaced versions for a while.
    pub(super) keeps_history: bool,
    pub(super) flight: Option<Box<FlightInfo>>,
    pub(super) flights: u64,
    pub(super) outbox: Outbox,
    /// Streams were told of changes, and none has looked since: those that slept have yet to.
    pub(super) streams_told: bool,
    /// Whether keys leave memory with their values.
    pub(super) evicts_keys: bool,
    pub(super) counters: Counters,
    /// Bytes of everything and of the checkpoints, as told last.
    pub(super) reported: MemoryDelta,
    /// Where each [`Pass`](super::pass::Pass) over the table stands.
    pub(super) next_slot: [Spot; PASSES],
}

/// A node has 1,024 for each bucket: with eight bytes of the allocator's own, blocks of 1,280 bytes.
const _: () = assert!(size_of::<VBucket>() <= 1_272);

impl VBucket {
    /// A vBucket without documents. Its record waits to be flushed.
    pub fn new(id: VbId, state: VbState, first: FailoverEntry, config: Arc<VbConfig>) -> Self {
        let record = VbRecord::new(state, first);
        let mut vbucket = Self::from_record(id, record, config);
        vbucket.touch_record();
        vbucket
    }

    /// A vBucket as its store remembers it, without documents: [`VBucket::load`] follows for
    /// each row, then [`VBucket::finish_warmup`].
    pub fn from_record(id: VbId, record: VbRecord, config: Arc<VbConfig>) -> Self {
        let high = record.high_seqno;
        let origin = Origin {
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
        let mut durability = Durability::new(prepared, completed, &record.topology);
        durability.set_falls_back(config.durability_falls_back);
        Self {
            id,
            state: record.state,
            // Tables of a bucket differ, so that they do not all grow at the same time.
            table: Table::new(config.hash_seed.wrapping_add(u64::from(id.0))),
            checkpoints,
            keeps_history: config.keeps_history,
            evicts_keys: config.evicts_keys,
            config,
            locks: Locks::default(),
            hlc: Hlc::new(record.max_cas),
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
                promised: high,
                snapshot: record.snapshot,
            },
            max_deleted_rev: record.max_deleted_rev,
            record_version: 0,
            record_flushed: 0,
            history_version: 0,
            flight: None,
            flights: 0,
            outbox: Outbox::default(),
            streams_told: false,
            counters: Counters::default(),
            reported: MemoryDelta::default(),
            next_slot: [Spot::default(); PASSES],
        }
    }

    /// Marks the record as changed besides its documents.
    pub(super) fn touch_record(&mut self) {
        self.record_version += 1;
        self.outbox.needs_flush = true;
    }

    /// Whether clients' operations are served here.
    #[inline]
    pub(super) fn check_active(&self) -> Result<(), OpError> {
        if self.state == VbState::Active {
            return Ok(());
        }
        self.refusal()
    }

    /// Whether clients' operations on this key are served here.
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

    /// The document at `place` if it is alive now.
    pub(super) fn live(&self, place: Place, now: Now) -> Option<&Document> {
        let document = self.table.at(place)?;
        let gone = document.kind().is_tombstone() || document.is_expired(now.unix_s());
        (!gone).then_some(document)
    }

    /// Refuses a writer that may not change the live document at `place`: the lock is checked
    /// before the CAS.
    pub(super) fn check_writer(&mut self, place: Place, cas: Cas, now: Now) -> Result<(), OpError> {
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
            wanted: Wanted::Value(document.seqno()),
        }
    }

    /// Where `key` is or would be. Every operation on a key begins here: if its document may
    /// be in the store alone, nothing can be said or changed before its row was read.
    ///
    /// # Errors
    /// What to fetch, and to [`VBucket::restore`].
    #[expect(
        clippy::inline_always,
        reason = "what it answers is four words: a fifth of a look-up's time when not inlined"
    )]
    #[inline(always)]
    pub(super) fn seek(&mut self, key: &[u8]) -> Result<Place, FetchKey> {
        let place = self.table.place(key);
        if self.table.is_known(place) {
            return Ok(place);
        }
        self.seek_away(place, key)
    }

    /// What a write may ask for: the limit of the collection, or else of the bucket, caps it, and
    /// stands in for "never".
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

    /// Its number.
    pub fn id(&self) -> VbId {
        self.id
    }

    /// Life state.
    pub fn state(&self) -> VbState {
        self.state
    }

    /// The newest change.
    pub fn high_seqno(&self) -> Seqno {
        self.high_seqno
    }

    /// The newest change that readers may see: no prepare and no abort.
    pub fn visible_seqno(&self) -> Seqno {
        self.visible_seqno
    }

    /// Every change up to here is durable, or was replaced by one that is.
    pub fn persisted_seqno(&self) -> Seqno {
        self.durable.promised
    }

    /// The highest tombstone that was purged.
    pub fn purge_seqno(&self) -> Seqno {
        self.purge_seqno
    }

    /// Keeps replaced versions of documents of collections with history from now on, or not. A replica's checkpoints follow with the next snapshot.
    pub fn set_keeps_history(&mut self, keeps: bool) {
        self.keeps_history = keeps;
        if self.state == VbState::Active || !keeps || self.checkpoints.next_position() == 0 {
            self.checkpoints.set_historical(keeps);
        }
    }

    /// Obeys other settings from the next operation on. Those that [`VBucket::set_keeps_history`] and
    /// [`VBucket::set_evicts_keys`] change, the size of checkpoints and the seed stay.
    pub fn set_config(&mut self, config: Arc<VbConfig>) {
        self.durability.set_falls_back(config.durability_falls_back);
        self.config = config;
        self.decide_anew();
    }

    /// Whether changes of collections with history are kept now.
    pub fn is_historical(&self) -> bool {
        self.checkpoints.open().historical
    }

    /// Gives only CAS values above this one from now on.
    pub fn raise_cas(&mut self, cas: Cas) {
        self.hlc.observe(cas);
    }

    /// How far CAS values from elsewhere may be from the clock.
    pub fn drift_limits(&self) -> DriftLimits {
        self.config.drift
    }

    /// Counts how far the CAS of a change of another node is from the clock.
    pub fn note_drift(&mut self, cas: Cas, now: Now) {
        let counts = self.counters.foreign.get_or_insert_default();
        counts.drift.note(cas, now, &self.config.drift);
    }

    /// The highest CAS given or seen.
    pub fn max_cas(&self) -> Cas {
        self.hlc.max()
    }

    /// The highest revision number of a document that was deleted.
    pub fn max_deleted_rev(&self) -> u64 {
        self.max_deleted_rev
    }

    /// The histories.
    pub fn failover_log(&self) -> &FailoverLog {
        &self.failover_log
    }

    /// Replication topology, JSON text; empty when none was set.
    pub fn topology(&self) -> &str {
        &self.topology
    }

    /// Takes what is to be done once the lock is dropped. Cheap; call it after every operation.
    ///
    /// Streams are told once until one of them [looks](VBucket::take_from), however much is
    /// written meanwhile.
    pub fn take_outbox(&mut self) -> Outbox {
        let mut outbox = std::mem::take(&mut self.outbox);
        if outbox.changed {
            outbox.changed = !self.streams_told;
            self.streams_told = true;
        }
        outbox
    }
}
