//! Positions of an encrypted log's pieces, for reading single rows.

use parking_lot::Mutex;

/// Offset and length of each piece of a log.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Mutex<Vec<(u64, u32)>>);

impl Pieces {
    /// Adds a piece, and removes those at or after its offset: they are overwritten.
    pub(crate) fn add(&self, at: u64, length: u32) {
        let mut pieces = self.0.lock();
        while pieces.last().is_some_and(|(last, _)| *last >= at) {
            pieces.pop();
        }
        pieces.push((at, length));
    }

    /// Returns the piece that contains an offset.
    pub(crate) fn find(&self, offset: u64) -> Option<(u64, u32)> {
        let pieces = self.0.lock();
        let after = pieces.partition_point(|(at, _)| *at <= offset);
        pieces.get(after.checked_sub(1)?).copied()
    }
}
