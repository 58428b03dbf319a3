//! A check of a node's data directory, or of the store of one bucket: it reads everything and changes nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;

use storage::{CheckProgress, Checked, EncryptionKeys, OpenError};

use super::data_dir::BUCKETS;
use super::salvage::{bucket_names, identities_of, is_of_node};
use super::users::KeptUsers;

/// Progress of a check.
#[derive(Debug)]
pub enum CheckStep<'a> {
    /// A file of the node's own is damaged or missing; with its name and the reason.
    NodeDamaged(String),
    /// Progress within a bucket.
    Progress(&'a str, CheckProgress),
    /// The result of a bucket.
    Bucket(&'a str, Checked),
    /// The store of a bucket cannot be checked.
    BucketFailed(&'a str, OpenError),
}

/// Reads everything of a node's data directory, or of the store of a bucket; no node may run on it. Reports progress to
/// `each`. `keys` decrypt encrypted files.
///
/// # Errors
/// The directory cannot be read.
///
/// Cost: reads each file once, and each value that lies apart from its row twice.
pub fn check(
    path: &Path,
    keys: Option<&Arc<EncryptionKeys>>,
    each: &mut dyn FnMut(CheckStep<'_>),
) -> io::Result<()> {
    if !is_of_node(path) {
        let name = path.canonicalize()?;
        let name = name.file_name().unwrap_or_default().to_string_lossy();
        check_bucket(&name, path, keys, each);
        return Ok(());
    }
    let mut names = bucket_names(path)?;
    match identities_of(path) {
        Ok(identities) => names.retain(|name| !identities.is_dropped(name)),
        Err(why) => each(CheckStep::NodeDamaged(why)),
    }
    if let Err(error) = KeptUsers::load(Some(path)) {
        each(CheckStep::NodeDamaged(error.to_string()));
    }
    for name in &names {
        check_bucket(name, &path.join(BUCKETS).join(name), keys, each);
    }
    Ok(())
}

fn check_bucket(
    name: &str,
    path: &Path,
    keys: Option<&Arc<EncryptionKeys>>,
    each: &mut dyn FnMut(CheckStep<'_>),
) {
    let checked = storage::check(path, keys, &mut |progress| {
        each(CheckStep::Progress(name, progress));
    });
    each(match checked {
        Ok(checked) => CheckStep::Bucket(name, checked),
        Err(error) => CheckStep::BucketFailed(name, error),
    });
}
