//! The node's face to the network: connections, commands, identity, HTTP management, metrics.
//!
//! What this crate may not do: hold document state.

pub mod changes;
mod clock;
pub mod cluster_map;
pub mod collections;
mod commands;
pub mod config;
mod connections;
pub mod http;
mod net;
mod node;
mod rate;
mod replication;
mod served;
mod session;
mod stats;
mod store;
mod subdoc;
mod tls;
mod value;

pub use commands::compatibility_page;
pub use config::{
    BucketConfig, BucketKind, CertificateFiles, EvictionPolicy, MemcachedPort, NodeConfig, Ports,
    StartError,
};
pub use node::{Node, SalvageStep, salvage};
pub use replication::{ReplicaOf, is_host};
pub use stats::stats_page;
pub use storage::names;
pub use storage::{SalvageError, Salvaged};
pub use tls::{Trust, authority_file};
