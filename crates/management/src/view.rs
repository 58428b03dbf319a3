//! The interface between HTTP management and the node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use audit::{Recorder, Settings};
use axum::http::StatusCode;
use bucket::Reservation;
use collections::{Manifest, ManifestError};
use identity::{AuthenticatedUser, CertificateSettings, Directory, Identity, LoginTurn, Password};
use registry::cluster::{ChangeError, ClusterMember};
use registry::cluster_map::{AlternateAddress, bracketed};
use registry::collections::CollectionsError;
use registry::{AutoCompaction, BucketSettings, ClusterSettings, Ports, StandIn};
use tokio::sync::watch;
use tokio_rustls::rustls::ClientConfig;

use crate::feed::{ChangeSelection, Feed, NoFeed};
use crate::form::FieldErrors;

/// The services of the node for HTTP management. Threads that serve connections call it: methods answer from memory and
/// do not block, unless they state it.
pub trait NodeView: Send + Sync + 'static {
    /// Returns the users and their rights.
    fn identity(&self) -> &Identity;

    /// Checks whether the node waits for its administrator, and accepts every request without credentials.
    fn is_open(&self) -> bool;

    /// Changes users and groups if `edit` returns true. In a cluster it runs again if another change came first, and
    /// salts of the node may change before it runs. When this returns, the change is in force everywhere. Blocks for the disk.
    ///
    /// # Errors
    /// See [`UsersError`].
    fn change_users(&self, edit: &mut dyn FnMut(&mut Directory) -> bool) -> Result<(), UsersError>;

    /// Returns the recorder of audit events.
    fn audit(&self) -> &Recorder;

    /// Changes the configuration of the audit, and stores it. Blocks for the disk.
    ///
    /// # Errors
    /// It could not be written, and stays as it was; one line.
    fn change_audit(&self, settings: Settings) -> Result<(), String>;

    /// Returns the time after which to ask again, while logins wait for the newest users.
    fn users_wait(&self) -> Option<Duration>;

    /// Reserves a turn to judge a login from this address. Returns when the turn comes.
    fn login_turn(&self, peer: IpAddr) -> LoginTurn;

    /// Notes a login that was right, or one that was wrong or refused unjudged.
    fn note_login(&self, peer: IpAddr, right: bool);

    /// Reserves memory for bytes of a request's body. Granted bytes count until they are released.
    fn hold_body(&self, bytes: usize) -> Reservation;

    /// Releases bytes of a request's body.
    fn release_body(&self, bytes: usize);

    /// Checks whether the node serves data.
    ///
    /// # Errors
    /// The reason why it does not yet, in one line for `/readyz`.
    fn ready(&self) -> Result<(), String>;

    /// Returns the time of day, milliseconds since 1970.
    fn unix_ms(&self) -> u64;

    /// Returns the summary of the node.
    fn node(&self) -> NodeSummary;

    /// Returns the names of all buckets, sorted.
    fn bucket_names(&self) -> Vec<String>;

    /// Returns the figures of one bucket; `None` if there is no such bucket.
    fn bucket(&self, name: &str) -> Option<BucketSummary>;

    /// Returns the monitoring figures of one bucket; `None` if there is no such bucket.
    fn samples(&self, name: &str) -> Option<BTreeMap<String, f64>>;

    /// Returns the settings of one bucket; `None` if there is no such bucket.
    fn bucket_settings(&self, name: &str) -> Option<BucketSettings>;

    /// Changes the settings of a bucket: `edit` makes the next ones out of the newest ones. In a cluster it runs again
    /// if another change came first. Blocks for the disk.
    ///
    /// # Errors
    /// The reason why it was not done.
    fn change_settings(&self, bucket: &str, edit: &EditSettings<'_>) -> Result<(), BucketsError>;

    /// Creates, flushes, compacts or drops a bucket. Blocks for the disk.
    ///
    /// # Errors
    /// The reason why it was not done.
    fn change_buckets(&self, change: BucketChange) -> Result<(), BucketsError>;

    /// Returns the active node that must change a bucket or, for `None`, the users and the list of buckets. Returns
    /// `None` if this is the node itself. With `as_itself` this node uses its own credentials there, else those of the
    /// caller. Blocks for the disk if the link uses TLS.
    ///
    /// # Errors
    /// The node cannot be reached in the way of the link to it; with the reason.
    fn active_node(
        &self,
        bucket: Option<&str>,
        as_itself: bool,
    ) -> Option<Result<ActiveNode, String>>;

    /// Changes settings of the whole node. Blocks for the disk.
    ///
    /// # Errors
    /// The reason why it was not done.
    fn change_cluster(&self, change: ClusterChange) -> Result<(), BucketsError>;

    /// Sets the address for clients outside of the node's network; `None` for no such address. Blocks for the disk.
    ///
    /// # Errors
    /// The reason why it was not done.
    fn set_external_address(&self, external: Option<AlternateAddress>) -> Result<(), BucketsError>;

    /// Returns the current configuration of one bucket from [`registry::cluster_map::bucket_config`]; `None` if there
    /// is no such bucket.
    fn bucket_config(&self, name: &str) -> Option<Arc<str>>;

    /// Returns the current configuration without a bucket, from [`registry::cluster_map::global_config`].
    fn global_config(&self) -> Arc<str>;

    /// Returns a receiver that wakes when the configuration of the bucket, or for `None` the global one, has changed;
    /// the value has no meaning. `None` if there is no such bucket.
    fn config_changes(&self, bucket: Option<&str>) -> Option<watch::Receiver<u64>>;

    /// Opens a feed of a bucket's changes. It ends when the user loses the right to them.
    ///
    /// # Errors
    /// There is no such bucket, the position is of another one, or the user may not read the changes.
    fn changes(
        &self,
        bucket: &str,
        wanted: &ChangeSelection,
        user: AuthenticatedUser,
    ) -> Result<Feed, NoFeed>;

    /// Returns the scopes and collections of a bucket; `None` if there is no such bucket.
    fn manifest(&self, bucket: &str) -> Option<Arc<Manifest>>;

    /// Changes the scopes and collections: `edit` makes the next manifest out of the current one. Blocks for the disk.
    /// `None` if there is no such bucket.
    fn change_manifest(
        &self,
        bucket: &str,
        edit: &dyn Fn(&Manifest) -> Result<Manifest, ManifestError>,
    ) -> Option<Result<Arc<Manifest>, CollectionsError>>;

    /// Returns the authority that clients of the ports with TLS must trust, as PEM; `None` if there is no such port.
    fn authority(&self) -> Option<Arc<str>>;

    /// Reads the certificate again.
    ///
    /// # Errors
    /// The reason, one line.
    fn reload_certificate(&self) -> Result<(), String>;

    /// Returns the node as a member of a cluster, if it is in one.
    fn cluster(&self) -> Option<Arc<dyn ClusterMember>>;

    /// Returns all metrics in the OpenMetrics text format, ending with `# EOF`.
    fn metrics(&self) -> String;
}

/// Summary of the node for HTTP answers.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSummary {
    /// UUID of the cluster, 32 hex digits.
    pub cluster_uuid: String,
    /// UUID of the node, 32 hex digits.
    pub node_uuid: String,
    /// Version that clients compare, `a.b.c-build-edition`: the level of compatibility.
    pub compatible_version: String,
    /// Version of this program.
    pub settee_version: String,
    /// Seconds since the node started.
    pub uptime_s: u64,
    /// The ports in use.
    pub ports: Ports,
    /// Settings of the whole node.
    pub cluster: ClusterSettings,
    /// Sum of the quotas of all buckets, bytes.
    pub memory_quota_bytes: u64,
    /// Memory that all buckets use, bytes.
    pub memory_used_bytes: u64,
    /// Disk space of all buckets, bytes.
    pub disk_used_bytes: u64,
    /// Directory of the data; empty if there is none.
    pub data_path: String,
    /// Default age at which buckets with a disk purge tombstones, seconds.
    pub purge_age_s: u64,
    /// Current reads of documents per second.
    pub gets_per_second: f64,
    /// Current reads per second that found their document.
    pub hits_per_second: f64,
    /// Figures of the machine.
    pub machine: Machine,
}

/// The machine of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Memory of the machine.
    pub memory: MachineMemory,
    /// Load of its processors.
    pub cpu: MachineCpu,
    /// File system of the data.
    pub files: MachineFiles,
}

/// Load of the machine's processors, percent of the time of all cores; zeros if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineCpu {
    /// Number of cores that this process can use.
    pub cores: usize,
    /// Time in processes.
    pub user: f64,
    /// Time in the kernel.
    pub system: f64,
    /// Time in interrupts.
    pub irq: f64,
    /// Time taken by other virtual machines on the same processors.
    pub stolen: f64,
}

impl MachineCpu {
    /// Returns the busy time, without the stolen time.
    pub(crate) fn busy(&self) -> f64 {
        self.user + self.system + self.irq
    }
}

/// The file system of the data, bytes; zeros without a data directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineFiles {
    /// Size of the file system.
    pub total: u64,
    /// Available space.
    pub available: u64,
}

/// Address of another node's management.
#[derive(Clone, Debug)]
pub struct ActiveNode {
    /// Host of the node.
    pub host: String,
    /// Port of HTTP, or of HTTPS if there is `tls`.
    pub port: u16,
    /// TLS configuration of the connection; `None` without TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Name and password of this node there, if it acts as itself without a certificate.
    pub login: Option<(String, Password)>,
}

impl ActiveNode {
    /// Returns `host:port` in the form of HTTP.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }
}

/// The memory of the machine, bytes; zeros if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// Size of the memory.
    pub total: u64,
    /// Available memory.
    pub available: u64,
    /// Size of the swap space.
    pub swap_total: u64,
    /// Used swap space.
    pub swap_used: u64,
}

/// Summary of one bucket for HTTP answers.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketSummary {
    /// UUID of the bucket, 32 hex digits.
    pub uuid: String,
    /// Settings of the bucket, with the number of its replicas.
    pub settings: BucketSettings,
    /// Number of documents of active vBuckets.
    pub items: u64,
    /// Number of these whose value is only on disk.
    pub non_resident: u64,
    /// Number of documents of replica vBuckets.
    pub replica_items: u64,
    /// Used memory, bytes.
    pub memory_used_bytes: u64,
    /// Size of all files, bytes.
    pub disk_used_bytes: u64,
    /// Size of the live data in the files, bytes.
    pub disk_data_bytes: u64,
    /// Current operations per second.
    pub ops_per_second: f64,
    /// Current documents per second that are read back from the disk.
    pub fetches_per_second: f64,
    /// Number of vBuckets.
    pub vbuckets: u16,
    /// UID of the collections manifest.
    pub manifest_uid: u64,
    /// Whether the bucket serves data.
    pub ready: bool,
}

/// Function that makes the next settings of a bucket out of its current ones, or refuses.
pub type EditSettings<'a> = dyn Fn(BucketSettings) -> Result<BucketSettings, BucketsError> + 'a;

/// A change of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketChange {
    /// Creates a bucket.
    Make(BucketSettings),
    /// Drops the bucket with all its data.
    Drop(String),
    /// Removes all documents of the bucket.
    Flush(String),
    /// Schedules a compaction of every vBucket.
    Compact(String),
}

/// A change of the whole node; `None` leaves a setting unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterChange {
    /// Name of the node's cluster.
    pub name: Option<String>,
    /// Limit of the sum of all buckets' quotas, MiB.
    pub memory_quota_mib: Option<u64>,
    /// Use of client certificates for new connections.
    pub client_certificates: Option<CertificateSettings>,
    /// Services for which the node stands in.
    pub stands_in_for: Option<BTreeSet<StandIn>>,
    /// Compaction of buckets without own settings.
    pub auto_compaction: Option<AutoCompaction>,
    /// True to record that the node has its administrator.
    pub provisioned: bool,
}

/// Reason why a bucket was not changed. `Display` is for clients; they look for some of these texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BucketsError {
    /// The bucket does not exist.
    #[error("Requested resource not found.")]
    Unknown,
    /// A bucket of that name exists.
    #[error("Bucket with given name already exists")]
    Exists,
    /// The number of buckets has reached its limit.
    #[error("Cannot create more than {0} buckets")]
    TooMany(usize),
    /// The store of a bucket that is not configured any more is in the way.
    #[error(
        "{} holds a bucket that the node was not told to serve: serve it with --bucket, or move it",
        .0.display()
    )]
    Occupied(PathBuf),
    /// Too many compactions wait for their turn.
    #[error("Too many compactions wait for their turn")]
    Busy,
    /// The settings of the bucket do not allow a flush.
    #[error("Flush is disabled for the bucket")]
    FlushDisabled,
    /// The bucket is a copy of another node's bucket.
    #[error("The bucket follows another node's")]
    Follows,
    /// Fields of the settings are not valid; with the reasons.
    #[error("The settings are not valid")]
    Invalid(FieldErrors),
    /// The change is not possible in this cluster; with the reason.
    #[error("{0}")]
    Refused(String),
    /// The cluster cannot agree on the change at the moment; with the reason.
    #[error("{0}")]
    Unavailable(String),
    /// The node's quota, MiB, is not enough for the bucket.
    #[error(
        "RAM quota specified is too large to be provisioned into this cluster: {0} MiB for all buckets"
    )]
    QuotaTooLarge(u64),
    /// The sum of the buckets' quotas, MiB, exceeds the requested quota of the node.
    #[error("The buckets that there are have quotas of {0} MiB")]
    QuotaTooSmall(u64),
    /// No authority of client certificates is known.
    #[error("{0}")]
    NoClientAuthority(String),
    /// The disk has no space; with the reason.
    #[error("{0}")]
    NoSpace(String),
    /// The disk or the system failed.
    #[error("{0}")]
    Failed(String),
}

impl BucketsError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoSpace(_) | Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Exists
            | Self::TooMany(_)
            | Self::Occupied(_)
            | Self::Busy
            | Self::FlushDisabled
            | Self::Follows
            | Self::Invalid(_)
            | Self::Refused(_)
            | Self::QuotaTooLarge(_)
            | Self::QuotaTooSmall(_)
            | Self::NoClientAuthority(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// Reason why users and groups were not changed; one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsersError {
    /// The cluster did not agree on the change.
    #[error(transparent)]
    NotAgreed(#[from] ChangeError),
    /// The change could not be written.
    #[error("{0}")]
    Failed(String),
}

impl UsersError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NotAgreed(ChangeError::Refused(_)) => StatusCode::BAD_REQUEST,
            Self::NotAgreed(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<ChangeError> for BucketsError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(reason) => Self::Refused(reason),
            ChangeError::Conflict(reason) | ChangeError::Unavailable(reason) => {
                Self::Unavailable(reason)
            }
        }
    }
}
