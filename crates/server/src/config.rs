//! What a node is started with, and why it may refuse to start.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use identity::{CertificateState, Password};
use registry::{Advertised, BucketConfig, MemcachedPort, Ports};
use replication::ReplicaOf;
use storage::EncryptionKeys;
use tls::{CertificateFiles, Trust};

/// Everything that decides how a node serves. Plain data: reading flags and files is the
/// caller's business, and so is checking them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Where documents are kept; `None` keeps them in memory only.
    pub data_dir: Option<PathBuf>,
    /// Address every port listens on.
    pub listen: IpAddr,
    /// Where other nodes and clients reach this one; `None` for the address that it listens on, or where its connections
    /// come from.
    pub advertise: Option<Advertised>,
    /// Port of the KV protocol; 0 takes a free one.
    pub kv_port: u16,
    /// Port of HTTP management; 0 takes a free one.
    pub http_port: u16,
    /// Port of the KV protocol over TLS; 0 takes a free one, `None` is closed.
    pub kv_tls_port: Option<u16>,
    /// Port of HTTP management over TLS; 0 takes a free one, `None` is closed.
    pub https_port: Option<u16>,
    /// The certificate of the ports with TLS; `None` makes one.
    pub certificate: Option<CertificateFiles>,
    /// Whether clients of the ports with TLS show a certificate; `None` for what management said last, or that they do
    /// not.
    pub client_cert: Option<CertificateState>,
    /// File with the authorities of client certificates and their revocation lists; `None` for the one that the node makes, if it does.
    pub client_ca: Option<PathBuf>,
    /// The port for classic memcached clients; `None` is closed.
    pub memcached: Option<MemcachedPort>,
    /// Whether it waits for management to name its administrator, and not for [`NodeConfig::username`]; `None` for not.
    pub provisionable: Option<StandInsConfig>,
    /// Name of the one user, an administrator.
    pub username: String,
    /// Password of that user.
    pub password: Password,
    /// Buckets that exist once the node is ready; at least one, names are distinct.
    pub buckets: Vec<BucketConfig>,
    /// How many there may be, with those that are made while the node runs.
    pub buckets_max: usize,
    /// The bucket of another node that the bucket of the same name follows; `None` for a node
    /// of its own.
    pub replica_of: Option<ReplicaOf>,
    /// The cluster that it joins; `None` for a node alone.
    pub cluster: Option<ClusterConfig>,
    /// Threads that serve connections; at least 1.
    pub threads: usize,
    /// Age at which tombstones of buckets with a disk are purged, seconds: as long as a consumer
    /// of changes may be away without starting anew.
    pub purge_age_s: u64,
    /// Bytes of a bucket's write-ahead log at which it becomes a run.
    pub journal_bytes: u64,
    /// The keys of encryption at rest; `None` writes plain files.
    pub encryption_keys: Option<Arc<EncryptionKeys>>,
}

impl NodeConfig {
    /// The ports at which others are to reach a node that listens on these.
    pub(crate) fn told_ports(&self, own: Ports) -> Ports {
        let advertise = self.advertise.as_ref();
        advertise.map_or(own, |advertise| advertise.ports(own))
    }
}

/// The cluster that a node joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Its etcd.
    pub etcd: etcd::Options,
    /// Its name.
    pub name: String,
    /// Name of the node, that no other node has.
    pub node_name: String,
    /// Number of the zone that the node fails with.
    pub zone: u16,
    /// Where clients of another network reach it.
    pub outside: Option<Advertised>,
    /// What is trusted of other nodes, and shown to them, where nodes speak to each other over TLS.
    pub peers: Trust,
}

/// Where a node that is set up over HTTP stands in for services that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandInsConfig {
    /// Port for queries; 0 takes a free one.
    pub query_port: u16,
    /// Port for search; 0 takes a free one.
    pub search_port: u16,
}

/// Why a node did not start. `Display` is one line that names what to change.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be listened on: taken, not allowed, or not an address of this machine.
    #[error("cannot listen on {address} for {purpose}: {source}")]
    Listen {
        /// What the port is for: `kv`, `http`, `memcached`, `kv over TLS`, `https`, `queries` or `search`.
        purpose: &'static str,
        /// The address as configured.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// The data directory belongs to another running process.
    #[error("{0}")]
    DataInUse(String),
    /// The data directory cannot be created, read or written.
    #[error("{0}")]
    DataAccess(String),
    /// What lies in the data directory is damaged, foreign, or from a newer version.
    #[error("{0}")]
    DataFormat(String),
    /// What lies in the data directory is encrypted with a key that was not given.
    #[error("{0}")]
    DataKey(String),
    /// A bucket that is to follow another node's has changes of its own.
    #[error(
        "bucket {bucket} has {own} vBuckets with changes of their own, which following another node may \
         undo; add --demote if that is wanted"
    )]
    NotReplica {
        /// The bucket.
        bucket: String,
        /// How many.
        own: usize,
    },
    /// The certificate of the ports with TLS cannot be read, made or used.
    #[error("{0}")]
    Certificate(String),
    /// etcd does not answer, or is none.
    #[error("{0}")]
    Etcd(String),
    /// The cluster does not take the node.
    #[error("{0}")]
    Cluster(String),
    /// The operating system refused something else: a thread, memory, randomness.
    #[error("{0}")]
    System(String),
}
