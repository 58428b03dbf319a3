//! One stream of one vBucket: its state and its next event.

mod backfill;
mod events;
mod state;

pub use backfill::OnlyRows;
pub use state::{OpenedStream, Stream};
