//! Figures behind the statistics: of the node, of a bucket, of a vBucket.

use std::cell::OnceCell;
use std::ops::Deref;

use bucket::{Bucket, Hold};
use engine::{
    CheckpointStats, CursorStats, DriftLimits, DurabilityStats, HashStats, VBucket, VbStats,
};
use model::{FailoverEntry, Now, VbId, VbState, VbUuid};
use registry::timings::{CountedResult, Merged, Timings};
use registry::{Registry, ServedBucket, Store};
use storage::{DiskUsage, HistoryKept, KvStore as _, WorkTotals};
use wire::{Family, OpcodeInfo, Status};

/// Commands that read a document.
pub(super) const LOOKUPS: &[Family] = &[Family::Get, Family::Lock, Family::Meta];
/// Commands that change a document.
pub(super) const MUTATIONS: &[Family] = &[
    Family::Set,
    Family::Delete,
    Family::Increment,
    Family::Decrement,
    Family::Touch,
];

/// Figures of the node at one point in time.
pub(super) struct NodeFigures<'a> {
    pub(super) node: &'a Registry,
    pub(super) now: Now,
}

impl<'a> NodeFigures<'a> {
    pub(super) fn of(node: &'a Registry) -> Self {
        Self {
            node,
            now: node.clock.now(),
        }
    }

    /// Returns the merged histogram of one opcode.
    pub(super) fn merged(&self, opcode: u8) -> Merged {
        Merged::of(workers(self.node), opcode)
    }

    /// Returns the number of commands of some families.
    pub(super) fn commands(&self, families: &[Family]) -> u64 {
        let opcodes = opcodes(|info| families.contains(&info.family));
        opcodes.map(|opcode| self.merged(opcode).total()).sum()
    }

    /// Returns the number of commands of some families with one kind of answer.
    pub(super) fn answers(&self, families: &[Family], answer: CountedResult) -> u64 {
        self.answered(answer, |info| families.contains(&info.family))
    }

    /// Returns the number of commands of any family with one kind of answer.
    pub(super) fn all_answers(&self, answer: CountedResult) -> u64 {
        self.answered(answer, |_| true)
    }

    fn answered(&self, answer: CountedResult, of: impl Fn(&OpcodeInfo) -> bool) -> u64 {
        let count = |opcode| workers(self.node).map(move |one| one.answers(opcode, answer));
        opcodes(of).flat_map(count).sum()
    }

    /// Returns the number of responses with this status.
    pub(super) fn responses(&self, status: Status) -> u64 {
        let each = workers(self.node).map(|timings| timings.responses(status));
        each.sum()
    }

    /// Returns the number of commands of any opcode that failed.
    pub(super) fn errors(&self) -> u64 {
        let all = [
            CountedResult::Missing,
            CountedResult::Conflict,
            CountedResult::Locked,
            CountedResult::Refused,
        ];
        let of = |timings: &Timings| -> u64 {
            (0..=u8::MAX)
                .flat_map(|opcode| all.map(|answer| timings.answers(opcode, answer)))
                .sum()
        };
        workers(self.node).map(of).sum()
    }
}

/// Returns the opcodes for which a condition holds.
fn opcodes(holds: impl Fn(&OpcodeInfo) -> bool) -> impl Iterator<Item = u8> {
    let rows = OpcodeInfo::all().iter();
    rows.filter(move |info| holds(info))
        .map(|info| info.opcode.0)
}

/// Returns the records of all workers.
pub(super) fn workers(node: &Registry) -> impl Iterator<Item = &Timings> {
    node.timings.iter().map(|timings| -> &Timings { timings })
}

/// Sums over the vBuckets in one state.
#[derive(Clone, Debug, Default)]
pub(super) struct StateSums {
    pub(super) vbuckets: u64,
    pub(super) stats: VbStats,
    pub(super) checkpoints: CheckpointStats,
}

impl StateSums {
    fn add(&mut self, stats: &VbStats, checkpoints: &CheckpointStats) {
        self.vbuckets += 1;
        self.stats += *stats;
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

    /// Returns the share of documents whose value is in memory, in whole percent.
    pub(super) fn percent_resident(&self) -> u64 {
        let resident = self.stats.items - self.stats.non_resident;
        (resident * 100)
            .checked_div(self.stats.items)
            .unwrap_or(100)
    }

    /// Number of changes that left the disk queue because they became durable.
    pub(super) fn drained(&self) -> u64 {
        drained(&self.checkpoints)
    }
}

/// Number of changes that are neither in the disk queue nor were replaced in it.
pub(super) fn drained(checkpoints: &CheckpointStats) -> u64 {
    checkpoints
        .next_position
        .saturating_sub(checkpoints.deduplicated + checkpoints.dirty_items)
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
            sums.all.add(&stats, &checkpoints);
        }
        sums
    }

    /// Returns the sums of each state, with its name.
    pub(super) fn states(&self) -> [(&'static str, &StateSums); 4] {
        [
            (VbState::Active.name(), &self.active),
            (VbState::Replica.name(), &self.replica),
            (VbState::Pending.name(), &self.pending),
            (VbState::Dead.name(), &self.dead),
        ]
    }
}

/// Figures of a bucket at one point in time. Expensive ones are computed at first use.
pub(super) struct BucketFigures<'a> {
    pub(super) node: &'a Registry,
    pub(super) served: &'a ServedBucket,
    sums: OnceCell<Sums>,
    disk: OnceCell<DiskUsage>,
}

impl Deref for BucketFigures<'_> {
    type Target = Bucket<Store>;

    fn deref(&self) -> &Bucket<Store> {
        &self.served.bucket
    }
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

    /// Sums of the figures of all vBuckets.
    pub(super) fn totals(&self) -> &VbStats {
        &self.sums().all.stats
    }

    /// Sums of the checkpoints of all vBuckets.
    pub(super) fn checkpoints(&self) -> &CheckpointStats {
        &self.sums().all.checkpoints
    }

    /// Bytes that the store uses; zeros if it cannot count them.
    pub(super) fn disk(&self) -> DiskUsage {
        *self
            .disk
            .get_or_init(|| self.store().disk_usage().unwrap_or_default())
    }

    /// Figures of the store's background work.
    pub(super) fn upkeep(&self) -> WorkTotals {
        self.store().upkeep()
    }

    /// Whether data operations are admitted.
    pub(super) fn admits(&self) -> bool {
        self.warmup().admits()
    }

    /// Whether documents survive a restart.
    pub(super) fn is_durable(&self) -> bool {
        matches!(self.store(), Store::Disk(_))
    }
}

/// Figures of a vBucket, taken under its lock.
pub(super) struct VbFigures {
    pub(super) id: VbId,
    pub(super) state: VbState,
    pub(super) stats: VbStats,
    /// Its part of the store's bytes; only if the request needs it.
    pub(super) disk: DiskUsage,
    /// Figures of its replaced versions; only if the request needs them.
    pub(super) history: HistoryKept,
    pub(super) checkpoints: CheckpointStats,
    pub(super) hash: HashStats,
    /// Number of hash table buckets, by how many documents they hold; only if the request needs it.
    pub(super) fill: [u64; 8],
    pub(super) high_seqno: u64,
    pub(super) visible_seqno: u64,
    pub(super) durability: DurabilityStats,
    pub(super) persisted_seqno: u64,
    pub(super) purge_seqno: u64,
    pub(super) max_cas: u64,
    /// Largest difference between a foreign CAS and the clock.
    pub(super) drift: DriftLimits,
    pub(super) max_deleted_rev: u64,
    pub(super) uuid: VbUuid,
    /// JSON text; empty if none was set.
    pub(super) topology: String,
    /// Failover log, newest first; only if the request needs it.
    pub(super) failovers: Vec<FailoverEntry>,
    /// Cursors of streams; only if the request needs them.
    pub(super) cursors: Vec<CursorStats>,
}

impl VbFigures {
    /// Number of rows in the store, not counting changes that are not flushed yet.
    pub(super) fn rows(&self) -> u64 {
        self.stats.items + self.stats.tombstones
    }

    /// Returns the number of hash table buckets, and of documents in them.
    pub(super) fn counted(&self) -> (u64, u64) {
        let filled = self.fill.iter().zip(0..);
        let documents = filled.map(|(buckets, documents)| buckets * documents).sum();
        (self.fill.iter().sum(), documents)
    }

    /// Cost: O(1), except the failover log (at most 25 entries), the cursors and the hash table buckets if
    /// `group` needs them.
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
                // A table without memory is shown as one empty bucket, since tools divide by the number.
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
            drift: vb.drift_limits(),
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
