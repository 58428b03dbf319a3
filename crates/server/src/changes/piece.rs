//! What HTTP streams of changes have made and their readers have not taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::served::ServedBucket;

/// Pieces below it are not counted.
const SMALL_BYTES: usize = 64 << 10;
/// What all pieces of a bucket may take, as a part of its quota; and beyond which part nobody goes,
/// however long the others keep theirs.
const QUOTA_PART: u64 = 8;
const QUOTA_PART_MOST: u64 = 4;
/// How long a reader waits for others who do not read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of the pieces of one bucket that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Pieces(AtomicUsize);

impl Pieces {
    /// Whether another piece may be made, by one who waits for so long already.
    pub(crate) fn have_room(&self, quota: u64, waited: Duration) -> bool {
        let part = if waited < PATIENCE {
            QUOTA_PART
        } else {
            QUOTA_PART_MOST
        };
        (self.0.load(Ordering::Relaxed) as u64) < quota / part
    }
}

/// Text that counts against the quota of its bucket until it was sent.
pub(crate) struct Piece {
    text: Vec<u8>,
    served: Arc<ServedBucket>,
}

impl Piece {
    /// Takes a text over.
    pub(crate) fn new(text: Vec<u8>, served: &Arc<ServedBucket>) -> Self {
        let piece = Self {
            text,
            served: Arc::clone(served),
        };
        let bytes = piece.counted();
        piece.served.pieces.0.fetch_add(bytes, Ordering::Relaxed);
        piece.served.bucket.change_transit(0, bytes);
        piece
    }

    fn counted(&self) -> usize {
        let bytes = self.text.capacity();
        if bytes < SMALL_BYTES { 0 } else { bytes }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let bytes = self.counted();
        self.served.pieces.0.fetch_sub(bytes, Ordering::Relaxed);
        self.served.bucket.change_transit(bytes, 0);
    }
}
