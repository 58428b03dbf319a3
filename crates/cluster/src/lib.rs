//! Decisions of a cluster: the map of vBuckets, moves between nodes, promotions.
//!
//! This crate must not read a clock, draw random numbers, start threads, open sockets or files, or hold
//! documents. etcd holds the agreed state; this crate has no consensus protocol of its own. The model in
//! `tests/model` checks the rules of terms, seals and leases, and the code uses its names. The code itself
//! runs in the simulation of crate `copies`.
//!
//! A [`Participant`] is a node's part in a cluster: requests to etcd ([`coord`], keys and values in [`agreed`]),
//! messages between nodes ([`Message`]), steps of the node's copies ([`agent`]), and, on one node, the controller
//! ([`coordinator`]).

mod adoption;
pub mod agent;
pub mod agreed;
mod condition;
pub mod coord;
pub mod coordinator;
mod map;

mod message;
mod participant;
mod planner;
mod promotion;
mod quorum;
mod settings;

pub use condition::Condition;
pub use map::{BucketId, COPIES_MAX, Chain, Member, NodeId, Phase, Row, Vb, Version};
pub use message::{CopyReport, Message, Need, Order};
pub use participant::{Copies, Identity, NodeLease, Output, Participant};
pub use planner::{BucketChains, plan};
pub use promotion::{Position, Promotion, SealsMissing};
pub use quorum::{majority, seals_needed};
pub use settings::Settings;
