//! The consumer's side of flow control: counts processed bytes and decides when to acknowledge them. Pure.

/// Divisor of the window: more processed bytes than a fifth of it are acknowledged at once.
const ACK_SHARE: u64 = 5;
/// Longest delay of an acknowledgement, in nanoseconds.
const ACK_AFTER_NS: u64 = 5_000_000_000;

/// Processed bytes that are not acknowledged yet.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    bytes: u32,
    freed: u64,
    last_ack_ns: u64,
}

impl Window {
    /// Creates a window of `bytes`, the size that the producer was sent.
    pub fn new(bytes: u32, now_ns: u64) -> Self {
        Self {
            bytes,
            freed: 0,
            last_ack_ns: now_ns,
        }
    }

    /// Sets the size of the window.
    pub fn resize(&mut self, bytes: u32) {
        self.bytes = bytes;
    }

    /// Counts a processed message.
    pub fn dealt_with(&mut self, bytes: usize) {
        self.freed = self.freed.saturating_add(bytes as u64);
    }

    /// Returns the time when processed bytes are acknowledged, however few; `u64::MAX` without any.
    pub fn due_ns(&self) -> u64 {
        if self.freed == 0 {
            return u64::MAX;
        }
        self.last_ack_ns.saturating_add(ACK_AFTER_NS)
    }

    /// Returns the number of bytes to acknowledge, if any. It is not called while memory is short, so that the
    /// producer reaches the end of its window.
    pub fn take(&mut self, now_ns: u64) -> Option<u32> {
        let enough = self.freed > u64::from(self.bytes) / ACK_SHARE;
        let late = now_ns.saturating_sub(self.last_ack_ns) >= ACK_AFTER_NS;
        if self.freed == 0 || !(enough || late) {
            return None;
        }
        let bytes = u32::try_from(self.freed).unwrap_or(u32::MAX);
        self.freed -= u64::from(bytes);
        self.last_ack_ns = now_ns;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_acknowledges_after_a_fifth_or_five_seconds() {
        let mut window = Window::new(1000, 0);
        assert_eq!(window.take(u64::MAX), None, "nothing to say");
        window.dealt_with(200);
        assert_eq!(window.take(1), None);
        window.dealt_with(1);
        assert_eq!(window.take(1), Some(201));
        assert_eq!(window.take(2), None);
        assert_eq!(window.due_ns(), u64::MAX);
        window.dealt_with(7);
        assert_eq!(window.take(ACK_AFTER_NS), None);
        assert_eq!(window.due_ns(), ACK_AFTER_NS + 1);
        assert_eq!(window.take(ACK_AFTER_NS + 1), Some(7));
    }

    #[test]
    fn window_splits_large_acknowledgement_over_two_messages() {
        let mut window = Window::new(1000, 0);
        window.dealt_with(u32::MAX as usize);
        window.dealt_with(500);
        assert_eq!(window.take(0), Some(u32::MAX));
        assert_eq!(window.take(0), Some(500));
    }
}
