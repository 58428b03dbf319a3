//! Statistics of memory pressure: limits, refusals, freed memory, and hold times of vBucket locks.

use bucket::{Eviction, HOLDS, Hold, Limits, Share};

use super::row::{About, BucketRow, GENERAL, Unit, rows};
use crate::figures::BucketFigures;
use crate::rows::Value;

const CONFIG: &[&str] = &["", "config"];
const MEMORY: &[&str] = &["", "memory"];
const QUOTA: &[&str] = &["", "memory", "config"];
const POLICY: &[&str] = &["", "config", "eviction"];
const EVICTION: &[&str] = &["", "memory", "eviction"];
const LOCKS: &[&str] = &["locks"];

/// Rows in the order of the output.
pub(crate) static PRESSURE: &[BucketRow] = rows! {
    POLICY "ep_item_eviction_policy" Text
        "What leaves memory when it is short: value_only, full_eviction, auto_delete or none",
        |f| match f.eviction() {
            Eviction::None => "none",
            Eviction::Values => "value_only",
            Eviction::Documents => "full_eviction",
            Eviction::Delete => "auto_delete",
        };
    CONFIG "ep_durability_min_level" Text
        "What every write asks for at least: none, majority, majorityAndPersistActive or persistToMajority",
        |f| {
            let least = f.vb_config().durability_min;
            least.map_or("none", model::DurabilityLevel::name)
        };
    CONFIG "ep_durability_impossible_fallback" Text
        "What becomes of a durable write without a majority: disabled (refused) or fallback_to_active_ack",
        |f| if f.vb_config().durability_falls_back { "fallback_to_active_ack" } else { "disabled" };
    CONFIG "ep_compression_mode" Text
        "What becomes of compressed values, and of those that could be: off, passive or active",
        |f| f.compression().name();
    CONFIG "ep_exp_pager_enabled" Bool "Whether expired documents are looked for", |f| f.expires();
    CONFIG "ep_exp_pager_stime" Seconds "Time between two passes that look for them",
        |f| f.expiry_pass_s();
    QUOTA "ep_mutation_mem_ratio" Ratio "Share of the quota above which writes are refused",
        |f| share(f, |limits| limits.mutation);
    QUOTA "ep_backfill_mem_threshold" Percent
        "Share of the quota at which nothing is read back into memory",
        |f| percent(f.memory().limits().backfill);
    QUOTA "ep_checkpoint_memory_ratio" Ratio "Share of the quota that checkpoints may take",
        |f| share(f, |limits| limits.checkpoints);
    MEMORY "ep_checkpoint_memory_quota" Bytes
        "Memory that checkpoints may take for themselves; above it every change is refused",
        |f| f.memory().checkpoint_quota();
    MEMORY "ep_checkpoint_memory_recovery_upper_mark_bytes" Bytes
        "Memory of checkpoints at which they are relieved", |f| f.memory().checkpoint_upper_mark();
    MEMORY "ep_checkpoint_memory_recovery_lower_mark_bytes" Bytes "Down to this",
        |f| f.memory().checkpoint_lower_mark();
    MEMORY "ep_mem_booked" Bytes "Memory in use but for the overhead and what connections hold",
        |f| f.memory().booked();
    MEMORY "ep_mem_backfills" Bytes
        "Documents read for streams and not yet sent, and what readers of changes over HTTP hold",
        |f| f.memory().backfills();
    MEMORY "ep_changes_taken_back" Count
        "Streams of changes over HTTP that ended: their readers held much, and moved nothing",
        |f| f.served.loans.taken_back();
    MEMORY "ep_mem_backfills_max" Bytes "What these may take, all streams together",
        |f| f.memory().backfills_max();
    MEMORY "ep_mem_transit" Bytes
        "Requests that are not whole and answers that are not read; in use, too",
        |f| f.memory().transit();
    MEMORY "ep_mem_overhead" Bytes
        "What the process takes for other things than documents, as far as it is this bucket's"
        Gauge "bucket_memory_overhead", |f| f.memory().overhead();
    MEMORY "ep_mem_excess" Bytes
        "What the process takes beyond the quotas: documents leave for it",
        |f| f.memory().excess();
    MEMORY "ep_oom_errors" Count "Operations refused because the quota is used up"
        Counter "bucket_refused_at_quota", |f| &f.counters().refused_at_quota;
    EVICTION "ep_num_pager_runs" Count "Times that the reliever went to work",
        |f| &f.counters().relief_steps;
    MEMORY "ep_write_rests" Count
        "Writes after which their connection rested (up to 0.3 ms), for the store to keep up"
        Counter "bucket_write_rests", |f| &f.counters().write_backoffs;
    EVICTION "ep_cursors_dropped" Count "Streams sent back to the store to make room"
        Counter "bucket_cursors_dropped", |f| &f.counters().cursors_dropped;
    MEMORY "ep_item_compressor_num_compressed" Count "Values compressed to make room"
        Counter "bucket_compressed", |f| &f.counters().compressed;
    EVICTION "ep_items_auto_deleted" Count "Documents deleted to make room"
        Counter "bucket_auto_deleted", |f| &f.counters().auto_deleted;
    GENERAL "ep_expired_pager" Count "Expired documents found by the expiry pass"
        Counter "bucket_expired_by_pass", |f| &f.counters().expired;
    GENERAL "ep_num_expiry_pager_runs" Count "Expiry passes over the whole bucket",
        |f| &f.counters().expiry_passes;
    LOCKS "lock_hold_tail" Nanos
        "Time below which 99.9 % of the holds stayed, of the reason where it is longest"
        Gauge "bucket_lock_hold_tail",
        |f| HOLDS.map(|hold| f.holds().quantile_ns(hold, 999)).into_iter().max().unwrap_or(0);
};

/// `Hold "name" "help of the count";`: the rows for one reason to hold a vBucket's lock.
macro_rules! hold_rows {
    ($($hold:ident $name:literal $help:literal;)*) => {
        &[$(
            hold_row(concat!("lock_hold_", $name, "_count"), Unit::Count, $help,
                |f| f.holds().count(Hold::$hold).into()),
            hold_row(concat!("lock_hold_", $name, "_tail"), Unit::Nanos,
                "Time below which 99.9 % of them stayed",
                |f| f.holds().quantile_ns(Hold::$hold, 999).into()),
            hold_row(concat!("lock_hold_", $name, "_max"), Unit::Nanos, "The longest",
                |f| f.holds().quantile_ns(Hold::$hold, 1000).into()),
            hold_row(concat!("lock_hold_", $name, "_cpu_tail"), Unit::Nanos,
                "Processor time of the holder below which 99.9 % of them stayed, of one in 64",
                |f| f.holds().cpu_quantile_ns(Hold::$hold, 999).into()),
        )*]
    };
}

/// Rows by the reason to hold a vBucket's lock; they follow [`PRESSURE`].
pub(crate) static LOCK_HOLDS: &[BucketRow] = hold_rows! {
    Pull "pull" "Times that a stream held a vBucket's lock";
    Flush "flush" "Times that the flusher held a vBucket's lock";
    Expel "expel" "Times that a vBucket's lock was held to let go of changes";
    Evict "evict" "Times that a vBucket's lock was held to evict";
    Expire "expire" "Times that a vBucket's lock was held to look for expired documents";
    Restore "restore" "Times that a vBucket's lock was held to put a document back";
    Stat "stat" "Times that statistics held a vBucket's lock";
    Collections "collections" "Times that a vBucket's lock was held to begin, end or erase collections";
};

const fn hold_row(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    value: fn(&BucketFigures<'_>) -> Value,
) -> BucketRow {
    let about = About {
        groups: LOCKS,
        name,
        unit,
        help,
    };
    BucketRow {
        about,
        metric: None,
        value,
    }
}

fn share(figures: &BucketFigures<'_>, of: impl Fn(&Limits) -> Share) -> Value {
    Value::Ratio(of(&figures.memory().limits()).as_ratio())
}

/// Returns the share in whole percent, rounded down.
fn percent(share: Share) -> u64 {
    share.of(100)
}
