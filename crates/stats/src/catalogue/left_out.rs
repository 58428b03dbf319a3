//! Statistics that the reference has in a group of this node, but this node has not, with the reason.

/// Keys, or groups, that are missing for one reason.
pub(crate) struct LeftOut {
    /// The reason, as a phrase.
    pub(crate) why: &'static str,
    /// Keys in the form of the catalogue. `*` at the start or end matches any text; `GROUP KEY` is a key that is
    /// missing in that group only. For groups, their names.
    pub(crate) keys: &'static [&'static str],
}

macro_rules! left_out {
    ($($why:literal: $($key:literal)+;)*) => {
        &[$(LeftOut { why: $why, keys: &[$($key),+] }),*]
    };
}
pub(super) use left_out;

/// All reasons.
pub(crate) static LEFT_OUT: &[LeftOut] = left_out! {
    "the store is another one and has no settings of a bucket":
        "ep_magma_*" "ep_rocksdb_*" "ep_couchstore_*" "ep_couch_bucket" "ep_dbname"
        "ep_fsync_after_every_n_bytes_written" "ep_retain_erroneous_tombstones";
    "what the store reads and writes beside documents is not counted":
        "ep_io_flusher_write_amplification" "ep_io_total_*" "ep_io_compaction_*"
        "ep_io_bg_fetch_read_count" "ep_bg_fetch_avg_read_amplification"
        "rw_N:io_total_*" "rw_N:io_flusher_*" "rw_N:io_compaction_*" "rw_N:io_bg_fetch_doc_bytes"
        "rw_N:fs*" "rw_N:flusherWrite*" "rw_N:write*";
    "one store with one directory of files is opened once":
        "rw_N:open" "rw_N:close" "rw_N:failure_open" "rw_N:numLoadedVb" "rw_N:snapshot_*";
    "one store holds all vBuckets and collections, and does not count the bytes of each":
        "vb_N:db_*" "vb_N:prepare_size" "ep_db_prepare_size"
        "0xN:0xN:data_size" "0xN:data_size" "vb_N:0xN:disk_size";
    "vBuckets are served as each is loaded, and the documents written last come back afterwards: there is no access log, no estimate and no threshold":
        "ep_alog_*" "ep_access_scanner_*" "ep_num_access_scanner_*" "ep_warmup_dups"
        "ep_warmup_oom" "ep_warmup_min_*" "ep_warmup_keys_time" "ep_warmup_estimate*"
        "ep_warmup_batch_size" "ep_failpartialwarmup";
    "the table knows which documents there are, evicted ones too":
        "ep_bfilter_*" "vb_N:bloom_*";
    "a document is one block of memory, metadata and all (`ep_kv_size`), and is not moved":
        "ep_defragmenter_*" "ep_blob_*" "ep_value_size" "ep_storedval_*" "ep_item_num"
        "ep_meta_data_*" "vb_STATE_meta_data_*" "vb_N:ht_cache_size";
    "values are compressed where they would leave memory otherwise, and sizes are those that are kept or sent":
        "ep_item_compressor_interval" "ep_item_compressor_chunk_duration" "ep_item_compressor_num_visited"
        "ep_min_compression_ratio" "ep_dcp_min_compression_ratio" "vb_STATE_itm_memory_uncompressed"
        "vb_N:ht_item_memory_uncompressed" "*total_uncompressed_data_size";
    "memory is of one kind, counted by its owner, in no arenas":
        "*mem_used_primary" "*mem_used_secondary" "*mem_used_merge_threshold"
        "ep_mem_used_merge_threshold_percent" "ep_mem_tracker_enabled" "ep_arena*";
    "of replicas in the general group only":
        "ht_mem_used_replica" "replica_checkpoint_memory_overhead";
    "every worker is a thread of its own: there is no pool, and no queue of tasks":
        "ep_workload:num_auxio" "ep_workload:ready_tasks" "ep_workload:num_sleepers"
        "ep_workload:LowPrioQ_*" "ep_workload_pattern" "ep_num_auxio_threads"
        "ep_num_nonio_threads" "ep_num_reader_threads" "ep_num_writer_threads" "ep_num_workers"
        "ep_max_num_*" "ep_max_threads" "ep_executor_pool_backend" "ep_bucket_priority"
        "ep_concurrent_pagers" "ep_expiry_pager_concurrency" "ep_expiry_pager_task_time"
        "ep_exp_pager_initial_run_time" "ep_connection_manager_interval" "ep_pager_sleep_time_ms";
    "tables have no settings, and do not tell system events from documents":
        "ep_ht_*" "vb_N:num_system_items";
    "what is being fetched has no place in the table":
        "curr_temp_items" "vb_N:num_temp_items" "vb_N:ht_num_temp_items" "ep_bg_meta_fetched";
    "how often a CAS was not the clock's is not counted, and no node adjusts its clock to others":
        "vb_N:logical_clock_ticks" "ep_time_synchronization";
    "ages of changes that are not flushed are not kept: flushes begin every 50 ms":
        "vb_STATE_queue_age" "vb_N:queue_age" "vb_STATE_queue_pending" "vb_N:pending_writes"
        "ep_diskqueue_pending" "ep_storage_age*" "storage_age_*";
    "requests wait at their connections, not at the vBucket":
        "vb_STATE_hp_vb_req_size" "vb_N:hp_vb_req_size" "ep_chk_persistence_*" "ep_pending_ops*"
        "ep_bg_remaining_*";
    "refusals are counted for the node as a whole (`total_resp_errors`)":
        "vb_STATE_ops_reject" "vb_N:ops_reject";
    "whether a write named a CAS is only known when it was refused for it (`cas_badval`)":
        "cas_misses" "cas_hits";
    "what rollbacks take back is counted for the bucket as a whole (`rollback_item_count`)":
        "vb_STATE_rollback_item_count" "vb_N:rollback_item_count";
    "checkpoints are one log of segments, each of which leaves once no cursor needs it":
        "ep_chk_expel_enabled" "ep_chk_max_items" "ep_chk_period" "ep_chk_remover_stime"
        "ep_checkpoint_destruction_tasks" "ep_checkpoint_remover_task_count"
        "ep_checkpoint_removal_mode"
        "ep_item_num_based_new_chk" "ep_max_checkpoints" "*checkpoint_memory_unreferenced"
        "ep_checkpoint_memory_pending_destruction" "vb_N:num_open_checkpoint_items"
        "*:num_visits" "*:queued_items_mem_usage"
        "*_allocator_bytes" "chk_items";
    "a flush is one commit of many vBuckets, which is timed as one (`disk_commit_*`)":
        "ep_item_begin_failed" "ep_item_flush_*" "ep_uncommitted_items" "ep_flush_duration_total"
        "ep_persist_vbstate_total" "ep_flusher_total_batch_limit" "disk_update_*" "disk_del_*"
        "persistence_cursor_*" "dcp_cursors_*" "notify_io_*"
        "rw_N:failure_del" "rw_N:failure_vbset" "rw_N:lastCommDocs" "rw_N:compact_*"
        "rw_N:delete_*" "rw_N:save*";
    "commands are counted and timed by opcode (`timings`)":
        "ep_num_ops_get_meta*" "ep_num_ops_set_meta" "ep_num_ops_del_meta"
        "ep_num_ops_set_ret_meta" "ep_num_ops_del_ret_meta" "set_with_meta_*" "sync_write_commit_*" "cmd_flush"
        "bytes_subdoc_*" "cmd_lookup_*" "cmd_mutation_10s_*";
    "whether documents have attributes is told by each of them, and types of data are not counted":
        "ep_xattr_enabled" "vb_N:might_contain_xattrs" "ep_active_datatype_*"
        "ep_replica_datatype_*" "ep_allow_sanitize_value_in_deletion"
        "ep_max_item_privileged_bytes";
    "there is no recovery to a point in time":
        "ep_pitr_*";
    "eviction is a clock that memory alone drives":
        "ep_item_eviction_age_percentage" "ep_item_eviction_freq_*" "ep_item_freq_decayer_*"
        "ep_num_freq_decayer_runs" "ep_num_eject_failures" "ep_pager_active_vb_pcnt"
        "ep_mutation_mem_threshold" "ep_cache_size" "ep_replication_throttle_threshold";
    "not to be set":
        "ep_compaction_*" "ep_collections_*" "ep_vbucket_mapping_sanity_*"
        "ep_durability_timeout_mode" "ep_sync_writes_max_allowed_replicas"
        "config ep_data_traffic_enabled";
    "a consumer sets it for its connection, or it is fixed":
        "ep_dcp_conn_buffer_size*" "ep_dcp_consumer_control_enabled"
        "ep_dcp_consumer_process_*" "ep_dcp_enable_noop" "ep_dcp_flow_control_policy"
        "ep_dcp_noop_tx_interval" "ep_dcp_producer_snapshot_*" "ep_dcp_scan_*"
        "ep_dcp_takeover_max_time" "ep_dcp_max_running_backfills";
    "a connection that is gone is forgotten; of one that is there it is told why it pauses now, and when it was heard of last":
        "eq_dcpq:NAME:pending_disconnect" "eq_dcpq:NAME:reserved" "ep_dcp_dead_conn_count"
        "eq_dcpq:NAME:paused_current_duration" "eq_dcpq:NAME:paused_previous_*"
        "eq_dcpq:NAME:last_sent_time";
    "a stream makes its messages when there is room for them: nothing is queued":
        "eq_dcpq:NAME:ckpt_processor_*" "eq_dcpq:NAME:dcp_ready_queue_size"
        "eq_dcpq:NAME:stream_N_items_ready" "eq_dcpq:NAME:stream_N_readyQ_items"
        "eq_dcpq:NAME:stream_N_ready_queue_memory" "ep_dcp_total_queue" "ep_dcp_queue_fill"
        "eq_dcpq:NAME:backfill_buffer_next_read_size" "eq_dcpq:NAME:backfill_num_initializing"
        "eq_dcpq:NAME:backfill_num_snoozing" "eq_dcpq:NAME:stream_N_backfill_disk_items"
        "eq_dcpq:NAME:stream_N_backfill_mem_items" "eq_dcpq:NAME:stream_N_backfill_buffer_*";
    "of what a stream asked for, opaque and end are told: the rest is not kept, to have idle streams small":
        "eq_dcpq:NAME:stream_N_flags" "eq_dcpq:NAME:stream_N_start_seqno"
        "eq_dcpq:NAME:stream_N_vb_uuid" "eq_dcpq:NAME:stream_N_snap_*" "eq_dcpq:NAME:filter_N_*"
        "eq_dcpq:NAME:stream_N_last_sent_seqno_advance"
        "eq_dcpq:NAME:stream_N_last_read_seqno_unsnapshotted";
    "a handover counts changes, deletions among them":
        "on_disk_deletes";
    "how far the active node itself is, is its high seqno":
        "vb_N:replication_chain_First:NODE:last_write_seqno";
    "not counted of the node":
        "stat_reset" "memcached_version" "daemon_connections" "system_connections"
        "connection_structures"
        "iovused_high_watermark" "msgused_high_watermark";
};
