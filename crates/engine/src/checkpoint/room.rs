//! Room that a reader needs, made before the vBucket's lock is taken.

use std::collections::VecDeque;

use super::CheckpointLog;
use super::run::Run;
use super::segment::{Piece, Sealed};

/// Segments and runs for which there is room: more than a log has between two flushes.
const ENTRIES: usize = 6;

/// Room for what a reader seals and ends in a log that holds nothing else. Fresh memory costs a
/// page fault, longer than all the rest of a read, and is not asked for under the lock.
///
/// Cost: about 1.8 KiB while furnished.
#[derive(Debug, Default)]
pub struct Room {
    pub(super) sealed: VecDeque<Sealed>,
    pub(super) closed: VecDeque<Run>,
    pieces: Vec<Piece>,
}

impl Room {
    /// Makes up for what the last reader took; to be called without a lock.
    pub fn furnish(&mut self) {
        self.sealed.reserve(ENTRIES);
        self.closed.reserve(ENTRIES);
        self.pieces.reserve(ENTRIES);
    }

    /// Room for what a batch consists of.
    pub(super) fn take_pieces(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }
}

/// Moves what is held into the room if that is larger, and is needed.
fn move_in<T>(held: &mut VecDeque<T>, room: &mut VecDeque<T>) {
    if held.len() == held.capacity() && held.len() < room.capacity() {
        room.append(held);
        std::mem::swap(held, room);
    }
}

impl CheckpointLog {
    /// Takes what it has no room for itself.
    pub(super) fn move_in(&mut self, room: &mut Room) {
        move_in(&mut self.sealed, &mut room.sealed);
        move_in(&mut self.closed, &mut room.closed);
    }
}
