//! The settings of a replica.

use std::io;
use std::sync::Arc;

use identity::Password;
use registry::{Following, Peer};
use tls::Trust;
use tokio_rustls::rustls::ClientConfig;

/// The node and the bucket that a bucket of this node follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaOf {
    /// Host name or address of the active node.
    pub host: String,
    /// KV port of the active node.
    pub port: u16,
    /// User for the login there.
    pub username: String,
    /// Password of that user.
    pub password: Password,
    /// Name of the bucket, there and here.
    pub bucket: String,
    /// Trust anchors for TLS connections to the active node and to others of its group; `None` without TLS.
    pub tls: Option<Trust>,
    /// Whether an active bucket of this node may become a replica. Changes that the other node does not have are
    /// then discarded.
    pub demote: bool,
}

impl ReplicaOf {
    /// Returns the settings for connections over TLS; `None` without TLS.
    pub(crate) fn tls_config(&self) -> io::Result<Option<Arc<ClientConfig>>> {
        let trust = self.tls.as_ref();
        trust.map(|trust| trust.config().map(Arc::new)).transpose()
    }

    /// Returns the node to follow, as the settings name it.
    pub fn following(&self) -> Following {
        Following {
            active: Peer::configured(&self.host, self.port, self.tls.is_some()),
            demote: self.demote,
        }
    }
}
