//! Flow control: how many bytes may be on their way to a peer.

/// The window of a connection: bytes sent that the peer has not acknowledged.
///
/// A message goes out while the window is not full. So one message may exceed the window; otherwise
/// a message larger than the window could never go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowControl {
    /// Size of the window in bytes; 0 for no limit.
    window: u64,
    outstanding: u64,
    acknowledged: u64,
}

impl FlowControl {
    /// Sets the window in bytes; 0 for no limit.
    pub fn set_window(&mut self, bytes: u32) {
        self.window = bytes.into();
    }

    /// Whether another message may go out.
    pub fn has_room(&self) -> bool {
        self.window == 0 || self.outstanding < self.window
    }

    /// Counts a message of `bytes` that was sent.
    pub fn sent(&mut self, bytes: usize) {
        if self.window != 0 {
            self.outstanding += bytes as u64;
        }
    }

    /// Counts `bytes` that the peer has processed. If they are more than the outstanding ones,
    /// counts all of these and returns `false`.
    pub fn acknowledge(&mut self, bytes: u32) -> bool {
        let bytes = u64::from(bytes);
        let within = bytes <= self.outstanding;
        self.acknowledged += bytes;
        self.outstanding = self.outstanding.saturating_sub(bytes);
        within
    }

    /// Size of the window in bytes; 0 for no limit.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Bytes sent and not acknowledged.
    pub fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Bytes acknowledged by the peer.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_opens_with_an_acknowledgement() {
        let mut flow = FlowControl::default();
        flow.sent(1 << 30);
        assert!(flow.has_room(), "no limit was set");
        assert_eq!(flow.outstanding(), 0);
        flow.set_window(100);
        flow.sent(99);
        assert!(flow.has_room());
        flow.sent(73);
        assert!(!flow.has_room(), "by one message it may be exceeded");
        assert!(flow.acknowledge(72));
        assert!(!flow.has_room(), "100 are outstanding");
        assert!(flow.acknowledge(1));
        assert!(flow.has_room());
        assert_eq!((flow.outstanding(), flow.acknowledged()), (99, 73));
    }

    #[test]
    fn excess_acknowledgement_is_reported_and_not_credited() {
        let mut flow = FlowControl::default();
        flow.set_window(10);
        flow.sent(10);
        assert!(!flow.acknowledge(u32::MAX));
        assert_eq!(flow.outstanding(), 0);
        flow.sent(10);
        assert!(!flow.has_room(), "what was too much is not credited");
    }
}
