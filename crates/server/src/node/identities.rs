//! What the node's own file, `node.json`, says: the identities of the node and its buckets
//! (docs/format/node.md).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use registry::{
    BucketConfig, BucketSettings, ClusterSettings, HistorySettings, Standing, VBUCKETS,
};
use serde::{Deserialize, Serialize};
use storage::names;

use super::random::random_uuid;
use super::sealed_file::{self, check_version, damaged};

/// The version of `node.json` where all buckets have [`VBUCKETS`] vBuckets.
const VERSION: u32 = 1;
/// The version of one that tells other numbers: earlier releases would not find the documents.
const VERSION_COUNTS: u32 = 2;
/// The epoch of a map that has none noted.
const FIRST_EPOCH: i64 = 1;

/// What `node.json` holds.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(super) struct Identities {
    version: u32,
    /// 32 hex digits.
    pub(super) node_uuid: String,
    /// Identity of each bucket by name.
    buckets: BTreeMap<String, String>,
    /// Number of vBuckets of each bucket that has another one than [`VBUCKETS`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    vbuckets: BTreeMap<String, u16>,
    /// Epoch of the map of each bucket that has another one than the first.
    #[serde(default)]
    epochs: BTreeMap<String, i64>,
    /// Buckets that were made while the node ran, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    made: BTreeMap<String, BucketSettings>,
    /// What management clients said of buckets that are configured, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    adjusted: BTreeMap<String, Adjusted>,
    /// What buckets that followed another node's were told of their history by an earlier release, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    histories: BTreeMap<String, HistorySettings>,
    /// What is kept of the groups of buckets that have other nodes, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    standings: BTreeMap<String, Standing>,
    /// Buckets whose stores are to be removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) dropped: BTreeSet<String>,
    /// What management clients said of the node as a whole.
    #[serde(default)]
    pub(super) cluster: ClusterSettings,
    /// The cluster whose node this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) member_of: Option<MemberOf>,
    /// Whether the file differs.
    #[serde(skip)]
    pub(super) changed: bool,
}

/// A cluster, as its nodes keep it.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(super) struct MemberOf {
    pub(super) name: String,
    /// 32 hex digits.
    pub(super) uuid: String,
}

/// What management clients said of a bucket that is configured.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
struct Adjusted {
    /// What was configured then.
    configured: BucketConfig,
    settings: BucketSettings,
}

impl Identities {
    /// What the bytes of a node file say.
    ///
    /// # Errors
    /// They make no sense, or a later release wrote them; why.
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

    /// Writes them into a directory: whole or not at all.
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

    /// Identities of a node that keeps nothing.
    pub(super) fn new() -> Self {
        Self {
            version: VERSION,
            node_uuid: random_uuid(),
            buckets: BTreeMap::new(),
            vbuckets: BTreeMap::new(),
            epochs: BTreeMap::new(),
            made: BTreeMap::new(),
            adjusted: BTreeMap::new(),
            histories: BTreeMap::new(),
            standings: BTreeMap::new(),
            dropped: BTreeSet::new(),
            cluster: ClusterSettings::default(),
            member_of: None,
            changed: true,
        }
    }

    /// Settings of the buckets that were made while the node ran.
    pub(super) fn made(&self) -> Vec<BucketSettings> {
        self.made.values().cloned().collect()
    }

    /// Whether a bucket has an identity.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.buckets.contains_key(name) || self.dropped.contains(name)
    }

    /// Whether the store of a bucket is to be removed.
    pub(super) fn is_dropped(&self, name: &str) -> bool {
        self.dropped.contains(name)
    }

    /// Notes a bucket as one that was made while a node ran; returns its identity, which may be given.
    pub(super) fn add_made(&mut self, settings: &BucketSettings, uuid: Option<&str>) -> String {
        let name = &settings.bucket.name;
        self.made.insert(name.clone(), settings.clone());
        self.add(&settings.bucket);
        if let Some(uuid) = uuid {
            self.set_uuid(name, uuid);
        }
        self.bucket(name)
    }

    /// Gives a bucket an identity if it has none; returns it.
    pub(super) fn add(&mut self, config: &BucketConfig) -> String {
        if !self.buckets.contains_key(&config.name) {
            self.set_vbuckets(&config.name, config.vbuckets());
        }
        self.bucket(&config.name)
    }

    /// Notes the number of vBuckets of a bucket.
    pub(super) fn set_vbuckets(&mut self, name: &str, count: u16) {
        if count != VBUCKETS {
            self.vbuckets.insert(name.to_owned(), count);
        }
    }

    /// Checks that a configured bucket has the number of vBuckets with which it was made.
    ///
    /// # Errors
    /// It has another one, as the text says.
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

    /// Notes what was said of a bucket. Of one that is configured, `configured` tells how.
    pub(super) fn note_settings(
        &mut self,
        settings: &BucketSettings,
        configured: Option<&BucketConfig>,
    ) {
        let name = settings.bucket.name.clone();
        self.histories.remove(&name);
        let settings = settings.clone();
        if let Some(configured) = configured.cloned() {
            let adjusted = Adjusted {
                configured,
                settings,
            };
            self.adjusted.insert(name, adjusted);
        } else {
            self.made.insert(name, settings);
        }
    }

    /// The settings of a bucket that is configured.
    pub(super) fn settings_of(&self, configured: &BucketConfig) -> BucketSettings {
        let name = &configured.name;
        let adjusted = self
            .adjusted
            .get(name)
            .filter(|it| it.settings.bucket.kind == configured.kind);
        let told = adjusted.map(|it| {
            it.settings
                .clone()
                .configured_as(&it.configured, configured)
        });
        let mut settings = told.unwrap_or_else(|| configured.clone().into());
        let made_with = self.vbuckets.get(name).copied();
        settings.bucket.vbuckets = made_with.or(configured.vbuckets);
        settings.history = self
            .histories
            .get(name)
            .copied()
            .unwrap_or(settings.history);
        settings
    }

    /// Takes out everything about a bucket, and notes that its store is to be removed.
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

    /// The identity of a bucket, a new one if it has none.
    pub(super) fn bucket(&mut self, name: &str) -> String {
        let uuid = self.buckets.entry(name.to_owned());
        uuid.or_insert_with(random_uuid).clone()
    }

    /// Gives a bucket another identity.
    pub(super) fn set_uuid(&mut self, name: &str, uuid: &str) {
        self.buckets.insert(name.to_owned(), uuid.to_owned());
    }

    /// The epoch of a bucket's map.
    pub(super) fn epoch(&self, name: &str) -> i64 {
        self.epochs.get(name).copied().unwrap_or(FIRST_EPOCH)
    }

    /// Notes the epoch of a bucket's map.
    pub(super) fn set_epoch(&mut self, name: &str, epoch: i64) {
        if self.epoch(name) != epoch {
            self.epochs.insert(name.to_owned(), epoch);
        }
    }

    /// What is kept of the group of a bucket.
    pub(super) fn standing(&self, name: &str) -> Standing {
        self.standings.get(name).cloned().unwrap_or_default()
    }

    /// Notes what is kept of the group of a bucket.
    pub(super) fn set_standing(&mut self, name: &str, standing: Standing) {
        if standing.is_plain() {
            self.standings.remove(name);
        } else {
            self.standings.insert(name.to_owned(), standing);
        }
    }
}
