//! Change streams for people: how a change is written, and how a stream says where it is.
//!
//! `settee tail` and `GET /changes` write the same lines and understand the same positions.

mod collections;
mod feed;
mod message;
mod piece;
mod place;
mod position;
mod record;
mod streams;
mod telling;

pub use collections::Collections;
pub use feed::{Fed, Feed, News, NoFeed, Start, Wanted};
pub use message::{DocumentChange, Told, take};
pub(crate) use piece::{LargeLoan, Piece};
pub use place::Place;
pub use position::{Position, PositionError, TEXT_BYTES_MAX};
pub use record::{Change, Event, Names, Shown, cloud_rollback, void_after};
pub use streams::{Streams, Violation};
pub(crate) use telling::{Part, Telling};
