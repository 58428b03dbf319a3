//! The changes of a bucket for one reader of HTTP.

#[expect(clippy::module_inception, reason = "the feed itself")]
mod feed;
mod piece;
mod telling;

pub use feed::{Fed, Feed, News, NoFeed, Start, Wanted};
pub(crate) use telling::{Part, Telling};
