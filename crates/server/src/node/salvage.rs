//! Salvage of a node's data directory: first the identities of the node and its buckets, then each bucket.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use registry::{BucketConfig, BucketKind, BucketSettings, EvictionPolicy, VBUCKET_COUNTS};
use storage::{EncryptionKeys, SalvageError, Salvaged};

use super::data_dir::{BUCKETS, INCOMPLETE, LOST_AND_FOUND, UNFINISHED_TEXT};
use super::identities::Identities;
use super::users::copy_users;
use super::{private, sealed_file};

/// Quota of a bucket whose settings are lost, bytes.
const QUOTA_BYTES: u64 = 256 << 20;

/// Number of vBuckets of a bucket whose settings are lost, if its store has none above this number.
const FEW: u16 = VBUCKET_COUNTS[0];

/// Content of [`INCOMPLETE`] after a salvage that lacks data.
const INCOMPLETE_TEXT: &str = "settee salvage could not copy everything into this directory.\n";

/// Progress of a salvage.
#[derive(Debug)]
pub enum SalvageStep<'a> {
    /// The node's own file, `node.json`, is lost; with the reason. In the copy the node is a new one, and its buckets
    /// have default settings.
    NodeLost(String),
    /// The authority of the node's certificates is lost; with the reason. The copy makes a new one, which clients do
    /// not know yet.
    AuthorityLost(String),
    /// The users that were created over HTTP are lost; with the reason. The copy has none.
    UsersLost(String),
    /// A bucket is done.
    Bucket(&'a str, &'a Salvaged),
    /// A bucket was not copied, or not all of its readable data.
    BucketFailed(&'a str, &'a SalvageError),
    /// The copy lacks data: no node that has replicas of other nodes starts on it before this file is removed.
    Incomplete(PathBuf),
}

/// Copies the readable data of every bucket in the data directory `from` into `to`, which must be empty or
/// missing; changes nothing in `from`. `keys` decrypt encrypted data; with them, the copy is encrypted. A node that starts on
/// `to` serves every copied bucket with its settings. Reports progress to `each`.
///
/// A cluster would take the copy of its member for a whole one, and so would the node that a replica follows. So a copy
/// that lacks data has a file that keeps such nodes from starting on it. Until the salvage ends it keeps every node from
/// that.
///
/// # Errors
/// `from` cannot be read at all, or `to` cannot be written.
///
/// Cost: reads everything up to four times. Memory holds the rows of one vBucket without large values.
pub fn salvage(
    from: &Path,
    to: &Path,
    keys: Option<&Arc<EncryptionKeys>>,
    each: &mut dyn FnMut(SalvageStep<'_>),
) -> Result<(), SalvageError> {
    let buckets = from.join(BUCKETS);
    let read = |error: io::Error| SalvageError::Read(buckets.clone(), error);
    let mut names = bucket_names(from).map_err(read)?;
    let write = |error: io::Error| SalvageError::Read(to.to_owned(), error);
    storage::names::make_directories(to).map_err(write)?;
    if let Some(there) = content(to).map_err(write)? {
        return Err(SalvageError::Occupied(there));
    }
    private::close_to_others(to).map_err(write)?;
    let mut identities = identities_of(from).unwrap_or_else(|why| {
        each(SalvageStep::NodeLost(why));
        Identities::new()
    });
    names.retain(|name| !identities.is_dropped(name));
    identities.dropped.clear();
    let mut lost = names.clone();
    lost.retain(|name| !identities.knows(name));
    for name in &lost {
        identities.add_made(&default_settings(name), None);
    }
    let (incomplete, mut whole) = (to.join(INCOMPLETE), !from.join(INCOMPLETE).exists());
    storage::names::replace(&incomplete, UNFINISHED_TEXT).map_err(write)?;
    identities.write_into(to).map_err(write)?;
    if let Err(why) = tls::copy_authority(from, to) {
        each(SalvageStep::AuthorityLost(why));
    }
    if let Err(why) = copy_users(from, to) {
        each(SalvageStep::UsersLost(why));
    }
    for name in &names {
        let target = to.join(BUCKETS).join(name);
        match storage::salvage(&buckets.join(name), &target, keys) {
            Ok(salvaged) => {
                if lost.contains(name) && salvaged.last.is_some_and(|last| last.0 < FEW) {
                    identities.set_vbuckets(name, FEW);
                    identities.write_into(to).map_err(write)?;
                }
                whole &= salvaged.is_whole();
                each(SalvageStep::Bucket(name, &salvaged));
            }
            Err(error) => {
                whole = false;
                each(SalvageStep::BucketFailed(name, &error));
            }
        }
    }
    if whole {
        storage::names::remove(&incomplete).map_err(write)?;
    } else {
        storage::names::replace(&incomplete, INCOMPLETE_TEXT.as_bytes()).map_err(write)?;
        each(SalvageStep::Incomplete(incomplete));
    }
    Ok(())
}

/// Returns something that a directory holds, if it is not empty.
fn content(path: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() != LOST_AND_FOUND {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Whether this is the directory of a node, not that of one bucket.
pub(super) fn is_of_node(path: &Path) -> bool {
    path.join(BUCKETS).is_dir() || path.join(sealed_file::NODE.name).exists()
}

/// Returns the names of the directories that may be stores, sorted. A node without buckets may lack the directory of
/// them.
pub(super) fn bucket_names(data_dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    if is_of_node(data_dir) && !data_dir.join(BUCKETS).exists() {
        return Ok(names);
    }
    for entry in fs::read_dir(data_dir.join(BUCKETS))? {
        let entry = entry?;
        if entry.path().is_dir() && entry.file_name() != LOST_AND_FOUND {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

pub(super) fn identities_of(from: &Path) -> Result<Identities, String> {
    let file = from.join(sealed_file::NODE.name);
    let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Identities::parse(&bytes).map_err(|why| format!("{}: {why}", file.display()))
}

fn default_settings(name: &str) -> BucketSettings {
    BucketSettings::from(BucketConfig {
        name: name.to_owned(),
        quota_bytes: QUOTA_BYTES,
        kind: BucketKind::Couchbase,
        eviction: EvictionPolicy::Values,
        durability_min: None,
        vbuckets: None,
    })
}
