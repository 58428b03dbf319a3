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
use crate::history::{Histories, HistoryRetention};
use crate::holds::{Hold, Holds};
use crate::leases::Leases;
use crate::memory::{Eviction, Memory};
use crate::persistence_waits::PersistenceWaits;
use crate::pool::Signal;
use crate::quarantine::Quarantine;
use crate::scans::Scans;
use crate::signals::Clock;
use crate::slot::{self, Slot, SlotOptions};
use crate::stats::{CompactionStats, Counters, FlusherState, WarmupStats};
use crate::subscribers::ReadySet;
use crate::workers::{Expiry, Fetches, Flushes, Relieving};

/// How a bucket is made.
#[derive(Clone, Debug)]
pub struct BucketOptions {
    /// Its name.
    pub name: String,
    /// Number of vBuckets, 1 to 1,024; vBuckets that the store does not know become active.
    pub vbuckets: u16,
    /// Memory quota in bytes.
    pub quota_bytes: u64,
    /// Settings of every vBucket; [`Bucket::vb_config`] has those in force.
    pub vb: Arc<VbConfig>,
    /// Whether the store was closed properly; if not, active vBuckets begin a new history.
    pub clean: bool,
    /// How it frees memory for what is new; [`Bucket::eviction`] has what is in force.
    pub eviction: Eviction,
    /// What it does about the compression of values.
    pub compression: CompressionMode,
    /// Compresses a value, if that saves enough to be worth it.
    pub compress: fn(&[u8]) -> Option<Vec<u8>>,
    /// Time between two passes over all documents that look for expired ones, seconds; 0 for
    /// none.
    pub expiry_pass_s: u32,
    /// How long replaced versions are kept, of collections that have a history.
    pub history: HistoryRetention,
    /// Age at which tombstones are purged, seconds.
    pub purge_age_s: u64,
    /// Least time between the starts of two commits while no client waits for persistence,
    /// milliseconds. Changes of the same key within it cost one row.
    pub flush_interval_ms: u64,
    /// Whether the node is in a cluster: vBuckets that the store does not know are not made, none begins as the active
    /// one, and each serves as long as [`Bucket::leases`] says.
    pub member: bool,
    /// The account of connection buffers, which all buckets of a node share.
    pub buffers: Arc<Buffers>,
}

/// How often a lock is asked for before one sleeps on it, and the pauses in between: some tens of
/// microseconds, longer than any lock is held but by one whose thread had to wait.
const PAUSES: [u16; 12] = [2, 4, 8, 16, 32, 64, 64, 64, 64, 64, 64, 64];

/// What an operation left behind; to be delivered once the lock is dropped.
pub(crate) struct Effects {
    outbox: Outbox,
    memory: MemoryDelta,
}

/// A keyspace with its memory quota, its store and what its workers share.
///
/// The workers run once [`Workers::start`](crate::Workers::start) is called; without them
/// (in tests, in the simulator) their steps are called one by one.
pub struct Bucket<S> {
    pub(crate) options: BucketOptions,
    pub(crate) store: Arc<S>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Settings of every vBucket as they are in force. Read under the locks of vBuckets.
    pub(crate) vb_config: RwLock<Arc<VbConfig>>,
    /// What it does about the compression of values, a [`CompressionMode`](model::CompressionMode).
    pub(crate) compression: AtomicU8,
    slots: Vec<Slot>,
    pub(crate) memory: Memory,
    pub(crate) stopping: AtomicBool,
    pub(crate) flushes: Flushes,
    pub(crate) fetches: Fetches,
    pub(crate) relieving: Relieving,
    pub(crate) expiry: Expiry,
    pub(crate) compactions: Compactions,
    holds: Holds,
    pub(crate) persistence_waits: PersistenceWaits,
    /// Replica vBuckets that may acknowledge more prepares.
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
    /// For the refiller, when all is loaded.
    pub(crate) warmed_up: Signal,
    compaction: CompactionStats,
    /// On a node in a cluster.
    leases: Option<Leases>,
}

/// A store as its bucket's vBuckets ask it.
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
    /// Takes over what `store` knows. Keys are loaded later, by the warmup workers; until those of a vBucket
    /// are, data operations on it are refused with `TemporaryFailure`.
    ///
    /// `uuids` gives random, non-zero 48-bit numbers.
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
            // Should history begin again, it must have no hole.
            bucket.forget_histories()?;
        }
        for index in 0..bucket.options.vbuckets {
            bucket.with_vbucket(VbId(index), |vbucket| {
                vbucket.set_keeps_history(keeps_history);
            });
        }
        Ok(bucket)
    }

    /// Runs `f` under the vBucket's lock; then, unlocked, delivers what it left in the outbox.
    /// `None` when this node has no such vBucket.
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

    /// [`Bucket::with_vbucket_for`] of [`Hold::Pull`], for streams of a vBucket that others
    /// write to: spins before it sleeps on the lock. Unlocking a mutex on which a thread sleeps
    /// costs the writer a `futex` call, which takes longer than a write.
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

    /// [`Bucket::with_vbucket`], with the time that the lock is held noted under `hold`: for
    /// whatever is not a client's own operation.
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

    /// A number that changes whenever streams of the vBucket must end: its state changed, it was
    /// removed, it was rolled back. Stable while the vBucket is locked.
    pub fn epoch(&self, id: VbId) -> u64 {
        self.slot(id)
            .map_or(0, |slot| slot.epoch.load(Ordering::SeqCst))
    }

    /// The low 32 bits of the vBucket's newest seqno, as of the last operation on it: how much
    /// was written, without the lock.
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

    /// Runs a data operation: refused before the vBucket is loaded, once the workers were told to
    /// stop and where its lease is over, `NotMyVbucket` without the vBucket.
    ///
    /// # Errors
    /// Those of `f`, `TemporaryFailure` before it is loaded and while stopping, `NotMyVbucket`, those of a lease.
    pub fn run<T>(
        &self,
        id: VbId,
        f: impl FnOnce(&mut VBucket) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        self.run_for_node(id, |vbucket| {
            // Asked under the lock: a seal takes it after it ended the lease, and then knows all that is here.
            self.check_lease(id)?;
            f(vbucket)
        })
    }

    /// [`Bucket::run`] for what another node tells of a vBucket, whether or not that serves clients.
    ///
    /// # Errors
    /// Those of `f`, `TemporaryFailure` before it is loaded and while stopping, `NotMyVbucket`.
    pub fn run_for_node<T>(
        &self,
        id: VbId,
        f: impl FnOnce(&mut VBucket) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        self.check_loaded(id)?;
        let result = self.with_vbucket(id, |vbucket| {
            // Asked under the lock: what is refused here is no change that the last flush of
            // this vBucket could miss.
            if self.is_stopping() {
                return Err(OpError::TemporaryFailure);
            }
            f(vbucket)
        });
        result.unwrap_or(Err(OpError::NotMyVbucket))
    }

    /// [`Bucket::run`] for reading a document. If it is found, nothing changed that must be
    /// delivered, so the outbox is not collected: that would touch some ten more cache lines.
    ///
    /// # Errors
    /// As [`Bucket::run`].
    pub fn read<T>(
        &self,
        id: VbId,
        f: impl FnOnce(&mut VBucket) -> Result<Outcome<T>, OpError>,
    ) -> Result<Outcome<T>, OpError> {
        let slot = self.check_loaded(id)?;
        let mut locked = slot.vbucket.lock();
        let vbucket = locked.as_mut().ok_or(OpError::NotMyVbucket)?;
        // Under the lock, as with changes: a document may expire here.
        if self.is_stopping() {
            return Err(OpError::TemporaryFailure);
        }
        self.check_lease(id)?;
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

    fn check_lease(&self, id: VbId) -> Result<(), OpError> {
        let leases = self.leases.as_ref();
        leases.map_or(Ok(()), |leases| leases.check(id, self.clock.mono_ns()))
    }

    /// Until when vBuckets may serve; `None` on a node that is in no cluster.
    pub fn leases(&self) -> Option<&Leases> {
        self.leases.as_ref()
    }

    /// Whether the loaded state of a vBucket calls for a new history.
    pub(crate) fn begins_anew(&self, id: VbId) -> bool {
        self.slot(id).is_some_and(|slot| slot.begins_anew)
    }

    /// Asks the flusher not to wait for more changes: a client observes persistence.
    pub fn hurry(&self) {
        self.flushes.urgent.store(true, Ordering::SeqCst);
        self.flushes.dirty.signal.ring();
    }

    /// Sets this bucket's part of what the process takes beyond what its buckets booked; see
    /// [`Memory::set_overhead`].
    pub fn set_memory_overhead(&self, bytes: u64) {
        self.memory.set_overhead(bytes);
        if self.memory.is_pressed() {
            self.relieve();
        }
    }

    /// Counts that a connection holds `after` bytes for its peer instead of `before`: requests and
    /// responses count as used while they are in memory.
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

    /// Whether the workers were told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The bucket's name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// How many vBuckets there can be.
    pub fn vbuckets(&self) -> u16 {
        self.options.vbuckets
    }

    /// The options it was opened with.
    pub fn options(&self) -> &BucketOptions {
        &self.options
    }

    /// The memory account.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Times for which vBuckets' locks were held, but for clients' operations.
    pub fn holds(&self) -> &Holds {
        &self.holds
    }

    /// The workers' totals.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The progress of compaction.
    pub fn compaction(&self) -> &CompactionStats {
        &self.compaction
    }

    /// The progress of warmup.
    pub fn warmup(&self) -> &WarmupStats {
        &self.warmup
    }

    /// What the flusher is doing.
    pub fn flusher_state(&self) -> FlusherState {
        let state = FlusherState::from_number(self.flushes.state.load(Ordering::Relaxed));
        if state == FlusherState::Running && self.flushes.is_paused() {
            return FlusherState::Paused;
        }
        state
    }

    /// Whether the last commit found no space. It is tried again, so that this ends when there is some.
    pub fn is_disk_full(&self) -> bool {
        *self.flushes.failure.lock() == Some(ErrorKind::NoSpace)
    }

    pub(crate) fn set_flusher_state(&self, state: FlusherState) {
        self.flushes.state.store(state as u8, Ordering::Relaxed);
    }

    /// The store, for what statistics ask of it.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The clock that the bucket was opened with.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
}
