//! The node's face to the network: connections, commands, identity, HTTP management, metrics.
//!
//! What this crate may not do: hold document state.

mod clock;
pub mod config;
mod net;
mod node;

pub use config::{NodeConfig, StandInsConfig, StartError};
pub use node::{CheckStep, Node, SalvageStep, check, salvage};
pub use registry::{
    BucketConfig, BucketKind, EvictionPolicy, MemcachedPort, Ports, VBUCKET_COUNTS, cluster_map,
    collections, is_host,
};
pub use replication::ReplicaOf;
pub use session::compatibility_page;
pub use stats::stats_page;
pub use storage::names;
pub use storage::{Checked, Damage, Keys, OpenErrorKind, SalvageError, Salvaged, key_text};
pub use tls::{CertificateFiles, Trust, authority_file};
