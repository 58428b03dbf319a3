//! The consumer of change streams: what comes from a producer goes into replica vBuckets.
//!
//! ```text
//!   producer: markers, changes, ends -> Intake -> Target: the vBuckets of a bucket
//! ```
//!
//! A connection that a peer opened for that is an [`Inbound`]; a link that this node makes by itself drives an
//! [`Intake`] of its own.

mod changes;
mod controls;
mod followed;
mod inbound;
mod intake;
mod passive;
mod target;
mod window;

pub use controls::{Controls, NOOP_INTERVAL_S, Wishes};
pub use followed::{Active, Followed};
pub use inbound::{Inbound, Opener};
pub use intake::{Answered, Intake, IntakeError, Pushed, send};
pub use passive::Violation;
pub use target::{NotTaken, Position, Resolved, Target};
pub use window::Window;
