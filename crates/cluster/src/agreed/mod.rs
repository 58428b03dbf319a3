//! The data in etcd: keys, values, and a node's view of all of them.

mod history;
mod keys;
mod values;
mod view;

pub use history::{History, Mark, Seen};
pub use keys::{CHUNK_VBUCKETS, ClusterId, Key, name_key};
pub use values::{
    Address, Alive, BucketSpec, Chunk, ClusterName, Controller, FEATURE_LEVEL, Health, Meta, Node,
    NodeState, Orders, Rebalance,
};
pub use view::{Entry, View};
