//! Passes over the table in bounded steps: each step continues where the last one stopped.

use super::VBucket;
use crate::table::SlotIndex;
use crate::types::ScanProgress;

/// Kind of a pass; the index in [`VBucket::next_slot`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Pass {
    /// Eviction, or deletion in an ephemeral bucket.
    Evict,
    Expire,
    /// Removal of documents of dropped collections.
    Erase,
}

/// Result of visiting a slot.
pub(super) struct Visited {
    changed: bool,
    goes_on: bool,
}

impl Visited {
    /// Creates a result: whether something changed, and whether the step continues.
    pub(super) fn new(changed: bool, goes_on: bool) -> Self {
        Self { changed, goes_on }
    }
}

impl VBucket {
    /// Runs one step of a pass: visits slots until `slots` were visited, `visit` ends the step, or
    /// the table ends.
    #[inline]
    pub(super) fn pass(
        &mut self,
        pass: Pass,
        slots: usize,
        mut visit: impl FnMut(&mut Self, SlotIndex) -> Visited,
    ) -> ScanProgress {
        let mut progress = ScanProgress::default();
        while progress.slots < slots {
            let Some(slot) = self.table.step(&mut self.next_slot[pass as usize]) else {
                progress.finished = true;
                break;
            };
            progress.slots += 1;
            let visited = visit(self, slot);
            progress.changed += usize::from(visited.changed);
            if !visited.goes_on {
                break;
            }
        }
        progress
    }
}
