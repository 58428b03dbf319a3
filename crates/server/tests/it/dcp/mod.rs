//! The change protocol over its own wire.

mod consumer;
mod forms;
mod refusals;
mod streaming;
