//! Errors, classified by the reaction of the caller.

use std::error::Error;
use std::fmt;

use model::VbId;

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A file could not be read or written. Reads may be retried. A failed commit does not count,
    /// and may be retried later, too.
    Io,
    /// The bytes read are not those written. A retry does not help.
    Corrupt,
    /// The file system is full, or there are no file descriptors left. The commit does not count;
    /// the caller should retry it later, and it succeeds once there is space.
    NoSpace,
    /// An earlier sync or write of the log failed, so the content of the disk is unknown. No commit
    /// of this store succeeds until a restart.
    Poisoned,
    /// The store is closed.
    Closed,
}

impl ErrorKind {
    /// Whether a failed commit may succeed later, in the same process.
    pub fn may_pass(self) -> bool {
        matches!(self, Self::NoSpace | Self::Io)
    }

    /// Returns the description for messages.
    fn words(self) -> &'static str {
        match self {
            Self::Io => "input/output error",
            Self::Corrupt => "corrupt data",
            Self::NoSpace => "no space left on device",
            Self::Poisoned => "store is poisoned by an earlier write failure",
            Self::Closed => "store is closed",
        }
    }
}

/// A failed call of a [`KvStore`](crate::KvStore).
///
/// `Display` is one line with the whole chain of causes, for a log entry where the error is handled.
#[derive(Debug)]
pub struct StoreError {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// The vBucket, if the error concerns a single one.
    pub vb: Option<VbId>,
    /// The failed step, as in "while committing".
    pub during: &'static str,
    /// Error of the layer below.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// Creates an error without a vBucket and without a cause.
    pub fn new(kind: ErrorKind, during: &'static str) -> Self {
        Self {
            kind,
            vb: None,
            during,
            source: None,
        }
    }

    /// Adds the vBucket.
    #[must_use]
    pub fn of(mut self, vb: VbId) -> Self {
        self.vb = Some(vb);
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} while {}", self.kind.words(), self.during)?;
        if let Some(vb) = self.vb {
            write!(f, " ({vb})")?;
        }
        match &self.source {
            Some(source) => {
                write!(f, ": {}", one_line(source))
            }
            None => Ok(()),
        }
    }
}

// `Display` has the causes already, so `Error::source` returns none: a reporter that walks the
// chain would print them twice.
impl Error for StoreError {}

/// Returns a message of another layer without its line ends.
pub(crate) fn one_line(message: &impl fmt::Display) -> String {
    message
        .to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_one_line_with_place_and_cause() {
        let error = StoreError::new(ErrorKind::NoSpace, "committing")
            .of(VbId(7))
            .because("a\n b");
        assert_eq!(
            error.to_string(),
            "no space left on device while committing (vb_7): a b"
        );
        assert!(error.source().is_none());
    }
}
