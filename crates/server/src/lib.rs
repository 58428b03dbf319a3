//! The running node: sockets, threads, files of the node, start and stop.
//!
//! This crate must not hold document state.

mod clock;
pub mod config;
mod net;
mod node;

pub use config::{ClusterConfig, NodeConfig, StandInsConfig, StartError};
pub use node::{
    BucketEncryption, CheckStep, Node, SalvageStep, check, encryption_keys, encryption_of,
    new_encryption_key, salvage,
};
pub use registry::{
    Advertised, BucketConfig, BucketKind, BucketStatus, ClusterStatus, EvictionPolicy,
    MemcachedPort, NodeStatus, Ports, PromotedStatus, UnsafeStatus, VBUCKET_COUNTS, cluster_map,
};
pub use replication::ReplicaOf;
pub use session::opcodes_page;
pub use stats::stats_page;
pub use storage::names;
pub use storage::{
    Checked, Damage, EncryptionKeys, FileEncryption, Keys, KeysError, OpenErrorKind, SalvageError,
    Salvaged, key_text,
};
pub use tls::{CertificateFiles, Trust, authority_file};
