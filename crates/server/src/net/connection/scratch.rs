//! Buffers that the connections of one thread share.

/// Largest number of bytes that one read takes.
pub(in crate::net) const READ_BYTES: usize = 64 << 10;
/// Capacity above which a buffer is freed after use.
pub(super) const KEEP_BYTES: usize = 256 << 10;

/// Buffers that the connections of one worker share.
pub(in crate::net) struct Scratch {
    pub(in crate::net) input: Box<[u8]>,
    pub(in crate::net) output: Vec<u8>,
    /// Encrypted input of connections over TLS; empty until there is one.
    pub(in crate::net) sealed: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            input: vec![0; READ_BYTES].into(),
            output: Vec::new(),
            sealed: Vec::new(),
        }
    }
}

impl Scratch {
    /// Frees the memory of a large answer.
    pub(in crate::net) fn shrink(&mut self) {
        if self.output.capacity() > KEEP_BYTES {
            self.output = Vec::new();
        }
    }
}
