//! The consumer of change streams: it applies the messages of a producer to replica vBuckets.
//!
//! This crate may not use sockets, threads, HTTP, files or a clock, nor the rest of a conversation.
//!
//! ```text
//!   producer: markers, changes, ends -> Intake -> Target: the vBuckets of a bucket
//! ```
//!
//! A connection that a peer opened for a consumer is an [`Inbound`]. A link that this node opens drives an
//! [`Intake`] of its own.

mod changes;
mod controls;
mod events;
mod filled;
mod followed;
mod inbound;
mod intake;
mod passive;
mod rollbacks;
mod standing;
mod stream_ask;
mod target;
mod window;

pub use controls::{ConsumerOptions, Controls, NOOP_INTERVAL_S};
pub use events::event_of;
pub use filled::FilledBucket;
pub use followed::{Active, Followed};
pub use inbound::{Inbound, InboundError, Opener};
pub use intake::{Intake, IntakeError, Pushed, StreamAnswer, send};
pub use passive::Violation;
pub use standing::{StandingOptions, StandingStreams, Unusable};
pub use target::{NotTaken, ReplicaPosition, Resolved, Target};
pub use window::Window;
