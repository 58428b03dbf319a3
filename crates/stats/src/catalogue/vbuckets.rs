//! Statistics of a vBucket; their names follow `vb_N:`.

use super::row::{VbRow, rows};
use crate::figures::drained;
use model::utc;

const DETAILS: &[&str] = &["vbucket-details"];
const SEQNO: &[&str] = &["vbucket-seqno"];
const BOTH: &[&str] = &["vbucket-details", "vbucket-seqno"];
const CHECKPOINT: &[&str] = &["checkpoint"];
const HASH: &[&str] = &["hash"];
const DISK: &[&str] = &["diskinfo"];
const STATE: &[&str] = &["checkpoint", "hash", MONITORED];
const MONITORED: &str = "durability-monitor";
const DURABILITY: &str = "vbucket-durability-state";
const MONITOR: &[&str] = &[MONITORED];
const TOPOLOGY: &[&str] = &["vbucket-details", DURABILITY];
const SEQNOS: &[&str] = &["vbucket-details", "vbucket-seqno", DURABILITY];
const PREPARED: &[&str] = &["vbucket-details", "vbucket-seqno", DURABILITY, MONITORED];

/// Rows in the order of the output.
pub(crate) static VBUCKETS: &[VbRow] = rows! {
    STATE "state" Text "active, replica, pending or dead", |f| f.state.name();
    DISK "data_size" Bytes
        "With detail: its part of ep_db_data_size by its share of rows, since all vBuckets lie in the same files",
        |f| f.disk.data_bytes;
    DISK "file_size" Bytes "With detail: the same part of ep_db_file_size", |f| f.disk.file_bytes;
    DETAILS "num_items" Count "Live documents", |f| f.stats.items;
    DETAILS "num_non_resident" Count "Live documents whose value is only in the store",
        |f| f.stats.non_resident;
    DETAILS "num_locked_items" Count "Locked documents, with locks that ran out unnoticed",
        |f| f.stats.locks;
    DETAILS "mem_used" Bytes "Everything that the vBucket takes", |f| f.stats.memory_bytes;
    DETAILS "ht_memory" Bytes "Array of the hash table", |f| f.stats.table_bytes;
    DETAILS "ht_size" Count "Slots of the hash table", |f| f.hash.slots;
    DETAILS "ht_num_items" Count "Live documents", |f| f.stats.items;
    DETAILS "ht_num_deleted_items" Count "Tombstones", |f| f.stats.tombstones;
    DETAILS "ht_num_in_memory_items" Count "Live documents whose value is in memory",
        |f| f.stats.items - f.stats.non_resident;
    DETAILS "ht_num_in_memory_non_resident_items" Count
        "Live documents whose value is only in the store", |f| f.stats.non_resident;
    DETAILS "ht_item_memory" Bytes "Documents and tombstones in the table",
        |f| f.stats.document_bytes;
    DETAILS "num_ejects" Count "Values dropped from memory", |f| f.stats.evicted;
    DETAILS "num_expired" Count "Documents whose expiry came", |f| f.stats.expired;
    DETAILS "num_fetches" Count "Operations that had to wait for the store", |f| f.stats.fetches;
    DETAILS "ops_create" Count "Documents created", |f| f.stats.ops_create;
    DETAILS "ops_update" Count "Documents changed", |f| f.stats.ops_update;
    DETAILS "ops_delete" Count "Documents deleted by clients", |f| f.stats.ops_delete;
    DETAILS "ops_get" Count "Documents read", |f| f.stats.ops_get;
    DETAILS "queue_size" Count "Changes that are not durable yet", |f| f.checkpoints.dirty_items;
    DETAILS "queue_memory" Bytes "Documents of these", |f| f.checkpoints.dirty_bytes;
    DETAILS "queue_fill" Count "Changes queued", |f| f.checkpoints.next_position;
    DETAILS "queue_drain" Count "Queued changes that became durable", |f| drained(&f.checkpoints);
    DETAILS "deduplicated" Count "Changes that a later one of the same key replaced in the queue",
        |f| f.checkpoints.deduplicated;
    DETAILS "max_cas" Count "The highest CAS given or seen", |f| f.max_cas;
    DETAILS "max_deleted_revid" Count "The highest revision number of a deleted document",
        |f| f.max_deleted_rev;
    DETAILS "max_cas_str" Text "The same as a moment in UTC", |f| utc(f.max_cas);
    DETAILS "total_abs_drift" Micros
        "Between the CAS of each change from elsewhere and the clock, summed", |f| f.stats.drift_us;
    DETAILS "total_abs_drift_count" Count "How many changes these are", |f| f.stats.drift_count;
    DETAILS "drift_ahead_threshold_exceeded" Count "Of them, those too far ahead of the clock",
        |f| f.stats.drift_ahead;
    DETAILS "drift_behind_threshold_exceeded" Count "Those too far behind", |f| f.stats.drift_behind;
    DETAILS "drift_ahead_threshold" Nanos "What is too far ahead", |f| f.drift.ahead_us * 1000;
    DETAILS "drift_behind_threshold" Nanos "What is too far behind", |f| f.drift.behind_us * 1000;
    DETAILS "persistence_seqno" Seqno "Everything up to here is durable", |f| f.persisted_seqno;
    MONITOR "num_tracked" Count "Durable writes that wait to be decided", |f| f.durability.tracked;
    MONITOR "last_tracked_seqno" Seqno "The newest of them", |f| f.durability.last_tracked.0;
    MONITOR "last_committed_seqno" Seqno "The newest prepare that was committed",
        |f| f.durability.last_committed.0;
    MONITOR "last_aborted_seqno" Seqno "The newest prepare that was given up",
        |f| f.durability.last_aborted.0;
    DETAILS "num_prepared_sync_writes" Count "Durable writes that wait to be decided",
        |f| f.stats.prepares;
    DETAILS "sync_write_accepted_count" Count "Durable writes that were prepared",
        |f| f.stats.sync_accepted;
    DETAILS "sync_write_committed_count" Count "Those that were committed",
        |f| f.stats.sync_committed;
    DETAILS "sync_write_aborted_count" Count "Those that were given up", |f| f.stats.sync_aborted;
    TOPOLOGY "topology" Json "Replication topology, empty when none was set",
        |f| f.topology.clone();
    SEQNOS "high_seqno" Seqno "The newest change", |f| f.high_seqno;
    SEQNO "abs_high_seqno" Seqno "The same as high_seqno", |f| f.high_seqno;
    SEQNO "last_persisted_seqno" Seqno "Everything up to here is durable", |f| f.persisted_seqno;
    SEQNO "last_persisted_snap_start" Seqno
        "First seqno of the snapshot that is durable as a whole", |f| f.persisted_seqno;
    SEQNO "last_persisted_snap_end" Seqno "Last seqno of the snapshot that is durable as a whole",
        |f| f.persisted_seqno;
    BOTH "uuid" Count "Identity of the current history", |f| f.uuid.0;
    BOTH "history_start_seqno" Seqno
        "From here on every version is in the store, as last looked through; 0 for nowhere",
        |f| f.history.from.unwrap_or_default().0;
    BOTH "history_disk_size" Bytes "Bytes of these versions, about", |f| f.history.bytes;
    BOTH "purge_seqno" Seqno "The highest tombstone that was purged", |f| f.purge_seqno;
    PREPARED "high_prepared_seqno" Seqno "Up to here this node counts itself for durable writes",
        |f| f.durability.high_prepared.0;
    BOTH "high_completed_seqno" Seqno "The newest durable write that was decided",
        |f| f.durability.high_completed.0;
    BOTH "max_visible_seqno" Seqno "The newest change that clients may see", |f| f.visible_seqno;
    CHECKPOINT "open_checkpoint_id" Count "Number of the open checkpoint",
        |f| f.checkpoints.open_id;
    CHECKPOINT "last_closed_checkpoint_id" Count "Number of the one before",
        |f| f.checkpoints.open_id - 1;
    CHECKPOINT "num_checkpoints" Count "Checkpoints in memory", |f| f.checkpoints.checkpoints;
    CHECKPOINT "num_conn_cursors" Count "Readers: the one that makes changes durable, and streams",
        |f| f.checkpoints.cursors + 1;
    CHECKPOINT "num_checkpoint_items" Count "Changes in memory", |f| f.checkpoints.items;
    CHECKPOINT "num_items_for_persistence" Count "Changes that are not durable yet",
        |f| f.checkpoints.dirty_items;
    CHECKPOINT "num_segments" Count "Segments that hold the changes", |f| f.checkpoints.segments;
    CHECKPOINT "mem_usage" Bytes "Checkpoints, with documents that only they hold",
        |f| f.checkpoints.slot_bytes + f.checkpoints.stale_bytes;
    CHECKPOINT "mem_overhead" Bytes "Checkpoints without documents", |f| f.checkpoints.slot_bytes;
    CHECKPOINT "persistence:cursor_checkpoint_id" Count
        "Checkpoint of the next change that is to be made durable",
        |f| f.checkpoints.persistence_checkpoint;
    CHECKPOINT "persistence:cursor_seqno" Seqno "Everything up to here is durable",
        |f| f.persisted_seqno;
    CHECKPOINT "persistence:cursor_distance" Count
        "Places between this reader and the newest change",
        |f| f.checkpoints.next_position - f.checkpoints.persistence_position;
    CHECKPOINT "persistence:num_items_for_cursor" Count "Changes that this reader has yet to take",
        |f| f.checkpoints.dirty_items;
    HASH "size" Count "Slots, seven to a bucket; 7 of a table that takes no memory yet",
        |f| f.hash.slots.max(7);
    HASH "locks" Count "Always 1: the vBucket's", |_f| 1_u64;
    HASH "min_depth" Count "Documents in the emptiest bucket",
        |f| f.fill.iter().position(|buckets| *buckets > 0).unwrap_or(0);
    HASH "max_depth" Count "Documents in the fullest bucket, of seven that fit",
        |f| f.fill.iter().rposition(|buckets| *buckets > 0).unwrap_or(0);
    HASH "histo_mean" Count "Documents in a bucket, rounded down",
        |f| f.counted().1.checked_div(f.counted().0).unwrap_or(0);
    HASH "counted" Count "Documents and tombstones in the table, counted anew", |f| f.counted().1;
    HASH "reported" Count "Documents and tombstones", |f| f.hash.entries;
    HASH "resized" Count "How often the table grew", |f| f.hash.resizes;
    HASH "mem_size" Bytes "Documents and tombstones in the table", |f| f.stats.document_bytes;
    HASH "mem_size_counted" Bytes "The same: it is not counted anew", |f| f.stats.document_bytes;
};
