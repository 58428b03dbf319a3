//! A node's part in a cluster: its lease, its watch, the controller's election, its copies.
//!
//! A state machine without I/O: the node carries out its outputs, and passes it the results and the time.

mod adopting;
mod answers;
mod control;
mod lease;
mod machine;
mod manifests;
mod presence;

pub use lease::NodeLease;
pub use machine::{Copies, Identity, Output, Participant};

#[cfg(test)]
mod tests;
