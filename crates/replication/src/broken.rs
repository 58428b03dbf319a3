//! Reasons why a connection to another node is closed.

use std::fmt;

use consumer::{Unusable, Violation};
use model::VbId;

/// Reason why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The setup of the connection failed.
    Refused(String),
    /// The producer broke the protocol.
    Violation(Option<VbId>, Violation),
    /// A vBucket could not apply a message.
    Stuck(VbId, String),
    /// The producer was silent for too long.
    Silent,
    /// The node is itself a replica of another node, at this host and port.
    Elsewhere(String, u16),
}

impl Broken {
    /// Returns the host and port to connect to instead, if the node named them.
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
