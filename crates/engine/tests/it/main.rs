//! Tests of the engine through its public interface: scripts, and random operations against a
//! model.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod manifests;
mod model;
mod promises;
mod script;
mod store;
mod streaming;
mod streams;
