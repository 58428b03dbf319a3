//! What went wrong, told by what the caller must do about it.

use std::error::Error;
use std::fmt;

use model::VbId;

/// What a failed call means for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A file could not be read or written. Reads may be tried again; of a commit nothing counts, and
    /// it may be tried again later, too.
    Io,
    /// Bytes that were read are not what was written. Trying again does not help.
    Corrupt,
    /// The file system is full, or there are no descriptors left. Nothing of the commit counts; trying it again later is right,
    /// and succeeds once there is space.
    NoSpace,
    /// An earlier sync or write of the log failed, so what is on disk is unknown. No commit of
    /// this store succeeds any more; a restart is needed.
    Poisoned,
    /// The store was closed.
    Closed,
}

impl ErrorKind {
    /// Whether a commit that failed so may succeed later, in the same process.
    pub fn may_pass(self) -> bool {
        matches!(self, Self::NoSpace | Self::Io)
    }

    /// The words of messages.
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
/// Shape: `Display` is one line with the whole chain of causes, for a log entry at the place
/// where the error is handled.
#[derive(Debug)]
pub struct StoreError {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// The vBucket that it concerns, when it is a single one.
    pub vb: Option<VbId>,
    /// The step that failed, as in "while committing".
    pub during: &'static str,
    /// What the layer below said.
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// An error without a vBucket and without a cause.
    pub fn new(kind: ErrorKind, during: &'static str) -> Self {
        Self {
            kind,
            vb: None,
            during,
            source: None,
        }
    }

    /// The same, of one vBucket.
    #[must_use]
    pub fn of(mut self, vb: VbId) -> Self {
        self.vb = Some(vb);
        self
    }

    /// The same with its cause.
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

// `Display` has the causes already, so `Error::source` gives none: a reporter that walks the
// chain would print them twice.
impl Error for StoreError {}

/// A message of another layer, without its line ends.
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
    fn a_message_is_one_line_with_place_and_cause() {
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
