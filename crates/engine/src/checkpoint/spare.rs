//! Buffers that a flush needs, allocated before the vBucket's lock is taken.

use std::collections::VecDeque;

use super::CheckpointLog;
use super::run::Run;
use super::segment::{Piece, Sealed};

/// Segments and runs that fit in: more than a log has between two flushes.
const ENTRIES: usize = 6;

/// Buffers for what a flush seals and ends in a log that holds nothing else. Fresh memory costs a
/// page fault, longer than all the rest of a read, and is not asked for under the lock.
///
/// Cost: about 1.8 KiB while filled.
#[derive(Debug, Default)]
pub struct SpareBuffers {
    pub(super) sealed: VecDeque<Sealed>,
    pub(super) closed: VecDeque<Run>,
    pieces: Vec<Piece>,
}

impl SpareBuffers {
    /// Allocates what the last flush took; to be called without a lock.
    pub fn refill(&mut self) {
        self.sealed.reserve(ENTRIES);
        self.closed.reserve(ENTRIES);
        self.pieces.reserve(ENTRIES);
    }

    /// A buffer for what a batch consists of.
    pub(super) fn take_pieces(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }
}

/// Moves what is held into the spare buffer if that is larger, and is needed.
fn move_in<T>(held: &mut VecDeque<T>, spare: &mut VecDeque<T>) {
    if held.len() == held.capacity() && held.len() < spare.capacity() {
        spare.append(held);
        std::mem::swap(held, spare);
    }
}

impl CheckpointLog {
    /// Takes spare buffers where its own are full.
    pub(super) fn take_spare(&mut self, spare: &mut SpareBuffers) {
        move_in(&mut self.sealed, &mut spare.sealed);
        move_in(&mut self.closed, &mut spare.closed);
    }
}
