//! Memory that one reader of an HTTP change stream holds: text that was made for it, and a large value that is
//! converted to text while it is read. See [`registry::Loans`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use registry::{Loan, ServedBucket};

use super::large::LargeValue;

/// Pieces of text below this size are not counted, bytes.
const SMALL_BYTES: usize = 64 << 10;

/// Bytes that readers of a bucket's changes hold.
struct HeldBytes {
    served: Arc<ServedBucket>,
    bytes: usize,
}

impl HeldBytes {
    fn new(served: &Arc<ServedBucket>, bytes: usize) -> Self {
        served.bucket.change_lent(0, bytes);
        let served = Arc::clone(served);
        Self { served, bytes }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.served.bucket.change_lent(self.bytes, 0);
    }
}

/// Text on its way to a reader.
pub(crate) struct Piece {
    text: Vec<u8>,
    _held: Option<HeldBytes>,
}

impl Piece {
    /// Takes ownership of a text.
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

/// A large value that a reader holds, until all of it is sent or it is taken back.
pub(crate) struct LargeLoan {
    lent: Mutex<Option<Lent>>,
    /// Time when the reader last took some of the value, monotonic ns.
    moved_ns: AtomicU64,
}

impl LargeLoan {
    /// Lends a value to a reader.
    pub(crate) fn new(value: LargeValue, served: &Arc<ServedBucket>, now_ns: u64) -> Arc<Self> {
        let held = HeldBytes::new(served, value.memory_bytes());
        let loan = Arc::new(Self {
            lent: Mutex::new(Some(Lent { value, held })),
            moved_ns: AtomicU64::new(now_ns),
        });
        let entered = Arc::downgrade(&loan);
        served.loans.enter(entered as Weak<dyn Loan>);
        loan
    }

    /// Calls `read` with the value; returns `None` if it was taken back.
    pub(crate) fn read<T>(&self, now_ns: u64, read: impl FnOnce(&LargeValue) -> T) -> Option<T> {
        self.moved_ns.store(now_ns, Ordering::Relaxed);
        self.lent.lock().as_ref().map(|lent| read(&lent.value))
    }
}

impl Loan for LargeLoan {
    fn moved_ns(&self) -> u64 {
        self.moved_ns.load(Ordering::Relaxed)
    }

    fn take_back(&self) -> Option<usize> {
        self.lent.lock().take().map(|lent| lent.held.bytes)
    }
}
