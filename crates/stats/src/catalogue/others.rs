//! Statistics whose names depend on what there is.

use super::row::{About, Unit};

const fn about(
    group: &'static [&'static str],
    name: &'static str,
    unit: Unit,
    help: &'static str,
) -> About {
    About {
        groups: group,
        name,
        unit,
        help,
    }
}

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
const KEY: &[&str] = &["key", "vkey"];
const VKEY: &[&str] = &["vkey"];
const SCANS: &[&str] = &["range-scans"];
const REPLICATION: &[&str] = &["replication"];
const CONNECTIONS: &[&str] = &["connections"];
const BUCKETS: &[&str] = &["bucket_details"];
const THREADS: &[&str] = &["threads"];
const CLOCKS: &[&str] = &["clocks"];

/// Rows that are told about here and made in the group's own code.
pub(crate) static OTHERS: &[About] = &[
    about(
        STATE,
        "vb_N",
        Unit::Text,
        "active, replica, pending or dead",
    ),
    about(
        PREVIOUS,
        "vb_N",
        Unit::Text,
        "Always dead: states before the start are not kept",
    ),
    about(
        MONITORED,
        "vb_N:replication_chain_First:size",
        Unit::Count,
        "Nodes of the first chain, if there is one; `Second` alike",
    ),
    about(
        MONITORED,
        "vb_N:replication_chain_First:NODE:last_ack_seqno",
        Unit::Seqno,
        "How far a node of the chain has acknowledged prepares",
    ),
    about(
        SCANS,
        "vb_N:ID:state",
        Unit::Text,
        "Opening, Idle or Continuing",
    ),
    about(
        SCANS,
        "vb_N:ID:name",
        Unit::Text,
        "What its client calls it",
    ),
    about(
        SCANS,
        "vb_N:ID:collection",
        Unit::Text,
        "The collection of its keys",
    ),
    about(
        SCANS,
        "vb_N:ID:type",
        Unit::Text,
        "key, or value for whole documents",
    ),
    about(
        SCANS,
        "vb_N:ID:sampling",
        Unit::Bool,
        "Whether it is a random sample",
    ),
    about(SCANS, "vb_N:ID:age_ms", Unit::Millis, "Since it began"),
    about(
        SCANS,
        "vb_N:ID:items",
        Unit::Count,
        "Documents or keys that it has given",
    ),
    about(
        SCANS,
        "vb_N:ID:mem_usage",
        Unit::Bytes,
        "Rows that were read and not given yet",
    ),
    about(FAILOVERS, "vb_N:num_entries", Unit::Count, "Histories"),
    about(
        FAILOVERS,
        "vb_N:num_erroneous_entries_erased",
        Unit::Count,
        "Always 0",
    ),
    about(FAILOVERS, "vb_N:N:id", Unit::Count, "Identity of a history"),
    about(
        FAILOVERS,
        "vb_N:N:seq",
        Unit::Seqno,
        "Where the history began",
    ),
    about(
        CHECKPOINT,
        "vb_N:id_N:state",
        Unit::Text,
        "Open; shown for the open checkpoint only",
    ),
    about(CHECKPOINT, "vb_N:id_N:type", Unit::Text, "Memory"),
    about(
        CHECKPOINT,
        "vb_N:id_N:snap_start",
        Unit::Seqno,
        "Its first change; past the last while empty",
    ),
    about(
        CHECKPOINT,
        "vb_N:id_N:snap_end",
        Unit::Seqno,
        "Its last change",
    ),
    about(
        CHECKPOINT,
        "vb_N:id_N:visible_snap_end",
        Unit::Seqno,
        "The newest change in it or before it that clients may see",
    ),
    about(
        CHECKPOINT,
        "vb_N:eq_dcpq:NAME:cursor_checkpoint_id",
        Unit::Count,
        "Checkpoint of the last change that the stream took, 0 for none",
    ),
    about(
        CHECKPOINT,
        "vb_N:eq_dcpq:NAME:cursor_seqno",
        Unit::Seqno,
        "It took everything up to here, or has it from the store",
    ),
    about(
        CHECKPOINT,
        "vb_N:eq_dcpq:NAME:num_items_for_cursor",
        Unit::Count,
        "Changes that it has yet to take, at most",
    ),
    about(
        CHECKPOINT,
        "vb_N:eq_dcpq:NAME:pinned_bytes",
        Unit::Bytes,
        "Bytes that it holds back and persistence does not",
    ),
    about(
        TIMINGS,
        "disk_commit_mean",
        Unit::Micros,
        "Mean time of a commit",
    ),
    about(
        TIMINGS,
        "disk_commit_N,N",
        Unit::Count,
        "Commits that took from the first to below the second number of microseconds",
    ),
    about(
        RESPONSES,
        "responses",
        Unit::Json,
        "How often each status was answered, by its hexadecimal number",
    ),
    about(
        HASH,
        "vb_N:histo_N,N",
        Unit::Count,
        "Buckets of seven slots with so many documents, the second number not included",
    ),
    about(
        TIMINGS,
        "OP_cmd_mean",
        Unit::Micros,
        "Mean time of a command",
    ),
    about(
        TIMINGS,
        "OP_cmd_N,N",
        Unit::Count,
        "Commands that took from the first to below the second number of microseconds",
    ),
    about(
        BOTH,
        "manifest_uid",
        Unit::Text,
        "Revision of the manifest, hexadecimal",
    ),
    about(NAMED, "0xN:0xN:name", Unit::Text, "Name of a collection"),
    about(ONE, "0xN:0xN:scope_name", Unit::Text, "Name of its scope"),
    about(ONE, "0xN:0xN:items", Unit::Count, "Live documents"),
    about(
        ONE,
        "0xN:0xN:collections_mem_used",
        Unit::Bytes,
        "Documents and tombstones in memory",
    ),
    about(ONE, "0xN:0xN:ops_get", Unit::Count, "Documents read"),
    about(
        ONE,
        "0xN:0xN:ops_store",
        Unit::Count,
        "Documents created and changed",
    ),
    about(
        ONE,
        "0xN:0xN:ops_delete",
        Unit::Count,
        "Documents deleted by clients",
    ),
    about(
        ONE,
        "0xN:0xN:maxTTL",
        Unit::Seconds,
        "Longest time to live, if it has a limit of its own",
    ),
    about(SCOPES, "0xN:name", Unit::Text, "Name of the scope"),
    about(SCOPE, "0xN:collections", Unit::Count, "Its collections"),
    about(SCOPE, "0xN:items", Unit::Count, "Live documents"),
    about(
        SCOPE,
        "0xN:collections_mem_used",
        Unit::Bytes,
        "Documents and tombstones in memory",
    ),
    about(SCOPE, "0xN:ops_get", Unit::Count, "Documents read"),
    about(
        SCOPE,
        "0xN:ops_store",
        Unit::Count,
        "Documents created and changed",
    ),
    about(
        SCOPE,
        "0xN:ops_delete",
        Unit::Count,
        "Documents deleted by clients",
    ),
    about(
        VB_BOTH,
        "vb_N:manifest:uid",
        Unit::Count,
        "The manifest that the vBucket has",
    ),
    about(VB, "vb_N:collections", Unit::Count, "Its collections"),
    about(VB_SCOPES, "vb_N:scopes", Unit::Count, "Its scopes"),
    about(
        VB_SCOPES,
        "vb_N:0xN:0xN:items",
        Unit::Count,
        "Live documents",
    ),
    about(VB, "vb_N:0xN:name", Unit::Text, "Name of the collection"),
    about(VB, "vb_N:0xN:scope", Unit::Text, "Its scope"),
    about(
        VB,
        "vb_N:0xN:start_seqno",
        Unit::Seqno,
        "Where the collection began",
    ),
    about(VB, "vb_N:0xN:high_seqno", Unit::Seqno, "Its newest change"),
    about(
        VB,
        "vb_N:0xN:persisted_high_seqno",
        Unit::Seqno,
        "Its newest change, but no more than what is durable of the vBucket",
    ),
    about(VB, "vb_N:0xN:items", Unit::Count, "Live documents"),
    about(
        VB,
        "vb_N:0xN:collections_mem_used",
        Unit::Bytes,
        "Documents and tombstones in memory",
    ),
    about(VB, "vb_N:0xN:ops_get", Unit::Count, "Documents read"),
    about(
        VB,
        "vb_N:0xN:ops_store",
        Unit::Count,
        "Documents created and changed",
    ),
    about(
        VB,
        "vb_N:0xN:ops_delete",
        Unit::Count,
        "Documents deleted by clients",
    ),
    about(
        VB,
        "vb_N:0xN:maxTTL",
        Unit::Seconds,
        "Longest time to live, if it has a limit of its own",
    ),
    about(
        KEY,
        "key_is_dirty",
        Unit::Bool,
        "Whether the newest revision is not durable yet",
    ),
    about(
        KEY,
        "key_exptime",
        Unit::Unix,
        "When it expires, 0 for never",
    ),
    about(KEY, "key_flags", Unit::Count, "Flags of the client"),
    about(KEY, "key_cas", Unit::Count, "Revision"),
    about(KEY, "key_seqno", Unit::Seqno, "Its newest change"),
    about(KEY, "key_vb_state", Unit::Text, "State of its vBucket"),
    about(
        KEY,
        "key_is_resident",
        Unit::Bool,
        "Whether the value is in memory",
    ),
    about(
        VKEY,
        "key_valid",
        Unit::Text,
        "valid, dirty (not durable yet), or what is wrong with the store's row",
    ),
    about(
        REPLICATION,
        "role",
        Unit::Text,
        "alone, active, replica, or superseded: active until another node was promoted",
    ),
    about(
        REPLICATION,
        "peer",
        Unit::Text,
        "The other node; empty if there is none",
    ),
    about(
        REPLICATION,
        "stage",
        Unit::Text,
        "Of a replica: waiting, connecting, introducing, streaming, promoted or stopped; else none",
    ),
    about(
        REPLICATION,
        "last_error",
        Unit::Text,
        "Why the last connection to the active node ended, or which nodes were not told of the promotion here yet; else empty",
    ),
    about(
        REPLICATION,
        "connects",
        Unit::Count,
        "Connections to the active node that were made",
    ),
    about(REPLICATION, "streams", Unit::Count, "Streams that are open"),
    about(
        REPLICATION,
        "changes",
        Unit::Count,
        "Documents and deletions taken",
    ),
    about(
        REPLICATION,
        "bytes",
        Unit::Bytes,
        "Messages taken, as flow control counts them",
    ),
    about(
        REPLICATION,
        "acked_bytes",
        Unit::Bytes,
        "Of these, acknowledged",
    ),
    about(
        REPLICATION,
        "rollbacks",
        Unit::Count,
        "Times that a vBucket was taken back",
    ),
    about(
        REPLICATION,
        "pauses",
        Unit::Count,
        "Times that acknowledgements were held back for lack of memory",
    ),
    about(
        REPLICATION,
        "vb_N:state",
        Unit::Text,
        "State of the vBucket here",
    ),
    about(
        REPLICATION,
        "vb_N:high_seqno",
        Unit::Seqno,
        "Its newest change here",
    ),
    about(
        REPLICATION,
        "vb_N:active_seqno",
        Unit::Seqno,
        "Its newest change on the active node, as last heard",
    ),
    about(
        REPLICATION,
        "vb_N:lag",
        Unit::Count,
        "Seqnos between the two",
    ),
    about(
        TAKEOVER,
        "status",
        Unit::Text,
        "Phase of the stream, or does_not_exist",
    ),
    about(
        TAKEOVER,
        "estimate",
        Unit::Count,
        "Changes not yet sent, at most",
    ),
    about(
        TAKEOVER,
        "vb_items",
        Unit::Count,
        "Changes there ever were in the vBucket",
    ),
    about(
        CONNECTIONS,
        "",
        Unit::Json,
        "The connection; the row has no name",
    ),
    about(
        BUCKETS,
        "bucket details",
        Unit::Json,
        "Name, state, type and clients of every bucket",
    ),
    about(
        THREADS,
        "worker_N:commands",
        Unit::Count,
        "Commands that the thread ran",
    ),
    about(
        CLOCKS,
        "clock_fine_overhead_ns",
        Unit::Nanos,
        "Reading both clocks",
    ),
    about(
        CLOCKS,
        "clock_coarse_overhead_ns",
        Unit::Nanos,
        "Reading the monotonic clock",
    ),
    about(
        CLOCKS,
        "clock_measurement_period_ns",
        Unit::Nanos,
        "Step of the monotonic clock",
    ),
];
