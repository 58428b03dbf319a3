//! Figures of a connection and its streams, for statistics.

use engine::dcp::{Event, StreamFigures as EngineFigures};
use model::VbId;
use wire::Opaque;

use super::negotiated::NegotiatedSettings;

/// Key of a stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamKey {
    /// The vBucket.
    pub vb: VbId,
    /// Stream id from the consumer, 0 for none.
    pub id: u16,
}

/// Totals of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Number of changes sent.
    pub items: u64,
    /// Bytes of messages sent.
    pub bytes: u64,
}

impl Totals {
    /// Counts a message.
    pub fn count(&mut self, event: &Event<'_>, bytes: usize) {
        self.bytes += bytes as u64;
        self.items += u64::from(matches!(event, Event::Change(_)));
    }
}

/// Figures of one stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamFigures {
    /// Key of the stream.
    pub key: StreamKey,
    /// Opaque of the consumer for the stream.
    pub opaque: Opaque,
    /// Position and state of the stream.
    pub stream: EngineFigures,
    /// Upper bound of the changes that the stream has still to send.
    pub items_remaining: u64,
    /// Whether the stream reads from the store.
    pub backfilling: bool,
}

/// Figures of one connection.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a statistic")]
pub struct ProducerFigures {
    /// Name of the connection, as statistics show it.
    pub name: String,
    /// Agreed settings.
    pub settings: NegotiatedSettings,
    /// Time when the connection was opened, seconds since 1970.
    pub created_s: u32,
    /// Time of the consumer's last message, seconds since 1970.
    pub last_receive_s: u32,
    /// True if there is nothing to send, or no room to send it.
    pub paused: bool,
    /// True if the consumer's window is full.
    pub window_full: bool,
    /// Totals of sent messages.
    pub totals: Totals,
    /// Size of the consumer's window, bytes; 0 for none.
    pub window: u64,
    /// Bytes sent and not acknowledged.
    pub outstanding: u64,
    /// Bytes acknowledged.
    pub acknowledged: u64,
    /// True if the producer sends noops.
    pub noop_enabled: bool,
    /// True if the producer waits for the answer to a noop.
    pub noop_wait: bool,
    /// Interval between noops, seconds.
    pub noop_interval_s: u64,
    /// Bytes read from the store and not yet sent.
    pub backfill_bytes: usize,
    /// True if the backfill waits for memory.
    pub backfill_full: bool,
    /// Largest number of bytes that are read ahead.
    pub backfill_bytes_max: usize,
    /// Number of backfills that read.
    pub backfills_active: usize,
    /// Number of backfills that wait for their turn.
    pub backfills_pending: usize,
    /// Figures of the connection's streams.
    pub streams: Vec<StreamFigures>,
}

impl ProducerFigures {
    /// Returns an upper bound of the changes that all streams have still to send.
    pub fn items_remaining(&self) -> u64 {
        self.streams.iter().map(|one| one.items_remaining).sum()
    }

    /// Returns the reason why nothing is sent, by its name in statistics.
    pub fn paused_reason(&self) -> &'static str {
        if self.window_full {
            "BufferLogFull"
        } else if self.paused {
            "ReadyListEmpty"
        } else {
            ""
        }
    }
}
