//! Loans: large values that HTTP readers of changes hold, which are made into text as they are read.
//!
//! All readers of a bucket share a part of its quota ([`bucket::Purpose::Reader`]). Those beyond it wait with their
//! next change. From a reader that moves nothing meanwhile its value is taken back, which ends its stream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// How long a reader may move nothing while another one waits.
const STILLNESS_NS: u64 = 10_000_000_000;

/// A large value in the hands of a reader.
pub trait Loan: Send + Sync {
    /// When the reader took some of it last, monotonic nanoseconds.
    fn moved_ns(&self) -> u64;

    /// Takes it back. Returns the bytes that it held, `None` if there are none any more.
    fn take_back(&self) -> Option<usize>;
}

/// The loans to the readers of one bucket.
pub struct Loans {
    lent: Mutex<Vec<Weak<dyn Loan>>>,
    taken_back: AtomicU64,
    stillness_ns: AtomicU64,
}

impl Default for Loans {
    fn default() -> Self {
        Self {
            lent: Mutex::default(),
            taken_back: AtomicU64::new(0),
            stillness_ns: AtomicU64::new(STILLNESS_NS),
        }
    }
}

impl Loans {
    /// Enters a value that a reader holds until it is dropped or taken back.
    pub fn enter(&self, loan: Weak<dyn Loan>) {
        self.lent.lock().push(loan);
    }

    /// Lets everything be taken back at once.
    #[cfg(feature = "testing")]
    pub fn grant_nothing(&self) {
        self.stillness_ns.store(0, Ordering::Relaxed);
    }

    /// Streams that ended so that others have memory.
    pub fn taken_back(&self) -> u64 {
        self.taken_back.load(Ordering::Relaxed)
    }

    /// Takes back what readers hold that moved nothing for some time, because another reader waits.
    /// `bucket` is for the log.
    pub fn take_back_idle(&self, bucket: &str, now_ns: u64) {
        let limit = self.stillness_ns.load(Ordering::Relaxed);
        let mut loans = self.lent.lock();
        loans.retain(|loan| loan.strong_count() > 0);
        let all: Vec<Arc<dyn Loan>> = loans.iter().filter_map(Weak::upgrade).collect();
        drop(loans);
        for loan in all {
            let still_ns = now_ns.saturating_sub(loan.moved_ns());
            if still_ns < limit {
                continue;
            }
            if let Some(held_bytes) = loan.take_back() {
                self.taken_back.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    bucket,
                    held_bytes,
                    "a stream of changes ends: its reader moves nothing, and others wait for room"
                );
            }
        }
    }
}
