//! The copies of a cluster's vBuckets on a node: the agent's steps, made on vBuckets; positions of copies,
//! the nodes that they follow, and the changes that their streams may bring.
//!
//! This crate must not decide about the cluster (crate [`cluster`] does), know sockets, threads, files or
//! HTTP, or read a clock. So the node and the simulation of whole clusters (`tests/sim`) share it.
//!
//! ```text
//!   agent: Step -> Steps -> bucket: vBuckets <- Gated <- streams of other nodes
//!                    \          /                 |
//!                    BucketCopies ------------- Gate
//! ```

mod bucket_copies;
mod confirmations;
mod gate;
mod gated;
mod state;
mod steps;

pub use bucket_copies::{BucketCopies, FollowingCopy};
pub use confirmations::{
    Confirmation, ConfirmationReceiver, ConfirmationSender, Confirmed, ConfirmedPosition,
};
pub use gate::{Gate, PeerId, history_term, history_uuid};
pub use gated::Gated;
pub use state::CopyState;
pub use steps::{NodeServices, Steps, Unfinished, node_name, vb_of};
