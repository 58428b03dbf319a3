//! What is kept of a vBucket besides its documents, in memory and on disk.

use std::sync::Arc;

use crate::{Cas, CollectionId, Seqno, VbUuid};

/// Life state of a vBucket; the numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VbState {
    /// Serves data operations and gives changes their seqnos.
    Active = 1,
    /// Follows an active vBucket of another node.
    Replica = 2,
    /// About to become active; data operations wait.
    Pending = 3,
    /// Serves nothing.
    Dead = 4,
}

impl VbState {
    /// The state of a protocol number.
    pub fn from_wire(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Active),
            2 => Some(Self::Replica),
            3 => Some(Self::Pending),
            4 => Some(Self::Dead),
            _ => None,
        }
    }

    /// The name that statistics show.
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
    /// The seqno at which it began.
    pub seqno: Seqno,
}

/// The histories of a vBucket, newest first; never empty, at most [`FailoverLog::ENTRIES_MAX`].
///
/// Cost: cloned without copying the entries; every commit has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverLog {
    entries: Arc<[FailoverEntry]>,
}

impl FailoverLog {
    /// Entries kept; the oldest are forgotten beyond it.
    pub const ENTRIES_MAX: usize = 25;

    /// A log that starts with one history.
    pub fn new(first: FailoverEntry) -> Self {
        Self {
            entries: Arc::new([first]),
        }
    }

    /// A log read back from somewhere, newest first; `None` when it has no entry.
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

/// The seqnos of one snapshot, both ends included; `start <= end`.
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
    /// Life state.
    pub state: VbState,
    /// Highest seqno that the commit makes durable.
    pub high_seqno: Seqno,
    /// Highest seqno of a purged tombstone.
    pub purge_seqno: Seqno,
    /// Range of the snapshot to which `high_seqno` belongs; a vBucket that stopped inside of it
    /// is not at a consistent point.
    pub snapshot: SnapshotRange,
    /// Highest seqno of a prepare up to which this node counted itself, in order.
    pub high_prepared: Seqno,
    /// Highest seqno of a prepare that was decided: every prepare up to here was committed or
    /// given up.
    pub high_completed: Seqno,
    /// Highest CAS ever given or received; a restarted vBucket goes on above it.
    pub max_cas: Cas,
    /// Highest rev seqno among deleted documents; a document created anew starts above it.
    pub max_deleted_rev: u64,
    /// The histories.
    pub failover_log: FailoverLog,
    /// Replication topology as the JSON text of the protocol; empty when none was set.
    pub topology: String,
    /// Term under which the vBucket's owner was chosen (cluster mode); 0 without one.
    pub term: u64,
    /// How much there is as of the high seqno, where it is known. With it, documents need not be read before the vBucket
    /// serves.
    pub counts: Option<Box<VbCounts>>,
}

/// How many documents a vBucket has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VbCounts {
    /// Live documents, but for those of dropped collections.
    pub items: u64,
    /// Tombstones; there may be fewer.
    pub tombstones: u64,
    /// The newest change of the default collection.
    pub default_high: Seqno,
    /// The newest end of a collection of which there may be rows.
    pub dead_end: Seqno,
    /// Of each other collection that was used, ascending.
    pub collections: Vec<CollectionCount>,
}

/// How many documents a collection has in a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionCount {
    /// The collection.
    pub id: CollectionId,
    /// Live documents.
    pub items: u64,
    /// Its newest change.
    pub high_seqno: Seqno,
}

impl VbRecord {
    /// The record of a vBucket without documents, whose first history begins with `first`.
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
