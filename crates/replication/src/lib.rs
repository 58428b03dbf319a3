//! Replication between nodes: a bucket, or some of its vBuckets, as replica of a bucket of another node.
//!
//! This crate may not serve clients, and may not hold state that other parts see (see [`registry`]).
//!
//! ```text
//!   active node --- DCP ---> link (socket) -> Consumer -> Target -> bucket: replica vBuckets
//!                                 \-- Orders: stop, promote
//! ```
//!
//! A cluster manager may also open a connection here for some vBuckets (`Inbound`). In a cluster, a `PeerLink`
//! serves the vBuckets that follow one other node; the `Gate` selects them. All three process messages by
//! `Intake`.
//!
//! Each replicated bucket has one thread, which applies changes where it reads them; all `PeerLink`s of a node share
//! their threads. The threads that serve clients are not involved. The same thread does a promotion, between two
//! reads, so no change of the old active node can follow it. First it fetches the changes that the other nodes of the group have and this one has not
//! (`CatchUp`). If too few nodes can be asked, the promotion is declined.

mod broken;
mod catch_up;
mod connection_io;
mod consumer;
mod dialogue;
mod follow;
mod follower;
mod link;
mod link_problems;
mod missed;
mod notice;
mod order;
mod peer_link;
mod replica_of;
mod setup;
mod socket;
#[cfg(test)]
mod tests;

pub use follower::Follower;
pub use link_problems::LinkProblems;
pub use peer_link::{PeerLink, PeerOptions, PeerThreads};
pub use replica_of::ReplicaOf;
