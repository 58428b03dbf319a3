//! What statistics show of a connection and of its streams.

use engine::dcp::{Event, StreamFigures as EngineFigures};
use wire::Opaque;

use super::StreamKey;
use super::control::Settings;

/// Running totals of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) items: u64,
    pub(crate) bytes: u64,
}

impl Totals {
    pub(super) fn count(&mut self, event: &Event<'_>, bytes: usize) {
        self.bytes += bytes as u64;
        self.items += u64::from(matches!(event, Event::Change(_)));
    }
}

/// One stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamFigures {
    pub(crate) key: StreamKey,
    pub(crate) opaque: Opaque,
    pub(crate) stream: EngineFigures,
    /// Changes that it has still to send, at most.
    pub(crate) items_remaining: u64,
    /// Whether it reads from the store.
    pub(crate) backfilling: bool,
}

/// One connection.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a statistic")]
pub(crate) struct ProducerFigures {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) created_s: u32,
    pub(crate) last_receive_s: u32,
    pub(crate) paused: bool,
    pub(crate) window_full: bool,
    pub(crate) totals: Totals,
    pub(crate) window: u64,
    pub(crate) outstanding: u64,
    pub(crate) acknowledged: u64,
    pub(crate) noop_enabled: bool,
    pub(crate) noop_wait: bool,
    pub(crate) noop_interval_s: u64,
    pub(crate) backfill_bytes: usize,
    pub(crate) backfill_full: bool,
    pub(crate) backfill_bytes_max: usize,
    pub(crate) backfills: (usize, usize),
    pub(crate) streams: Vec<StreamFigures>,
}

impl ProducerFigures {
    /// Changes that all streams have still to send, at most.
    pub(crate) fn items_remaining(&self) -> u64 {
        self.streams.iter().map(|one| one.items_remaining).sum()
    }

    /// Why nothing is sent now.
    pub(crate) fn paused_reason(&self) -> &'static str {
        if self.window_full {
            "BufferLogFull"
        } else if self.paused {
            "ReadyListEmpty"
        } else {
            ""
        }
    }
}
