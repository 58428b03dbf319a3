//! What statistics show of a connection and of its streams.

use engine::dcp::{Event, StreamFigures as EngineFigures};
use model::VbId;
use wire::Opaque;

use super::agreed::Agreed;

/// Names a stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamKey {
    /// The vBucket.
    pub vb: VbId,
    /// The number that the consumer gave it, zero for none.
    pub id: u16,
}

/// Running totals of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Changes sent.
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

/// One stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamFigures {
    /// Its name.
    pub key: StreamKey,
    /// The consumer's number for it.
    pub opaque: Opaque,
    /// Where it stands.
    pub stream: EngineFigures,
    /// Changes that it has still to send, at most.
    pub items_remaining: u64,
    /// Whether it reads from the store.
    pub backfilling: bool,
}

/// One connection.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a statistic")]
pub struct ProducerFigures {
    /// Its name, as statistics show it.
    pub name: String,
    /// What was agreed on.
    pub settings: Agreed,
    /// When it was opened, seconds since 1970.
    pub created_s: u32,
    /// When the consumer said something last, seconds since 1970.
    pub last_receive_s: u32,
    /// It has nothing to send, or no room.
    pub paused: bool,
    /// The consumer's window is full.
    pub window_full: bool,
    /// What was sent.
    pub totals: Totals,
    /// Bytes of the consumer's window; 0 for none.
    pub window: u64,
    /// Bytes sent and not acknowledged.
    pub outstanding: u64,
    /// Bytes acknowledged.
    pub acknowledged: u64,
    /// It sends noops.
    pub noop_enabled: bool,
    /// It waits for a noop's answer.
    pub noop_wait: bool,
    /// Seconds between noops.
    pub noop_interval_s: u64,
    /// Bytes read from the store and not yet sent.
    pub backfill_bytes: usize,
    /// Reading waits for room.
    pub backfill_full: bool,
    /// Most bytes that are read ahead.
    pub backfill_bytes_max: usize,
    /// Backfills that read.
    pub backfills_active: usize,
    /// Backfills that wait for their turn.
    pub backfills_pending: usize,
    /// Its streams.
    pub streams: Vec<StreamFigures>,
}

impl ProducerFigures {
    /// Changes that all streams have still to send, at most.
    pub fn items_remaining(&self) -> u64 {
        self.streams.iter().map(|one| one.items_remaining).sum()
    }

    /// Why nothing is sent now.
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
