//! Salvage of a node's data directory, bucket by bucket.

use std::fs;
use std::io;
use std::path::Path;

use storage::{SalvageError, Salvaged};

use super::data_dir::BUCKETS;

/// Copies what can be read of every bucket in the data directory `from` into `to`, which must be
/// empty or missing; changes nothing in `from`. Tells `each` of every bucket that is done.
///
/// # Errors
/// See [`SalvageError`]; buckets that `each` was told of are done.
///
/// Cost: reads everything twice; some 100 bytes of memory a row of the largest bucket.
pub fn salvage(
    from: &Path,
    to: &Path,
    each: &mut dyn FnMut(&str, &Salvaged),
) -> Result<(), SalvageError> {
    let buckets = from.join(BUCKETS);
    let read = |error: io::Error| SalvageError::Read(buckets.clone(), error);
    let mut names = Vec::new();
    for entry in fs::read_dir(&buckets).map_err(read)? {
        names.push(entry.map_err(read)?.file_name());
    }
    names.sort();
    for name in names {
        let target = to.join(BUCKETS).join(&name);
        let salvaged = storage::salvage(&buckets.join(&name), &target)?;
        each(&name.to_string_lossy(), &salvaged);
    }
    Ok(())
}
