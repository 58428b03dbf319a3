//! What a cluster decides: the map of vBuckets, moves between nodes, promotions.
//!
//! This crate may not read a clock, draw random numbers, start threads, open sockets or files, or hold documents. etcd
//! holds what is agreed; nothing of consensus is here. The rules of terms, seals and leases are checked by the model in
//! `tests/model`, and the code follows its names.

mod map;
mod planner;
mod promotion;
mod quorum;

pub use map::{COPIES_MAX, Chain, Member, NodeId, Phase, Row, Version};
pub use planner::{BucketMap, Work, plan};
pub use promotion::{Position, Promotion, SealsMissing};
pub use quorum::{majority, seals_needed};
