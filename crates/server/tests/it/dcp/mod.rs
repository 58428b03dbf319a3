//! The change protocol over its own wire.

mod consumer;
mod forms;
mod golden;
mod handed_over;
mod inbound;
mod producer;
mod refusals;
mod streaming;
