//! The bucket: vBuckets behind one lock each, and the bridge between engine, store and server.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use engine::{KeyFilter, MemoryDelta, OpError, Outbox, Outcome, StoredKeys, VBucket, VbConfig};
use model::{CompressionMode, VbId, VbUuid};
use parking_lot::{MutexGuard, RwLock};
use storage::{ErrorKind, KvStore, StoreError};

use crate::backfill::Backfills;
use crate::buffers::Buffers;
use crate::collections::Collections;
use crate::compactions::Compactions;
use crate::durable::{Alarms, DurableWaits};
use crate::failure_log::FailureLog;
use crate::history::{Histories, HistoryRetention};
use crate::holds::{Hold, Holds};
use crate::leases::Leases;
use crate::memory::{Eviction, Memory, TransitBytes};
use crate::persistence_waits::PersistenceWaits;
use crate::pool::Signal;
use crate::quarantine::Quarantine;
use crate::scans::Scans;
use crate::signals::Clock;
use crate::slot::{self, Slot, SlotOptions};
use crate::starvation::Starvation;
use crate::stats::{CompactionStats, Counters, FlusherState, WarmupStats};
use crate::subscribers::ReadySet;
use crate::workers::{Expiry, Fetches, Flushes, Relieving};

/// Options with which a bucket is opened.
#[derive(Clone, Debug)]
pub struct BucketOptions {
    /// Name of the bucket.
    pub name: String,
    /// Number of vBuckets, 1 to 1,024; vBuckets that the store does not know become active.
    pub vbuckets: u16,
    /// Memory quota in bytes.
    pub quota_bytes: u64,
    /// Initial settings of every vBucket; [`Bucket::vb_config`] returns the current ones.
    pub vb: Arc<VbConfig>,
    /// Whether the store was closed properly; if not, active vBuckets begin a new history.
    pub clean: bool,
    /// Initial eviction policy; [`Bucket::eviction`] returns the current one.
    pub eviction: Eviction,
    /// Initial compression mode of values.
    pub compression: CompressionMode,
    /// Function that compresses a value; `None` if compression saves too little.
    pub compress: fn(&[u8]) -> Option<Vec<u8>>,
    /// Interval between two expiry passes over all documents, in seconds; 0 for no passes.
    pub expiry_pass_s: u32,
    /// Retention of replaced versions, for collections with a history.
    pub history: HistoryRetention,
    /// Age at which tombstones are purged, in seconds.
    pub purge_age_s: u64,
    /// Minimum interval between the starts of two commits while no client waits for persistence, in
    /// milliseconds. Several changes of one key within it cost one row.
    pub flush_interval_ms: u64,
    /// Whether the node is in a cluster. Then vBuckets that the store does not know are not
    /// created, no vBucket starts as active, and [`Bucket::leases`] limits how long each one
    /// serves.
    pub member: bool,
    /// Account of connection buffers, shared by all buckets of a node.
    pub buffers: Arc<Buffers>,
}

/// Spins between attempts to take a lock, before the thread sleeps on it. Their sum is some tens of
/// microseconds: longer than any hold whose thread is not interrupted.
const PAUSES: [u16; 12] = [2, 4, 8, 16, 32, 64, 64, 64, 64, 64, 64, 64];

/// Effects of an operation, to be delivered after the lock is dropped.
pub(crate) struct Effects {
    outbox: Outbox,
    memory: MemoryDelta,
}

/// A keyspace with its memory quota, its store and the state that its workers share.
///
/// [`Workers::start`](crate::Workers::start) starts the workers. Without it (in tests, in the
/// simulator) the caller runs their steps one by one.
pub struct Bucket<S> {
    pub(crate) options: BucketOptions,
    pub(crate) store: Arc<S>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Current settings of every vBucket. Read under the locks of vBuckets.
    pub(crate) vb_config: RwLock<Arc<VbConfig>>,
    /// Current compression mode, as the number of a [`CompressionMode`](model::CompressionMode).
    pub(crate) compression: AtomicU8,
    slots: Vec<Slot>,
    pub(crate) memory: Memory,
    pub(crate) stopping: AtomicBool,
    pub(crate) flushes: Flushes,
    pub(crate) fetches: Fetches,
    /// Failures of reads.
    pub(crate) read_failures: FailureLog,
    pub(crate) relieving: Relieving,
    pub(crate) starvation: Starvation,
    pub(crate) expiry: Expiry,
    pub(crate) compactions: Compactions,
    holds: Holds,
    pub(crate) persistence_waits: PersistenceWaits,
    /// Sets in which replica vBuckets are marked when they may acknowledge more prepares.
    pub(crate) prepared: RwLock<Vec<Weak<ReadySet>>>,
    pub(crate) backfills: Backfills,
    pub(crate) scans: Scans,
    pub(crate) durable: DurableWaits,
    pub(crate) collections: Collections,
    pub(crate) histories: Histories,
    pub(crate) quarantine: Quarantine,
    pub(crate) alarms: Alarms,
    counters: Counters,
    warmup: WarmupStats,
    /// Wakes the refiller when warmup has loaded everything.
    pub(crate) warmed_up: Signal,
    compaction: CompactionStats,
    /// Leases of vBuckets; only on a node in a cluster.
    leases: Option<Leases>,
}

/// The store as the key filter of the bucket's vBuckets.
struct KeysOf<S>(Arc<S>);

impl<S> fmt::Debug for KeysOf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeysOf")
    }
}

impl<S: KvStore> KeyFilter for KeysOf<S> {
    fn may_have(&self, vb: VbId, key: &[u8]) -> bool {
        self.0.may_have(vb, key)
    }
}

impl<S: KvStore> Bucket<S> {
    /// Opens a bucket with the content of `store`. Warmup workers load the keys later. Until the
    /// keys of a vBucket are loaded, its data operations are refused with `TemporaryFailure`.
    ///
    /// `uuids` returns random, non-zero 48-bit numbers.
    ///
    /// # Errors
    /// The store's records cannot be read.
    pub fn open(
        mut options: BucketOptions,
        store: S,
        clock: Arc<dyn Clock>,
        uuids: &mut dyn FnMut() -> VbUuid,
    ) -> Result<Arc<Self>, StoreError> {
        let loaded = store.load()?;
        let store = Arc::new(store);
        Arc::make_mut(&mut options.vb).stored_keys =
            StoredKeys(Some(Arc::new(KeysOf(Arc::clone(&store)))));
        let slots = SlotOptions {
            config: &options.vb,
            vbuckets: options.vbuckets,
            clean: options.clean,
            member: options.member,
        };
        let slots = slot::slots(&slots, &loaded, uuids);
        let histories = Histories::new(options.history);
        let bucket = Arc::new(Self {
            memory: Memory::new(options.quota_bytes),
            leases: options.member.then(|| Leases::new(options.vbuckets)),
            flushes: Flushes::new(usize::from(options.vbuckets)),
            relieving: Relieving::new(options.eviction),
            starvation: Starvation::default(),
            expiry: Expiry::new(options.expiry_pass_s),
            compactions: Compactions::new(options.purge_age_s),
            slots,
            vb_config: RwLock::new(Arc::clone(&options.vb)),
            compression: AtomicU8::new(options.compression as u8),
            warmup: WarmupStats::new(options.vbuckets),
            options,
            store,
            clock,
            stopping: AtomicBool::new(false),
            warmed_up: Signal::default(),
            fetches: Fetches::default(),
            read_failures: FailureLog::default(),
            compaction: CompactionStats::default(),
            holds: Holds::default(),
            persistence_waits: PersistenceWaits::default(),
            prepared: RwLock::default(),
            backfills: Backfills::default(),
            scans: Scans::default(),
            durable: DurableWaits::default(),
            collections: Collections::default(),
            histories,
            quarantine: Quarantine::default(),
            alarms: Alarms::default(),
            counters: Counters::default(),
        });
        let keeps_history = bucket.history_retention().keeps();
        if !keeps_history {
            // A history that is switched on again later must not have a gap.
            bucket.forget_histories()?;
        }
        for index in 0..bucket.options.vbuckets {
            bucket.with_vbucket(VbId(index), |vbucket| {
                vbucket.set_keeps_history(keeps_history);
            });
        }
        Ok(bucket)
    }

    /// Runs `f` under the vBucket's lock, drops the lock, and delivers the outbox. Returns `None`
    /// if this node does not have the vBucket.
    ///
    /// Cost: one lock; `f` must be bounded and do no I/O.
    pub fn with_vbucket<T>(&self, id: VbId, f: impl FnOnce(&mut VBucket) -> T) -> Option<T> {
        let mut slot = self.slot(id)?.vbucket.lock();
        let vbucket = slot.as_mut()?;
        let result = f(vbucket);
        let left = self.collect_outbox(vbucket);
        drop(slot);
        self.deliver(id, left);
        Some(result)
    }

    /// [`Bucket::with_vbucket_for`] with [`Hold::Pull`], for streams of a vBucket that other
    /// threads write to. It spins before it sleeps on the lock: a writer that unlocks a mutex with
    /// a sleeping thread needs a `futex` call, which takes longer than a write.
    pub fn with_vbucket_spinning<T>(
        &self,
        id: VbId,
        f: impl FnOnce(&mut VBucket) -> T,
    ) -> Option<T> {
        let slot = self.slot(id)?;
        let mut taken = slot.vbucket.try_lock();
        for pauses in PAUSES {
            if taken.is_some() {
                break;
            }
            (0..pauses).for_each(|_| std::hint::spin_loop());
            taken = slot.vbucket.try_lock();
        }
        let locked = taken.unwrap_or_else(|| slot.vbucket.lock());
        self.hold(Hold::Pull, id, locked, f)
    }

    /// [`Bucket::with_vbucket`] that also records the hold time under `hold`. For everything except
    /// a client's own operations.
    pub fn with_vbucket_for<T>(
        &self,
        hold: Hold,
        id: VbId,
        f: impl FnOnce(&mut VBucket) -> T,
    ) -> Option<T> {
        let locked = self.slot(id)?.vbucket.lock();
        self.hold(hold, id, locked, f)
    }

    fn hold<T>(
        &self,
        hold: Hold,
        id: VbId,
        mut locked: MutexGuard<'_, Option<Box<VBucket>>>,
        f: impl FnOnce(&mut VBucket) -> T,
    ) -> Option<T> {
        let vbucket = locked.as_mut()?;
        let cpu = || self.clock.thread_cpu_ns();
        let cpu_since_ns = self.holds.samples_cpu().then(cpu).flatten();
        let since_ns = self.clock.mono_ns();
        let result = f(vbucket);
        let left = self.collect_outbox(vbucket);
        let until_ns = self.clock.mono_ns();
        let cpu_until_ns = cpu_since_ns.and_then(|_| cpu());
        drop(locked);
        if let Some((since_ns, until_ns)) = cpu_since_ns.zip(cpu_until_ns) {
            self.holds
                .record_cpu(hold, until_ns.saturating_sub(since_ns));
        }
        self.holds.record(hold, until_ns.saturating_sub(since_ns));
        self.deliver(id, left);
        Some(result)
    }

    /// Returns the vBucket's epoch. It changes whenever streams of the vBucket must end: after a
    /// change of state, a removal or a rollback. It is stable while the vBucket is locked.
    pub fn epoch(&self, id: VbId) -> u64 {
        self.slot(id)
            .map_or(0, |slot| slot.epoch.load(Ordering::SeqCst))
    }

    /// Returns the low 32 bits of the vBucket's newest seqno, as of the last operation on it. Takes no lock.
    pub fn newest(&self, id: VbId) -> u32 {
        self.slot(id)
            .map_or(0, |slot| slot.newest.load(Ordering::Relaxed))
    }

    pub(crate) fn slot(&self, id: VbId) -> Option<&Slot> {
        self.slots.get(usize::from(id.0))
    }

    pub(crate) fn collect_outbox(&self, vbucket: &mut VBucket) -> Effects {
        if let Some(slot) = self.slot(vbucket.id()) {
            let newest = vbucket.high_seqno().0 as u32;
            slot.newest.store(newest, Ordering::Relaxed);
        }
        Effects {
            outbox: vbucket.take_outbox(),
            memory: vbucket.take_memory_delta(),
        }
    }

    pub(crate) fn deliver(&self, id: VbId, effects: Effects) {
        let Effects { outbox, memory } = effects;
        if outbox.needs_flush {
            self.flushes.dirty.mark(id);
        }
        if outbox.changed {
            self.notify_subscribers(id);
        }
        if memory != MemoryDelta::default() && self.memory.add(memory) {
            self.relieve();
        }
        if let Some(persisted) = outbox.persisted {
            self.persistence_waits.wake(id, persisted);
        }
        self.durable.end(id, &outbox.decided);
        if let Some(at_ns) = outbox.deadline_ns {
            self.alarms.set(id, at_ns);
        }
        if outbox.hurry {
            self.hurry();
        }
        if outbox.high_prepared.is_some() {
            for set in self.prepared.read().iter().filter_map(Weak::upgrade) {
                set.mark(id);
            }
        }
    }

    /// Runs a data operation on a vBucket.
    ///
    /// # Errors
    /// The errors of `f`; `TemporaryFailure` before the vBucket is loaded and while the bucket
    /// stops; `NotMyVbucket` if the vBucket is not here; the errors of its lease.
    pub fn run<T>(
        &self,
        id: VbId,
        f: impl FnOnce(&mut VBucket) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        let now_ns = self.leases.as_ref().map_or(0, |_| self.clock.mono_ns());
        self.run_at(id, now_ns, f)
    }

    /// [`Bucket::run`] for a request that had arrived at `now_ns` of the monotonic clock: the lease must have held then.
    ///
    /// # Errors
    /// As [`Bucket::run`].
    pub fn run_at<T>(
        &self,
        id: VbId,
        now_ns: u64,
        f: impl FnOnce(&mut VBucket) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        self.run_for_node(id, |vbucket| {
            // The lease is checked under the lock. A seal ends the lease before it takes this lock,
            // so it sees all changes.
            self.check_lease(id, now_ns)?;
            f(vbucket)
        })
    }

    /// [`Bucket::run`] for messages of another node about a vBucket; it ignores the lease.
    ///
    /// # Errors
    /// The errors of `f`; `TemporaryFailure` before the vBucket is loaded and while the bucket
    /// stops; `NotMyVbucket` if it is not here.
    pub fn run_for_node<T>(
        &self,
        id: VbId,
        f: impl FnOnce(&mut VBucket) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        self.check_loaded(id)?;
        let result = self.with_vbucket(id, |vbucket| {
            // Checked under the lock: then the last flush of this vBucket misses no accepted change.
            if self.is_stopping() {
                return Err(OpError::TemporaryFailure);
            }
            f(vbucket)
        });
        result.unwrap_or(Err(OpError::NotMyVbucket))
    }

    /// [`Bucket::run_at`] for reading a document. If the document is found, there is nothing to
    /// deliver, so the outbox is not collected: that would touch some ten more cache lines.
    ///
    /// # Errors
    /// As [`Bucket::run`].
    pub fn read<T>(
        &self,
        id: VbId,
        now_ns: u64,
        f: impl FnOnce(&mut VBucket) -> Result<Outcome<T>, OpError>,
    ) -> Result<Outcome<T>, OpError> {
        let slot = self.check_loaded(id)?;
        let mut locked = slot.vbucket.lock();
        let vbucket = locked.as_mut().ok_or(OpError::NotMyVbucket)?;
        // Checked under the lock, as for changes: a read may turn an expired document into a tombstone.
        if self.is_stopping() {
            return Err(OpError::TemporaryFailure);
        }
        self.check_lease(id, now_ns)?;
        let result = f(vbucket);
        if !matches!(result, Ok(Outcome::Done(_))) {
            let left = self.collect_outbox(vbucket);
            drop(locked);
            self.deliver(id, left);
        }
        result
    }

    fn check_loaded(&self, id: VbId) -> Result<&Slot, OpError> {
        let slot = self.slot(id).ok_or(OpError::NotMyVbucket)?;
        if !slot.loaded.load(Ordering::Acquire) {
            return Err(OpError::TemporaryFailure);
        }
        Ok(slot)
    }

    pub(crate) fn check_lease(&self, id: VbId, now_ns: u64) -> Result<(), OpError> {
        let leases = self.leases.as_ref();
        leases.map_or(Ok(()), |leases| leases.check(id, now_ns))
    }

    /// Returns the leases of vBuckets; `None` on a node that is in no cluster.
    pub fn leases(&self) -> Option<&Leases> {
        self.leases.as_ref()
    }

    /// Whether the vBucket, if it is active, begins a new history after it is loaded.
    pub(crate) fn begins_anew(&self, id: VbId) -> bool {
        self.slot(id).is_some_and(|slot| slot.begins_anew)
    }

    /// Asks the flusher to commit at once, because a client observes persistence.
    pub fn hurry(&self) {
        self.flushes.urgent.store(true, Ordering::SeqCst);
        self.flushes.dirty.signal.ring();
    }

    /// Sets this bucket's share of the process's memory for other things than documents; see
    /// [`Memory::set_overhead`].
    pub fn set_memory_overhead(&self, bytes: u64) {
        self.memory.set_overhead(bytes);
        self.relieve_if_pressed();
    }

    /// Sets this bucket's share of what the process takes beyond the quotas; see
    /// [`Memory::set_excess`].
    pub fn set_memory_excess(&self, bytes: u64) {
        self.memory.set_excess(bytes);
        self.relieve_if_pressed();
    }

    fn relieve_if_pressed(&self) {
        if self.memory.is_pressed() {
            self.relieve();
        }
    }

    /// Counts bytes that a request needs while it runs as memory of connections, until the returned value is dropped.
    pub fn hold_transit(&self, bytes: usize) -> TransitBytes {
        let held = self.memory.hold_transit(bytes);
        self.relieve_if_pressed();
        held
    }

    /// Counts that a connection holds `after` bytes of requests and responses instead of `before`.
    /// They count as used memory.
    pub fn change_transit(&self, before: usize, after: usize) {
        self.memory.change_transit(before, after);
        if after > before && self.memory.is_pressed() {
            self.relieve();
        }
    }

    pub(crate) fn relieve(&self) {
        if !self.relieving.called.swap(true, Ordering::SeqCst) {
            self.relieving.signal.ring();
        }
    }

    /// Whether the workers are told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns the bucket's name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Returns the number of vBuckets.
    pub fn vbuckets(&self) -> u16 {
        self.options.vbuckets
    }

    /// Returns the options with which the bucket was opened.
    pub fn options(&self) -> &BucketOptions {
        &self.options
    }

    /// Returns the memory account.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the hold times of vBuckets' locks, without clients' operations.
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Returns the workers' totals.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the progress of compaction.
    pub fn compaction(&self) -> &CompactionStats {
        &self.compaction
    }

    /// Returns the progress of warmup.
    pub fn warmup(&self) -> &WarmupStats {
        &self.warmup
    }

    /// Returns a number that is another one after persisted seqnos changed by a commit.
    pub fn finished_commits(&self) -> u64 {
        self.flushes.finished.load(Ordering::SeqCst)
    }

    /// Returns the state of the flusher.
    pub fn flusher_state(&self) -> FlusherState {
        let state = FlusherState::from_number(self.flushes.state.load(Ordering::Relaxed));
        if state == FlusherState::Running && self.flushes.is_paused() {
            return FlusherState::Paused;
        }
        state
    }

    /// Whether the last commit failed because the disk is full or read-only. The flusher retries it, so this ends when the
    /// disk can be written.
    pub fn is_disk_unwritable(&self) -> bool {
        let failure = *self.flushes.failure.lock();
        failure.is_some_and(ErrorKind::may_pass)
    }

    pub(crate) fn set_flusher_state(&self, state: FlusherState) {
        self.flushes.state.store(state as u8, Ordering::Relaxed);
    }

    /// Returns the store, for statistics.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the bucket's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
}
