//! Flow control of a connection with streams: it acknowledges handled bytes.

use client::{ClientError, Outgoing};
use wire::Envelope;
use wire::dcp::BufferAck;

/// Counter of handled bytes that are not acknowledged.
pub(super) struct Window {
    unacknowledged: usize,
    /// Number of bytes from which an acknowledgement is sent.
    part: usize,
}

impl Window {
    /// Creates the window of a connection; `window_bytes` is the limit of unacknowledged bytes.
    pub(super) fn new(window_bytes: u32) -> Self {
        Self {
            unacknowledged: 0,
            part: window_bytes as usize / 4,
        }
    }

    /// Adds handled bytes.
    pub(super) fn add(&mut self, bytes: usize) {
        self.unacknowledged += bytes;
    }

    /// Acknowledges the bytes, so that the producer sends more; a small number only when idle.
    pub(super) fn acknowledge(
        &mut self,
        out: &mut Outgoing,
        idle: bool,
    ) -> Result<(), ClientError> {
        if self.unacknowledged > 0 && (self.unacknowledged >= self.part || idle) {
            let bytes = u32::try_from(self.unacknowledged).unwrap_or(u32::MAX);
            out.post(&BufferAck { bytes }, &Envelope::default())?;
            self.unacknowledged -= bytes as usize;
        }
        Ok(())
    }
}
