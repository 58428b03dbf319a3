//! Errors: they are I/O errors, as for reading any file.

use std::io;

/// Reason of an error that only the right key resolves.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct KeyError(String);

/// Returns the error of a file that no given key opens.
pub fn key_error(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, KeyError(reason))
}

/// Whether an error was made by [`key_error`].
pub fn is_key_error(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner
        .and_then(|inner| inner.downcast_ref::<KeyError>())
        .is_some()
}

/// Returns the error of bytes that were not sealed as they are.
pub(crate) fn damaged(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
