//! Configuration of a node, and the reasons why a node refuses to start.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcd::Problem;
use identity::{CertificateState, Password};
use registry::{Advertised, BucketConfig, MemcachedPort, Ports};
use replication::ReplicaOf;
use storage::EncryptionKeys;
use tls::{CertificateFiles, Trust};

/// Configuration of a node. It is plain data: the caller reads and checks flags and files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Directory of documents; `None` keeps them in memory only.
    pub data_dir: Option<PathBuf>,
    /// Address on which every port listens.
    pub listen: IpAddr,
    /// Address at which other nodes and clients reach this one. `None` means the address on which it listens, or the
    /// source address of its connections.
    pub advertise: Option<Advertised>,
    /// Port of the KV protocol; 0 takes a free one.
    pub kv_port: u16,
    /// Port of HTTP management; 0 takes a free one.
    pub http_port: u16,
    /// Port of the KV protocol over TLS; 0 takes a free one, `None` is closed.
    pub kv_tls_port: Option<u16>,
    /// Port of HTTP management over TLS; 0 takes a free one, `None` is closed.
    pub https_port: Option<u16>,
    /// Certificate of the ports with TLS; `None` makes one.
    pub certificate: Option<CertificateFiles>,
    /// Use of client certificates on the ports with TLS; `None` means the last setting of management, or no client
    /// certificates.
    pub client_cert: Option<CertificateState>,
    /// File with the authorities of client certificates and their revocation lists. `None` means the node's own
    /// authority, if the node makes its certificate.
    pub client_ca: Option<PathBuf>,
    /// The port for classic memcached clients; `None` is closed.
    pub memcached: Option<MemcachedPort>,
    /// Set if the node waits until management creates its administrator; then [`NodeConfig::username`] is not used.
    pub provisionable: Option<StandInsConfig>,
    /// Name of the administrator.
    pub username: String,
    /// Password of the administrator.
    pub password: Password,
    /// Buckets that exist once the node is ready; at least one, with distinct names.
    pub buckets: Vec<BucketConfig>,
    /// Largest number of buckets, including those that are created while the node runs.
    pub buckets_max: usize,
    /// The node whose bucket the bucket of the same name follows; `None` for a node that follows no other.
    pub replica_of: Option<ReplicaOf>,
    /// The cluster that the node joins; `None` for a node alone.
    pub cluster: Option<ClusterConfig>,
    /// Number of threads that serve connections; at least 1.
    pub threads: usize,
    /// Age at which tombstones of buckets with a disk are purged, seconds. A consumer of changes that is away for
    /// longer must start again.
    pub purge_age_s: u64,
    /// Size at which a bucket's write-ahead log becomes a run, bytes.
    pub journal_bytes: u64,
    /// Keys of encryption at rest; `None` writes plain files.
    pub encryption_keys: Option<Arc<EncryptionKeys>>,
}

impl NodeConfig {
    /// Returns the advertised ports of a node that listens on `own`.
    pub(crate) fn shown_ports(&self, own: Ports) -> Ports {
        let advertise = self.advertise.as_ref();
        advertise.map_or(own, |advertise| advertise.ports(own))
    }
}

/// The cluster that a node joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Addresses of etcd, and how to reach them.
    pub etcd: etcd::Options,
    /// Name of the cluster.
    pub name: String,
    /// Name of the node, unique in the cluster.
    pub node_name: String,
    /// Number of the failure zone of the node.
    pub zone: u16,
    /// Address for clients of another network.
    pub outside: Option<Advertised>,
    /// Trust in other nodes, and the own certificate, where nodes connect over TLS.
    pub peers: Trust,
}

/// Stand-ins of a node that is set up over HTTP, for services that Settee does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandInsConfig {
    /// Port for queries; 0 takes a free one.
    pub query_port: u16,
    /// Port for search; 0 takes a free one.
    pub search_port: u16,
}

/// Reason why a node did not start. `Display` is one line that names the setting to change.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The node cannot listen on a port: it is taken, not allowed, or not an address of this machine.
    #[error("cannot listen on {address} for {purpose}: {source}")]
    Listen {
        /// Purpose of the port: `kv`, `http`, `memcached`, `kv over TLS`, `https`, `queries` or `search`.
        purpose: &'static str,
        /// Configured address.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another running process uses the data directory.
    #[error("{0}")]
    DataInUse(String),
    /// The data directory cannot be created, read or written.
    #[error("{0}")]
    DataAccess(String),
    /// The file system of the data directory has no space.
    #[error("{0}")]
    NoSpace(String),
    /// The content of the data directory is damaged, foreign, or from a newer version.
    #[error("{0}")]
    DataFormat(String),
    /// The data directory is a copy of salvage that lacks data, and other nodes have that data, or the salvage did not
    /// end.
    #[error("{0}")]
    Incomplete(String),
    /// The data directory is encrypted with a key that was not given.
    #[error("{0}")]
    DataKey(String),
    /// A bucket that is to follow another node's has changes of its own.
    #[error(
        "bucket {bucket} has {own} vBuckets with changes of their own, which following another node may \
         undo; add --demote if that is wanted"
    )]
    NotReplica {
        /// Name of the bucket.
        bucket: String,
        /// Number of vBuckets with changes of their own.
        own: usize,
    },
    /// The certificate of the ports with TLS cannot be read, made or used.
    #[error("{0}")]
    Certificate(String),
    /// etcd does not answer, the address is not an etcd, or etcd refuses.
    #[error("{0}")]
    Etcd(Problem),
    /// The cluster does not accept the node.
    #[error("{0}")]
    Cluster(String),
    /// The operating system refused something else: a thread, memory, random numbers.
    #[error("{0}")]
    System(String),
}

/// Returns the error for a file or directory of the data that cannot be read or written.
pub(crate) fn access(path: &Path, error: &io::Error) -> StartError {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StartError::NoSpace(text),
        _ => StartError::DataAccess(text),
    }
}
