//! Directories that only the node's user may access.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use storage::names;

/// Permissions of other users.
const OTHERS: u32 = 0o077;

/// Creates a directory with its missing parents, and keeps it to its user.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    names::make_directories(path)?;
    close_to_others(path)
}

/// Removes the permissions of other users from a directory. Only for one that is known to hold data of a node: others
/// may need the permissions of any other directory.
pub(super) fn close_to_others(path: &Path) -> io::Result<()> {
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
