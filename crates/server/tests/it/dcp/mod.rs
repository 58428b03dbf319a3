//! The change protocol over its own wire.

mod consumer;
mod refusals;
mod streaming;
