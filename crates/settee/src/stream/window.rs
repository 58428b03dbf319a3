//! Flow control of a connection with streams.

use client::{ClientError, Outgoing};
use wire::Envelope;
use wire::dcp::BufferAck;

/// Bytes that are done with and not acknowledged.
pub(super) struct Window {
    unacknowledged: usize,
    /// So many are acknowledged at once.
    part: usize,
}

impl Window {
    /// Of a connection whose server may send so many bytes ahead.
    pub(super) fn new(window_bytes: u32) -> Self {
        Self {
            unacknowledged: 0,
            part: window_bytes as usize / 4,
        }
    }

    /// Is done with so many more.
    pub(super) fn add(&mut self, bytes: usize) {
        self.unacknowledged += bytes;
    }

    /// Acknowledges them, so that the producer sends more; few of them only when idle.
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
