//! Directories that only the node's user may access.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use storage::names;

/// Permissions of other users.
const OTHERS: u32 = 0o077;

/// Creates a directory with its missing parents. If it exists and is open to other users, removes their permissions.
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
        // The directory belongs to another user, but this one may read it.
        Err(error) => tracing::warn!(%directory, %error, "other users may read the data directory"),
    }
    Ok(())
}
