//! Why a connection to another node is given up.

use std::fmt;

use consumer::{Unusable, Violation};
use model::VbId;

/// Why a connection is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It could not be set up.
    Refused(String),
    /// The producer broke the protocol.
    Violation(Option<VbId>, Violation),
    /// A vBucket here could not follow.
    Stuck(VbId, String),
    /// Nothing was heard for too long.
    Silent,
    /// The node follows another one itself: its host and port.
    Elsewhere(String, u16),
}

impl Broken {
    /// Where to go instead.
    pub(super) fn elsewhere(self) -> Option<(String, u16)> {
        match self {
            Self::Elsewhere(host, port) => Some((host, port)),
            _ => None,
        }
    }
}

impl From<Unusable> for Broken {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Violation(vb, violation) => Self::Violation(Some(vb), violation),
            Unusable::Stuck(vb, reason) => Self::Stuck(vb, reason),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => f.write_str(reason),
            Self::Violation(Some(vb), violation) => write!(f, "{vb}: {violation}"),
            Self::Violation(None, violation) => violation.fmt(f),
            Self::Stuck(vb, reason) => write!(f, "{vb}: {reason}"),
            Self::Elsewhere(host, port) => write!(f, "that node follows {host}:{port}"),
            Self::Silent => f.write_str("the active node was silent for too long"),
        }
    }
}
