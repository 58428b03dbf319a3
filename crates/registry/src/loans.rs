//! Loans: large values that HTTP readers of changes hold. A value is made into text while it is read.
//!
//! All readers of a bucket share a part of its quota ([`bucket::Purpose::Reader`]). A reader beyond it waits with its
//! next change. Meanwhile the value of an idle reader is taken back, which ends the stream of that reader.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Idle time after which a reader loses its value while another one waits, ns.
const STILLNESS_NS: u64 = 10_000_000_000;

/// A large value that a reader holds.
pub trait Loan: Send + Sync {
    /// Returns the time when the reader last took some of the value, monotonic ns.
    fn moved_ns(&self) -> u64;

    /// Takes the value back. Returns the bytes that it held; `None` if it is gone already.
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
    /// Adds a value that a reader holds until it is dropped or taken back.
    pub fn enter(&self, loan: Weak<dyn Loan>) {
        self.lent.lock().push(loan);
    }

    /// Sets the allowed idle time to zero: any value may be taken back at once.
    pub fn grant_nothing(&self) {
        self.stillness_ns.store(0, Ordering::Relaxed);
    }

    /// Returns the number of streams that ended to free memory for others.
    pub fn taken_back(&self) -> u64 {
        self.taken_back.load(Ordering::Relaxed)
    }

    /// Takes the values of idle readers back, because another reader waits. `bucket` is for the log.
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
