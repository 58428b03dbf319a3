//! The buckets of a node: real ones, whose workers make a step on demand.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bucket::{
    Backfilled, Bucket, BucketOptions, Clock, CompactionRules, DurableWait, Eviction, Flushed,
    HistoryRetention, ReadySet, SetManifestError, Wake, WantedRows,
};
use cluster::agent::{Copy, Role, Step, Topology};
use cluster::{BucketId, Copies, NodeId, Vb};
use collections::ManifestError;
use copies::{BucketCopies, CopyState, NodeServices, Steps, node_name};
use engine::{Mutated, Outcome, Requirement, StoreMode, VbConfig, Write};
use model::{Cas, CompressionMode, Draft, Meta, Seqno, SnapshotRange, VbId, VbState, VbUuid};
use storage::KvStore as _;

use crate::bugs::Bug;
use crate::disk::Disk;
use crate::link::{AllServed, Link};
use crate::producer::Producer;
use crate::rng::Rng;

const QUOTA_BYTES: u64 = 1 << 30;
pub(crate) const VBUCKETS: u16 = 2;
/// Number of keys that clients write in a vBucket: those of the default collection come first.
pub(crate) const KEYS: u8 = 16;
pub(crate) const KEYS_DEFAULT: u8 = 12;

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Number of the write that was found.
    Number(u64),
    Nothing,
    /// Another write may be the newest one, or the newest one cannot be read.
    Undecided,
}

/// A waker without effect.
pub(crate) struct Deaf;

impl Wake for Deaf {
    fn wake(&self) {}
}

/// Returns a key with the number of its collection; `None` for one of the other collection while that does not exist.
pub(crate) fn key(number: u8, collection: Option<u8>) -> Option<[u8; 3]> {
    let collection = if number < KEYS_DEFAULT {
        Some(0)
    } else {
        collection
    };
    collection.map(|collection| [collection, b'k', b'a' + number])
}

/// The value of a write, and the time from which on it does not exist: zero for never.
#[derive(Clone, Copy)]
pub(crate) struct WrittenValue {
    pub(crate) number: u64,
    pub(crate) expiry_s: u32,
}

/// A write that was made.
pub(crate) struct Written {
    pub(crate) mutated: Mutated,
    pub(crate) term: u64,
    /// The decision to come, of a durable write.
    pub(crate) decision: Option<Arc<DurableWait>>,
}

pub(crate) struct SimBucket {
    pub(crate) copies: BucketCopies<Disk>,
    pub(crate) links: RefCell<BTreeMap<NodeId, Link>>,
    pub(crate) served: AllServed,
    /// Streams of clients, by the number of their connection.
    pub(crate) subscribed: BTreeMap<u64, Producer>,
    clock: Arc<dyn Clock>,
    pub(crate) bug: Option<Bug>,
}

/// Services of a node for a bucket.
pub(crate) struct SimServices<'a> {
    bucket: &'a SimBucket,
    random: &'a RefCell<Rng>,
    numbers: &'a Cell<u64>,
}

impl NodeServices for SimServices<'_> {
    fn random_u64(&self) -> u64 {
        self.random.borrow_mut().next()
    }

    fn changed(&self) {}

    fn connect(&self, node: NodeId) -> bool {
        let mut links = self.bucket.links.borrow_mut();
        links
            .entry(node)
            .or_insert_with(|| self.bucket.link(node, self.numbers));
        true
    }

    fn turn(&self, node: NodeId, vb: VbId) {
        if let Some(link) = self.bucket.links.borrow().get(&node) {
            link.turn(vb);
        }
    }
}

impl SimBucket {
    /// Opens the bucket at a start of the node, which follows a crash if there is data on the disk.
    pub(crate) fn open(
        id: BucketId,
        disk: Disk,
        clock: Arc<dyn Clock>,
        (random, bug): (&RefCell<Rng>, Option<Bug>),
    ) -> Self {
        let mut uuids = || VbUuid((random.borrow_mut().next() >> 16).max(1));
        let options = BucketOptions {
            name: format!("b{}", id.0),
            vbuckets: VBUCKETS,
            quota_bytes: QUOTA_BYTES,
            vb: Arc::new(VbConfig::default()),
            clean: false,
            eviction: Eviction::Values,
            compression: CompressionMode::Passive,
            compress: |_| None,
            expiry_pass_s: 0,
            history: HistoryRetention::default(),
            purge_age_s: 259_200,
            flush_interval_ms: 50,
            member: true,
            buffers: Arc::default(),
        };
        let bucket = Bucket::open(options, disk, Arc::clone(&clock), &mut uuids);
        let bucket = bucket.expect("a disk that can be read");
        if let Some(text) = bucket.store().manifest().expect("a disk that can be read") {
            let manifest = registry::collections::of_json(&text);
            bucket.restore_manifest(manifest.expect("the manifest of an operator"));
        }
        bucket.warm_up(&mut uuids);
        Self {
            copies: BucketCopies::new(id, bucket),
            links: RefCell::default(),
            served: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            clock,
            bug,
        }
    }

    pub(crate) fn link(&self, node: NodeId, numbers: &Cell<u64>) -> Link {
        numbers.set(numbers.get() + 1);
        let of = (&self.copies.bucket, &self.copies.gate);
        let now_ms = self.clock.mono_ns() / 1_000_000;
        Link::new(of, (node.0, self.bug), numbers.get(), now_ms)
    }

    pub(crate) fn services<'a>(
        &'a self,
        random: &'a RefCell<Rng>,
        numbers: &'a Cell<u64>,
    ) -> SimServices<'a> {
        SimServices {
            bucket: self,
            random,
            numbers,
        }
    }

    pub(crate) fn steps<'a>(
        &'a self,
        me: NodeId,
        failed: &'a BTreeSet<NodeId>,
        services: &'a SimServices<'a>,
    ) -> Steps<'a, Disk> {
        Steps {
            copies: &self.copies,
            me,
            failed,
            services,
        }
    }

    /// Closes connections to nodes that no copy follows.
    pub(crate) fn drop_links(&self) {
        let followed = self.copies.followed();
        let mut links = self.links.borrow_mut();
        links.retain(|node, _| followed.contains(node));
    }

    /// Writes all changes to disk; returns whether they are there. The node knows of a disk that fails.
    pub(crate) fn flush(&self) -> bool {
        let flushed = self.copies.bucket.flush_step();
        if flushed == Flushed::Clean {
            let faults = &self.copies.bucket.store().faults;
            faults.failed.store(false, Ordering::SeqCst);
        }
        let clean = |vb| {
            self.copies
                .bucket
                .with_vbucket(VbId(vb), |vbucket| !vbucket.is_dirty())
        };
        flushed == Flushed::Clean && (0..VBUCKETS).all(|vb| clean(vb).unwrap_or(true))
    }

    /// Takes the collections of an agreed manifest. Returns `false` if copies know a newer one from their streams.
    pub(crate) fn take_manifest(&self, text: &str) -> bool {
        let manifest = registry::collections::of_json(text.as_bytes());
        let manifest = manifest.expect("the manifest of an operator");
        let bucket = &self.copies.bucket;
        let taken = bucket.change_manifest(|_| Ok(manifest), registry::collections::to_bytes);
        match taken {
            Ok(_) => true,
            Err(SetManifestError::Refused(ManifestError::NoSuccessor(_))) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Purges all tombstones on disk. Damage stays as it is.
    pub(crate) fn purge(&self) {
        for vb in (0..VBUCKETS).map(VbId) {
            let _purged_or_damaged = self.copies.bucket.purge(vb, u64::MAX);
        }
    }

    /// Removes expired documents of active copies: those in memory, or those on disk as well.
    pub(crate) fn expire(&self, on_disk: bool) {
        self.copies.bucket.expiry_step();
        for vb in (0..VBUCKETS).map(VbId).filter(|_| on_disk) {
            let rules = CompactionRules::default();
            let _compacted_or_damaged = self.copies.bucket.compact(vb, rules);
        }
    }

    /// Evicts all documents that are on disk, and drops all cursors of streams. Checkpoints are small if keys leave as well.
    pub(crate) fn squeeze(&self, keys_too: bool) {
        let now = self.clock.now();
        for vb in (0..VBUCKETS).map(VbId) {
            let garbage = self.copies.bucket.with_vbucket(vb, |vbucket| {
                vbucket.set_evicts_keys(keys_too);
                vbucket.set_checkpoint_bytes_max(if keys_too { 1 } else { 1 << 20 });
                for key in (0..KEYS_DEFAULT).filter_map(|number| key(number, None)) {
                    vbucket.evict(&key, now);
                }
                let drop_slowest = || {
                    let slowest = vbucket.checkpoint_pressure().slowest?;
                    Some(vbucket.drop_cursor(slowest.cursor))
                };
                std::iter::from_fn(drop_slowest).collect::<Vec<_>>()
            });
            drop(garbage);
        }
    }

    /// Makes a read that finds the damage of a vBucket.
    pub(crate) fn meet_damage(&self, vb: VbId) {
        let ready = Arc::new(ReadySet::new(Arc::new(Deaf)));
        let bucket = &self.copies.bucket;
        let buffer = bucket.backfill_buffer(&ready);
        let range = SnapshotRange {
            start: Seqno(1),
            end: Seqno(u64::MAX),
        };
        let rows = WantedRows::Newest(None);
        let backfill = bucket.backfill(vb, range, rows, &buffer);
        while bucket.backfill_step() == Backfilled::Chunk {}
        drop(backfill);
    }

    /// Writes the number to a key of a vBucket, or deletes it; `None` if that is refused.
    pub(crate) fn write(
        &self,
        vb: VbId,
        (key, written): (&[u8], Option<WrittenValue>),
        durability: Option<Requirement>,
    ) -> Option<Written> {
        let (bucket, now) = (&self.copies.bucket, self.clock.now());
        let draft = written.map(|WrittenValue { number, expiry_s }| {
            let meta = Meta {
                expiry: expiry_s,
                ..Meta::default()
            };
            Draft::new(key, number.to_string().as_bytes(), &meta)
        });
        let mut write = Write {
            mode: StoreMode::Set,
            draft,
            cas: Cas::ANY,
            preserve_expiry: false,
            durability,
        };
        let mut attempt = || {
            bucket.run(vb, |vbucket| {
                let outcome = if written.is_some() {
                    vbucket.store(&mut write, now)?
                } else {
                    vbucket.delete(key, Cas::ANY, durability, now)?
                };
                let decision = match &outcome {
                    Outcome::Prepared(mutated) => {
                        Some(bucket.await_decision(vb, mutated.seqno, Arc::new(Deaf)))
                    }
                    Outcome::Done(_) | Outcome::NeedsFetch(_) => None,
                };
                Ok((outcome, vbucket.term(), decision))
            })
        };
        let mut written = attempt();
        if let Ok((Outcome::NeedsFetch(wanted), ..)) = &written
            && bucket.fetch_now(vb, wanted)
        {
            written = attempt();
        }
        match written {
            Ok((Outcome::Done(mutated) | Outcome::Prepared(mutated), term, decision)) => {
                Some(Written {
                    mutated,
                    term,
                    decision,
                })
            }
            _ => None,
        }
    }

    /// Reads a key of a vBucket.
    pub(crate) fn read(&self, vb: VbId, key: &[u8]) -> Read {
        let now = self.clock.now();
        let bucket = &self.copies.bucket;
        let get = || {
            bucket.with_vbucket(vb, |vbucket| {
                if vbucket.state() == VbState::Active {
                    vbucket.get(key, now)
                } else {
                    vbucket.get_replica(key, false, now)
                }
            })
        };
        let mut got = get();
        if let Some(Ok(Outcome::NeedsFetch(wanted))) = &got {
            if !bucket.fetch_now(vb, wanted) {
                return Read::Undecided;
            }
            got = get();
        }
        match got {
            Some(Ok(Outcome::Done(got))) => {
                let text = std::str::from_utf8(got.document.value()).ok();
                let number = text.and_then(|text| text.parse().ok());
                Read::Number(number.expect("the number of a write"))
            }
            Some(Err(engine::OpError::KeyNotFound | engine::OpError::UnknownCollection)) => {
                Read::Nothing
            }
            Some(Err(engine::OpError::SyncWriteReCommitInProgress)) => Read::Undecided,
            other => panic!("{other:?}"),
        }
    }
}

/// The copies of a node, as its participant sees them.
pub(crate) struct Vbs {
    pub(crate) me: NodeId,
    pub(crate) buckets: BTreeMap<BucketId, SimBucket>,
    pub(crate) bug: Option<Bug>,
    /// Number of each bucket's one collection beside the default one, as clients know it.
    pub(crate) collections: BTreeMap<BucketId, Option<u8>>,
    /// State that a planted bug keeps over a restart.
    remembered: Vec<(Vb, Copy)>,
}

impl Copies for Vbs {
    fn copy(&self, vb: Vb) -> Option<Copy> {
        let bucket = self.buckets.get(&vb.bucket)?;
        let mut copy = bucket.copies.copy(self.me, VbId(vb.number))?;
        match self.bug {
            Some(Bug::CatchUpSkipped) => copy.ready = true,
            Some(Bug::PartialSnapshotCounted) => {
                let high = bucket
                    .copies
                    .bucket
                    .with_vbucket(VbId(vb.number), |vbucket| vbucket.high_seqno().0);
                copy.position.seqno = high.unwrap_or_default();
                copy.position.prepared = copy.position.seqno;
            }
            _ => {}
        }
        Some(copy)
    }

    fn vbuckets(&self) -> Vec<Vb> {
        let all = self.buckets.values();
        all.flat_map(|bucket| bucket.copies.vbuckets()).collect()
    }

    fn damaged(&self) -> Vec<Vb> {
        let all = self.buckets.values();
        all.flat_map(|bucket| bucket.copies.damaged()).collect()
    }

    fn newer_manifest(&self, bucket: BucketId, agreed: Option<&str>) -> Option<String> {
        if self.bug == Some(Bug::ManifestLost) {
            return None;
        }
        let bucket = &self.buckets.get(&bucket)?.copies.bucket;
        registry::collections::if_newer(&bucket.manifest(), agreed)
    }
}

impl Vbs {
    pub(crate) fn new(me: NodeId, bug: Option<Bug>) -> Self {
        Self {
            me,
            buckets: BTreeMap::new(),
            bug,
            collections: BTreeMap::new(),
            remembered: Vec::new(),
        }
    }

    /// Returns the number of a bucket's other collection.
    pub(crate) fn collection(&self, bucket: BucketId) -> Option<u8> {
        self.collections.get(&bucket).copied().flatten()
    }

    /// Returns the state of a copy, besides its vBucket.
    pub(crate) fn state(&self, vb: Vb) -> Option<CopyState> {
        let bucket = self.buckets.get(&vb.bucket)?;
        bucket.copies.state(VbId(vb.number))
    }

    /// Returns the newest seqno of a copy; zero if there is none.
    pub(crate) fn high_seqno(&self, vb: Vb) -> Seqno {
        let bucket = self.buckets.get(&vb.bucket);
        let high = bucket.and_then(|bucket| {
            let bucket = &bucket.copies.bucket;
            bucket.with_vbucket(VbId(vb.number), |vbucket| vbucket.high_seqno())
        });
        high.unwrap_or_default()
    }

    pub(crate) fn is_active(&self, vb: Vb) -> bool {
        self.state(vb).is_some_and(|copy| copy.role == Role::Active)
    }

    /// Whether an active vBucket has, or will have, only one copy.
    pub(crate) fn is_alone(&self, vb: Vb) -> bool {
        let topology = self.state(vb).and_then(|copy| copy.topology);
        topology.is_some_and(|topology| {
            let to = topology.change.map(|change| change.0);
            let mut chains = to.into_iter().chain([topology.chain]);
            chains.any(|chain| chain.nodes().len() == 1)
        })
    }

    pub(crate) fn read(&self, vb: Vb, number: u8) -> Read {
        let bucket = self.buckets.get(&vb.bucket);
        let key = key(number, self.collection(vb.bucket));
        bucket.zip(key).map_or(Read::Nothing, |(bucket, key)| {
            bucket.read(VbId(vb.number), &key)
        })
    }

    /// Prepares a crash, in which all memory is lost.
    pub(crate) fn before_crash(&mut self) {
        if self.bug.is_some() {
            let copies = self.vbuckets().into_iter();
            let copies = copies.filter_map(|vb| Some((vb, self.copy(vb)?)));
            self.remembered = copies.collect();
        }
        self.buckets.clear();
    }

    /// Applies planted bugs after a restart.
    pub(crate) fn after_restart(
        &mut self,
        failed: &BTreeSet<NodeId>,
        random: &RefCell<Rng>,
        numbers: &Cell<u64>,
    ) {
        for (vb, copy) in std::mem::take(&mut self.remembered) {
            let term = copy.term;
            let step = match (self.bug, copy.topology) {
                (Some(Bug::RestartedActiveServes), Some(topology)) if copy.role == Role::Active => {
                    Step::Activate { vb, term, topology }
                }
                _ => continue,
            };
            if let Some(bucket) = self.buckets.get(&vb.bucket) {
                let services = bucket.services(random, numbers);
                let steps = bucket.steps(self.me, failed, &services);
                if let Some(mut open) = steps.begin(step) {
                    steps.go_on(&mut open);
                }
            }
        }
    }

    /// Applies planted bugs after a step.
    pub(crate) fn spoil_step(&self, step: &Step, before: Option<&Copy>) {
        let (vb, topology) = match *step {
            Step::Activate { vb, topology, .. } | Step::SetTopology { vb, topology } => {
                (vb, Some(topology))
            }
            Step::Seal { vb, .. } | Step::Follow { vb, .. } | Step::Create { vb, .. } => (vb, None),
            _ => return,
        };
        let Some(bucket) = self.buckets.get(&vb.bucket) else {
            return;
        };
        if self.bug == Some(Bug::SealForgotten) {
            // A restart finds the term of the newest step other than a seal.
            let faults = &bucket.copies.bucket.store().faults;
            let mut terms = faults.terms.lock();
            match *step {
                Step::Follow { term, .. }
                | Step::Create { term, .. }
                | Step::Activate { term, .. } => {
                    terms.insert(VbId(vb.number), term);
                }
                _ => {}
            }
        }
        match (self.bug, topology, before) {
            (Some(Bug::TwoChainsForgotten), Some(topology), _) => {
                self.forget_chain(bucket, VbId(vb.number), &topology);
            }
            (Some(Bug::ZombieStreamAccepted), None, Some(before))
                if matches!(step, Step::Seal { .. }) =>
            {
                if let Some(from) = before.follows {
                    let (gate, vb) = (&bucket.copies.gate, VbId(vb.number));
                    gate.follow(vb, from.0, before.term);
                    if let Some(link) = bucket.links.borrow().get(&from) {
                        link.turn(vb);
                    }
                }
            }
            _ => {}
        }
    }

    fn forget_chain(&self, bucket: &SimBucket, vb: VbId, topology: &Topology) {
        let others = topology
            .chain
            .nodes()
            .iter()
            .filter(|node| **node != self.me);
        let names = std::iter::once(self.me).chain(others.copied());
        let names: Vec<String> = names
            .map(|node| format!("\"{}\"", node_name(node)))
            .collect();
        let chains = format!("[[{}]]", names.join(","));
        let bucket = &bucket.copies.bucket;
        let set = bucket.set_vbucket(vb, VbState::Active, Some(chains), VbUuid(1));
        set.expect("a vBucket");
    }
}
