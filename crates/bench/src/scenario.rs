//! The scenarios of `--dcp`.

/// A measurement of change streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// Speed of one connection that receives all documents
    Drain,
    /// Time from a write to the arrival of its change on another connection, at --rate writes per second [default
    /// of --rate: 20000]
    Latency,
    /// Effect of a connection that streams all changes on readers and writers: slices with and without it take turns
    Front,
    /// Memory of idle streams; --server-pid is needed
    Idle,
    /// Speed of a node as consumer of --keys documents in snapshots of --snapshot-changes, and latency of the
    /// acknowledgement of snapshots with one change. The vBuckets become replicas, then active again; use a
    /// bucket without documents of your own
    Consumer,
    /// Catch-up time of a connection that did not read, after memory pressure made the node drop its cursors:
    /// --keys documents must not fit the bucket's memory
    Dropped,
}

impl Scenario {
    /// Number of connections by default.
    pub(crate) fn connections(self) -> u32 {
        match self {
            Self::Idle => 100,
            _ => 1,
        }
    }
}

/// Source of the documents to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DrainSource {
    /// The log of changes in memory, which streams follow
    Memory,
    /// The store
    Disk,
}

impl DrainSource {
    /// Name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// The load of `--dcp consumer`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerLoad {
    /// Number of streams over all connections; `None` for one per vBucket.
    pub(crate) streams: Option<u32>,
    /// Number of changes per snapshot.
    pub(crate) snapshot: u64,
}

/// A scenario with its own options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    /// The scenario.
    pub(crate) scenario: Scenario,
    /// Source of the documents in scenario `drain`.
    pub(crate) from: DrainSource,
    /// The load in scenario `consumer`.
    pub(crate) load: ConsumerLoad,
}
