//! What lies in etcd: keys, values, and all of it as a node has seen it.

mod keys;
mod values;
mod view;

pub use keys::{CHUNK_VBUCKETS, ClusterId, Key};
pub use values::{
    Alive, BucketSpec, Chunk, Controller, Health, Meta, Node, NodeState, Orders, Rebalance,
};
pub use view::{Entry, View};
