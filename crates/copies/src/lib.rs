//! The copies of a cluster's vBuckets on a node: the steps that the agent asks for, made on vBuckets; where copies
//! stand, which nodes they follow, and what their streams may bring.
//!
//! What this crate may not do: decide what becomes of the cluster (that is [`cluster`]), know sockets, threads, files or
//! HTTP, read a clock. So the node and the simulation of whole clusters (`tests/sim`) share it.
//!
//! ```text
//!   agent: Step -> Steps -> bucket: vBuckets <- Gated <- streams of other nodes
//!                    \          /                 |
//!                    BucketCopies ------------- Gate
//! ```

mod bucket_copies;
mod gate;
mod gated;
mod state;
mod steps;

pub use bucket_copies::BucketCopies;
pub use gate::{Gate, PeerId, history_term, history_uuid};
pub use gated::Gated;
pub use state::CopyState;
pub use steps::{Around, Steps, Unfinished, node_name, vb_of};
