//! Change streams for users: the text of a change, and the position of a stream.
//!
//! `settee tail` and `GET /changes` write the same lines and read the same positions. `tail` is a DCP client: one
//! thread reads bytes, writes lines, acknowledges them, then stores its position. A reader that does not read
//! therefore slows its own stream down, and a position never covers changes that were not written.
//!
//! This crate may not know sockets, buckets or HTTP.

mod collections;
mod message;
mod position;
mod record;
mod streams;
mod vb_position;
mod whole_points;

pub use collections::Collections;
pub use message::{DocumentChange, StreamMessage, take};
pub use position::{Position, PositionError, TEXT_BYTES_MAX};
pub use record::{Change, ChangeKind, Compact, Names, Shown, cloud_rollback, void_after};
pub use streams::{Streams, Violation};
pub use vb_position::VbPosition;
