//! Settings of a node and of its buckets.

use std::collections::BTreeSet;

pub use bucket::Eviction as EvictionPolicy;
use identity::CertificateSettings;
use model::{CompressionMode, ConflictResolution, DurabilityLevel};
use serde::{Deserialize, Serialize};

use crate::auto_compaction::AutoCompaction;
use crate::cluster_map::AlternateAddress;

/// The port for classic memcached clients. They may use documents of one bucket and read its harmless statistics, and
/// nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemcachedPort {
    /// Port number; 0 takes a free port.
    pub port: u16,
    /// Name of the bucket.
    pub bucket: String,
    /// Whether clients must log in with SASL.
    pub login: bool,
}

/// Configuration of one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct BucketConfig {
    /// Name: 1 to 100 characters of `A-Z a-z 0-9 _ - . %`, not starting with a dot. In a file it is the key of the
    /// rest.
    #[serde(skip)]
    pub name: String,
    /// Quota of the bucket, bytes.
    pub quota_bytes: u64,
    /// Where the documents live.
    pub kind: BucketKind,
    /// Eviction policy for a full quota.
    #[serde(with = "EvictionName")]
    pub eviction: EvictionPolicy,
    /// Lowest durability level of every write; `None` for none.
    #[serde(default, with = "durability_name")]
    pub durability_min: Option<DurabilityLevel>,
    /// Number of vBuckets, one of [`VBUCKET_COUNTS`]. `None` keeps the number of an existing bucket, and means
    /// [`VBUCKETS`] for a new one. `node.json` keeps it apart from the rest, since it never changes.
    #[serde(skip)]
    pub vbuckets: Option<u16>,
}

impl BucketConfig {
    /// Returns the number of vBuckets.
    pub fn vbuckets(&self) -> u16 {
        self.vbuckets.unwrap_or(VBUCKETS)
    }

    /// Returns the eviction policy in force; `durable` is whether documents are on disk. A document that is in memory
    /// only cannot be evicted, only deleted.
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

/// A durability level in a file: its name. An unknown name counts as none.
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

/// [`ConflictResolution`] in a file. An unknown name is an error: two nodes that resolve conflicts in different ways
/// would never agree.
#[derive(Deserialize, Serialize)]
#[serde(remote = "ConflictResolution")]
enum ConflictsName {
    #[serde(rename = "seqno")]
    Revision,
    #[serde(rename = "lww")]
    LastWrite,
}

/// [`CompressionMode`] in a file. An unknown name counts as the default.
#[derive(Deserialize, Serialize)]
#[serde(remote = "CompressionMode", rename_all = "lowercase")]
enum CompressionName {
    Off,
    Active,
    #[serde(other)]
    Passive,
}

/// All settings of a bucket that management clients can change: the configuration, and the rest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct BucketSettings {
    /// Settings that flags and files can set, too.
    #[serde(flatten)]
    pub bucket: BucketConfig,
    /// Longest time to live of a document, seconds; 0 for no limit.
    #[serde(default)]
    pub max_ttl_s: u32,
    /// Whether a flush, which removes all documents, is allowed.
    #[serde(default)]
    pub flush_enabled: bool,
    /// Requested number of replicas. A node that is alone has none; it only reports the number.
    #[serde(default)]
    pub replicas: u8,
    /// Name of the store, and history.
    #[serde(default, skip_serializing_if = "HistorySettings::is_plain")]
    pub history: HistorySettings,
    /// Resolution of conflicts with versions of other nodes.
    #[serde(default, with = "ConflictsName")]
    pub conflicts: ConflictResolution,
    /// Treatment of compressed values and of values that could be compressed.
    #[serde(default, with = "CompressionName")]
    pub compression: CompressionMode,
    /// Whether a durable write needs only this node if the majority is not reachable.
    #[serde(default)]
    pub durability_falls_back: bool,
    /// Version vectors that clients keep in documents.
    #[serde(default, skip_serializing_if = "Versioning::is_default")]
    pub versioning: Versioning,
    /// Own compaction settings; `None` for those of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction: Option<AutoCompaction>,
}

/// Cross-cluster versioning of a bucket. Clients keep the version vectors (the attribute `_vv`); the node stores and
/// reports these settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Versioning {
    /// Whether clients keep version vectors. It is never switched off.
    pub enabled: bool,
    /// Age from which clients prune entries of a vector, hours.
    pub pruning_hours: u32,
    /// Highest CAS of each vBucket at the time when it was enabled: a later version has, or implies, a vector.
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
    /// Applies a changed configuration to these settings of management clients: a value that differs between `before`
    /// and `now` replaces the client's value. `before` is the configuration when the client set its value.
    #[must_use]
    pub fn configured_as(mut self, before: &BucketConfig, now: &BucketConfig) -> Self {
        let reported = &mut self.bucket;
        reported.name.clone_from(&now.name);
        if now.quota_bytes != before.quota_bytes {
            reported.quota_bytes = now.quota_bytes;
        }
        if now.eviction != before.eviction {
            reported.eviction = now.eviction;
        }
        if now.durability_min != before.durability_min {
            reported.durability_min = now.durability_min;
        }
        self
    }
}

/// Default number of vBuckets of a bucket.
pub const VBUCKETS: u16 = 1024;
/// Allowed numbers of vBuckets of a bucket.
pub const VBUCKET_COUNTS: [u16; 2] = [128, VBUCKETS];

/// Settings of the whole node that management calls can change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClusterSettings {
    /// Name from the administrator; empty for none.
    #[serde(default)]
    pub name: String,
    /// Limit of the sum of all buckets' quotas, MiB; `None` for no limit.
    pub memory_quota_mib: Option<u64>,
    /// Address for clients outside of the node's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<AlternateAddress>,
    /// Use of client certificates; `None` for the start options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<CertificateSettings>,
    /// Whether a node that started without an administrator has got one over HTTP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub provisioned: bool,
    /// Services for which the node stands in.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stands_in_for: BTreeSet<StandIn>,
    /// Compaction of buckets without own settings; `None` for the start options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction: Option<AutoCompaction>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A service of the reference server that Settee does not have. A setup tool may ask for it, and gets a stand-in that
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
    /// All stand-ins.
    pub const ALL: [Self; 3] = [Self::Query, Self::Search, Self::Index];

    /// Returns the name by which clients ask for the service.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "n1ql",
            Self::Search => "fts",
            Self::Index => "index",
        }
    }

    /// Finds the stand-in of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// History of a bucket. There is only one store. The reference server's name of its newer store is shown to the client
/// that set it, and allows history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct HistorySettings {
    /// Whether the store is shown under the name `magma`.
    pub magma: bool,
    /// Whether a new collection has history by default.
    pub collection_default: bool,
    /// Age limit of replaced versions, seconds; 0 for no limit.
    pub seconds: u64,
    /// Size limit of replaced versions, bytes; 0 for no limit. No versions are kept if both limits are 0.
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
    /// Checks whether a new collection has history by default.
    pub fn of_new_collections(&self) -> bool {
        self.magma && self.collection_default
    }

    fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the limits of the history.
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

/// The ports on which a node listens; each 0 of the configuration is replaced by the real port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ports {
    /// KV protocol.
    pub kv: u16,
    /// HTTP management.
    pub http: u16,
    /// Classic memcached clients, where served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memcached: Option<u16>,
    /// KV protocol over TLS, where served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_tls: Option<u16>,
    /// HTTP management over TLS, where served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https: Option<u16>,
    /// The stand-in for queries, where served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<u16>,
    /// The stand-in for search, where served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_file_are_those_of_the_settings() {
        let settings = |conflicts: &str, compression: &str| {
            serde_json::from_value::<BucketSettings>(serde_json::json!({
                "quota_bytes": 1, "kind": "Couchbase", "eviction": "Values",
                "conflicts": conflicts, "compression": compression,
            }))
        };
        for way in [ConflictResolution::Revision, ConflictResolution::LastWrite] {
            for mode in ["off", "passive", "active"] {
                let read = settings(way.name(), mode).unwrap();
                assert_eq!((read.conflicts, read.compression.name()), (way, mode));
                let written = serde_json::to_value(&read).unwrap();
                assert_eq!(written["conflicts"], way.name());
                assert_eq!(written["compression"], mode);
            }
        }
        assert!(settings("custom", "off").is_err());
        let later = settings("lww", "zstd").unwrap();
        assert_eq!(later.compression, CompressionMode::default());
    }
}
