//! Change streams as state machines: where a peer may go on, what comes next, how much may be
//! on its way. No frames, no clock, no waiting.
//!
//! ```text
//!   request -> rollback() -> Stream::open      registers a cursor under the vBucket's lock
//!                               |
//!             Stream::fill  <- cursor          pins segments, copies nothing
//!             Stream::backfill_* <- store      what memory no longer has
//!                               |
//!                          Stream::next -> Event, one at a time, while FlowControl has room
//! ```

mod filter;
mod flow;
mod held;
mod keepalive;
mod message;
mod rollback;
mod stream;
#[cfg(test)]
mod tests;

pub use filter::StreamFilter;
pub use flow::FlowControl;
pub use held::Rows;
pub use keepalive::{Keepalive, Pulse};
pub use message::{
    Advances, Event, Filled, Snapshot, StoreView, StreamAsk, StreamEnd, StreamFigures,
    StreamOptions, StreamRefusal, StreamTotals, Versions,
};
pub use rollback::{History, Position, RollbackRules, rollback};
pub use stream::{OnlyRows, Opened, Stream};
