//! The vBucket: all state of one partition of the keys, changed through `&mut`.

/// Where a key is; leaves the operation with what is to be fetched if that is not known: the row, or its metadata.
macro_rules! seek {
    ($vbucket:expr, $key:expr) => {
        match $vbucket.seek($key) {
            Ok(place) => place,
            Err(fetch) => return Ok(Outcome::NeedsFetch(fetch)),
        }
    };
    ($vbucket:expr, $key:expr, metadata) => {
        match $vbucket.seek($key) {
            Ok(place) => place,
            Err(fetch) => return Ok(Outcome::NeedsFetch(fetch.of_metadata())),
        }
    };
}

mod attributes;
mod away;
mod change;
mod collections;
mod counter;
mod cursors;
mod durable;
mod edit;
mod exchange;
mod flush;
mod getl;
mod memory;
mod partition;
mod pass;
mod prefetch;
mod read;
mod replica;
mod rows;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod with_meta;
mod write;

pub use away::Restored;
pub use durable::{DurabilityChain, DurabilityStats};
pub use partition::VBucket;
pub use replica::Applied;
pub use stats::{HashStats, VbStats};
