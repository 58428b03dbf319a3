//! Admission queue: large requests get quota of a bucket in order of arrival.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Requests that still need fewer bytes than this skip the queue: they do not delay others.
pub const QUEUED_BYTES_MIN: usize = 256 << 10;

/// A first-in, first-out queue. Without it, a request that polls at the right moment would get the quota that an older
/// request waits for.
#[derive(Debug, Default)]
pub struct AdmissionQueue {
    queue: Mutex<ConnectionQueue>,
}

#[derive(Debug, Default)]
struct ConnectionQueue {
    /// Numbers of the waiting requests. The list is short: few large requests fit in memory, and waits are bounded.
    waiting: VecDeque<u64>,
    next: u64,
}

impl AdmissionQueue {
    /// Adds a position at the end.
    pub fn join(self: &Arc<Self>) -> QueuePosition {
        let mut queue = self.queue.lock();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back(number);
        QueuePosition {
            shared: Arc::clone(self),
            number,
        }
    }
}

/// A position in an admission queue, until it is dropped.
#[derive(Debug)]
pub struct QueuePosition {
    shared: Arc<AdmissionQueue>,
    number: u64,
}

impl QueuePosition {
    /// Checks that no older request waits.
    pub fn is_first(&self) -> bool {
        self.shared.queue.lock().waiting.front() == Some(&self.number)
    }
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.waiting.retain(|number| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_position_is_first_until_it_is_dropped() {
        let queue = Arc::new(AdmissionQueue::default());
        let (first, second, third) = (queue.join(), queue.join(), queue.join());
        assert!(first.is_first() && !second.is_first() && !third.is_first());
        drop(second);
        assert!(first.is_first() && !third.is_first());
        drop(first);
        assert!(third.is_first());
        drop(third);
        assert!(queue.join().is_first());
    }
}
