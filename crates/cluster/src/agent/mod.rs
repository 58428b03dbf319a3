//! The agent: it brings a node's copies to the state in the map.
//!
//! Its input is the rows of the map and the state of a copy, its output is steps. Each step may be repeated:
//! call [`Agent::step`] until it returns none. A step must be made, and be on disk where it says so, before
//! the call for the next one.

mod rows;
mod steps;
mod topology;

pub use rows::Agent;
pub use steps::{Completeness, Copy, Role, SealReply, Step, seal};
pub use topology::{MoveProgress, Topology};
