//! State that the threads that serve connections share.

use std::ops::Deref;
use std::sync::Arc;

use registry::Registry;
use rustls::ServerConfig;

use super::own_thread::OwnThreads;

/// The registry, and further state that sockets need.
pub(crate) struct NetState {
    pub(crate) registry: Arc<Registry>,
    /// Set if a port is served over TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// Threads of connections that bring changes of another node.
    pub(crate) own_threads: Arc<OwnThreads>,
}

impl Deref for NetState {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}
