//! What a node is started with, and why it may refuse to start.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

pub use bucket::Eviction as EvictionPolicy;
use model::DurabilityLevel;
use serde::{Deserialize, Serialize};

use crate::replication::ReplicaOf;

/// Everything that decides how a node serves. Plain data: reading flags and files is the
/// caller's business, and so is checking them.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Where documents are kept; `None` keeps them in memory only.
    pub data_dir: Option<PathBuf>,
    /// Address every port listens on.
    pub listen: IpAddr,
    /// Host under which other nodes and their clients reach this one; `None` for the address that it listens
    /// on, or where its connections come from.
    pub advertise: Option<String>,
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
    /// The port for classic memcached clients; `None` is closed.
    pub memcached: Option<MemcachedPort>,
    /// Name of the one user, an administrator.
    pub username: String,
    /// Password of that user.
    pub password: String,
    /// Buckets that exist once the node is ready; at least one, names are distinct.
    pub buckets: Vec<BucketConfig>,
    /// How many there may be, with those that are made while the node runs.
    pub buckets_max: usize,
    /// The bucket of another node that the bucket of the same name follows; `None` for a node
    /// of its own.
    pub replica_of: Option<ReplicaOf>,
    /// Threads that serve connections; at least 1.
    pub threads: usize,
    /// Age at which tombstones of buckets with a disk are purged, seconds: as long as a consumer
    /// of changes may be away without starting anew.
    pub purge_age_s: u64,
    /// Bytes of a bucket's journal at which it becomes tables.
    pub journal_bytes: u64,
}

impl fmt::Debug for NodeConfig {
    /// All but the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeConfig")
            .field("data_dir", &self.data_dir)
            .field("listen", &self.listen)
            .field("advertise", &self.advertise)
            .field("kv_port", &self.kv_port)
            .field("http_port", &self.http_port)
            .field("kv_tls_port", &self.kv_tls_port)
            .field("https_port", &self.https_port)
            .field("certificate", &self.certificate)
            .field("memcached", &self.memcached)
            .field("username", &self.username)
            .field("buckets", &self.buckets)
            .field("buckets_max", &self.buckets_max)
            .field("replica_of", &self.replica_of)
            .field("threads", &self.threads)
            .field("purge_age_s", &self.purge_age_s)
            .field("journal_bytes", &self.journal_bytes)
            .finish_non_exhaustive()
    }
}

/// The port for classic memcached clients. They may use documents of one bucket and ask for its
/// harmless statistics, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemcachedPort {
    /// Number of the port; 0 takes a free one.
    pub port: u16,
    /// Name of the bucket.
    pub bucket: String,
    /// Whether clients must log in with SASL.
    pub login: bool,
}

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate of the node, then those of its authorities.
    pub chain: PathBuf,
    /// Its key, PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
}

/// One bucket as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketConfig {
    /// 1 to 100 characters of `A-Z a-z 0-9 _ - . %`, not starting with a dot.
    pub name: String,
    /// Memory the bucket may take, in bytes.
    pub quota_bytes: u64,
    /// Where its documents live.
    pub kind: BucketKind,
    /// What happens when its memory is full.
    pub eviction: EvictionPolicy,
    /// What every write asks for at least; `None` for nothing.
    pub durability_min: Option<DurabilityLevel>,
}

impl BucketConfig {
    /// How the bucket evicts where `durable` says whether documents are on disk: what is in
    /// memory only cannot leave it, it can only be deleted.
    pub(crate) fn eviction(&self, durable: bool) -> EvictionPolicy {
        match self.eviction {
            EvictionPolicy::Values | EvictionPolicy::Documents if !durable => EvictionPolicy::None,
            eviction => eviction,
        }
    }
}

/// Everything that management clients may say of a bucket: what is configured, and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// What flags and files say too.
    pub bucket: BucketConfig,
    /// Longest time to live of a document, seconds; 0 for no limit.
    pub max_ttl_s: u32,
    /// Whether all its documents may be removed at once.
    pub flush_enabled: bool,
    /// Replicas that were asked for. A node alone has none; it only tells the number.
    pub replicas: u8,
    /// What it says of its store and its history.
    pub history: HistorySettings,
}

/// vBuckets of every bucket.
pub(crate) const VBUCKETS: u16 = 1024;

/// What the management calls may change of the node as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClusterSettings {
    /// What its administrator calls it; empty for nothing.
    #[serde(default)]
    pub name: String,
    /// What the quotas of all buckets may come to, MiB; `None` for no limit.
    #[serde(default)]
    pub memory_quota_mib: Option<u64>,
}

/// History of a bucket. There is one store; the name under which the reference has its newer one
/// is told back to those who gave it, and allows history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct HistorySettings {
    /// Whether the store goes by the name `magma`.
    pub magma: bool,
    /// Whether collections have history when they are made and nothing else is said.
    pub collection_default: bool,
    /// How long replaced versions stay, seconds; 0 for no limit of time.
    pub seconds: u64,
    /// How many bytes of them stay; 0 for no limit of bytes. None stay where both are 0.
    pub bytes: u64,
}

impl Default for HistorySettings {
    fn default() -> Self {
        Self {
            magma: false,
            collection_default: true,
            seconds: 0,
            bytes: 0,
        }
    }
}

impl HistorySettings {
    /// Whether a new collection has history when nothing else is said.
    #[must_use]
    pub fn of_new_collections(&self) -> bool {
        self.magma && self.collection_default
    }

    /// What is kept.
    #[must_use]
    pub fn retention(&self) -> bucket::HistoryRetention {
        bucket::HistoryRetention {
            seconds: self.seconds,
            bytes: self.bytes,
        }
    }
}

impl From<BucketConfig> for BucketSettings {
    fn from(bucket: BucketConfig) -> Self {
        Self {
            bucket,
            max_ttl_s: 0,
            flush_enabled: false,
            replicas: 0,
            history: HistorySettings::default(),
        }
    }
}

/// Where the documents of a bucket live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum BucketKind {
    /// In memory and on disk.
    Couchbase,
    /// In memory only; gone after a restart.
    Ephemeral,
}

/// The ports a node serves, with every 0 of the configuration resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// KV protocol.
    pub kv: u16,
    /// HTTP management.
    pub http: u16,
    /// Classic memcached clients, where served.
    pub memcached: Option<u16>,
    /// KV protocol over TLS, where served.
    pub kv_tls: Option<u16>,
    /// HTTP management over TLS, where served.
    pub https: Option<u16>,
}

/// Why a node did not start. `Display` is one line that names what to change.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be listened on: taken, not allowed, or not an address of this machine.
    #[error("cannot listen on {address} for {purpose}: {source}")]
    Listen {
        /// What the port is for: `kv`, `http`, `memcached`, `kv over TLS` or `https`.
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
    /// The operating system refused something else: a thread, memory, randomness.
    #[error("{0}")]
    System(String),
}
