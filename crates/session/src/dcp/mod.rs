//! A connection that streams changes: the producer's side of the change protocol.
//!
//! ```text
//!   vBucket changes -> ReadySet -> wake -> Session::produce -> Producer::produce
//!                                             for each ready vBucket, in turn:
//!                                               Stream::next -> encode -> output   (while room)
//!                                               Stream::fill under the lock        (nothing held)
//!                                               Backfill::take                     (from the store)
//! ```
//!
//! Streams have no queues: a message is made from the shared document once the output and the peer's window
//! have room for it.

mod control;
mod encode;
mod events;
mod filter;
mod guarded;
mod producer;
mod sink;
mod stream_request;
mod streams;

pub(crate) use encode::FrameSink;
pub use encode::end_reason;
pub use filter::Limit;
pub use guarded::GuardedProducer;
pub use producer::{Opening, Produced, Producer, StreamCheck};
pub use sink::{EventSink, EventStream};
pub use stream_request::{AskedStream, OpenedStream};
