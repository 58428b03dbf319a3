//! Buffers that a flush needs, allocated before the vBucket's lock is taken.

use std::collections::VecDeque;

use super::CheckpointLog;
use super::run::Run;
use super::segment::{Sealed, SegmentPart};

/// Capacity of the buffers: more segments and runs than a log gets between two flushes.
const ENTRIES: usize = 6;

/// Buffers for the segments and runs that a flush seals in an otherwise empty log. New memory costs
/// a page fault, longer than the rest of a read, so it is not allocated under the lock.
///
/// Cost: about 1.8 KiB while filled.
#[derive(Debug, Default)]
pub struct SpareBuffers {
    pub(super) sealed: VecDeque<Sealed>,
    pub(super) closed: VecDeque<Run>,
    pieces: Vec<SegmentPart>,
}

impl SpareBuffers {
    /// Allocates the buffers that the last flush took. Call without a lock.
    pub fn refill(&mut self) {
        self.sealed.reserve(ENTRIES);
        self.closed.reserve(ENTRIES);
        self.pieces.reserve(ENTRIES);
    }

    /// Takes the buffer for the pieces of a batch.
    pub(super) fn take_pieces(&mut self) -> Vec<SegmentPart> {
        std::mem::take(&mut self.pieces)
    }
}

/// Moves `held` into the spare buffer if `held` is full and the spare one is larger.
fn move_in<T>(held: &mut VecDeque<T>, spare: &mut VecDeque<T>) {
    if held.len() == held.capacity() && held.len() < spare.capacity() {
        spare.append(held);
        std::mem::swap(held, spare);
    }
}

impl CheckpointLog {
    /// Replaces own full buffers by spare ones.
    pub(super) fn take_spare(&mut self, spare: &mut SpareBuffers) {
        move_in(&mut self.sealed, &mut spare.sealed);
        move_in(&mut self.closed, &mut spare.closed);
    }
}
