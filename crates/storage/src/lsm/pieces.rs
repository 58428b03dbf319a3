//! Where the pieces of an encrypted log lie, whose rows are read alone.

use parking_lot::Mutex;

/// Where each piece of a log lies, and its length.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Mutex<Vec<(u64, u32)>>);

impl Pieces {
    /// Notes a piece; those behind it were never, or are overwritten.
    pub(crate) fn add(&self, at: u64, length: u32) {
        let mut pieces = self.0.lock();
        while pieces.last().is_some_and(|(last, _)| *last >= at) {
            pieces.pop();
        }
        pieces.push((at, length));
    }

    /// The piece that has an offset.
    pub(crate) fn find(&self, offset: u64) -> Option<(u64, u32)> {
        let pieces = self.0.lock();
        let after = pieces.partition_point(|(at, _)| *at <= offset);
        pieces.get(after.checked_sub(1)?).copied()
    }
}
