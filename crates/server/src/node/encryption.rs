//! Encryption at rest for commands and for the configuration of a node.

use std::io;
use std::path::Path;
use std::sync::Arc;

use storage::{EncryptionKeys, FileEncryption, KeysError, OpenError, encryption};

use super::data_dir::BUCKETS;
use super::random::{fill_random, random_u64};
use super::salvage::{bucket_names, is_of_node};

/// Parses the text of a key file.
///
/// # Errors
/// The first line that is not valid.
pub fn encryption_keys(text: &str) -> Result<Arc<EncryptionKeys>, KeysError> {
    EncryptionKeys::parse(text, random_u64).map(Arc::new)
}

/// Returns the line of a new key with this name, or with a unique name.
///
/// `None` if the name is not valid.
pub fn new_encryption_key(id: Option<&str>) -> Option<String> {
    let mut secret = [0; 32];
    fill_random(&mut secret);
    let made = format!("k{:08x}", random_u64() >> 32);
    EncryptionKeys::line(id.unwrap_or(&made), &secret)
}

/// The files of a bucket, or the reason why they cannot be read.
pub type BucketEncryption = (String, Result<Vec<FileEncryption>, OpenError>);

/// Returns how the files of all buckets in a node's data directory are encrypted, or those of one bucket. The node may
/// run.
///
/// # Errors
/// The directory cannot be read.
pub fn encryption_of(path: &Path) -> io::Result<Vec<BucketEncryption>> {
    if !is_of_node(path) {
        let name = path.canonicalize()?;
        let name = name.file_name().unwrap_or_default().to_string_lossy();
        return Ok(vec![(name.into_owned(), encryption(path))]);
    }
    let names = bucket_names(path)?.into_iter();
    let found = names.map(|name| {
        let files = encryption(&path.join(BUCKETS).join(&name));
        (name, files)
    });
    Ok(found.collect())
}
