//! State of a vBucket apart from its documents, in memory and on disk.

use std::sync::Arc;

use crate::{Cas, CollectionId, Seqno, VbUuid};

/// State of a vBucket; the numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VbState {
    /// Serves data operations and assigns seqnos.
    Active = 1,
    /// Follows an active vBucket of another node.
    Replica = 2,
    /// Becomes active soon; data operations wait.
    Pending = 3,
    /// Serves nothing.
    Dead = 4,
}

impl VbState {
    /// Returns the state with this protocol number.
    pub fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Active),
            2 => Some(Self::Replica),
            3 => Some(Self::Pending),
            4 => Some(Self::Dead),
            _ => None,
        }
    }

    /// Name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Replica => "replica",
            Self::Pending => "pending",
            Self::Dead => "dead",
        }
    }
}

/// One history of a vBucket: changes above `seqno` were made under `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverEntry {
    /// Identifier of the history.
    pub uuid: VbUuid,
    /// Seqno at which it began.
    pub seqno: Seqno,
}

/// The histories of a vBucket, newest first; never empty, at most [`FailoverLog::ENTRIES_MAX`].
///
/// Cost: cloned without copying the entries; every commit clones one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverLog {
    entries: Arc<[FailoverEntry]>,
}

impl FailoverLog {
    /// Maximum number of entries; older ones are dropped.
    pub const ENTRIES_MAX: usize = 25;

    /// Creates a log with one history.
    pub fn new(first: FailoverEntry) -> Self {
        Self {
            entries: Arc::new([first]),
        }
    }

    /// Creates a log from entries, newest first; `None` without an entry.
    pub fn from_entries(mut entries: Vec<FailoverEntry>) -> Option<Self> {
        entries.truncate(Self::ENTRIES_MAX);
        if entries.is_empty() {
            None
        } else {
            let entries = entries.into();
            Some(Self { entries })
        }
    }

    /// Begins a new history.
    pub fn begin(&mut self, entry: FailoverEntry) {
        let older = self.entries.iter().copied();
        let all = std::iter::once(entry).chain(older);
        self.entries = all.take(Self::ENTRIES_MAX).collect();
    }

    /// The current history.
    pub fn newest(&self) -> FailoverEntry {
        self.entries[0]
    }

    /// All histories, newest first.
    pub fn entries(&self) -> &[FailoverEntry] {
        &self.entries
    }
}

/// Seqno range of a snapshot, both ends included; `start <= end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotRange {
    /// First seqno.
    pub start: Seqno,
    /// Last seqno.
    pub end: Seqno,
}

/// The persisted state of a vBucket, written in the same commit as its documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbRecord {
    /// State of the vBucket.
    pub state: VbState,
    /// Highest seqno that the commit makes durable.
    pub high_seqno: Seqno,
    /// Purge seqno: the highest purged tombstone.
    pub purge_seqno: Seqno,
    /// Range of the snapshot that contains `high_seqno`; a vBucket that stopped inside it is not
    /// consistent.
    pub snapshot: SnapshotRange,
    /// Last prepare that this node acknowledges; all earlier ones are acknowledged too.
    pub high_prepared: Seqno,
    /// Last completed prepare: every prepare up to it was committed or aborted.
    pub high_completed: Seqno,
    /// Highest CAS ever generated or received; a restarted vBucket continues above it.
    pub max_cas: Cas,
    /// Highest revision among deleted documents; a document created again starts above it.
    pub max_deleted_rev: u64,
    /// The failover log.
    pub failover_log: FailoverLog,
    /// Replication topology as the JSON text of the protocol; empty if none was set.
    pub topology: String,
    /// Term of the vBucket in a cluster; 0 without a cluster.
    pub term: u64,
    /// Document counts at the high seqno, if known. With them, the vBucket serves before its
    /// documents are read.
    pub counts: Option<Box<VbCounts>>,
}

/// Document counts of a vBucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VbCounts {
    /// Live documents, without those of dropped collections.
    pub items: u64,
    /// Tombstones, at most.
    pub tombstones: u64,
    /// Last seqno of the default collection.
    pub default_high: Seqno,
    /// Seqno of the last dropped collection that may still have rows.
    pub dead_end: Seqno,
    /// Counts of each other collection that was used, ascending.
    pub collections: Vec<CollectionCount>,
}

/// Document count of a collection in a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionCount {
    /// The collection.
    pub id: CollectionId,
    /// Live documents.
    pub items: u64,
    /// Last seqno of the collection.
    pub high_seqno: Seqno,
}

impl VbRecord {
    /// Returns the record of a vBucket without documents, whose first history is `first`.
    #[must_use]
    pub fn new(state: VbState, first: FailoverEntry) -> Self {
        Self {
            state,
            high_seqno: first.seqno,
            purge_seqno: Seqno::ZERO,
            snapshot: SnapshotRange {
                start: first.seqno,
                end: first.seqno,
            },
            high_prepared: Seqno::ZERO,
            high_completed: Seqno::ZERO,
            max_cas: Cas(0),
            max_deleted_rev: 0,
            failover_log: FailoverLog::new(first),
            topology: String::new(),
            term: 0,
            counts: None,
        }
    }
}
