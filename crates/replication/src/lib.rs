//! A whole bucket as the replica of a bucket of another node: links, and what they bring.
//!
//! What this crate may not do: serve clients, hold state that others see (see [`registry`]).
//!
//! ```text
//!   active node --- DCP ---> link (socket) -> Consumer -> Target -> bucket: replica vBuckets
//!                                 \-- Orders: stop, promote
//! ```
//!
//! Or some of its vBuckets, on a connection that a cluster manager opened here (`Inbound`); what is
//! done with the messages (`Intake`) is the same.
//!
//! Or, in a cluster, those of its vBuckets that follow one other node (`PeerLink`); the `Gate` says which.
//!
//! One thread per replicated bucket: it applies changes where it reads them, so the threads that
//! serve clients have nothing to do with it. A promotion is done by the same thread, between two
//! reads: nothing of the old active node can come after it. Before it, what the other nodes of the group
//! have and this one has not is fetched from them (`CatchUp`); if too few can be asked, it is declined.

mod broken;
mod carrier;
mod catch_up;
mod consumer;
mod dialogue;
mod follow;
mod follower;
mod link;
mod notice;
mod order;
mod peer_link;
mod replica_of;
mod setup;
mod socket;
#[cfg(test)]
mod tests;

pub use follower::Follower;
pub use peer_link::{PeerLink, PeerOptions};
pub use replica_of::ReplicaOf;
