//! What an error of the system means for the caller of a store.

use std::io;

use model::VbId;

use crate::{ErrorKind, StoreError};

/// No descriptors are left in the system, or to this process. They have no `io::ErrorKind`.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// What the system lacked: space, descriptors for another file, or, with `Io`, a file system that takes writes at all.
/// Something else is `None`.
pub(crate) fn shortage(error: &io::Error) -> Option<ErrorKind> {
    match (error.kind(), error.raw_os_error()) {
        (
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge,
            _,
        )
        | (_, Some(EMFILE | ENFILE)) => Some(ErrorKind::NoSpace),
        (io::ErrorKind::ReadOnlyFilesystem, _) => Some(ErrorKind::Io),
        _ => None,
    }
}

/// What a failed read means.
pub(crate) fn read_error(error: io::Error, during: &'static str) -> StoreError {
    let kind = match error.kind() {
        // Parts of files that were there when they were written.
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
        _ => shortage(&error).unwrap_or(ErrorKind::Io),
    };
    StoreError::new(kind, during).because(error)
}

/// The same of one vBucket.
pub(crate) fn read_error_of(vb: VbId, during: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |error| read_error(error, during).of(vb)
}
