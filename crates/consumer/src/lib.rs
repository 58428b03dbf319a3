//! The consumer of change streams: what comes from a producer goes into replica vBuckets.
//!
//! What this crate may not do: know the rest of a conversation, sockets, threads, HTTP or files, read a clock.
//!
//! ```text
//!   producer: markers, changes, ends -> Intake -> Target: the vBuckets of a bucket
//! ```
//!
//! A connection that a peer opened for that is an [`Inbound`]; a link that this node makes by itself drives an
//! [`Intake`] of its own.

mod changes;
mod controls;
mod events;
mod filled;
mod followed;
mod inbound;
mod intake;
mod passive;
mod standing;
mod target;
mod window;

pub use controls::{Controls, NOOP_INTERVAL_S, Wishes};
pub use events::event_of;
pub use filled::FilledBucket;
pub use followed::{Active, Followed};
pub use inbound::{Inbound, InboundError, Opener};
pub use intake::{Answered, Intake, IntakeError, Pushed, send};
pub use passive::Violation;
pub use standing::{StandingStreams, Unusable};
pub use target::{NotTaken, Position, Resolved, Target};
pub use window::Window;
