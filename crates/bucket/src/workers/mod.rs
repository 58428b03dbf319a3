//! The blocking workers of a bucket. Each is a step of bounded work, so that a test or the
//! simulator can call it; the pool calls the steps of all.

mod backfiller;
mod compactor;
mod compressor;
mod eviction;
mod expirer;
mod fetcher;
mod flusher;
mod refiller;
mod reliever;
mod set;
mod warmup;

pub use backfiller::Backfilled;
pub(crate) use expirer::Expiry;
pub use fetcher::Fetch;
pub(crate) use fetcher::Fetches;
pub use flusher::Flushed;
pub(crate) use flusher::Flushes;
pub(crate) use reliever::Relieving;
pub use set::{WorkerFigures, Workers};
