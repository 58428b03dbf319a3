//! Change streams for people: how a change is written, and how a stream says where it is.
//!
//! `settee tail` and `GET /changes` write the same lines and understand the same positions.

mod place;
mod position;
mod record;

pub use place::Place;
pub use position::{Position, PositionError, TEXT_BYTES_MAX};
pub use record::{Change, Event, Names, cloud_rollback, void_after};
