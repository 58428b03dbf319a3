//! Change streams as state machines: the decision about rollback, the next event, flow control.
//! They use no frames and no clock, and never wait.
//!
//! ```text
//!   request -> rollback() -> Stream::open      registers a cursor under the vBucket's lock
//!                               |
//!             Stream::fill  <- cursor          pins segments, copies nothing
//!             Stream::backfill_* <- store      changes that left memory
//!                               |
//!                          Stream::next_event -> Event, one at a time, while FlowControl has room
//! ```

mod filter;
mod flow;
mod keepalive;
mod message;
mod pending_changes;
mod rollback;
mod stream;
#[cfg(test)]
mod tests;

pub use filter::StreamFilter;
pub use flow::FlowControl;
pub use keepalive::{Keepalive, Pulse};
pub use message::{
    Advances, Event, FillResult, Snapshot, StoreView, StreamAsk, StreamEnd, StreamFigures,
    StreamOptions, StreamRefusal, StreamTotals, Versions,
};
pub use pending_changes::StoreRows;
pub use rollback::{ClaimedPosition, History, RollbackRules, rollback};
pub use stream::{OnlyRows, OpenedStream, Stream};
