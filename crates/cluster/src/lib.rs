//! What a cluster decides: the map of vBuckets, moves between nodes, promotions.
//!
//! This crate may not read a clock, draw random numbers, start threads, open sockets or files, or hold documents. etcd
//! holds what is agreed; nothing of consensus is here. The rules of terms, seals and leases are checked by the model in
//! `tests/model`, and the code follows its names.

mod map;
mod quorum;

pub use map::Phase;
pub use quorum::{majority, seals_needed};
