//! What is done next against memory pressure: a pure function of a few figures.

/// How a bucket frees memory for what is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// It does not: writes are refused until something is deleted.
    None,
    /// Values leave memory, keys and metadata stay.
    Values,
    /// Whole documents leave memory.
    Documents,
    /// Documents that were not used lately are deleted.
    Delete,
}

impl Eviction {
    /// The way with this number, `as u8`.
    pub(crate) fn of_number(number: u8) -> Self {
        let all = [Self::None, Self::Values, Self::Documents, Self::Delete];
        let found = all.into_iter().find(|way| *way as u8 == number);
        found.unwrap_or(Self::None)
    }

    /// Whether what leaves memory can be read back from the store.
    pub fn keeps_a_copy(self) -> bool {
        matches!(self, Self::Values | Self::Documents)
    }
}

/// What the ladder looks at, in bytes but for `evictable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Memory in use above the goal: the low mark while relief goes on, else the high mark.
    pub excess: u64,
    /// The same of the checkpoints' own share.
    pub checkpoint_excess: u64,
    /// Changes that every cursor has passed.
    pub expellable: u64,
    /// What only droppable cursors keep.
    pub pinned: u64,
    /// Documents that the bucket's way of evicting could take.
    pub evictable: u64,
    /// Changes that wait for the store, and so can neither go nor be expelled.
    pub queued: u64,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// Nothing: memory is where it should be.
    Rest,
    /// Let go of changes that every cursor has passed.
    Expel,
    /// Send the reader that keeps most to the disk.
    DropCursor,
    /// Take documents.
    Evict,
    /// Nothing can go before the store has what waits for it.
    AwaitFlush,
    /// Nothing can go at all.
    Stuck,
}

/// Decides. What costs nothing comes first; what makes a client read from disk later comes last, and cursors only where it is the checkpoints that are too large, or nothing else
/// is left.
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
