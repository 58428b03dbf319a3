//! The content of the node's own file, `node.json`: the identities of the node and its buckets (docs/format/node.md).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use registry::{
    BucketConfig, BucketSettings, ClusterSettings, GroupRecord, HistorySettings, VBUCKETS,
};
use serde::{Deserialize, Serialize};
use storage::names;

use super::random::random_uuid;
use super::sealed_file::{self, check_version, damaged};

/// Version of `node.json` if all buckets have [`VBUCKETS`] vBuckets.
const VERSION: u32 = 1;
/// Version of `node.json` with other numbers of vBuckets: earlier releases would not find the documents.
const VERSION_COUNTS: u32 = 2;
/// Epoch of a map without a recorded epoch.
const FIRST_EPOCH: i64 = 1;

/// The content of `node.json`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub(super) struct Identities {
    version: u32,
    /// UUID of the node, 32 hex digits.
    pub(super) node_uuid: String,
    /// UUID of each bucket, by name.
    buckets: BTreeMap<String, String>,
    /// Number of vBuckets of each bucket, by name; [`VBUCKETS`] for buckets that are not listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    vbuckets: BTreeMap<String, u16>,
    /// Epoch of each bucket's map, by name; the first one for buckets that are not listed.
    #[serde(default)]
    epochs: BTreeMap<String, i64>,
    /// Buckets that were created while the node ran, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    made: BTreeMap<String, BucketSettings>,
    /// Settings that management clients changed of configured buckets, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    adjusted: BTreeMap<String, ChangedSettings>,
    /// History settings that an earlier release recorded of buckets that followed another node's, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    histories: BTreeMap<String, HistorySettings>,
    /// Standings of buckets that have other nodes, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    standings: BTreeMap<String, GroupRecord>,
    /// Buckets whose stores must be removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) dropped: BTreeSet<String>,
    /// Settings of the whole node from management clients.
    #[serde(default)]
    pub(super) cluster: ClusterSettings,
    /// The cluster of which this node is a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) member_of: Option<MemberOf>,
    /// True if the file has other content.
    #[serde(skip)]
    pub(super) changed: bool,
}

/// A cluster, as its nodes record it.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(super) struct MemberOf {
    pub(super) name: String,
    /// UUID of the cluster, 32 hex digits.
    pub(super) uuid: String,
}

/// Settings that management clients changed of a configured bucket.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
struct ChangedSettings {
    /// Configuration of the bucket at that time.
    configured: BucketConfig,
    settings: BucketSettings,
}

impl Identities {
    /// Parses the bytes of a node file.
    ///
    /// # Errors
    /// They are not valid, or a later release wrote them; with the reason.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = sealed_file::NODE.unseal(bytes).map_err(damaged)?;
        check_version(text.json, VERSION_COUNTS)?;
        let mut identities: Self = serde_json::from_slice(text.json).map_err(damaged)?;
        identities.changed = !text.sealed;
        for (name, settings) in &mut identities.made {
            settings.bucket.name.clone_from(name);
            settings.bucket.vbuckets = identities.vbuckets.get(name).copied();
        }
        Ok(identities)
    }

    /// Writes the file into a directory, atomically.
    pub(super) fn write_into(&self, path: &Path) -> std::io::Result<()> {
        let version = if self.vbuckets.is_empty() {
            VERSION
        } else {
            VERSION_COUNTS
        };
        let written = Self {
            version,
            ..self.clone()
        };
        let sealed = sealed_file::NODE.seal(&serde_json::to_vec_pretty(&written)?);
        names::replace(&path.join(sealed_file::NODE.name), &sealed)
    }

    /// Creates the identities of a new node.
    pub(super) fn new() -> Self {
        Self {
            version: VERSION,
            node_uuid: random_uuid(),
            changed: true,
            ..Self::default()
        }
    }

    /// Returns the settings of the buckets that were created while the node ran.
    pub(super) fn made(&self) -> Vec<BucketSettings> {
        self.made.values().cloned().collect()
    }

    /// Checks whether a bucket has an identity, or is dropped.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.buckets.contains_key(name) || self.dropped.contains(name)
    }

    /// Checks whether the store of a bucket must be removed.
    pub(super) fn is_dropped(&self, name: &str) -> bool {
        self.dropped.contains(name)
    }

    /// Records a bucket that was created while the node ran, with the given UUID or a new one; returns the UUID.
    pub(super) fn add_made(&mut self, settings: &BucketSettings, uuid: Option<&str>) -> String {
        let name = &settings.bucket.name;
        self.made.insert(name.clone(), settings.clone());
        self.add(&settings.bucket);
        if let Some(uuid) = uuid {
            self.set_uuid(name, uuid);
        }
        self.bucket(name)
    }

    /// Adds a UUID for a bucket if it has none; returns the UUID.
    pub(super) fn add(&mut self, config: &BucketConfig) -> String {
        if !self.buckets.contains_key(&config.name) {
            self.set_vbuckets(&config.name, config.vbuckets());
        }
        self.bucket(&config.name)
    }

    /// Records the number of vBuckets of a bucket.
    pub(super) fn set_vbuckets(&mut self, name: &str, count: u16) {
        if count != VBUCKETS {
            self.vbuckets.insert(name.to_owned(), count);
        }
    }

    /// Checks that a configured bucket has the number of vBuckets with which it was created.
    ///
    /// # Errors
    /// It has another number; the text contains both.
    pub(super) fn check_vbuckets(&self, configured: &BucketConfig) -> Result<(), String> {
        let name = &configured.name;
        let made_with = self.vbuckets.get(name).copied().unwrap_or(VBUCKETS);
        match configured.vbuckets {
            Some(asked) if asked != made_with && self.buckets.contains_key(name) => Err(format!(
                "bucket {name} was made with {made_with} vBuckets, so it cannot have {asked}"
            )),
            _ => Ok(()),
        }
    }

    /// Records the settings of a bucket. `configured` is the configuration of a configured bucket.
    pub(super) fn note_settings(
        &mut self,
        settings: &BucketSettings,
        configured: Option<&BucketConfig>,
    ) {
        let name = settings.bucket.name.clone();
        self.histories.remove(&name);
        let settings = settings.clone();
        if let Some(configured) = configured.cloned() {
            let adjusted = ChangedSettings {
                configured,
                settings,
            };
            self.adjusted.insert(name, adjusted);
        } else {
            self.made.insert(name, settings);
        }
    }

    /// Returns the settings of a configured bucket.
    pub(super) fn settings_of(&self, configured: &BucketConfig) -> BucketSettings {
        let name = &configured.name;
        let adjusted = self
            .adjusted
            .get(name)
            .filter(|it| it.settings.bucket.kind == configured.kind);
        let kept = adjusted.map(|it| {
            it.settings
                .clone()
                .configured_as(&it.configured, configured)
        });
        let mut settings = kept.unwrap_or_else(|| configured.clone().into());
        let made_with = self.vbuckets.get(name).copied();
        settings.bucket.vbuckets = made_with.or(configured.vbuckets);
        settings.history = self
            .histories
            .get(name)
            .copied()
            .unwrap_or(settings.history);
        settings
    }

    /// Removes everything about a bucket, and records that its store must be removed.
    pub(super) fn add_dropped(&mut self, name: &str) {
        self.buckets.remove(name);
        self.vbuckets.remove(name);
        self.epochs.remove(name);
        self.made.remove(name);
        self.adjusted.remove(name);
        self.histories.remove(name);
        self.standings.remove(name);
        self.dropped.insert(name.to_owned());
    }

    /// Returns the UUID of a bucket, a new one if it has none.
    pub(super) fn bucket(&mut self, name: &str) -> String {
        let uuid = self.buckets.entry(name.to_owned());
        uuid.or_insert_with(random_uuid).clone()
    }

    /// Replaces the UUID of a bucket.
    pub(super) fn set_uuid(&mut self, name: &str, uuid: &str) {
        self.buckets.insert(name.to_owned(), uuid.to_owned());
    }

    /// Returns the epoch of a bucket's map.
    pub(super) fn epoch(&self, name: &str) -> i64 {
        self.epochs.get(name).copied().unwrap_or(FIRST_EPOCH)
    }

    /// Records the epoch of a bucket's map.
    pub(super) fn set_epoch(&mut self, name: &str, epoch: i64) {
        if self.epoch(name) != epoch {
            self.epochs.insert(name.to_owned(), epoch);
        }
    }

    /// Returns the standing of a bucket.
    pub(super) fn group_record(&self, name: &str) -> GroupRecord {
        self.standings.get(name).cloned().unwrap_or_default()
    }

    /// Records the standing of a bucket.
    pub(super) fn set_standing(&mut self, name: &str, standing: GroupRecord) {
        if standing.is_plain() {
            self.standings.remove(name);
        } else {
            self.standings.insert(name.to_owned(), standing);
        }
    }
}
