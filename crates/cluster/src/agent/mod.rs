//! Makes a node's copies what the map says.
//!
//! Rows of the map and the state of a copy go in, steps come out, each of which may be repeated: [`Agent::step`] is asked
//! again until it has nothing more to say. A step is made, and on disk where it says so, before the next one is asked for.
//! Whether an active copy may serve at this moment is [`may_serve`], which needs no word of the controller.

mod liveness;
mod rows;
mod steps;
mod topology;

pub use liveness::may_serve;
pub use rows::Agent;
pub use steps::{Copy, Role, SealReply, Step, seal};
pub use topology::{MoveProgress, Topology};
