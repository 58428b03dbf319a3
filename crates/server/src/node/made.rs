//! Buckets that were made while the node ran, as `node.json` keeps them.

use model::DurabilityLevel;
use registry::{BucketConfig, BucketKind, BucketSettings, EvictionPolicy, HistorySettings};
use serde::{Deserialize, Serialize};

/// One of them. Its name is the key under which it is kept.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(super) struct MadeBucket {
    quota_bytes: u64,
    kind: BucketKind,
    eviction: EvictionName,
    /// The name of a level.
    #[serde(default)]
    durability_min: Option<String>,
    #[serde(default)]
    max_ttl_s: u32,
    #[serde(default)]
    flush_enabled: bool,
    #[serde(default)]
    replicas: u8,
    /// Absent where it is nothing special.
    #[serde(default, skip_serializing_if = "is_plain")]
    history: HistorySettings,
}

/// [`EvictionPolicy`] in the words of the file.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
enum EvictionName {
    Values,
    Documents,
    Delete,
    None,
}

fn is_plain(history: &HistorySettings) -> bool {
    *history == HistorySettings::default()
}

impl MadeBucket {
    pub(super) fn of(settings: &BucketSettings) -> Self {
        let config = &settings.bucket;
        Self {
            quota_bytes: config.quota_bytes,
            kind: config.kind,
            eviction: match config.eviction {
                EvictionPolicy::Values => EvictionName::Values,
                EvictionPolicy::Documents => EvictionName::Documents,
                EvictionPolicy::Delete => EvictionName::Delete,
                EvictionPolicy::None => EvictionName::None,
            },
            durability_min: config.durability_min.map(|level| level.name().to_owned()),
            max_ttl_s: settings.max_ttl_s,
            flush_enabled: settings.flush_enabled,
            replicas: settings.replicas,
            history: settings.history,
        }
    }

    pub(super) fn settings(&self, name: &str) -> BucketSettings {
        let least = self.durability_min.as_deref();
        BucketSettings {
            bucket: BucketConfig {
                name: name.to_owned(),
                quota_bytes: self.quota_bytes,
                kind: self.kind,
                eviction: match self.eviction {
                    EvictionName::Values => EvictionPolicy::Values,
                    EvictionName::Documents => EvictionPolicy::Documents,
                    EvictionName::Delete => EvictionPolicy::Delete,
                    EvictionName::None => EvictionPolicy::None,
                },
                durability_min: least.and_then(DurabilityLevel::from_name),
            },
            max_ttl_s: self.max_ttl_s,
            flush_enabled: self.flush_enabled,
            replicas: self.replicas,
            history: self.history,
        }
    }
}
