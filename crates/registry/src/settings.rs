//! What is set of a node and of its buckets, as far as its parts see it.

use std::collections::BTreeSet;

pub use bucket::Eviction as EvictionPolicy;
use identity::CertificateSettings;
use model::{CompressionMode, ConflictResolution, DurabilityLevel};
use serde::{Deserialize, Serialize};

use crate::auto_compaction::AutoCompaction;
use crate::cluster_map::AlternateAddress;

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

/// One bucket as configured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct BucketConfig {
    /// 1 to 100 characters of `A-Z a-z 0-9 _ - . %`, not starting with a dot. A file has it as the key of the rest.
    #[serde(skip)]
    pub name: String,
    /// Memory the bucket may take, in bytes.
    pub quota_bytes: u64,
    /// Where its documents live.
    pub kind: BucketKind,
    /// What happens when its memory is full.
    #[serde(with = "EvictionName")]
    pub eviction: EvictionPolicy,
    /// What every write asks for at least; `None` for nothing.
    #[serde(default, with = "durability_name")]
    pub durability_min: Option<DurabilityLevel>,
    /// Number of its vBuckets, one of [`VBUCKET_COUNTS`]; `None` for what it was made with, and for [`VBUCKETS`] if it
    /// is new. `node.json` has it apart from the rest, since it never changes.
    #[serde(skip)]
    pub vbuckets: Option<u16>,
}

impl BucketConfig {
    /// Number of its vBuckets.
    pub fn vbuckets(&self) -> u16 {
        self.vbuckets.unwrap_or(VBUCKETS)
    }

    /// How the bucket evicts where `durable` says whether documents are on disk: what is in
    /// memory only cannot leave it, it can only be deleted.
    pub fn eviction(&self, durable: bool) -> EvictionPolicy {
        match self.eviction {
            EvictionPolicy::Values | EvictionPolicy::Documents if !durable => EvictionPolicy::None,
            eviction => eviction,
        }
    }
}

/// [`EvictionPolicy`] in the words of a file.
#[derive(Deserialize, Serialize)]
#[serde(remote = "EvictionPolicy")]
enum EvictionName {
    Values,
    Documents,
    Delete,
    None,
}

/// A level in a file: its name. One that is not known counts as none.
mod durability_name {
    use model::DurabilityLevel;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(
        clippy::ref_option,
        clippy::trivially_copy_pass_by_ref,
        reason = "serde calls it so"
    )]
    pub(super) fn serialize<S: Serializer>(
        level: &Option<DurabilityLevel>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        level.map(DurabilityLevel::name).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<DurabilityLevel>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        Ok(name.as_deref().and_then(DurabilityLevel::from_name))
    }
}

/// How conflicts are resolved, in a file: its name. One that is not known is refused, since two nodes that
/// resolve conflicts in different ways would never agree.
mod conflicts_name {
    use model::ConflictResolution;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(
        way: &ConflictResolution,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        way.name().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<ConflictResolution, D::Error> {
        let name = String::deserialize(from)?;
        ConflictResolution::from_name(&name)
            .ok_or_else(|| D::Error::custom("unknown way to resolve conflicts"))
    }
}

/// What is done about compression, in a file: its name. One that is not known counts as the default.
mod compression_name {
    use model::CompressionMode;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(
        mode: &CompressionMode,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        mode.name().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<CompressionMode, D::Error> {
        let name = String::deserialize(from)?;
        Ok(CompressionMode::from_name(&name).unwrap_or_default())
    }
}

/// Everything that management clients may say of a bucket: what is configured, and the rest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct BucketSettings {
    /// What flags and files say too.
    #[serde(flatten)]
    pub bucket: BucketConfig,
    /// Longest time to live of a document, seconds; 0 for no limit.
    #[serde(default)]
    pub max_ttl_s: u32,
    /// Whether all its documents may be removed at once.
    #[serde(default)]
    pub flush_enabled: bool,
    /// Replicas that were asked for. A node alone has none; it only tells the number.
    #[serde(default)]
    pub replicas: u8,
    /// What it says of its store and its history.
    #[serde(default, skip_serializing_if = "HistorySettings::is_plain")]
    pub history: HistorySettings,
    /// How conflicts with versions of other nodes are resolved.
    #[serde(default, with = "conflicts_name")]
    pub conflicts: ConflictResolution,
    /// What becomes of compressed values, and of those that could be.
    #[serde(default, with = "compression_name")]
    pub compression: CompressionMode,
    /// Whether a durable write needs this node alone where no majority of the nodes is there.
    #[serde(default)]
    pub durability_falls_back: bool,
    /// What clients that keep version vectors in documents are told.
    #[serde(default, skip_serializing_if = "Versioning::is_default")]
    pub versioning: Versioning,
    /// Settings of compaction of its own; `None` for those of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction: Option<AutoCompaction>,
}

/// Cross-cluster versioning of a bucket. Clients keep the version vectors (the attribute `_vv`); the node
/// stores these settings, and tells them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Versioning {
    /// Whether clients keep version vectors. It is never switched off.
    pub enabled: bool,
    /// Age from which clients prune entries of a vector, hours.
    pub pruning_hours: u32,
    /// Highest CAS of each vBucket at the time it was enabled: a later version has, or implies, a vector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub max_cas: Vec<u64>,
}

impl Default for Versioning {
    fn default() -> Self {
        Self {
            enabled: false,
            pruning_hours: 720,
            max_cas: Vec::new(),
        }
    }
}

impl Versioning {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl BucketSettings {
    /// What management clients said of a bucket that is configured: these settings, but for what was configured in
    /// another way since; `before` is the configuration of that time.
    #[must_use]
    pub fn configured_as(mut self, before: &BucketConfig, now: &BucketConfig) -> Self {
        let told = &mut self.bucket;
        told.name.clone_from(&now.name);
        if now.quota_bytes != before.quota_bytes {
            told.quota_bytes = now.quota_bytes;
        }
        if now.eviction != before.eviction {
            told.eviction = now.eviction;
        }
        if now.durability_min != before.durability_min {
            told.durability_min = now.durability_min;
        }
        self
    }
}

/// vBuckets of a bucket for which no other number is asked.
pub const VBUCKETS: u16 = 1024;
/// Numbers of vBuckets that a bucket may be made with.
pub const VBUCKET_COUNTS: [u16; 2] = [128, VBUCKETS];

/// What the management calls may change of the node as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClusterSettings {
    /// What its administrator calls it; empty for nothing.
    #[serde(default)]
    pub name: String,
    /// What the quotas of all buckets may come to, MiB; `None` for no limit.
    #[serde(default)]
    pub memory_quota_mib: Option<u64>,
    /// Where clients outside of its network reach the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<AlternateAddress>,
    /// What client certificates are to the node; `None` for what it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<CertificateSettings>,
    /// Whether a node that started without an administrator has got one over HTTP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub provisioned: bool,
    /// What it was asked to stand in for.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stands_in_for: BTreeSet<StandIn>,
    /// When buckets without settings of their own are compacted; `None` for what it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction: Option<AutoCompaction>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A service of the reference that Settee does not have: what sets a node up may ask for it, and gets a stand-in that
/// answers pings and little else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum StandIn {
    /// Queries.
    #[serde(rename = "n1ql")]
    Query,
    /// Full-text search.
    #[serde(rename = "fts")]
    Search,
    /// Indexes for queries. It has no port of its own.
    #[serde(rename = "index")]
    Index,
}

impl StandIn {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Query, Self::Search, Self::Index];

    /// By what name clients ask for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "n1ql",
            Self::Search => "fts",
            Self::Index => "index",
        }
    }

    /// The one of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// History of a bucket. There is one store; the name under which the reference has its newer one
/// is shown to the client that set it, and allows history.
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
    pub fn of_new_collections(&self) -> bool {
        self.magma && self.collection_default
    }

    fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// What is kept.
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
            conflicts: ConflictResolution::default(),
            compression: CompressionMode::default(),
            durability_falls_back: false,
            versioning: Versioning::default(),
            auto_compaction: None,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// The stand-in for queries, where served.
    pub query: Option<u16>,
    /// The stand-in for search, where served.
    pub search: Option<u16>,
}
