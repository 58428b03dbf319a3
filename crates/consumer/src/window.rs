//! The consumer's side of flow control: what was dealt with, and when to say so. Pure.

/// Acknowledge once this part of the window is free: a fifth.
const ACK_SHARE: u64 = 5;
/// Acknowledge whatever there is after this long.
const ACK_AFTER_NS: u64 = 5_000_000_000;

/// Bytes that are not acknowledged yet.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    bytes: u32,
    freed: u64,
    last_ack_ns: u64,
}

impl Window {
    /// A window of `bytes`, as the producer is told.
    pub fn new(bytes: u32, now_ns: u64) -> Self {
        Self {
            bytes,
            freed: 0,
            last_ack_ns: now_ns,
        }
    }

    /// The window is `bytes` from now on.
    pub fn resize(&mut self, bytes: u32) {
        self.bytes = bytes;
    }

    /// A message was dealt with.
    pub fn dealt_with(&mut self, bytes: usize) {
        self.freed = self.freed.saturating_add(bytes as u64);
    }

    /// What to acknowledge now. While memory is short this is not asked, so the producer runs
    /// into the end of its window.
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
    fn more_than_a_fifth_or_five_seconds() {
        let mut window = Window::new(1000, 0);
        assert_eq!(window.take(u64::MAX), None, "nothing to say");
        window.dealt_with(200);
        assert_eq!(window.take(1), None);
        window.dealt_with(1);
        assert_eq!(window.take(1), Some(201));
        assert_eq!(window.take(2), None);
        window.dealt_with(7);
        assert_eq!(window.take(ACK_AFTER_NS), None);
        assert_eq!(window.take(ACK_AFTER_NS + 1), Some(7));
    }

    #[test]
    fn what_one_message_cannot_say_is_said_by_the_next() {
        let mut window = Window::new(1000, 0);
        window.dealt_with(u32::MAX as usize);
        window.dealt_with(500);
        assert_eq!(window.take(0), Some(u32::MAX));
        assert_eq!(window.take(0), Some(500));
    }
}
