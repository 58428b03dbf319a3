//! What a replica is told to follow.

use std::io;
use std::sync::Arc;

use identity::Password;
use registry::{Following, Peer};
use tls::Trust;
use tokio_rustls::rustls::ClientConfig;

/// The node and bucket that a bucket of this node is to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaOf {
    /// Host name or address of the active node.
    pub host: String,
    /// Its KV port.
    pub port: u16,
    /// User to log in as there.
    pub username: String,
    /// Password of that user.
    pub password: Password,
    /// Name of the bucket, there and here.
    pub bucket: String,
    /// The trust anchors for TLS, to this node and to others of its group; `None` without TLS.
    pub tls: Option<Trust>,
    /// Whether documents that this node has as the active one may become a replica's, which
    /// gives up what the other node does not have.
    pub demote: bool,
}

impl ReplicaOf {
    /// What connections over TLS are made with; `None` without TLS.
    pub(crate) fn tls_config(&self) -> io::Result<Option<Arc<ClientConfig>>> {
        let trust = self.tls.as_ref();
        trust.map(|trust| trust.config().map(Arc::new)).transpose()
    }

    /// The node to follow, as far as settings tell.
    pub fn following(&self) -> Following {
        Following {
            active: Peer::configured(&self.host, self.port, self.tls.is_some()),
            demote: self.demote,
        }
    }
}
