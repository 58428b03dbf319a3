//! The ladder: the next step against memory pressure, as a pure function of a few figures.

/// Eviction policy of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// No eviction: writes are refused until documents are deleted.
    None,
    /// Values leave memory; keys and metadata stay.
    Values,
    /// Whole documents leave memory.
    Documents,
    /// Documents that were not used lately are deleted.
    Delete,
}

impl Eviction {
    /// Returns the policy with this number, `as u8`.
    pub(crate) fn of_number(number: u8) -> Self {
        let all = [Self::None, Self::Values, Self::Documents, Self::Delete];
        let found = all.into_iter().find(|way| *way as u8 == number);
        found.unwrap_or(Self::None)
    }

    /// Whether evicted data can be read from the store.
    pub fn keeps_a_copy(self) -> bool {
        matches!(self, Self::Values | Self::Documents)
    }
}

/// Input of the ladder, in bytes except `evictable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory in use above the goal: the low mark during a relief, otherwise the high mark.
    pub excess: u64,
    /// Memory of checkpoints above the goal of their share.
    pub checkpoint_excess: u64,
    /// Bytes of changes that every cursor has passed.
    pub expellable: u64,
    /// Bytes that only droppable cursors keep.
    pub pinned: u64,
    /// Number of documents that the eviction policy can take.
    pub evictable: u64,
    /// Bytes of changes that wait for the store, and can be neither evicted nor expelled.
    pub queued: u64,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// No step: there is no pressure.
    Rest,
    /// Expel changes that every cursor has passed.
    Expel,
    /// Drop the cursor that keeps most, so that its reader continues from the store.
    DropCursor,
    /// Evict documents.
    Evict,
    /// Wait for the flusher: nothing can be freed before it.
    AwaitFlush,
    /// Nothing can be freed at all.
    Stuck,
}

/// Returns the next step. Free steps come first. Steps that cause disk reads for clients come
/// later. Cursors are dropped only if checkpoints are too large, or nothing else is left.
pub fn next_relief(pressure: &Pressure) -> Relief {
    let Pressure {
        excess,
        checkpoint_excess,
        expellable,
        pinned,
        evictable,
        queued,
    } = *pressure;
    if excess == 0 && checkpoint_excess == 0 {
        Relief::Rest
    } else if expellable > 0 {
        Relief::Expel
    } else if pinned > 0 && (checkpoint_excess > 0 || evictable == 0) {
        Relief::DropCursor
    } else if excess > 0 && evictable > 0 {
        Relief::Evict
    } else if queued > 0 {
        Relief::AwaitFlush
    } else {
        Relief::Stuck
    }
}
