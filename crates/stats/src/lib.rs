//! Statistics: groups of rows for STAT, and the metrics page.
//!
//! This crate may not know frames or HTTP, open sockets or files, or start threads.
//!
//! ```text
//!   STAT "vbucket-details 7"        GET /metrics
//!            |                           |
//!        collect()                   metrics()
//!            \                           /
//!             catalogue: one row per key     -> docs/stats.md
//!                        |
//!             figures: one look at node, bucket, vBucket
//! ```
//!
//! Figures are counters that each change updates; they are not computed from documents. Long groups are written
//! in parts of some 8 KiB. A thread writes one part in each round, so that other connections wait for one part at
//! most.

mod catalogue;
mod collect;
mod collections;
mod dcp;
mod document;
mod figures;
mod listed;
mod long;
mod metrics;
mod node;
mod replication;
mod rows;
mod samples;
mod scans;
mod scope;
#[cfg(test)]
mod tests;
mod vbuckets;
mod whole;

pub use catalogue::stats_page;
pub use collect::{collect, collect_part, groups, is_of_memcached, keys_of, needs_of};
pub use long::Walk;
pub use metrics::metrics;
pub use samples::{Reads, Samples, reads, samples};
pub use scope::{Sink, StatAccess, StatError, StatNeeds, StatPlace, StatScope};
