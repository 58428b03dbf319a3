//! Errors are those of reading a file: the caller of a sealed file has no others.

use std::io;

/// The reason of an error that only a key helps against.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct KeyError(String);

/// The error of a file that no given key opens.
pub fn key_error(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, KeyError(reason))
}

/// Whether it is such an error.
pub fn is_key_error(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner
        .and_then(|inner| inner.downcast_ref::<KeyError>())
        .is_some()
}

/// The error of bytes that were not sealed as they are.
pub(crate) fn damaged(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
