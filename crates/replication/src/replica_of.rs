//! What a replica is told to follow.

use std::fmt;

use registry::{Following, Peer};
use tls::Trust;

/// The node and bucket that a bucket of this node is to follow.
#[derive(Clone, PartialEq, Eq)]
pub struct ReplicaOf {
    /// Host name or address of the active node.
    pub host: String,
    /// Its KV port.
    pub port: u16,
    /// User to log in as there.
    pub username: String,
    /// Password of that user.
    pub password: String,
    /// Name of the bucket, there and here.
    pub bucket: String,
    /// The trust anchors for TLS, to this node and to others of its group; `None` without TLS.
    pub tls: Option<Trust>,
    /// Whether documents that this node has as the active one may become a replica's, which
    /// gives up what the other node does not have.
    pub demote: bool,
}

impl fmt::Debug for ReplicaOf {
    /// All but the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaOf")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("username", &self.username)
            .field("bucket", &self.bucket)
            .field("tls", &self.tls)
            .field("demote", &self.demote)
            .finish_non_exhaustive()
    }
}

impl ReplicaOf {
    /// The node to follow, as far as settings tell.
    pub fn following(&self) -> Following {
        Following {
            active: Peer::configured(&self.host, self.port, self.tls.is_some()),
            demote: self.demote,
        }
    }
}
