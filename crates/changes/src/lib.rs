//! Change streams for people: how a change is written, and how a stream says where it is.
//!
//! `settee tail` and `GET /changes` write the same lines and understand the same positions. `tail` is a DCP client: one
//! thread reads bytes, writes lines, then acknowledges, then keeps its position. So a reader that does not read slows
//! its own stream down, and a position never says more than was written.
//!
//! What this crate may not do: know sockets, buckets or HTTP.

mod collections;
mod message;
mod position;
mod record;
mod streams;
mod vb_position;

pub use collections::Collections;
pub use message::{DocumentChange, StreamMessage, take};
pub use position::{Position, PositionError, TEXT_BYTES_MAX};
pub use record::{Change, Compact, Event, Names, Shown, cloud_rollback, void_after};
pub use streams::{Streams, Violation};
pub use vb_position::VbPosition;
