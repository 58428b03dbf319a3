//! The audit log: the events, the lines of JSON that record the actions of users, and the files of these lines.
//!
//! This crate may not know sockets, HTTP, sessions or buckets, read a clock, or start a thread.
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
pub use writer::{Writer, WriterStep};
