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
//! Nothing is queued per stream: a message is made when the output and the peer's window have
//! room for it, from the document where it lies.

mod control;
mod encode;
mod events;
mod figures;
mod filter;
mod large;
mod oso;
mod producer;
mod registry;
mod settings;
mod streams;

pub(crate) use events::event_of;
pub(crate) use figures::{ProducerFigures, StreamFigures};
pub(crate) use large::LargeValue;
pub(crate) use oso::OsoBackfill;
pub(crate) use producer::{
    OpenedStream, Produced, Producer, SILENCE_MAX, SharedProducer, StreamKey,
};
pub(crate) use registry::{DcpRegistry, RegisteredConsumer};
#[cfg(test)]
pub(crate) use settings::DcpSettings;
