//! The blocking workers of a bucket. Each is a step that does a bounded amount of work, so that
//! a test or the simulator can call it; `threads` runs the steps in a loop.

mod backfiller;
mod compactor;
mod expirer;
mod fetcher;
mod finisher;
mod flusher;
mod reliever;
mod threads;
mod warmup;

pub use backfiller::Backfilled;
pub(crate) use finisher::Finishing;
pub use finisher::LeavesCommits;
pub use flusher::Flushed;
pub use threads::{Workers, yield_to_front_end};
