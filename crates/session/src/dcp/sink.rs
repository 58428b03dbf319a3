//! Where the events of a producer's streams go: a connection's output, or a reader in the process.

use engine::dcp::Event;
use model::VbId;
use registry::dcp::Agreed;
use wire::Opaque;

/// The stream that an event belongs to.
#[derive(Clone, Copy, Debug)]
pub struct EventStream {
    /// Its vBucket.
    pub vb: VbId,
    /// The consumer's mark in the messages of the stream.
    pub opaque: Opaque,
    /// The number that the consumer gave it.
    pub id: Option<u16>,
}

/// Takes the events of a producer, one at a time; each borrows from the shared document.
pub trait EventSink {
    /// The bytes it has taken, which bound a turn.
    fn bytes(&self) -> usize;

    /// Whether the turn ends with the event taken last.
    fn ends_turn(&self) -> bool {
        false
    }

    /// Takes an event. Returns the bytes of it that count for the consumer's window; `None` if it cannot be
    /// sent.
    fn event(&mut self, event: &Event<'_>, of: EventStream, agreed: &Agreed) -> Option<usize>;

    /// Asks the consumer whether it is alive; returns whether it has answered by that.
    fn noop(&mut self) -> bool;
}
