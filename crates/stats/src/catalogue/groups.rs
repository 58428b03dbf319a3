//! The groups of statistics.

use identity::Privilege;

use super::left_out::{LeftOut, left_out};
use crate::scope::StatPlace;

/// A group of statistics.
pub(crate) struct Group {
    /// Name of the group in requests; empty for the general one.
    pub(crate) name: &'static str,
    /// Arguments that may follow the name.
    pub(crate) arguments: &'static str,
    /// Whether a bucket must be selected.
    pub(crate) of_bucket: bool,
    /// Whether clients of the memcached port may ask for it.
    pub(crate) memcached: bool,
    /// Whether the group shows all buckets, or changes shared state.
    pub(crate) guarded: bool,
    pub(crate) help: &'static str,
}

/// `Bucket|Memcached|Node|Guarded "name" "arguments" "help";`: a group of a bucket, a group of a bucket for
/// clients of the memcached port too, a group of the node, or a group that needs more privileges.
macro_rules! groups {
    ($($kind:ident $name:literal $arguments:literal $help:literal;)*) => {
        &[$(Group {
            name: $name,
            arguments: $arguments,
            of_bucket: matches!(GroupKind::$kind, GroupKind::Bucket | GroupKind::Memcached),
            memcached: matches!(GroupKind::$kind, GroupKind::Memcached),
            guarded: matches!(GroupKind::$kind, GroupKind::Guarded),
            help: $help,
        }),*]
    };
}

enum GroupKind {
    Bucket,
    Memcached,
    Node,
    Guarded,
}

impl Group {
    /// Privilege that the group needs.
    pub(crate) fn privilege(&self) -> Privilege {
        if self.guarded {
            Privilege::Stats
        } else {
            Privilege::SimpleStats
        }
    }

    /// Scope in which the privilege is needed.
    pub(crate) fn place(&self) -> StatPlace {
        match self.name {
            "collections" | "collections-byid" | "scopes" | "scopes-byid" | "key" | "vkey"
            | "key-byid" | "vkey-byid" => StatPlace::Collections,
            _ if self.of_bucket => StatPlace::Bucket,
            _ if self.guarded => StatPlace::Node,
            _ => StatPlace::NodeOrBucket,
        }
    }
}

/// Groups of the reference that have no content here.
pub(crate) static GROUPS_LEFT_OUT: &[LeftOut] = left_out! {
    "there is no queue of tasks: `tasks` has the workers of the bucket, `threads` those that serve connections":
        "tasks-all" "scheduler" "runtimes" "dispatcher" "worker_thread_info";
    "memory is counted by its owner: `ep_mem_overhead` is what the process takes beyond that":
        "allocator";
    "a document has two bits of heat, which nothing counts":
        "frequency-counters";
    "commands are timed whole: `timings`":
        "json_validate" "snappy_decompress" "subdoc_execute" "stat-timings"
        "external-auth-timings" "tracing";
    "connections are told one by one: `connections`":
        "client_connection_details";
    "`kvtimings` has how long commits took":
        "disk-slowness";
    "keys are given when the node is started":
        "encryption-key-ids";
    "`config` has the settings of the bucket":
        "info";
    "changes are streamed by DCP: `dcp`, `dcpagg`":
        "tap" "tapagg";
    "memory has no slabs: `memory`, `hash`":
        "slabs" "sizes" "items" "detail" "cachedump";
};

/// All groups, in the order of the page.
pub(crate) static GROUPS: &[Group] = groups! {
    Memcached "" "" "Totals of the bucket and of the node";
    Bucket "vbucket" "[VB]" "State of every vBucket";
    Bucket "prev-vbucket" "" "State of every vBucket before the bucket was opened";
    Bucket "vbucket-details" "[VB]" "Figures of every vBucket";
    Bucket "vbucket-seqno" "[VB]" "Seqnos of every vBucket";
    Bucket "durability-monitor" "[VB]" "Durable writes under way, and how far each node has come";
    Bucket "vbucket-durability-state" "[VB]" "Replication topology of every vBucket";
    Bucket "failovers" "[VB]" "Histories of every vBucket, 0 is the newest";
    Bucket "checkpoint" "[VB]" "Changes held in memory, by vBucket";
    Bucket "hash" "[detail]" "Hash table of every vBucket";
    Bucket "range-scans" "[VB]" "Range scans that are under way";
    Memcached "memory" "" "Memory of the bucket";
    Bucket "timings" "" "How long commands took, of all buckets together, and commits";
    Bucket "locks" "" "How long vBuckets were locked";
    Memcached "warmup" "" "Progress of loading the bucket";
    Bucket "diskinfo" "[detail]" "Bytes on disk";
    Bucket "config" "" "Settings of the bucket";
    Bucket "workload" "" "Threads that work for the bucket";
    Bucket "tasks" "" "The workers of the bucket: what they ran, and for how long";
    Memcached "uuid" "" "Identity of the bucket";
    Bucket "collections" "[SCOPE.COLLECTION]" "Figures of every collection";
    Bucket "collections-byid" "ID" "Figures of a collection";
    Bucket "collections-details" "[VB]" "What every vBucket has of every collection";
    Bucket "scopes" "[SCOPE]" "Figures of every scope";
    Bucket "scopes-byid" "ID" "Figures of a scope and of its collections";
    Bucket "scopes-details" "[VB]" "Documents of every collection in every vBucket";
    Bucket "manifest" "" "Names of scopes and collections";
    Guarded "cluster" "" "The cluster as this node sees it";
    Bucket "replication" "" "The node that the bucket follows, or its followers";
    Bucket "dcp" "[JSON]" "Connections that stream changes, and their streams, whatever the argument asks for";
    Bucket "dcpagg" "[SEPARATOR]" "Connections that stream changes, by what their names begin with";
    Bucket "dcp-vbtakeover" "VB NAME" "What is left to be sent before a vBucket can be handed over";
    Memcached "key" "KEY VB [SCOPE.COLLECTION \\| 0xID]" "Metadata of a document";
    Bucket "vkey" "KEY VB [SCOPE.COLLECTION \\| 0xID]"
        "Metadata of a document, and whether the store has it too";
    Bucket "key-byid" "KEY VB ID" "The same as `key`, with the hexadecimal id of the collection";
    Bucket "vkey-byid" "KEY VB ID" "The same as `vkey`, with the hexadecimal id of the collection";
    Bucket "eviction" "" "What left memory, and when";
    Bucket "disk-failures" "" "Reads and commits that the store failed";
    Bucket "kvstore" "" "What the store did";
    Bucket "kvtimings" "" "How long the store took";
    Guarded "settings" "" "One row with the settings of the node that serve its connections";
    Guarded "connections" "[ID \\| self]" "One row for each connection";
    Guarded "bucket_details" "" "One row about all buckets";
    Guarded "audit" "" "Whether events are recorded for audits, and how many were not";
    Guarded "threads" "" "What every thread that serves connections did";
    Node "clocks" "" "What reading the clocks costs";
    Node "responses" "[all]"
        "How often each status was answered; with `all` those that never were, too";
    Guarded "reset" "[timings]" "Not statistics: forgets timings and counts of commands";
};
