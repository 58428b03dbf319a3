//! The line of those who wait for room in a bucket for a large request.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Requests with less to come do not stand in line: what they take does not keep others waiting.
pub const LARGE_BYTES: usize = 256 << 10;

/// Who waits, in the order in which they came. Without it those who look again at the right moment get
/// what others have waited for longer.
#[derive(Debug, Default)]
pub struct Line {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The number of each; small, since only few fit in memory at a time and nobody waits for long.
    waiting: VecDeque<u64>,
    next: u64,
}

impl Line {
    /// Joins at the end.
    pub fn join(self: &Arc<Self>) -> Place {
        let mut queue = self.queue.lock();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back(number);
        Place {
            line: Arc::clone(self),
            number,
        }
    }
}

/// A place in a line, until it is dropped.
#[derive(Debug)]
pub struct Place {
    line: Arc<Line>,
    number: u64,
}

impl Place {
    /// Whether nobody else came before.
    pub fn is_first(&self) -> bool {
        self.line.queue.lock().waiting.front() == Some(&self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queue = self.line.queue.lock();
        queue.waiting.retain(|number| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_is_first_until_he_leaves() {
        let line = Arc::new(Line::default());
        let (first, second, third) = (line.join(), line.join(), line.join());
        assert!(first.is_first() && !second.is_first() && !third.is_first());
        drop(second);
        assert!(first.is_first() && !third.is_first());
        drop(first);
        assert!(third.is_first());
        drop(third);
        assert!(line.join().is_first());
    }
}
