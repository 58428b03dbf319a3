//! Passes over the table, a bounded step at a time: each goes on where its last step stopped.

use super::VBucket;
use crate::table::Spot;
use crate::types::ScanProgress;

/// What a pass is for; its number in [`VBucket::next_slot`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Pass {
    /// Eviction, and deletion where nothing can be evicted.
    Evict,
    Expire,
    /// Documents of collections that were dropped.
    Erase,
}

/// What came of a visit of a slot.
pub(super) struct Visited {
    changed: bool,
    goes_on: bool,
}

impl Visited {
    /// Whether something changed, and whether the step is to go on.
    pub(super) fn new(changed: bool, goes_on: bool) -> Self {
        Self { changed, goes_on }
    }
}

impl VBucket {
    /// One step of a pass: visits slots until there were so many, `visit` ends the step, or the end of
    /// the table is reached.
    #[inline]
    pub(super) fn pass(
        &mut self,
        pass: Pass,
        slots: usize,
        mut visit: impl FnMut(&mut Self, Spot) -> Visited,
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
