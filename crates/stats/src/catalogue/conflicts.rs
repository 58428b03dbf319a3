//! Statistics of changes from other nodes: conflicts, and the drift of other nodes' clocks.

use super::row::{BucketRow, GENERAL, rows};

const CONFIG: &[&str] = &["", "config"];

/// Rows in the order of the output.
pub(crate) static CONFLICTS: &[BucketRow] = rows! {
    CONFIG "ep_conflict_resolution_type" Text
        "How conflicts with versions of other nodes are resolved: seqno or lww",
        |f| f.vb_config().conflicts.name();
    GENERAL "ep_num_ops_set_meta_res_fail" Count
        "Documents that came with their metadata and were refused: what was here is newer"
        Counter "bucket_sets_lost", |f| f.totals().sets_lost;
    GENERAL "ep_num_ops_del_meta_res_fail" Count "The same of deletions"
        Counter "bucket_deletes_lost", |f| f.totals().deletes_lost;
    CONFIG "ep_hlc_drift_ahead_threshold_us" Micros
        "A CAS from elsewhere that is further ahead of the clock is an exception",
        |f| f.vb_config().drift.ahead_us;
    CONFIG "ep_hlc_drift_behind_threshold_us" Micros "The same of one behind the clock",
        |f| f.vb_config().drift.behind_us;
    CONFIG "ep_hlc_max_future_threshold_us" Micros
        "A CAS that comes with a document's metadata is too far in the future beyond this",
        |f| f.vb_config().drift.future_us;
    CONFIG "ep_hlc_invalid_strategy" Text
        "What becomes of such a CAS: ignore (it is taken), error (it is refused) or replace",
        |f| f.vb_config().drift.future.name();
    GENERAL "ep_active_hlc_drift" Micros
        "Between the CAS of each change with metadata and the clock, active vBuckets, summed",
        |f| f.sums().active.stats.drift_us;
    GENERAL "ep_active_hlc_drift_count" Count "How many changes these are",
        |f| f.sums().active.stats.drift_count;
    GENERAL "ep_active_ahead_exceptions" Count "Of them, those too far ahead of the clock",
        |f| f.sums().active.stats.drift_ahead;
    GENERAL "ep_active_behind_exceptions" Count
        "Those too far behind; documents that were written long ago are among them",
        |f| f.sums().active.stats.drift_behind;
    GENERAL "ep_replica_hlc_drift" Micros
        "Between the CAS of each change of the active node and the clock here, summed",
        |f| f.sums().replica.stats.drift_us;
    GENERAL "ep_replica_hlc_drift_count" Count "How many changes these are",
        |f| f.sums().replica.stats.drift_count;
    GENERAL "ep_replica_ahead_exceptions" Count "Of them, those too far ahead of the clock",
        |f| f.sums().replica.stats.drift_ahead;
    GENERAL "ep_replica_behind_exceptions" Count "Those too far behind",
        |f| f.sums().replica.stats.drift_behind;
    GENERAL "ep_clock_cas_drift_threshold_exceeded" Count "All these exceptions together"
        Counter "bucket_drift_exceptions",
        |f| f.totals().drift_ahead + f.totals().drift_behind;
};
