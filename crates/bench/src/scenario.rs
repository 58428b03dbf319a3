//! What `--dcp` measures.

/// What is measured of change streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// How fast all documents come over one connection
    Drain,
    /// How long after a write its change arrives on another connection, at --rate writes a
    /// second [default of --rate: 20000]
    Latency,
    /// What readers and writers notice of a connection that streams all changes: slices with
    /// and without it take turns
    Front,
    /// What streams cost that have nothing to say; --server-pid is needed
    Idle,
    /// How fast the node takes changes as a consumer, of --keys documents in snapshots of
    /// --snapshot-changes, and how soon it acknowledges snapshots of one change. The vBuckets
    /// become replicas, then active again; use a bucket without documents of your own
    Consumer,
    /// How soon a connection that did not read has everything, after memory pressure made the node
    /// drop its cursors: --keys documents must not fit the bucket's memory
    Dropped,
}

impl Scenario {
    /// How many connections there are unless the user says otherwise.
    pub(crate) fn connections(self) -> u32 {
        match self {
            Self::Idle => 100,
            _ => 1,
        }
    }
}

/// Where documents are when they are drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Origin {
    /// In the log of changes that the streams follow
    Memory,
    /// In the store
    Disk,
}

impl Origin {
    /// As the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// What `--dcp consumer` sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerLoad {
    /// Streams of all connections; `None` for one of each vBucket.
    pub(crate) streams: Option<u32>,
    /// Changes of a snapshot.
    pub(crate) snapshot: u64,
}

/// A scenario with its own options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    /// The scenario.
    pub(crate) scenario: Scenario,
    /// Where `drain` finds the documents.
    pub(crate) from: Origin,
    /// What `consumer` sends.
    pub(crate) load: ConsumerLoad,
}
