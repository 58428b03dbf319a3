//! Tests of the change protocol over its own wire.

mod attributes;
pub(crate) mod consumer;
mod forms;
mod golden;
mod handed_over;
pub(crate) mod history;
mod inbound;
mod nonsense;
mod producer;
mod refusals;
mod stories;
mod streaming;
