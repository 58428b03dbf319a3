//! Statistics of memory pressure: its limits, refusals at them, what gave way, and how
//! long vBuckets were locked for it.

use bucket::{Eviction, HOLDS, Hold, Limits, Memory, Share};

use super::row::{BucketRow, rows};
use crate::figures::BucketFigures;
use crate::rows::Value;

const CONFIG: &[&str] = &["", "config"];
const MEMORY: &[&str] = &["", "memory"];
const QUOTA: &[&str] = &["", "memory", "config"];
const GENERAL: &[&str] = &[""];
const LOCKS: &[&str] = &["locks"];

/// In the order in which they are shown.
pub(crate) static PRESSURE: &[BucketRow] = rows! {
    CONFIG "ep_item_eviction_policy" Text
        "What leaves memory when it is short: value_only, full_eviction, auto_delete or none",
        |f| match f.served.bucket.options().eviction {
            Eviction::None => "none",
            Eviction::Values => "value_only",
            Eviction::Documents => "full_eviction",
            Eviction::Delete => "auto_delete",
        };
    CONFIG "ep_durability_min_level" Text
        "What every write asks for at least: none, majority, majorityAndPersistActive or persistToMajority",
        |f| {
            let least = f.served.bucket.options().vb.durability_min;
            least.map_or("none", model::DurabilityLevel::name)
        };
    CONFIG "ep_exp_pager_enabled" Bool "Whether expired documents are looked for",
        |f| f.served.bucket.expires();
    CONFIG "ep_exp_pager_stime" Seconds "Time between two passes that look for them",
        |f| f.served.bucket.expiry_pass_s();
    QUOTA "ep_mutation_mem_ratio" Ratio "Share of the quota above which writes are refused",
        |f| share(f, |limits| limits.mutation);
    QUOTA "ep_backfill_mem_threshold" Percent
        "Share of the quota at which nothing is read back into memory",
        |f| percent(memory(f).limits().backfill);
    QUOTA "ep_checkpoint_memory_ratio" Ratio "Share of the quota that checkpoints may take",
        |f| share(f, |limits| limits.checkpoints);
    MEMORY "ep_checkpoint_memory_quota" Bytes
        "Memory that checkpoints may take for themselves; above it every change is refused",
        |f| memory(f).checkpoint_quota();
    MEMORY "ep_checkpoint_memory_recovery_upper_mark_bytes" Bytes
        "Memory of checkpoints at which they are relieved",
        |f| memory(f).checkpoint_upper_mark();
    MEMORY "ep_checkpoint_memory_recovery_lower_mark_bytes" Bytes "Down to this",
        |f| memory(f).checkpoint_lower_mark();
    MEMORY "ep_mem_booked" Bytes "Memory in use but for the overhead and what connections hold",
        |f| memory(f).booked();
    MEMORY "ep_mem_backfills" Bytes
        "Documents read for streams and not yet sent, and what readers of changes over HTTP hold",
        |f| memory(f).backfills();
    MEMORY "ep_changes_taken_back" Count
        "Streams of changes over HTTP that ended: their readers held much, and moved nothing",
        |f| f.served.loans.taken_back();
    MEMORY "ep_mem_backfills_max" Bytes "What these may take, all streams together",
        |f| memory(f).backfills_max();
    MEMORY "ep_mem_transit" Bytes
        "Requests that are not whole and answers that are not read; in use, too",
        |f| memory(f).transit();
    MEMORY "ep_mem_overhead" Bytes
        "What the process takes beyond what is booked, as far as it is this bucket's"
        Gauge "bucket_memory_overhead",
        |f| memory(f).overhead();
    MEMORY "ep_oom_errors" Count "Operations refused because the quota is used up"
        Counter "bucket_refused_at_quota",
        |f| f.counter(|c| &c.refused_at_quota);
    MEMORY "ep_num_pager_runs" Count "Times that the reliever went to work",
        |f| f.counter(|c| &c.relief_steps);
    MEMORY "ep_write_rests" Count
        "Writes after which their connection rested (up to 0.3 ms), for the store to keep up"
        Counter "bucket_write_rests",
        |f| f.counter(|c| &c.write_rests);
    MEMORY "ep_cursors_dropped" Count "Streams sent back to the store to make room"
        Counter "bucket_cursors_dropped",
        |f| f.counter(|c| &c.cursors_dropped);
    MEMORY "ep_items_auto_deleted" Count "Documents deleted to make room"
        Counter "bucket_auto_deleted",
        |f| f.counter(|c| &c.auto_deleted);
    GENERAL "ep_expired_pager" Count "Expired documents found by the expiry pass"
        Counter "bucket_expired_by_pass",
        |f| f.counter(|c| &c.expired);
    GENERAL "ep_num_expiry_pager_runs" Count "Expiry passes over the whole bucket",
        |f| f.counter(|c| &c.expiry_passes);
    LOCKS "lock_hold_tail" Nanos
        "Time below which 99.9 % of the holds stayed, of the reason where it is longest"
        Gauge "bucket_lock_hold_tail",
        |f| HOLDS.map(|hold| quantile(f, hold, 999)).into_iter().max().unwrap_or(0);
    LOCKS "lock_hold_pull_count" Count "Times that a stream held a vBucket's lock",
        |f| count(f, Hold::Pull);
    LOCKS "lock_hold_pull_tail" Nanos "Time below which 99.9 % of them stayed",
        |f| quantile(f, Hold::Pull, 999);
    LOCKS "lock_hold_pull_max" Nanos "The longest",
        |f| quantile(f, Hold::Pull, 1000);
    LOCKS "lock_hold_pull_cpu_tail" Nanos
        "Processor time of the holder below which 99.9 % of them stayed, of one in 64",
        |f| cpu_quantile(f, Hold::Pull, 999);
    LOCKS "lock_hold_flush_count" Count "Times that the flusher held a vBucket's lock",
        |f| count(f, Hold::Flush);
    LOCKS "lock_hold_flush_tail" Nanos "Time below which 99.9 % of them stayed",
        |f| quantile(f, Hold::Flush, 999);
    LOCKS "lock_hold_flush_max" Nanos "The longest",
        |f| quantile(f, Hold::Flush, 1000);
    LOCKS "lock_hold_flush_cpu_tail" Nanos
        "Processor time of the holder below which 99.9 % of them stayed, of one in 64",
        |f| cpu_quantile(f, Hold::Flush, 999);
    LOCKS "lock_hold_expel_count" Count
        "Times that a vBucket's lock was held to let go of changes",
        |f| count(f, Hold::Expel);
    LOCKS "lock_hold_expel_tail" Nanos "Time below which 99.9 % of them stayed",
        |f| quantile(f, Hold::Expel, 999);
    LOCKS "lock_hold_expel_max" Nanos "The longest",
        |f| quantile(f, Hold::Expel, 1000);
    LOCKS "lock_hold_expel_cpu_tail" Nanos
        "Processor time of the holder below which 99.9 % of them stayed, of one in 64",
        |f| cpu_quantile(f, Hold::Expel, 999);
    LOCKS "lock_hold_evict_count" Count "Times that a vBucket's lock was held to evict",
        |f| count(f, Hold::Evict);
    LOCKS "lock_hold_evict_tail" Nanos "Time below which 99.9 % of them stayed",
        |f| quantile(f, Hold::Evict, 999);
    LOCKS "lock_hold_evict_max" Nanos "The longest",
        |f| quantile(f, Hold::Evict, 1000);
    LOCKS "lock_hold_evict_cpu_tail" Nanos
        "Processor time of the holder below which 99.9 % of them stayed, of one in 64",
        |f| cpu_quantile(f, Hold::Evict, 999);
    LOCKS "lock_hold_expire_count" Count
        "Times that a vBucket's lock was held to look for expired documents",
        |f| count(f, Hold::Expire);
    LOCKS "lock_hold_expire_tail" Nanos "Time below which 99.9 % of them stayed",
        |f| quantile(f, Hold::Expire, 999);
    LOCKS "lock_hold_expire_max" Nanos "The longest",
        |f| quantile(f, Hold::Expire, 1000);
    LOCKS "lock_hold_expire_cpu_tail" Nanos
        "Processor time of the holder below which 99.9 % of them stayed, of one in 64",
        |f| cpu_quantile(f, Hold::Expire, 999);
    LOCKS "lock_hold_restore_count" Count
        "Times that a vBucket's lock was held to put a document back",
        |f| count(f, Hold::Restore);
    LOCKS "lock_hold_restore_tail" Nanos "Time below which 99.9 % of them stayed",
        |f| quantile(f, Hold::Restore, 999);
    LOCKS "lock_hold_restore_max" Nanos "The longest",
        |f| quantile(f, Hold::Restore, 1000);
    LOCKS "lock_hold_restore_cpu_tail" Nanos
        "Processor time of the holder below which 99.9 % of them stayed, of one in 64",
        |f| cpu_quantile(f, Hold::Restore, 999);
    LOCKS "lock_hold_stat_count" Count "Times that statistics held a vBucket's lock",
        |f| count(f, Hold::Stat);
    LOCKS "lock_hold_stat_tail" Nanos "Time below which 99.9 % of them stayed",
        |f| quantile(f, Hold::Stat, 999);
    LOCKS "lock_hold_stat_max" Nanos "The longest",
        |f| quantile(f, Hold::Stat, 1000);
    LOCKS "lock_hold_stat_cpu_tail" Nanos
        "Processor time of the holder below which 99.9 % of them stayed, of one in 64",
        |f| cpu_quantile(f, Hold::Stat, 999);
    LOCKS "lock_hold_collections_count" Count
        "Times that a vBucket's lock was held to begin, end or erase collections",
        |f| count(f, Hold::Collections);
    LOCKS "lock_hold_collections_tail" Nanos "Time below which 99.9 % of them stayed",
        |f| quantile(f, Hold::Collections, 999);
    LOCKS "lock_hold_collections_max" Nanos "The longest",
        |f| quantile(f, Hold::Collections, 1000);
    LOCKS "lock_hold_collections_cpu_tail" Nanos
        "Processor time of the holder below which 99.9 % of them stayed, of one in 64",
        |f| cpu_quantile(f, Hold::Collections, 999);
};

fn memory<'a>(figures: &'a BucketFigures<'_>) -> &'a Memory {
    figures.served.bucket.memory()
}

fn count(figures: &BucketFigures<'_>, hold: Hold) -> u64 {
    figures.served.bucket.holds().count(hold)
}

fn quantile(figures: &BucketFigures<'_>, hold: Hold, per_mille: u64) -> u64 {
    figures.served.bucket.holds().quantile_ns(hold, per_mille)
}

fn cpu_quantile(figures: &BucketFigures<'_>, hold: Hold, per_mille: u64) -> u64 {
    figures
        .served
        .bucket
        .holds()
        .cpu_quantile_ns(hold, per_mille)
}

fn share(figures: &BucketFigures<'_>, of: impl Fn(&Limits) -> Share) -> Value {
    Value::Ratio(of(&memory(figures).limits()).as_ratio())
}

/// Rounded down to whole percent.
fn percent(share: Share) -> u64 {
    share.of(100)
}
