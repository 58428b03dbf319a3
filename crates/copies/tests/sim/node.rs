//! A node: its clock, its participant, its buckets.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bucket::Clock;
use cluster::agent::{Copy, Step};
use cluster::agreed::{ClusterId, Node as NodeValue, NodeState, Seen};
use cluster::{BucketId, Identity, NodeId, Participant, Settings, Vb};
use copies::{ConfirmationReceiver, ConfirmationSender, Unfinished};
use engine::OpError;
use model::{Now, VbId, VbState};

use crate::buckets::{SimBucket, Vbs};
use crate::bugs::Bug;
use crate::disk::Disk;
use crate::rng::Rng;
use crate::stops::CleanStop;
use crate::traffic::Wait;

pub(crate) const CLUSTER: ClusterId = ClusterId(0xc1);
const MS_NS: u64 = 1_000_000;
const BEGAN_MS: u64 = 1_700_000_000_000;

/// Clocks of a node: a monotonic one, which runs fast or slow and does not jump, and one of the wall.
pub(crate) struct SimClock {
    world_ms: Arc<AtomicU64>,
    offset_ms: u64,
    /// Drift in parts per million; negative if the clock is slow.
    drift_ppm: i64,
    /// Total time for which the clock stood still.
    lost_ms: AtomicU64,
    /// Time by which the wall clock is ahead; negative if it is behind.
    ahead_ms: AtomicI64,
}

impl SimClock {
    pub(crate) fn new(world_ms: Arc<AtomicU64>, (offset_ms, drift_ppm): (u64, i64)) -> Self {
        Self {
            world_ms,
            offset_ms,
            drift_ppm,
            lost_ms: AtomicU64::new(0),
            ahead_ms: AtomicI64::new(0),
        }
    }

    /// Sets the time by which the wall clock is ahead.
    pub(crate) fn set_ahead(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
    }

    /// Returns the time of a wall clock that is ahead by `ahead_ms`, in seconds.
    pub(crate) fn wall_s(&self, ahead_ms: i64) -> u32 {
        let world_ms = self.world_ms.load(Ordering::Relaxed);
        let wall_ms = (BEGAN_MS + world_ms).saturating_add_signed(ahead_ms);
        u32::try_from(wall_ms / 1_000).expect("a time before the year 2106")
    }

    fn at(&self, now_ms: u64) -> u64 {
        let drift = now_ms.cast_signed() * self.drift_ppm / 1_000_000;
        let lost_ms = self.lost_ms.load(Ordering::Relaxed);
        (self.offset_ms + now_ms.saturating_add_signed(drift)).saturating_sub(lost_ms)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        let world_ms = self.world_ms.load(Ordering::Relaxed);
        let ahead_ms = self.ahead_ms.load(Ordering::Relaxed);
        Now {
            unix_ns: (BEGAN_MS + world_ms).saturating_add_signed(ahead_ms) * MS_NS,
            mono_ns: self.at(world_ms) * MS_NS,
        }
    }
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) boot: u64,
    pub(crate) up: bool,
    /// Whether the node must not be started.
    pub(crate) held: bool,
    pub(crate) paused_until_ms: u64,
    /// Whether its disk is full: it works in memory, and no new term gets on disk.
    pub(crate) full: bool,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) participant: Participant,
    pub(crate) vbs: Vbs,
    /// Data that its buckets find at a start.
    pub(crate) disks: BTreeMap<BucketId, Disk>,
    /// State of etcd that the node had seen at its last step; on disk before the step.
    pub(crate) kept: Seen,
    /// The last stop, if it was clean.
    pub(crate) stop: Option<CleanStop>,
    /// Steps that wait; the next field has all copies with a step.
    pub(crate) open: Vec<(Unfinished, Step, Option<Copy>)>,
    pub(crate) busy: BTreeSet<Vb>,
    /// Confirmations to other nodes, and those of other nodes.
    pub(crate) confirms_to: BTreeMap<NodeId, ConfirmationSender>,
    pub(crate) confirmed_by: ConfirmationReceiver,
    /// Failed nodes, as its copies know them.
    pub(crate) failed: BTreeSet<NodeId>,
    /// Revision that its buckets follow.
    followed: u64,
    /// Epoch and revision of the manifest that each bucket has.
    manifests: BTreeMap<BucketId, (u64, u64)>,
    /// Durable writes that its clients wait for.
    pub(crate) waits: Vec<Wait>,
    /// Durable writes that were acknowledged from memory.
    pub(crate) in_memory: Vec<Wait>,
    pub(crate) ticks: u64,
    pub(crate) random: RefCell<Rng>,
    pub(crate) numbers: Cell<u64>,
}

impl Node {
    pub(crate) fn new(index: usize, clock: SimClock, seed: u64, bug: Option<Bug>) -> Self {
        let id = NodeId(index as u16);
        Self {
            id,
            boot: 1,
            up: true,
            held: false,
            paused_until_ms: 0,
            full: false,
            clock: Arc::new(clock),
            participant: participant(id, 0, 1, Seen::default()),
            vbs: Vbs::new(id, bug),
            disks: BTreeMap::new(),
            kept: Seen::default(),
            stop: None,
            open: Vec::new(),
            confirms_to: BTreeMap::new(),
            confirmed_by: ConfirmationReceiver::default(),
            busy: BTreeSet::new(),
            failed: BTreeSet::new(),
            followed: 0,
            manifests: BTreeMap::new(),
            waits: Vec::new(),
            in_memory: Vec::new(),
            ticks: 0,
            random: RefCell::new(Rng::new(seed ^ (index as u64) << 56)),
            numbers: Cell::new(0),
        }
    }

    pub(crate) fn clock_ms(&self, now_ms: u64) -> u64 {
        self.clock.at(now_ms)
    }

    /// Makes its clock stand still for a time.
    pub(crate) fn lose_time(&mut self, ms: u64) {
        self.clock.lost_ms.fetch_add(ms, Ordering::Relaxed);
    }

    pub(crate) fn runs(&self, now_ms: u64) -> bool {
        self.up && now_ms >= self.paused_until_ms
    }

    /// Crashes the node: data that is not on disk is lost.
    pub(crate) fn crash(&mut self) {
        self.up = false;
        self.vbs.before_crash();
        self.open.clear();
        self.busy.clear();
        self.waits.clear();
        self.in_memory.clear();
        self.failed.clear();
        self.confirms_to.clear();
        self.confirmed_by = ConfirmationReceiver::default();
        self.followed = 0;
        self.manifests.clear();
    }

    /// Starts the node after a crash.
    pub(crate) fn restart(&mut self, zone: u16) {
        self.boot += 1;
        self.up = true;
        self.paused_until_ms = 0;
        let mut kept = self.kept;
        if self.vbs.bug == Some(Bug::MarkForgotten) {
            kept.mark = None;
        }
        self.participant = participant(self.id, zone, self.boot, kept);
        let disks: Vec<(BucketId, Disk)> = self.disks.clone().into_iter().collect();
        for (id, disk) in disks {
            disk.faults.dead.store(false, Ordering::SeqCst);
            self.host(id, disk);
        }
        self.set_full(self.full);
        self.vbs
            .after_restart(&self.failed, &self.random, &self.numbers);
    }

    /// Whether its copy of a vBucket is unreadable on disk, so that a start may make it readable.
    pub(crate) fn may_mend(&self, vb: Vb) -> bool {
        self.disks
            .get(&vb.bucket)
            .is_some_and(|disk| disk.is_unreadable(VbId(vb.number)))
    }

    fn host(&mut self, id: BucketId, disk: Disk) {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let bucket = SimBucket::open(id, disk, clock, (&self.random, self.vbs.bug));
        self.vbs.buckets.insert(id, bucket);
    }

    /// Makes its disk fail: nothing more gets on it.
    pub(crate) fn disk_dies(&mut self) {
        for disk in self.disks.values() {
            disk.faults.dead.store(true, Ordering::SeqCst);
        }
        self.participant.disk_died();
        self.renew();
    }

    /// Sets whether its disk is full.
    pub(crate) fn set_full(&mut self, full: bool) {
        self.full = full;
        for disk in self.disks.values() {
            disk.faults.full.store(full, Ordering::SeqCst);
        }
        self.participant.set_disk_full(full);
    }

    /// Stores the state of etcd that the node has seen, if it has a new mark.
    pub(crate) fn keep_mark(&mut self) {
        let newest = self.participant.newest();
        if newest.mark.is_some() && newest.mark != self.kept.mark {
            self.kept = newest;
        }
    }

    /// Applies the agreed state to its buckets.
    pub(crate) fn reconcile(&mut self) {
        let view = self.participant.view();
        if view.revision == self.followed {
            return;
        }
        self.followed = view.revision;
        let unknown = &view.history.value.unknown;
        let stays = |id: &BucketId| view.specs.contains_key(id) || unknown.contains(id);
        let dropped = self.disks.keys().filter(|id| !stays(id));
        let dropped: Vec<BucketId> = dropped.copied().collect();
        let made = view.specs.keys().filter(|id| !self.disks.contains_key(id));
        let made: Vec<BucketId> = made.copied().collect();
        let failed = view.nodes.iter();
        let failed = failed.filter(|(_, entry)| entry.value.state == NodeState::Failed);
        let failed: BTreeSet<NodeId> = failed.map(|(node, _)| *node).collect();
        for id in dropped {
            self.vbs.buckets.remove(&id);
            self.disks.remove(&id);
        }
        for id in made {
            let disk = Disk::new();
            disk.faults.full.store(self.full, Ordering::SeqCst);
            let dead = self.participant.is_disk_dead();
            disk.faults.dead.store(dead, Ordering::SeqCst);
            self.disks.insert(id, disk.clone());
            self.host(id, disk);
        }
        let view = self.participant.view();
        for (id, manifest) in &view.manifests {
            // After a restore of etcd, revisions begin again.
            let newest = (view.epoch(), manifest.mod_revision);
            if let Some(bucket) = self.vbs.buckets.get(id)
                && self.manifests.get(id) != Some(&newest)
                && bucket.take_manifest(&manifest.value)
            {
                self.manifests.insert(*id, newest);
            }
        }
        if self.failed != failed {
            self.failed = failed;
            for bucket in self.vbs.buckets.values() {
                let services = bucket.services(&self.random, &self.numbers);
                bucket
                    .steps(self.id, &self.failed, &services)
                    .refresh_chains();
            }
        }
    }

    /// Extends the leases of its active copies as far as allowed.
    pub(crate) fn renew(&self) {
        let alive = !self.participant.is_disk_dead();
        let mut until_ms = alive.then(|| self.participant.lease_until_ms());
        let mut settings = settings();
        match self.vbs.bug {
            Some(Bug::LeaseTrustedTooLong) => {
                let longer = |until_ms| until_ms + 2 * settings.lease_ms;
                until_ms = until_ms.filter(|until_ms| *until_ms > 0).map(longer);
            }
            Some(Bug::ConfirmationTrustedTooLong) => settings.confirmed_ms *= 8,
            _ => {}
        }
        for bucket in self.vbs.buckets.values() {
            bucket.copies.renew(&settings, until_ms);
        }
    }

    /// Whether the node serves a vBucket at this moment.
    pub(crate) fn serves(&self, vb: Vb, now_ms: u64) -> bool {
        self.clock.world_ms.store(now_ms, Ordering::Relaxed);
        let Some(bucket) = self.vbs.buckets.get(&vb.bucket) else {
            return false;
        };
        let is_active = |vbucket: &mut engine::VBucket| match vbucket.state() {
            VbState::Active => Ok(()),
            _ => Err(OpError::NotMyVbucket),
        };
        let bucket = &bucket.copies.bucket;
        self.runs(now_ms) && bucket.run(VbId(vb.number), is_active).is_ok()
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        lease_ms: 2_000,
        margin_ms: 200,
        confirmed_ms: 500,
        repeat_ms: 200,
        request_ms: 1_000,
        unheard_ms: 1_000,
        settle_ms: 3_000,
        failovers_max: 1_000,
        takeover_ms: 3_000,
        moves_per_node: 2,
        takeovers_per_node: 2,
        together_ms: 500,
        moving_ms: 50,
    }
}

fn participant(node: NodeId, zone: u16, boot: u64, newest: Seen) -> Participant {
    let new = NodeValue {
        name: format!("n{}", node.0),
        zone,
        ..NodeValue::default()
    };
    let identity = Identity {
        cluster: CLUSTER,
        node,
        boot,
        new,
    };
    Participant::new(identity, settings(), newest)
}
