//! A node's part in a cluster: its lease, its watch, the controller's election, its copies.
//!
//! A state machine without I/O: the node carries what it puts out, tells it what comes back, and the time.

mod adopting;
mod answers;
mod lease;
mod machine;
mod presence;

pub use lease::Lease;
pub use machine::{Copies, Identity, Output, Participant};

#[cfg(test)]
mod tests;
