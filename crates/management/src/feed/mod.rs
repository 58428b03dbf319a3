//! The changes of a bucket for one reader of HTTP.
//!
//! A producer in the process is driven one bounded turn for each piece that the HTTP connection takes. A large value is
//! lent to the reader as it lies, and becomes text part by part.

#[expect(clippy::module_inception, reason = "the feed itself")]
mod feed;
mod large;
mod piece;
mod reader;
mod sink;
mod telling;

pub use feed::{Feed, FeedTurn, NoFeed, Start, Wanted};
pub use reader::FeedReader;
pub use sink::News;
pub(crate) use telling::{Telling, TellingPart};
