//! Conversion of I/O errors to errors of a store.

use std::io;

use model::VbId;

use crate::{ErrorKind, StoreError};

/// No file descriptors are left, in the system or for this process. There is no `io::ErrorKind` for them.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Returns the kind of a shortage: no space or descriptors (`NoSpace`), or a read-only file system
/// (`Io`). `None` for other errors.
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

/// Converts the error of a read.
pub(crate) fn read_error(error: io::Error, during: &'static str) -> StoreError {
    let kind = match error.kind() {
        // The file had these bytes when it was written.
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
        _ => shortage(&error).unwrap_or(ErrorKind::Io),
    };
    StoreError::new(kind, during).because(error)
}

/// Converts the error of a write that left everything written before undamaged.
pub(crate) fn write_error(error: io::Error, during: &'static str) -> StoreError {
    let kind = shortage(&error).unwrap_or(ErrorKind::Io);
    StoreError::new(kind, during).because(error)
}

/// As [`read_error`], for one vBucket.
pub(crate) fn read_error_of(vb: VbId, during: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |error| read_error(error, during).of(vb)
}
