//! Statistics whose names depend on the state of the node.

use super::row::{About, abouts};

const STATE: &[&str] = &["vbucket", "vbucket-details", "vbucket-durability-state"];
const PREVIOUS: &[&str] = &["prev-vbucket"];
const FAILOVERS: &[&str] = &["failovers"];
const MONITORED: &[&str] = &["durability-monitor"];
const CHECKPOINT: &[&str] = &["checkpoint"];
const TIMINGS: &[&str] = &["timings"];
const RESPONSES: &[&str] = &["responses"];
const HASH: &[&str] = &["hash"];
const BOTH: &[&str] = &["collections", "scopes", "manifest"];
const ONE: &[&str] = &["collections", "collections-byid", "scopes-byid"];
const NAMED: &[&str] = &[
    "collections",
    "collections-byid",
    "scopes",
    "scopes-byid",
    "manifest",
];
const SCOPE: &[&str] = &["scopes", "scopes-byid"];
const SCOPES: &[&str] = &["scopes", "scopes-byid", "manifest"];
const VB: &[&str] = &["collections-details"];
const VB_SCOPES: &[&str] = &["scopes-details"];
const VB_BOTH: &[&str] = &["collections-details", "scopes-details"];
const TAKEOVER: &[&str] = &["dcp-vbtakeover"];
const KEY: &[&str] = &["key", "vkey", "key-byid", "vkey-byid"];
const VKEY: &[&str] = &["vkey", "vkey-byid"];
const STORE: &[&str] = &["kvstore"];
const STORE_TIMES: &[&str] = &["kvtimings"];
const SETTINGS: &[&str] = &["settings"];
const SCANS: &[&str] = &["range-scans"];
const REPLICATION: &[&str] = &["replication"];
const CLUSTER: &[&str] = &["cluster"];
const TASKS: &[&str] = &["tasks"];
const CONNECTIONS: &[&str] = &["connections"];
const BUCKETS: &[&str] = &["bucket_details"];
const THREADS: &[&str] = &["threads"];
const CLOCKS: &[&str] = &["clocks"];

/// Descriptions of rows that the code of their groups writes.
pub(crate) static OTHERS: &[About] = abouts! {
    STATE "vb_N" Text "active, replica, pending or dead";
    PREVIOUS "vb_N" Text "Always dead: states before the start are not kept";
    MONITORED "vb_N:replication_chain_First:size" Count
        "Nodes of the first chain, if there is one; `Second` alike";
    MONITORED "vb_N:replication_chain_First:NODE:last_ack_seqno" Seqno
        "How far a node of the chain has acknowledged prepares";
    SCANS "vb_N:ID:state" Text "Opening, Idle or Continuing";
    SCANS "vb_N:ID:name" Text "What its client calls it";
    SCANS "vb_N:ID:collection" Text "The collection of its keys";
    SCANS "vb_N:ID:type" Text "key, or value for whole documents";
    SCANS "vb_N:ID:sampling" Bool "Whether it is a random sample";
    SCANS "vb_N:ID:age_ms" Millis "Since it began";
    SCANS "vb_N:ID:items" Count "Documents or keys that it has given";
    SCANS "vb_N:ID:mem_usage" Bytes "Rows that were read and not given yet";
    FAILOVERS "vb_N:num_entries" Count "Histories";
    FAILOVERS "vb_N:num_erroneous_entries_erased" Count "Always 0";
    FAILOVERS "vb_N:N:id" Count "Identity of a history";
    FAILOVERS "vb_N:N:seq" Seqno "Where the history began";
    CHECKPOINT "vb_N:id_N:state" Text "Open; shown for the open checkpoint only";
    CHECKPOINT "vb_N:id_N:type" Text "Memory";
    CHECKPOINT "vb_N:id_N:snap_start" Seqno "Its first change; past the last while empty";
    CHECKPOINT "vb_N:id_N:snap_end" Seqno "Its last change";
    CHECKPOINT "vb_N:id_N:visible_snap_end" Seqno
        "The newest change in it or before it that clients may see";
    CHECKPOINT "vb_N:eq_dcpq:NAME:cursor_checkpoint_id" Count
        "Checkpoint of the last change that the stream took, 0 for none";
    CHECKPOINT "vb_N:eq_dcpq:NAME:cursor_seqno" Seqno
        "It took everything up to here, or has it from the store";
    CHECKPOINT "vb_N:eq_dcpq:NAME:num_items_for_cursor" Count
        "Changes that it has yet to take, at most";
    CHECKPOINT "vb_N:eq_dcpq:NAME:pinned_bytes" Bytes
        "Bytes that it holds back and persistence does not";
    STORE "rw_N:backend_type" Text "runs (on disk) or memory";
    STORE "rw_N:failure_get" Count "Reads that failed";
    STORE "rw_N:failure_set" Count "Commits that failed";
    STORE "rw_N:failure_compaction" Count "Times that it failed while a vBucket was looked through";
    STORE "rw_N:io_bg_fetch_docs_read" Count "Documents read back";
    STORE "rw_N:io_num_write" Count "Rows made durable";
    STORE "rw_N:io_document_write_bytes" Bytes "Rows and records made durable, as encoded";
    STORE_TIMES "rw_N:commit_mean" Micros "Mean time of a commit";
    STORE_TIMES "rw_N:commit_N,N" Count
        "Commits that took from the first to below the second number of microseconds";
    SETTINGS "" Json "The settings; the row has no name";
    TIMINGS "disk_commit_mean" Micros "Mean time of a commit";
    TIMINGS "disk_commit_N,N" Count
        "Commits that took from the first to below the second number of microseconds";
    RESPONSES "responses" Json "How often each status was answered, by its hexadecimal number";
    HASH "vb_N:histo_N,N" Count
        "Buckets of seven slots with so many documents, the second number not included";
    TIMINGS "OP_cmd_mean" Micros "Mean time of a command";
    TIMINGS "OP_cmd_N,N" Count
        "Commands that took from the first to below the second number of microseconds";
    BOTH "manifest_uid" Text "Revision of the manifest, hexadecimal";
    NAMED "0xN:0xN:name" Text "Name of a collection";
    ONE "0xN:0xN:scope_name" Text "Name of its scope";
    ONE "0xN:0xN:items" Count "Live documents";
    ONE "0xN:0xN:collections_mem_used" Bytes "Documents and tombstones in memory";
    ONE "0xN:0xN:ops_get" Count "Documents read";
    ONE "0xN:0xN:ops_store" Count "Documents created and changed";
    ONE "0xN:0xN:ops_delete" Count "Documents deleted by clients";
    ONE "0xN:0xN:maxTTL" Seconds "Longest time to live, if it has a limit of its own";
    SCOPES "0xN:name" Text "Name of the scope";
    SCOPE "0xN:collections" Count "Its collections";
    SCOPE "0xN:items" Count "Live documents";
    SCOPE "0xN:collections_mem_used" Bytes "Documents and tombstones in memory";
    SCOPE "0xN:ops_get" Count "Documents read";
    SCOPE "0xN:ops_store" Count "Documents created and changed";
    SCOPE "0xN:ops_delete" Count "Documents deleted by clients";
    VB_BOTH "vb_N:manifest:uid" Count "The manifest that the vBucket has";
    VB "vb_N:collections" Count "Its collections";
    VB_SCOPES "vb_N:scopes" Count "Its scopes";
    VB_SCOPES "vb_N:0xN:0xN:items" Count "Live documents";
    VB "vb_N:0xN:name" Text "Name of the collection";
    VB "vb_N:0xN:scope" Text "Its scope";
    VB "vb_N:0xN:start_seqno" Seqno "Where the collection began";
    VB "vb_N:0xN:high_seqno" Seqno "Its newest change";
    VB "vb_N:0xN:persisted_high_seqno" Seqno
        "Its newest change, but no more than what is durable of the vBucket";
    VB "vb_N:0xN:items" Count "Live documents";
    VB "vb_N:0xN:collections_mem_used" Bytes "Documents and tombstones in memory";
    VB "vb_N:0xN:ops_get" Count "Documents read";
    VB "vb_N:0xN:ops_store" Count "Documents created and changed";
    VB "vb_N:0xN:ops_delete" Count "Documents deleted by clients";
    VB "vb_N:0xN:maxTTL" Seconds "Longest time to live, if it has a limit of its own";
    KEY "key_is_dirty" Bool "Whether the newest revision is not durable yet";
    KEY "key_exptime" Unix "When it expires, 0 for never";
    KEY "key_flags" Count "Flags of the client";
    KEY "key_cas" Count "Revision";
    KEY "key_seqno" Seqno "Its newest change";
    KEY "key_vb_state" Text "State of its vBucket";
    KEY "key_is_resident" Bool "Whether the value is in memory";
    VKEY "key_valid" Text "valid, dirty (not durable yet), or what is wrong with the store's row";
    CLUSTER "status" Text
        "JSON: nodes, buckets, elections and moves; what is null only the node knows that `controller` names";
    REPLICATION "role" Text
        "alone, active, replica, or superseded: active until another node was promoted";
    REPLICATION "peer" Text "The other nodes, with commas between them; empty if there is none";
    REPLICATION "stage" Text
        "Of a replica: waiting, connecting, introducing, streaming, promoted or stopped; else none";
    REPLICATION "last_error" Text
        "Why the last connection to the active node ended, or which nodes were not told of the promotion here yet; else empty";
    REPLICATION "connects" Count "Connections to the active node that were made";
    REPLICATION "streams" Count "Streams that are open";
    REPLICATION "changes" Count "Documents and deletions taken";
    REPLICATION "bytes" Bytes "Messages taken, as flow control counts them";
    REPLICATION "acked_bytes" Bytes "Of these, acknowledged";
    REPLICATION "rollbacks" Count "Times that a vBucket was taken back";
    REPLICATION "pauses" Count "Times that acknowledgements were held back for lack of memory";
    REPLICATION "vb_N:state" Text "State of the vBucket here";
    REPLICATION "vb_N:high_seqno" Seqno "Its newest change here";
    REPLICATION "vb_N:active_seqno" Seqno "Its newest change on the active node, as last heard";
    REPLICATION "vb_N:lag" Count "Seqnos between the two";
    TAKEOVER "status" Text "Phase of the stream, or does_not_exist";
    TAKEOVER "estimate" Count "Changes not yet sent, at most";
    TAKEOVER "vb_items" Count "Changes there ever were in the vBucket";
    TASKS "ep_tasks:tasks" Json
        "Of each worker `name`, lane (`type`), `state` (RUNNING or SNOOZED), steps (`num_runs`) and the time that these took, microseconds (`total_runtime`)";
    TASKS "ep_tasks:cur_time" Micros "The monotonic clock";
    TASKS "ep_tasks:uptime_s" Seconds "Time since the node started";
    TASKS "ep_tasks:bucket" Text "The bucket";
    CONNECTIONS "" Json "The connection; the row has no name";
    BUCKETS "bucket details" Json "Name, state, type and clients of every bucket";
    THREADS "worker_N:commands" Count "Commands that the thread ran";
    CLOCKS "clock_fine_overhead_ns" Nanos "Reading both clocks";
    CLOCKS "clock_coarse_overhead_ns" Nanos "Reading the monotonic clock";
    CLOCKS "clock_measurement_period_ns" Nanos "Step of the monotonic clock";
};
