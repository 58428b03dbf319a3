//! What management sees of the node, and what it asks of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use audit::{Recorder, Settings};
use bucket::Reservation;
use collections::{Manifest, ManifestError};
use identity::{AuthenticatedUser, CertificateSettings, Directory, Identity, LoginTurn, Password};
use registry::cluster::ClusterMember;
use registry::cluster_map::{AlternateAddress, bracketed};
use registry::collections::CollectionsError;
use registry::{AutoCompaction, BucketSettings, ClusterSettings, Ports, StandIn};
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;

use crate::feed::{Feed, NoFeed, Wanted};

/// What HTTP management needs to see of the node. Called on the threads that serve
/// connections: answers come from memory and do not block.
pub trait NodeView: Send + Sync + 'static {
    /// The users, and what they may do.
    fn identity(&self) -> &Identity;

    /// Whether it waits for its administrator, and answers every request without credentials.
    fn is_open(&self) -> bool;

    /// Changes users and groups, if `edit` returns that they are to be changed. Once this returns the change holds everywhere. Blocks for the disk.
    ///
    /// # Errors
    /// It could not be written, and is not made; one line.
    fn change_users(&self, edit: &mut dyn FnMut(&mut Directory) -> bool) -> Result<(), String>;

    /// What is recorded for audits.
    fn audit(&self) -> &Recorder;

    /// Changes the configuration of the audit, and keeps it. Blocks for the disk.
    ///
    /// # Errors
    /// It could not be written, and is as before; one line.
    fn change_audit(&self, settings: Settings) -> Result<(), String>;

    /// When a login from this address may be judged. The call reserves that turn.
    fn login_turn(&self, peer: IpAddr) -> LoginTurn;

    /// Notes a login that was right, or one that was wrong or refused unjudged.
    fn note_login(&self, peer: IpAddr, right: bool);

    /// Reserves memory for bytes of a request's body. They count from now on, if they are granted.
    fn hold_body(&self, bytes: usize) -> Reservation;

    /// Counts bytes of a request's body no longer.
    fn release_body(&self, bytes: usize);

    /// Whether the node serves data.
    ///
    /// # Errors
    /// Why it does not yet, in one line for `/readyz`.
    fn ready(&self) -> Result<(), String>;

    /// The time of day, milliseconds since 1970.
    fn unix_ms(&self) -> u64;

    /// The node itself.
    fn node(&self) -> NodeSummary;

    /// Names of all buckets, sorted.
    fn bucket_names(&self) -> Vec<String>;

    /// Figures of one bucket; `None` if there is no such bucket.
    fn bucket(&self, name: &str) -> Option<BucketSummary>;

    /// What monitoring reads of one bucket; `None` if there is no such bucket.
    fn samples(&self, name: &str) -> Option<BTreeMap<String, f64>>;

    /// What one bucket was made with; `None` if there is no such bucket.
    fn bucket_settings(&self, name: &str) -> Option<BucketSettings>;

    /// Makes, changes, empties or removes a bucket. Blocks for the disk.
    ///
    /// # Errors
    /// Why it was not done.
    fn change_buckets(&self, change: BucketChange) -> Result<(), BucketsError>;

    /// The node that has to change a bucket, or with `None` users and the list of buckets: the active one that this
    /// node follows. `None` where that is this node itself. With `as_itself` this node shows its own credentials there,
    /// which else are the caller's. Blocks for the disk where it is reached over TLS.
    ///
    /// # Errors
    /// It cannot be reached as the link to it is; why.
    fn active_node(
        &self,
        bucket: Option<&str>,
        as_itself: bool,
    ) -> Option<Result<ActiveNode, String>>;

    /// Changes the node as a whole. Blocks for the disk.
    ///
    /// # Errors
    /// Why it was not done.
    fn change_cluster(&self, change: ClusterChange) -> Result<(), BucketsError>;

    /// Tells clients outside of its network where they reach the node; `None` for nowhere else. Blocks for the disk.
    ///
    /// # Errors
    /// Why it was not done.
    fn set_external_address(&self, external: Option<AlternateAddress>) -> Result<(), BucketsError>;

    /// The current configuration of one bucket as [`registry::cluster_map::bucket_config`] made
    /// it; `None` if there is no such bucket.
    fn bucket_config(&self, name: &str) -> Option<Arc<str>>;

    /// The current configuration without a bucket, from [`registry::cluster_map::global_config`].
    fn global_config(&self) -> Arc<str>;

    /// Wakes whenever the configuration of the bucket, or with `None` the global one, has
    /// changed; the value has no meaning. `None` if there is no such bucket.
    fn config_changes(&self, bucket: Option<&str>) -> Option<watch::Receiver<u64>>;

    /// The changes of a bucket from somewhere on, for as long as the user may have them.
    ///
    /// # Errors
    /// There is no such bucket, or the position is not of this one, or the user may not have them.
    fn changes(
        &self,
        bucket: &str,
        wanted: &Wanted,
        user: AuthenticatedUser,
    ) -> Result<Feed, NoFeed>;

    /// The scopes and collections of a bucket; `None` if there is no such bucket.
    fn manifest(&self, bucket: &str) -> Option<Arc<Manifest>>;

    /// Changes them: `edit` makes the next manifest of the current one. Blocks for the disk.
    /// `None` if there is no such bucket.
    fn change_manifest(
        &self,
        bucket: &str,
        edit: &dyn Fn(&Manifest) -> Result<Manifest, ManifestError>,
    ) -> Option<Result<Arc<Manifest>, CollectionsError>>;

    /// What clients of the ports with TLS are to trust, as PEM; `None` if there is no such port.
    fn authority(&self) -> Option<Arc<str>>;

    /// Reads the certificate again.
    ///
    /// # Errors
    /// What is wrong with it, one line.
    fn reload_certificate(&self) -> Result<(), String>;

    /// The node's part in a cluster, if it has one.
    fn cluster(&self) -> Option<Arc<dyn ClusterMember>>;

    /// All metrics in the OpenMetrics text format, ending with `# EOF`.
    fn metrics(&self) -> String;
}

/// The node as HTTP answers show it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSummary {
    /// Identity of the cluster, 32 hex digits.
    pub cluster_uuid: String,
    /// Identity of the node, 32 hex digits.
    pub node_uuid: String,
    /// Version that clients compare, `a.b.c-build-edition`: the level of compatibility.
    pub compatible_version: String,
    /// Version of this program.
    pub settee_version: String,
    /// Seconds since the node started.
    pub uptime_s: u64,
    /// The ports in use.
    pub ports: Ports,
    /// What the node is and may take as a whole.
    pub cluster: ClusterSettings,
    /// Sum of the quotas of all buckets, in bytes.
    pub memory_quota_bytes: u64,
    /// Memory in use by all buckets, in bytes.
    pub memory_used_bytes: u64,
    /// Bytes on disk of all buckets.
    pub disk_used_bytes: u64,
    /// Where its files are; empty if there are none.
    pub data_path: String,
    /// Age at which tombstones of buckets with a disk are purged where nothing else was set, seconds.
    pub purge_age_s: u64,
    /// Reads of documents per second, lately.
    pub gets_per_second: f64,
    /// Those of them that found their document.
    pub hits_per_second: f64,
    /// What it runs on.
    pub machine: Machine,
}

/// The machine of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Its memory.
    pub memory: MachineMemory,
    /// What its processors do.
    pub cpu: MachineCpu,
    /// Where the node keeps its data.
    pub files: MachineFiles,
}

/// What the processors of the machine do, lately: percent of the time of all cores; zeros where the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineCpu {
    /// How many cores there are for this process.
    pub cores: usize,
    /// In processes.
    pub user: f64,
    /// In the system.
    pub system: f64,
    /// In interrupts.
    pub irq: f64,
    /// For other machines, on the same processors.
    pub stolen: f64,
}

impl MachineCpu {
    /// All of it but for what others took.
    pub(crate) fn busy(&self) -> f64 {
        self.user + self.system + self.irq
    }
}

/// The file system with the data, in bytes; zeros where there are no files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineFiles {
    /// All of it.
    pub total: u64,
    /// What is to be had.
    pub available: u64,
}

/// Where the management of another node is.
#[derive(Clone, Debug)]
pub struct ActiveNode {
    /// Its host.
    pub host: String,
    /// Its port of HTTP, or of HTTPS where there is `tls`.
    pub port: u16,
    /// What it is trusted by; `None` without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// The name and the password of this node there, where it is asked as itself; not of one that shows a certificate.
    pub login: Option<(String, Password)>,
}

impl ActiveNode {
    /// `host:port`, as HTTP writes it.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }
}

/// The memory of the machine, in bytes; zeros where the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// All of it.
    pub total: u64,
    /// What is to be had.
    pub available: u64,
    /// What may be swapped out.
    pub swap_total: u64,
    /// What is swapped out.
    pub swap_used: u64,
}

/// One bucket as HTTP answers show it.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSummary {
    /// Identity of the bucket, 32 hex digits.
    pub uuid: String,
    /// What it is made with, and how many replicas it has.
    pub settings: BucketSettings,
    /// Documents of active vBuckets.
    pub items: u64,
    /// Those whose value is only on disk.
    pub non_resident: u64,
    /// Documents of replica vBuckets.
    pub replica_items: u64,
    /// Memory in use, in bytes.
    pub memory_used_bytes: u64,
    /// Bytes on disk, all files.
    pub disk_used_bytes: u64,
    /// Bytes on disk that are live data.
    pub disk_data_bytes: u64,
    /// Operations per second, lately.
    pub ops_per_second: f64,
    /// Documents read back from the disk per second, lately.
    pub fetches_per_second: f64,
    /// Number of vBuckets.
    pub vbuckets: u16,
    /// Revision of the collections manifest.
    pub manifest_uid: u64,
    /// Whether it serves data.
    pub ready: bool,
}

/// What is to be done with a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketChange {
    /// Make it.
    Make(BucketSettings),
    /// Give it another quota, and let it be flushed or not. The rest is as it was.
    Adjust(BucketSettings),
    /// Remove it, with everything in it.
    Drop(String),
    /// Remove its documents.
    Flush(String),
    /// Look every vBucket through for what is old, at its turn.
    Compact(String),
}

/// What is to be changed of the node as a whole; `None` leaves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterChange {
    /// What it is called.
    pub name: Option<String>,
    /// What the quotas of its buckets may come to, MiB.
    pub memory_quota_mib: Option<u64>,
    /// What client certificates are to it, for connections that come from now on.
    pub client_certificates: Option<CertificateSettings>,
    /// What it stands in for.
    pub stands_in_for: Option<BTreeSet<StandIn>>,
    /// When buckets without settings of their own are compacted.
    pub auto_compaction: Option<AutoCompaction>,
    /// Whether it has its administrator from now on.
    pub provisioned: bool,
}

/// Why a bucket was not changed. `Display` is for clients; they look for some of these texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketsError {
    /// There is no such bucket.
    #[error("Requested resource not found.")]
    Unknown,
    /// There is one of that name.
    #[error("Bucket with given name already exists")]
    Exists,
    /// There are as many as there may be.
    #[error("Cannot create more than {0} buckets")]
    TooMany(usize),
    /// The store of a bucket that is not configured any more is in the way.
    #[error(
        "{} holds a bucket that the node was not told to serve: serve it with --bucket, or move it",
        .0.display()
    )]
    Occupied(PathBuf),
    /// As many compactions as there may be wait for their turn.
    #[error("Too many compactions wait for their turn")]
    Busy,
    /// Its settings do not allow it.
    #[error("Flush is disabled for the bucket")]
    FlushDisabled,
    /// It has what another node's bucket has.
    #[error("The bucket follows another node's")]
    Follows,
    /// It cannot be in this cluster, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The cluster cannot agree on it now, for this reason.
    #[error("{0}")]
    Unavailable(String),
    /// It was not begun.
    #[error("The node is stopping")]
    Stopping,
    /// The node's quota, MiB, is not enough for it.
    #[error(
        "RAM quota specified is too large to be provisioned into this cluster: {0} MiB for all buckets"
    )]
    QuotaTooLarge(u64),
    /// The quotas of the buckets come to more MiB than the node is to have.
    #[error("The buckets that there are have quotas of {0} MiB")]
    QuotaTooSmall(u64),
    /// Certificates of clients cannot be judged.
    #[error("{0}")]
    NoClientAuthority(String),
    /// The disk or the system refused.
    #[error("{0}")]
    Failed(String),
}
