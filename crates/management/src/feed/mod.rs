//! The changes of a bucket for one HTTP reader.
//!
//! A producer inside the process runs one bounded turn for each piece that the HTTP connection takes. A large value is
//! lent to the reader without a copy, and converted to text part by part.

#[expect(clippy::module_inception, reason = "the feed itself")]
mod feed;
mod large;
mod piece;
mod reader;
mod remaining_text;
mod sink;

pub use feed::{ChangeSelection, Feed, FeedTurn, NoFeed, Start};
pub use reader::FeedReader;
pub(crate) use remaining_text::{RemainingText, TextPart};
pub use sink::FeedEvent;
