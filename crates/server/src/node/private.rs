//! Directories and files that are for the node's user alone.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use storage::names;

/// What others than the user may do.
const OTHERS: u32 = 0o077;

/// Makes a directory with all that are missing above it, and takes it from others if it was there and open to them.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    names::make_directories(path)?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let directory = path.display();
    match fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)) {
        Ok(()) => {
            tracing::info!(%directory, "the data directory was open to other users, and is not any more");
        }
        // Of another user, but readable by this one.
        Err(error) => tracing::warn!(%directory, %error, "other users may read the data directory"),
    }
    Ok(())
}
