//! Target of a producer's events: the output of a connection, or a reader in the process.

use engine::dcp::Event;
use model::VbId;
use registry::dcp::NegotiatedSettings;
use wire::Opaque;

/// Stream of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventStream {
    /// Its vBucket.
    pub vb: VbId,
    /// The consumer's opaque for the messages of the stream.
    pub opaque: Opaque,
    /// ID that the consumer gave the stream.
    pub id: Option<u16>,
}

/// A receiver of a producer's events, one at a time; each event borrows from the shared document.
pub trait EventSink {
    /// Returns the bytes taken so far, which bound a turn.
    fn bytes(&self) -> usize;

    /// Whether the turn ends after the last event.
    fn ends_turn(&self) -> bool {
        false
    }

    /// Takes an event. Returns its bytes for flow control; `None` if it cannot be sent.
    fn event(
        &mut self,
        event: &Event<'_>,
        of: EventStream,
        agreed: &NegotiatedSettings,
    ) -> Option<usize>;

    /// Sends a noop to the consumer; returns whether it counts as answered at once.
    fn noop(&mut self) -> bool;
}
