//! Statistics of a bucket, and of its vBuckets by their state.

use bucket::{Counters, RefillState, WarmupStage};
use model::FailoverLog;
use registry::BucketKind;

use super::row::{BucketRow, GENERAL, StateRow, rows};
use crate::figures::BucketFigures;
use crate::rows::Value;

const CONFIG: &[&str] = &["", "config"];
const MEMORY: &[&str] = &["", "memory"];
const QUOTA: &[&str] = &["", "memory", "config"];
const MARKS: &[&str] = &["", "memory", "config", "eviction"];
const EVICTION: &[&str] = &["", "eviction"];
const EJECTS: &[&str] = &["", "memory", "eviction"];
const FAILURES: &[&str] = &["", "disk-failures"];
const WARMUP: &[&str] = &["", "warmup"];
const ONLY_WARMUP: &[&str] = &["warmup"];
const DISK: &[&str] = &["", "diskinfo"];
const UUID: &[&str] = &["uuid"];
const WORKLOAD: &[&str] = &["workload"];

/// Rows in the order of the output.
pub(crate) static BUCKET: &[BucketRow] = rows! {
    UUID "uuid" Text "Identity of the bucket, 32 hex digits", |f| f.served.uuid.clone();
    CONFIG "ep_uuid" Text "Identity of the bucket, 32 hex digits", |f| f.served.uuid.clone();
    CONFIG "ep_bucket_type" Text "persistent or ephemeral",
        |f| match f.served.kind() {
            BucketKind::Couchbase => "persistent",
            BucketKind::Ephemeral => "ephemeral",
        };
    CONFIG "ep_backend" Text "What keeps the documents: runs (on disk) or memory",
        |f| if f.is_durable() { "runs" } else { "memory" };
    CONFIG "ep_max_vbuckets" Count "vBuckets that there can be", |f| u32::from(f.vbuckets());
    CONFIG "ep_max_item_size" Bytes "Longest value", |f| f.vb_config().value_bytes_max;
    CONFIG "ep_max_ttl" Seconds "Longest time to live, 0 for no limit",
        |f| f.vb_config().max_ttl_s;
    CONFIG "ep_getl_default_timeout" Seconds
        "How long get-and-lock locks when the client does not say",
        |f| f.vb_config().getl_default_s;
    CONFIG "ep_getl_max_timeout" Seconds "Longest lock that a client may ask for",
        |f| f.vb_config().getl_max_s;
    CONFIG "ep_checkpoint_max_size" Bytes "Changes after which a checkpoint is closed",
        |f| f.vb_config().checkpoint_bytes_max;
    CONFIG "ep_max_failover_entries" Count "Histories kept of a vBucket",
        |_f| FailoverLog::ENTRIES_MAX;
    CONFIG "ep_flush_interval_ms" Millis "Least time between commits that no client waits for",
        |f| f.options().flush_interval_ms;
    CONFIG "ep_history_retention_seconds" Seconds
        "How long replaced versions are kept, of collections with history; 0 for no limit of time",
        |f| f.history_retention().seconds;
    CONFIG "ep_history_retention_bytes" Bytes
        "How much of them is kept; 0 for no limit of bytes, and none is kept where both are 0",
        |f| f.history_retention().bytes;
    CONFIG "ep_persistent_metadata_purge_age" Seconds "Age at which tombstones are purged",
        |f| f.purge_age_s();
    QUOTA "ep_max_size" Bytes "Memory quota" Gauge "bucket_memory_quota", |f| f.memory().quota();
    MARKS "ep_mem_low_wat" Bytes "Memory at which eviction stops", |f| f.memory().low_mark();
    MARKS "ep_mem_high_wat" Bytes "Memory at which eviction starts" Gauge "bucket_memory_high_mark",
        |f| f.memory().high_mark();
    MEMORY "ep_mem_low_wat_percent" Ratio "Low mark as a share of the quota",
        |f| share(f, f.memory().low_mark());
    MEMORY "ep_mem_high_wat_percent" Ratio "High mark as a share of the quota",
        |f| share(f, f.memory().high_mark());
    QUOTA "ep_mutation_mem_limit" Bytes "Memory above which writes are refused",
        |f| f.memory().mutation_limit();
    MEMORY "mem_used" Bytes "Memory of documents, tables and checkpoints"
        Gauge "bucket_memory_used", |f| f.memory().used();
    MEMORY "mem_used_estimate" Bytes "The same as mem_used", |f| f.memory().used();
    MEMORY "bytes" Bytes "The same as mem_used", |f| f.memory().used();
    MEMORY "ep_kv_size" Bytes "Documents in memory, with those that only checkpoints hold"
        Gauge "bucket_documents", |f| f.totals().document_bytes + f.checkpoints().stale_bytes;
    MEMORY "ep_total_cache_size" Bytes "Documents that the tables hold",
        |f| f.totals().document_bytes;
    MEMORY "ep_overhead" Bytes "Memory that is not documents" Gauge "bucket_overhead",
        |f| overhead(f);
    MEMORY "ep_hash_table_memory" Bytes "Arrays of the hash tables", |f| f.totals().table_bytes;
    MEMORY "ep_checkpoint_memory" Bytes "Checkpoints, with documents that only they hold"
        Gauge "bucket_checkpoints", |f| f.checkpoints().slot_bytes + f.checkpoints().stale_bytes;
    MEMORY "ep_checkpoint_memory_overhead" Bytes "Checkpoints without documents",
        |f| f.checkpoints().slot_bytes;
    MEMORY "ep_tmp_oom_errors" Count "Writes refused for lack of memory"
        Counter "bucket_refused_for_memory", |f| &f.counters().refused_for_memory;
    EJECTS "ep_num_value_ejects" Count "Values dropped from memory" Counter "bucket_evicted",
        |f| &f.counters().evicted;
    GENERAL "curr_items" Count "Live documents of active vBuckets" Gauge "bucket_items",
        |f| f.sums().active.stats.items;
    GENERAL "curr_items_tot" Count "Live documents of all vBuckets", |f| f.totals().items;
    GENERAL "ep_num_deleted_items" Count "Tombstones in memory" Gauge "bucket_tombstones",
        |f| f.totals().tombstones;
    EVICTION "ep_num_non_resident" Count "Live documents whose value is only in the store"
        Gauge "bucket_items_non_resident", |f| f.totals().non_resident;
    GENERAL "ep_total_new_items" Count "Documents created" Counter "bucket_created",
        |f| f.totals().ops_create;
    GENERAL "ep_total_updated_items" Count "Documents changed" Counter "bucket_updated",
        |f| f.totals().ops_update;
    GENERAL "ep_total_del_items" Count "Documents deleted by clients" Counter "bucket_deleted",
        |f| f.totals().ops_delete;
    GENERAL "ep_total_read_items" Count "Documents read" Counter "bucket_read",
        |f| f.totals().ops_get;
    GENERAL "ep_expired_access" Count "Documents found to have expired" Counter "bucket_expired",
        |f| f.totals().expired;
    GENERAL "ep_locked_items" Count "Documents locked, with locks that ran out unnoticed"
        Gauge "bucket_locked", |f| f.totals().locks;
    GENERAL "ep_vb_total" Count "vBuckets", |f| f.sums().all.vbuckets;
    GENERAL "vb_dead_num" Count "vBuckets that serve nothing", |f| f.sums().dead.vbuckets;
    GENERAL "ep_queue_size" Count "Changes that are not durable yet" Gauge "bucket_queue",
        |f| f.checkpoints().dirty_items;
    GENERAL "ep_flusher_todo" Count "The same as ep_queue_size", |f| f.checkpoints().dirty_items;
    GENERAL "ep_diskqueue_items" Count "The same as ep_queue_size", |f| f.checkpoints().dirty_items;
    GENERAL "ep_diskqueue_memory" Bytes "Documents of changes that are not durable yet"
        Gauge "bucket_queue", |f| f.checkpoints().dirty_bytes;
    GENERAL "ep_diskqueue_fill" Count "Changes queued", |f| f.checkpoints().next_position;
    GENERAL "ep_diskqueue_drain" Count "Queued changes that became durable",
        |f| f.sums().all.drained();
    GENERAL "ep_total_enqueued" Count "Changes queued" Counter "bucket_queued",
        |f| f.checkpoints().next_position;
    GENERAL "ep_total_deduplicated" Count
        "Changes that a later one of the same key replaced in the queue"
        Counter "bucket_deduplicated", |f| f.checkpoints().deduplicated;
    GENERAL "ep_rollback_count" Count "Times that a vBucket went back, as another node told",
        |f| &f.counters().rollbacks;
    GENERAL "rollback_item_count" Count "Seqnos that these took back",
        |f| &f.counters().rolled_back;
    GENERAL "ep_vbucket_del" Count "vBuckets deleted", |f| &f.counters().vbuckets_deleted;
    GENERAL "ep_vbucket_del_fail" Count
        "Deletions of vBuckets that the store failed; it is tried again, but for those in quarantine",
        |f| &f.counters().vbucket_deletes_failed;
    GENERAL "ep_num_checkpoints" Count "Checkpoints in memory", |f| f.checkpoints().checkpoints;
    GENERAL "ep_checkpoint_items" Count "Changes in memory" Gauge "bucket_checkpoint_items",
        |f| f.checkpoints().items;
    GENERAL "ep_items_rm_from_checkpoints" Count
        "Changes that left memory once every reader had passed them",
        |f| f.checkpoints().removed.items;
    GENERAL "ep_items_expelled_from_checkpoints" Count
        "Changes that every reader had passed and that left when memory was short",
        |f| f.checkpoints().expelled.items;
    GENERAL "ep_mem_freed_by_checkpoint_removal" Bytes
        "Places of the removed changes in the queue, and documents that only it held",
        |f| f.checkpoints().removed.bytes;
    GENERAL "ep_mem_freed_by_checkpoint_item_expel" Bytes "The same of the expelled changes",
        |f| f.checkpoints().expelled.bytes;
    GENERAL "ep_flusher_state" Text "running; paused; retrying after an error; failed for good; stopped",
        |f| f.flusher_state().name();
    GENERAL "ep_total_persisted" Count "Rows made durable" Counter "bucket_rows_persisted",
        |f| &f.counters().rows_persisted;
    GENERAL "ep_io_document_write_bytes" Bytes "Rows and records made durable, as encoded"
        Counter "bucket_persisted", |f| &f.counters().bytes_persisted;
    GENERAL "ep_commit_num" Count "Commits that succeeded" Counter "bucket_commits",
        |f| &f.counters().commits;
    GENERAL "ep_item_commit_failed" Count "Commits that failed" Counter "bucket_commits_failed",
        |f| &f.counters().commits_failed;
    GENERAL "ep_commits_waited" Count
        "Commits that waited until the store had put away what came before"
        Counter "bucket_commits_waited", |f| &f.counters().commits_waited;
    FAILURES "ep_data_write_failed" Count "The same as ep_item_commit_failed",
        |f| &f.counters().commits_failed;
    GENERAL "ep_store_merges" Count "Merges of the store's runs, since the start"
        Counter "bucket_store_merges", |f| f.upkeep().merges;
    GENERAL "ep_store_merges_failed" Count
        "Merges that failed and were given up; each is tried again"
        Counter "bucket_store_merges_failed", |f| f.upkeep().merges_failed;
    GENERAL "ep_store_runs_failed" Count
        "Attempts to make runs of a log that failed; each is tried again"
        Counter "bucket_store_runs_failed", |f| f.upkeep().runs_failed;
    GENERAL "ep_commit_time" Millis "Time of the last commit",
        |f| Counters::read(&f.counters().commit_last_us) / 1000;
    GENERAL "ep_commit_time_total" Millis "Time of all commits",
        |f| Counters::read(&f.counters().commit_us) / 1000;
    GENERAL "disk_commit_count" Count "Commits that succeeded", |f| &f.counters().commits;
    GENERAL "disk_commit_last" Micros "Time of the last commit", |f| &f.counters().commit_last_us;
    GENERAL "disk_commit_total" Micros "Time of all commits" Counter "bucket_commit",
        |f| &f.counters().commit_us;
    GENERAL "ep_bg_fetched" Count "Documents read back from the store" Counter "bucket_fetched",
        |f| &f.counters().fetched;
    GENERAL "ep_bg_reads_waited" Count "Reads that waited for the store, each counted once"
        Counter "bucket_reads_waited", |f| &f.counters().reads_waited;
    FAILURES "ep_data_read_failed" Count "Reads from the store that failed"
        Counter "bucket_fetches_failed", |f| &f.counters().fetch_failed;
    DISK "ep_db_data_size" Bytes "Live rows and records on disk, as last estimated"
        Gauge "bucket_disk_data", |f| f.disk().data_bytes;
    DISK "ep_db_file_size" Bytes "All files of the store" Gauge "bucket_disk_files",
        |f| f.disk().file_bytes;
    DISK "ep_compaction_running" Count "1 while a vBucket is looked through for old tombstones",
        |f| &f.compaction().running;
    DISK "ep_compaction_walks" Count "vBuckets looked through" Counter "bucket_compaction_walks",
        |f| &f.compaction().walks;
    DISK "ep_compaction_failed" Count "Times that the store failed meanwhile"
        Counter "bucket_compaction_failed", |f| &f.compaction().failed;
    DISK "ep_compaction_history_dropped" Count "Replaced versions that were too old, or too much"
        Counter "bucket_history_dropped", |f| &f.compaction().history_dropped;
    DISK "ep_compaction_rows_erased" Count "Rows of dropped collections that were taken out of the store"
        Counter "bucket_rows_erased", |f| &f.compaction().rows_erased;
    DISK "ep_compaction_rows_purged" Count "Tombstones that were purged from the store"
        Counter "bucket_rows_purged", |f| &f.compaction().rows_purged;
    DISK "ep_compaction_rows_read" Count "Rows that were looked at"
        Counter "bucket_compaction_rows_read", |f| &f.compaction().rows_read;
    DISK "ep_expired_compactor" Count "Documents that compaction found expired"
        Counter "bucket_compaction_expired", |f| &f.compaction().expired;
    DISK "ep_pending_compactions" Count "vBuckets that wait to be looked through on request"
        Gauge "bucket_compactions_waiting", |f| f.compactions_waiting();
    GENERAL "ep_degraded_mode" Bool "Whether data operations are refused: documents are loaded",
        |f| !f.admits();
    GENERAL "ep_vb_quarantined" Count
        "vBuckets that are not served, because something of them in the store is damaged; vbucket-details tells what"
        Gauge "bucket_vbuckets_quarantined", |f| f.all_quarantined().len() as u64;
    GENERAL "ep_data_traffic_enabled" Bool "Whether data operations are let in"
        Gauge "bucket_ready", |f| f.admits();
    ONLY_WARMUP "ep_warmup" Text "enabled where there is something to load, else disabled",
        |f| if f.is_durable() { "enabled" } else { "disabled" };
    CONFIG "ep_warmup" Bool "Whether documents are loaded when the bucket is opened",
        |f| f.is_durable();
    WARMUP "ep_warmup_state" Text "loading data; done; failed",
        |f| match f.warmup().stage() {
            WarmupStage::Loading => "loading data",
            WarmupStage::Done => "done",
            WarmupStage::Failed => "failed",
        };
    WARMUP "ep_warmup_thread" Text "running; complete",
        |f| match f.warmup().stage() {
            WarmupStage::Loading => "running",
            WarmupStage::Done | WarmupStage::Failed => "complete",
        };
    WARMUP "ep_warmup_key_count" Count "Keys loaded, tombstones included"
        Gauge "bucket_warmup_keys", |f| &f.warmup().keys;
    WARMUP "ep_warmup_value_count" Count "Values loaded, with the keys and by the refill afterwards"
        Gauge "bucket_warmup_values", |f| &f.warmup().values;
    WARMUP "ep_warmup_refill" Text
        "Whether documents that left memory come back after the start, those written last first: waiting; running; done",
        |f| match f.warmup().refill() {
            RefillState::Waiting => "waiting",
            RefillState::Running => "running",
            RefillState::Done => "done",
        };
    WARMUP "ep_warmup_vbuckets" Count "vBuckets to load", |f| f.warmup().vbuckets;
    WARMUP "ep_warmup_vbuckets_done" Count "vBuckets loaded", |f| &f.warmup().vbuckets_done;
    WARMUP "ep_warmup_time" Micros "Time that warmup took; 0 while it goes on"
        Gauge "bucket_warmup", |f| &f.warmup().time_us;
    WORKLOAD "ep_workload:num_readers" Count "Threads that read documents back from the store",
        |_f| 1_u32;
    WORKLOAD "ep_workload:num_writers" Count "Threads that make changes durable", |_f| 1_u32;
    WORKLOAD "ep_workload:num_nonio" Count "Threads that keep memory within its marks", |_f| 1_u32;
    WORKLOAD "ep_workload:num_shards" Count "Parts of the bucket that have threads of their own",
        |_f| 1_u32;
};

fn overhead(figures: &BucketFigures<'_>) -> usize {
    let documents = figures.totals().document_bytes + figures.checkpoints().stale_bytes;
    figures.totals().memory_bytes.saturating_sub(documents)
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(figures: &BucketFigures<'_>, mark: u64) -> Value {
    let quota = figures.memory().quota().max(1);
    Value::Ratio((mark as f64 / quota as f64 * 10_000.0).round() / 10_000.0)
}

/// Shown for active, replica and pending vBuckets: the names follow `vb_STATE_`.
pub(crate) static STATES: &[StateRow] = rows! {
    GENERAL "num" Count "vBuckets" Gauge "bucket_vbuckets", |f| f.vbuckets;
    GENERAL "curr_items" Count "Live documents", |f| f.stats.items;
    GENERAL "num_non_resident" Count "Live documents whose value is only in the store",
        |f| f.stats.non_resident;
    GENERAL "perc_mem_resident" Percent "Live documents whose value is in memory",
        |f| f.percent_resident();
    GENERAL "eject" Count "Values dropped from memory", |f| f.stats.evicted;
    GENERAL "expired" Count "Documents whose expiry came", |f| f.stats.expired;
    GENERAL "ht_memory" Bytes "Arrays of the hash tables", |f| f.stats.table_bytes;
    GENERAL "itm_memory" Bytes "Documents in the tables", |f| f.stats.document_bytes;
    GENERAL "checkpoint_memory" Bytes "Checkpoints, with documents that only they hold",
        |f| f.checkpoints.slot_bytes + f.checkpoints.stale_bytes;
    GENERAL "checkpoint_memory_overhead" Bytes "Checkpoints without documents",
        |f| f.checkpoints.slot_bytes;
    GENERAL "ops_create" Count "Documents created", |f| f.stats.ops_create;
    GENERAL "ops_update" Count "Documents changed", |f| f.stats.ops_update;
    GENERAL "ops_delete" Count "Documents deleted by clients", |f| f.stats.ops_delete;
    GENERAL "ops_get" Count "Documents read", |f| f.stats.ops_get;
    GENERAL "sync_write_accepted_count" Count "Durable writes that were prepared",
        |f| f.stats.sync_accepted;
    GENERAL "sync_write_committed_count" Count "Those that were committed",
        |f| f.stats.sync_committed;
    GENERAL "sync_write_aborted_count" Count "Those that were given up", |f| f.stats.sync_aborted;
    GENERAL "queue_size" Count "Changes that are not durable yet", |f| f.checkpoints.dirty_items;
    GENERAL "queue_memory" Bytes "Documents of these", |f| f.checkpoints.dirty_bytes;
    GENERAL "queue_fill" Count "Changes queued", |f| f.checkpoints.next_position;
    GENERAL "queue_drain" Count "Queued changes that became durable", |f| f.drained();
};
