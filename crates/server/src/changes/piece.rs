//! What readers of HTTP streams of changes hold: text that was made for them, and large values
//! that are made into text as they are read.
//!
//! All of a bucket's readers share a part of its quota. Those beyond it wait with their next
//! change; from one that moves nothing meanwhile its value is taken back, which ends its stream.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::served::ServedBucket;
use crate::session::dcp::LargeValue;

/// Pieces of text below it are not counted.
const SMALL_BYTES: usize = 64 << 10;
/// What all readers of a bucket may hold, as a part of its quota, but for what the last one took.
const QUOTA_PART: u64 = 8;
/// How long a reader may move nothing while another one waits.
const STILLNESS_NS: u64 = 10_000_000_000;

/// What the readers of one bucket hold.
#[derive(Debug)]
pub(crate) struct Pieces {
    bytes: AtomicUsize,
    loans: Mutex<Vec<Weak<Loan>>>,
    taken_back: AtomicU64,
    stillness_ns: AtomicU64,
}

impl Default for Pieces {
    fn default() -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            loans: Mutex::default(),
            taken_back: AtomicU64::new(0),
            stillness_ns: AtomicU64::new(STILLNESS_NS),
        }
    }
}

impl Pieces {
    /// Whether another reader may take something.
    pub(crate) fn have_room(&self, quota: u64) -> bool {
        (self.bytes.load(Ordering::Relaxed) as u64) < quota / QUOTA_PART
    }

    /// Bytes held.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Lets everybody be taken from at once.
    #[cfg(test)]
    pub(crate) fn grant_nothing(&self) {
        self.stillness_ns.store(0, Ordering::Relaxed);
    }

    /// Streams that ended so that others have room.
    pub(crate) fn taken_back(&self) -> u64 {
        self.taken_back.load(Ordering::Relaxed)
    }

    /// Takes back what was lent to those who moved nothing for some time: for one who waits.
    pub(crate) fn make_room(&self, now_ns: u64) {
        let limit = self.stillness_ns.load(Ordering::Relaxed);
        let mut loans = self.loans.lock();
        loans.retain(|loan| loan.strong_count() > 0);
        let all: Vec<Arc<Loan>> = loans.iter().filter_map(Weak::upgrade).collect();
        drop(loans);
        for loan in all {
            let still_ns = now_ns.saturating_sub(loan.moved_ns.load(Ordering::Relaxed));
            if still_ns < limit {
                continue;
            }
            if let Some(lent) = loan.take_back() {
                self.taken_back.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    bucket = lent.held.served.name(),
                    held_bytes = lent.held.bytes,
                    "a stream of changes ends: its reader moves nothing, and others wait for room"
                );
            }
        }
    }
}

/// Bytes that count as held by readers of a bucket's changes.
struct HeldBytes {
    served: Arc<ServedBucket>,
    bytes: usize,
}

impl HeldBytes {
    fn new(served: &Arc<ServedBucket>, bytes: usize) -> Self {
        served.pieces.bytes.fetch_add(bytes, Ordering::Relaxed);
        served.bucket.change_lent(0, bytes);
        let served = Arc::clone(served);
        Self { served, bytes }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let pieces = &self.served.pieces;
        pieces.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.served.bucket.change_lent(self.bytes, 0);
    }
}

/// Text on its way to a reader.
pub(crate) struct Piece {
    text: Vec<u8>,
    _held: Option<HeldBytes>,
}

impl Piece {
    /// Takes a text over.
    pub(crate) fn new(text: Vec<u8>, served: &Arc<ServedBucket>) -> Self {
        let bytes = text.capacity();
        let held = (bytes >= SMALL_BYTES).then(|| HeldBytes::new(served, bytes));
        Self { text, _held: held }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

struct Lent {
    value: LargeValue,
    held: HeldBytes,
}

/// A large value in the hands of a reader, until all of it is told or it is taken back.
pub(crate) struct Loan {
    lent: Mutex<Option<Lent>>,
    /// When the reader took some of it last, monotonic.
    moved_ns: AtomicU64,
}

impl Loan {
    /// Lends a value to a reader.
    pub(crate) fn new(value: LargeValue, served: &Arc<ServedBucket>, now_ns: u64) -> Arc<Self> {
        let held = HeldBytes::new(served, value.memory_bytes());
        let loan = Arc::new(Self {
            lent: Mutex::new(Some(Lent { value, held })),
            moved_ns: AtomicU64::new(now_ns),
        });
        served.pieces.loans.lock().push(Arc::downgrade(&loan));
        loan
    }

    /// Shows the value to `read`; `None` once it was taken back.
    pub(crate) fn read<T>(&self, now_ns: u64, read: impl FnOnce(&LargeValue) -> T) -> Option<T> {
        self.moved_ns.store(now_ns, Ordering::Relaxed);
        self.lent.lock().as_ref().map(|lent| read(&lent.value))
    }

    fn take_back(&self) -> Option<Lent> {
        self.lent.lock().take()
    }
}
