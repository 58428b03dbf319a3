//! What statistics are computed from: one look at the node, at a bucket, at a vBucket.

use std::cell::OnceCell;

use bucket::{Counters, Hold, WarmupStage};
use engine::{CheckpointStats, CursorStats, DurabilityStats, HashStats, VBucket, VbStats};
use model::{FailoverEntry, Now, VbId, VbState, VbUuid};
use registry::timings::{Answer, Merged, Timings};
use registry::{Registry, ServedBucket};
use storage::{DiskUsage, HistoryKept, KvStore as _, Upkeep};
use wire::{CasRule, Family, OpcodeInfo, Status};

/// Kinds of commands that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Get,
    Set,
    CasSet,
    Delete,
    Increment,
    Decrement,
    Lock,
    SubdocLookup,
    SubdocMutation,
    /// Everything that looks a document up.
    Lookup,
    /// Everything that changes a document.
    Mutation,
}

impl Class {
    fn holds(self, info: &OpcodeInfo) -> bool {
        let family = info.family;
        match self {
            Self::Get => family == Family::Get,
            Self::Set => family == Family::Set,
            // Those that are refused with a conflict only because of their CAS.
            Self::CasSet => {
                info.cas == CasRule::Any && matches!(family, Family::Set | Family::Delete)
            }
            Self::Delete => family == Family::Delete,
            Self::Increment => family == Family::Increment,
            Self::Decrement => family == Family::Decrement,
            Self::Lock => family == Family::Lock,
            Self::SubdocLookup => family == Family::SubdocLookup,
            Self::SubdocMutation => family == Family::SubdocMutation,
            Self::Lookup => matches!(family, Family::Get | Family::Lock | Family::Meta),
            Self::Mutation => matches!(
                family,
                Family::Set
                    | Family::Delete
                    | Family::Increment
                    | Family::Decrement
                    | Family::Touch
            ),
        }
    }

    pub(super) fn opcodes(self) -> impl Iterator<Item = u8> {
        let rows = OpcodeInfo::all().iter();
        rows.filter(move |info| self.holds(info))
            .map(|info| info.opcode.0)
    }
}

/// One look at the node.
pub(super) struct NodeFigures<'a> {
    pub(super) node: &'a Registry,
    pub(super) now: Now,
    pub(super) connections: (usize, u64, u64),
    pub(super) connections_max: usize,
    pub(super) logins: (u64, u64),
}

impl<'a> NodeFigures<'a> {
    pub(super) fn of(node: &'a Registry) -> Self {
        Self {
            node,
            now: node.clock.now(),
            connections: node.connections.counts(),
            connections_max: node.connections.max(),
            logins: node.counters.auth(),
        }
    }

    /// The merged histogram of one opcode.
    pub(super) fn merged(&self, opcode: u8) -> Merged {
        Merged::of(workers(self.node), opcode)
    }

    /// Commands of a class.
    pub(super) fn commands(&self, class: Class) -> u64 {
        class.opcodes().map(|op| self.merged(op).total()).sum()
    }

    /// Commands of a class that got this answer.
    pub(super) fn answers(&self, class: Class, answer: Answer) -> u64 {
        let of = |opcode| -> u64 {
            workers(self.node)
                .map(|timings| timings.answers(opcode, answer))
                .sum()
        };
        class.opcodes().map(of).sum()
    }

    /// Responses with this status.
    pub(super) fn responses(&self, status: Status) -> u64 {
        let each = workers(self.node).map(|timings| timings.responses(status));
        each.sum()
    }

    /// Commands of any opcode that were not done.
    pub(super) fn errors(&self) -> u64 {
        let all = [
            Answer::Missing,
            Answer::Conflict,
            Answer::Locked,
            Answer::Refused,
        ];
        let of = |timings: &Timings| -> u64 {
            (0..=u8::MAX)
                .flat_map(|opcode| all.map(|answer| timings.answers(opcode, answer)))
                .sum()
        };
        workers(self.node).map(of).sum()
    }
}

/// What every worker recorded.
pub(super) fn workers(node: &Registry) -> impl Iterator<Item = &Timings> {
    node.timings.iter().map(|timings| -> &Timings { timings })
}

/// Sums over the vBuckets that are in one state.
#[derive(Clone, Debug, Default)]
pub(super) struct StateSums {
    pub(super) vbuckets: u64,
    pub(super) stats: VbStats,
    pub(super) checkpoints: CheckpointStats,
}

impl StateSums {
    fn add(&mut self, stats: &VbStats, checkpoints: &CheckpointStats) {
        self.vbuckets += 1;
        add_stats(&mut self.stats, stats);
        let sum = &mut self.checkpoints;
        sum.checkpoints += checkpoints.checkpoints;
        sum.segments += checkpoints.segments;
        sum.items += checkpoints.items;
        sum.dirty_items += checkpoints.dirty_items;
        sum.dirty_bytes += checkpoints.dirty_bytes;
        sum.slot_bytes += checkpoints.slot_bytes;
        sum.stale_bytes += checkpoints.stale_bytes;
        sum.next_position += checkpoints.next_position;
        sum.deduplicated += checkpoints.deduplicated;
        sum.removed += checkpoints.removed;
        sum.expelled += checkpoints.expelled;
    }

    fn merge(&mut self, other: &Self) {
        let vbuckets = self.vbuckets + other.vbuckets;
        self.add(&other.stats, &other.checkpoints);
        self.vbuckets = vbuckets;
    }

    /// Share of the documents whose value is in memory, whole percent.
    pub(super) fn percent_resident(&self) -> u64 {
        let resident = self.stats.items - self.stats.non_resident;
        (resident * 100)
            .checked_div(self.stats.items)
            .unwrap_or(100)
    }

    /// Changes that left the queue, by becoming durable.
    pub(super) fn drained(&self) -> u64 {
        drained(&self.checkpoints)
    }
}

/// Changes that are neither waiting nor were replaced while they waited.
pub(super) fn drained(checkpoints: &CheckpointStats) -> u64 {
    checkpoints
        .next_position
        .saturating_sub(checkpoints.deduplicated + checkpoints.dirty_items)
}

fn add_stats(sum: &mut VbStats, stats: &VbStats) {
    sum.items += stats.items;
    sum.tombstones += stats.tombstones;
    sum.non_resident += stats.non_resident;
    sum.memory_bytes += stats.memory_bytes;
    sum.document_bytes += stats.document_bytes;
    sum.checkpoint_document_bytes += stats.checkpoint_document_bytes;
    sum.slot_bytes += stats.slot_bytes;
    sum.table_bytes += stats.table_bytes;
    sum.dirty_items += stats.dirty_items;
    sum.dirty_bytes += stats.dirty_bytes;
    sum.locks += stats.locks;
    sum.ops_get += stats.ops_get;
    sum.ops_create += stats.ops_create;
    sum.ops_update += stats.ops_update;
    sum.ops_delete += stats.ops_delete;
    sum.expired += stats.expired;
    sum.evicted += stats.evicted;
    sum.fetches += stats.fetches;
    sum.deduplicated += stats.deduplicated;
    sum.prepares += stats.prepares;
    sum.sync_accepted += stats.sync_accepted;
    sum.sync_committed += stats.sync_committed;
    sum.sync_aborted += stats.sync_aborted;
}

/// Sums over all vBuckets of a bucket. One pass, one lock at a time, O(1) under each.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) active: StateSums,
    pub(super) replica: StateSums,
    pub(super) pending: StateSums,
    pub(super) dead: StateSums,
    pub(super) all: StateSums,
}

impl Sums {
    fn of(served: &ServedBucket) -> Self {
        let mut sums = Self::default();
        for id in (0..served.bucket.vbuckets()).map(VbId) {
            let found = served.bucket.with_vbucket_for(Hold::Stat, id, |vb| {
                (vb.state(), vb.stats(), vb.checkpoint_stats())
            });
            let Some((life, stats, checkpoints)) = found else {
                continue;
            };
            let sum = match life {
                VbState::Active => &mut sums.active,
                VbState::Replica => &mut sums.replica,
                VbState::Pending => &mut sums.pending,
                VbState::Dead => &mut sums.dead,
            };
            sum.add(&stats, &checkpoints);
        }
        for part in [&sums.active, &sums.replica, &sums.pending, &sums.dead] {
            sums.all.merge(part);
        }
        sums
    }
}

/// One look at a bucket; what costs something is looked at when it is asked for.
pub(super) struct BucketFigures<'a> {
    pub(super) node: &'a Registry,
    pub(super) served: &'a ServedBucket,
    sums: OnceCell<Sums>,
    disk: OnceCell<DiskUsage>,
}

impl<'a> BucketFigures<'a> {
    pub(super) fn of(node: &'a Registry, served: &'a ServedBucket) -> Self {
        Self {
            node,
            served,
            sums: OnceCell::new(),
            disk: OnceCell::new(),
        }
    }

    /// Sums over the vBuckets.
    pub(super) fn sums(&self) -> &Sums {
        self.sums.get_or_init(|| Sums::of(self.served))
    }

    /// Bytes of the store; zeros while it cannot tell.
    pub(super) fn disk(&self) -> DiskUsage {
        *self
            .disk
            .get_or_init(|| self.served.bucket.store().disk_usage().unwrap_or_default())
    }

    /// What the store did in the background.
    pub(super) fn upkeep(&self) -> Upkeep {
        self.served.bucket.store().upkeep()
    }

    /// One of the workers' totals.
    pub(super) fn counter(&self, of: fn(&Counters) -> &std::sync::atomic::AtomicU64) -> u64 {
        Counters::read(of(self.served.bucket.counters()))
    }

    /// Whether data operations are let in.
    pub(super) fn is_warm(&self) -> bool {
        self.served.bucket.warmup().stage() == WarmupStage::Done
    }

    /// Whether documents survive a restart.
    pub(super) fn is_durable(&self) -> bool {
        matches!(self.served.bucket.store(), registry::Store::Disk(_))
    }
}

/// One look at a vBucket, taken under its lock.
pub(super) struct VbFigures {
    pub(super) id: VbId,
    pub(super) state: VbState,
    pub(super) stats: VbStats,
    /// Its part of the store, for requests that ask for it.
    pub(super) disk: DiskUsage,
    /// What it has of replaced versions, for requests that ask for it.
    pub(super) history: HistoryKept,
    pub(super) checkpoints: CheckpointStats,
    pub(super) hash: HashStats,
    /// Buckets of the hash table by how many documents they have; only for requests that ask for it.
    pub(super) fill: [u64; 8],
    pub(super) high_seqno: u64,
    pub(super) visible_seqno: u64,
    pub(super) durability: DurabilityStats,
    pub(super) persisted_seqno: u64,
    pub(super) purge_seqno: u64,
    pub(super) max_cas: u64,
    pub(super) max_deleted_rev: u64,
    pub(super) uuid: VbUuid,
    /// JSON text, empty when none was set.
    pub(super) topology: String,
    /// Newest first; only for requests that ask for it.
    pub(super) failovers: Vec<FailoverEntry>,
    /// Of streams; only for requests that ask for it.
    pub(super) cursors: Vec<CursorStats>,
}

impl VbFigures {
    /// Rows in the store, but for changes that it does not have yet.
    pub(super) fn rows(&self) -> u64 {
        self.stats.items + self.stats.tombstones
    }

    /// Buckets of the hash table, and documents in them.
    pub(super) fn counted(&self) -> (u64, u64) {
        let filled = self.fill.iter().zip(0..);
        let documents = filled.map(|(buckets, documents)| buckets * documents).sum();
        (self.fill.iter().sum(), documents)
    }

    /// O(1), but for the failover log (at most 25 entries), the cursors and the buckets of the
    /// table where `group` is about them.
    pub(super) fn of(vb: &VBucket, group: &str) -> Self {
        let log = vb.failover_log();
        Self {
            id: vb.id(),
            state: vb.state(),
            stats: vb.stats(),
            disk: DiskUsage::default(),
            history: HistoryKept::default(),
            checkpoints: vb.checkpoint_stats(),
            hash: vb.hash_stats(),
            fill: match group {
                // A table that takes no memory yet is told as one empty bucket: tools divide.
                "hash" if vb.hash_stats().slots == 0 => [1, 0, 0, 0, 0, 0, 0, 0],
                "hash" => vb.bucket_fill(),
                _ => [0; 8],
            },
            high_seqno: vb.high_seqno().0,
            visible_seqno: vb.visible_seqno().0,
            durability: vb.durability_stats(),
            persisted_seqno: vb.persisted_seqno().0,
            purge_seqno: vb.purge_seqno().0,
            max_cas: vb.max_cas().0,
            max_deleted_rev: vb.max_deleted_rev(),
            uuid: log.newest().uuid,
            topology: vb.topology().to_owned(),
            failovers: match group {
                "failovers" => log.entries().to_vec(),
                _ => Vec::new(),
            },
            cursors: match group {
                "checkpoint" => vb.cursor_stats().collect(),
                _ => Vec::new(),
            },
        }
    }
}
