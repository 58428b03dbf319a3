//! What went wrong below a store, and what it means.

use std::io;

use model::VbId;

use crate::record::DecodeError;
use crate::{ErrorKind, StoreError};

/// No descriptors are left in the system, or to this process. They have no `io::ErrorKind`.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// A record that cannot be decoded, or a database that does not answer.
pub(crate) enum EngineError {
    Record(VbId, DecodeError),
    Database(fjall::Error),
}

impl From<fjall::Error> for EngineError {
    fn from(error: fjall::Error) -> Self {
        Self::Database(error)
    }
}

impl From<std::io::Error> for EngineError {
    fn from(error: std::io::Error) -> Self {
        Self::Database(error.into())
    }
}

impl EngineError {
    /// The error of a read.
    pub(crate) fn into_store_error(self, during: &'static str) -> StoreError {
        match self {
            Self::Record(vb, error) => StoreError::new(ErrorKind::Corrupt, during)
                .of(vb)
                .because(error),
            Self::Database(error) => read_error(error, during),
        }
    }
}

/// The error of the system below an error of the database.
pub(crate) fn io_cause(error: &fjall::Error) -> Option<&io::Error> {
    match error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => Some(io),
        _ => None,
    }
}

/// What a failed read of the database means.
pub(crate) fn read_error(error: fjall::Error, during: &'static str) -> StoreError {
    let kind = match io_cause(&error).map(io::Error::kind) {
        // Parts of files that were there when they were written.
        None | Some(io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            ErrorKind::Corrupt
        }
        Some(_) => ErrorKind::Io,
    };
    StoreError::new(kind, during).because(error)
}

/// Whether the system took nothing just then, and may take it later.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    shortage(error).is_some()
}

/// What the system lacked: space, descriptors for another file, or, with `Io`, a file system that
/// takes writes at all. Something else is `None`.
pub(crate) fn shortage(error: &io::Error) -> Option<ErrorKind> {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded, _)
        | (_, Some(EMFILE | ENFILE)) => Some(ErrorKind::NoSpace),
        (io::ErrorKind::ReadOnlyFilesystem, _) => Some(ErrorKind::Io),
        _ => None,
    }
}

/// Why nothing of a step was written, or that this is not known.
pub(crate) enum Unwritten {
    /// Nothing of it counts, and the journal can go on.
    Refused(fjall::Error),
    /// Nothing of it counts, and it may succeed later.
    Later(fjall::Error),
    /// The tables have to be opened again before that is known.
    Unknown(fjall::Error),
}
