//! One stream of one vBucket: what it holds, what comes next.

mod backfill;
mod events;
mod state;

pub use backfill::OnlyRows;
pub use state::{Opened, Stream};
