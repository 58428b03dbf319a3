//! The groups of statistics.

/// A group of statistics.
pub(crate) struct Group {
    /// As it is asked for; empty for the general one.
    pub(crate) name: &'static str,
    /// What may follow the name.
    pub(crate) arguments: &'static str,
    /// Whether a bucket must be selected.
    pub(crate) of_bucket: bool,
    /// Whether [`identity::Role::Memcached`] may ask for it.
    pub(crate) memcached: bool,
    pub(crate) help: &'static str,
}

const fn bucket_group(name: &'static str, arguments: &'static str, help: &'static str) -> Group {
    Group {
        name,
        arguments,
        of_bucket: true,
        memcached: false,
        help,
    }
}

const fn node_group(name: &'static str, arguments: &'static str, help: &'static str) -> Group {
    Group {
        name,
        arguments,
        of_bucket: false,
        memcached: false,
        help,
    }
}

/// The role of the memcached port may ask for it, too.
const fn open_to_memcached(mut group: Group) -> Group {
    group.memcached = true;
    group
}

/// Every group, in the order of the page.
pub(crate) static GROUPS: &[Group] = &[
    open_to_memcached(bucket_group("", "", "Totals of the bucket and of the node")),
    bucket_group("vbucket", "[VB]", "State of every vBucket"),
    bucket_group(
        "prev-vbucket",
        "",
        "State of every vBucket before the bucket was opened",
    ),
    bucket_group("vbucket-details", "[VB]", "Figures of every vBucket"),
    bucket_group("vbucket-seqno", "[VB]", "Seqnos of every vBucket"),
    bucket_group(
        "durability-monitor",
        "[VB]",
        "Durable writes under way, and how far each node has come",
    ),
    bucket_group(
        "vbucket-durability-state",
        "[VB]",
        "Replication topology of every vBucket",
    ),
    bucket_group(
        "failovers",
        "[VB]",
        "Histories of every vBucket, 0 is the newest",
    ),
    bucket_group("checkpoint", "[VB]", "Changes held in memory, by vBucket"),
    bucket_group("hash", "[detail]", "Hash table of every vBucket"),
    bucket_group("range-scans", "[VB]", "Range scans that are under way"),
    open_to_memcached(bucket_group("memory", "", "Memory of the bucket")),
    bucket_group(
        "timings",
        "",
        "How long commands took, of all buckets together, and commits",
    ),
    bucket_group("locks", "", "How long vBuckets were locked"),
    open_to_memcached(bucket_group("warmup", "", "Progress of loading the bucket")),
    bucket_group("diskinfo", "[detail]", "Bytes on disk"),
    bucket_group("config", "", "Settings of the bucket"),
    bucket_group("workload", "", "Threads that work for the bucket"),
    open_to_memcached(bucket_group("uuid", "", "Identity of the bucket")),
    bucket_group(
        "collections",
        "[SCOPE.COLLECTION]",
        "Figures of every collection",
    ),
    bucket_group("collections-byid", "ID", "Figures of a collection"),
    bucket_group(
        "collections-details",
        "[VB]",
        "What every vBucket has of every collection",
    ),
    bucket_group("scopes", "[SCOPE]", "Figures of every scope"),
    bucket_group(
        "scopes-byid",
        "ID",
        "Figures of a scope and of its collections",
    ),
    bucket_group(
        "scopes-details",
        "[VB]",
        "Documents of every collection in every vBucket",
    ),
    bucket_group("manifest", "", "Names of scopes and collections"),
    bucket_group(
        "replication",
        "",
        "The node that the bucket follows, or its followers",
    ),
    bucket_group(
        "dcp",
        "[JSON]",
        "Connections that stream changes, and their streams",
    ),
    bucket_group(
        "dcpagg",
        "[SEPARATOR]",
        "Connections that stream changes, by what their names begin with",
    ),
    bucket_group(
        "dcp-vbtakeover",
        "VB NAME",
        "What is left to be sent before a vBucket can be handed over",
    ),
    open_to_memcached(bucket_group(
        "key",
        "KEY VB [SCOPE.COLLECTION \\| 0xID]",
        "Metadata of a document",
    )),
    bucket_group(
        "vkey",
        "KEY VB [SCOPE.COLLECTION \\| 0xID]",
        "Metadata of a document, and whether the store has it too",
    ),
    node_group(
        "connections",
        "[ID \\| self]",
        "One row for each connection",
    ),
    node_group("bucket_details", "", "One row about all buckets"),
    node_group(
        "threads",
        "",
        "What every thread that serves connections did",
    ),
    node_group("clocks", "", "What reading the clocks costs"),
    node_group(
        "responses",
        "[all]",
        "How often each status was answered; with `all` those that never were, too",
    ),
    node_group(
        "reset",
        "[timings]",
        "Not statistics: forgets timings and counts of commands",
    ),
];
