//! The audit log: which events there are, lines of JSON that tell what a user did, and the files that keep them.
//!
//! What this crate may not do: know sockets, HTTP, sessions or buckets, read a clock, start a thread.
//!
//! ```text
//!   threads that serve -> Recorder (a bounded queue; full: dropped and counted) -> Writer::step(now) -> Log -> file
//!   configuration      -> Recorder::configure ---------------^
//! ```
//!
//! Source: protocol specification, section 15, and the published reference of audit events.

mod event;
mod line;
mod log;
mod put;
mod recorder;
mod settings;
mod stamp;
mod writer;

pub use event::{Descriptor, Event};
pub use line::{Line, Origin, User};
pub use put::{PutError, put};
pub use recorder::Recorder;
pub use settings::{DOMAINS, Settings, UserId};
pub use stamp::Stamp;
pub use writer::{Step, Writer};
