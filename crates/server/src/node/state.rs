//! State that the threads of the node share.

use std::ops::Deref;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock};

use identity::CertificateSettings;
use parking_lot::RwLock;
use registry::{ClusterSettings, Registry};
use replication::ReplicaOf;
use tls::{Ask, PeerTls, Tls};

use super::client_certificates;
use super::load::Load;
use super::open::Launcher;
use super::world::World;
use crate::net::{Arrival, NetState, WorkerPool};

/// State that the threads of the node share: the registry, and the state of sockets, files and TLS.
pub(crate) struct NodeState {
    pub(crate) registry: Arc<Registry>,
    pub(crate) net: Arc<NetState>,
    pub(crate) pool: Arc<WorkerPool<Arrival>>,
    /// Set if a port is served over TLS.
    pub(crate) tls: Option<Tls>,
    /// TLS of connections to the other nodes of the cluster, once the node has joined one that uses it.
    pub(super) peer_tls: OnceLock<Arc<PeerTls>>,
    pub(super) world: Arc<World>,
    /// Settings of the whole node, in a copy that can be read without waiting for the disk.
    pub(super) cluster: RwLock<ClusterSettings>,
    /// Highest map revision of all dropped buckets.
    pub(super) revs: AtomicI64,
    pub(super) buckets_max: usize,
    /// The configured node that a bucket of this one follows.
    pub(super) replica_of: Option<ReplicaOf>,
    /// Parts with which each bucket is opened.
    pub(super) launcher: Launcher,
    /// The previous load figures of monitoring.
    pub(super) load: Load,
}

impl Deref for NodeState {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl NodeState {
    /// Checks whether the node waits for its administrator, and accepts every request without credentials.
    pub(super) fn is_open(&self) -> bool {
        self.ports.query.is_some() && !self.cluster.read().provisioned
    }

    /// Warns if the node is open, or if it has no administrator and is closed for good.
    pub(super) fn tell_of_missing_administrator(&self) {
        if self.is_open() {
            tracing::warn!(
                http = self.ports.http,
                "there is no administrator yet: every client of the HTTP port may do everything, until POST \
                 /settings/web names one"
            );
        } else if self.ports.query.is_some() && !self.has_administrator() {
            tracing::warn!(
                "no user is an administrator any more: start without --provisionable, with --username and \
                 --password, to make one"
            );
        }
    }

    fn has_administrator(&self) -> bool {
        let directory = self.identity.directory();
        directory.users.all().iter().any(|user| {
            let user = self.identity.look_up(user.name());
            user.is_some_and(|user| user.access.is_admin())
        })
    }

    /// Warns if the bucket of the memcached port does not exist: clients of the port would only learn that they have no
    /// bucket.
    pub(super) fn tell_of_missing_memcached_bucket(&self) {
        let named = self.memcached.as_ref().map(|port| port.bucket.as_str());
        if let Some(bucket) = named.filter(|name| self.bucket(name).is_none()) {
            tracing::warn!(
                bucket,
                "the bucket of the memcached port is not here; make it, or name another one with \
                 --memcached-bucket"
            );
        }
    }

    /// Checks settings like [`client_certificates::check`]. A node without TLS has no certificates to check.
    pub(super) fn check_client_certificates(
        &self,
        settings: &CertificateSettings,
    ) -> Result<(), String> {
        match &self.tls {
            Some(tls) => client_certificates::check(tls, settings),
            None if client_certificates::ask(settings) == Ask::Nothing => Ok(()),
            None => Err("The node has no port with TLS: give --kv-tls-port or --https-port".into()),
        }
    }

    /// Reads all certificates, keys and authorities again, for new connections.
    ///
    /// # Errors
    /// One line about what is not valid; all old ones stay. A node without a port with TLS never fails.
    pub(super) fn reload_certificates(&self) -> Result<(), String> {
        match (&self.tls, self.peer_tls.get()) {
            (Some(tls), Some(peers)) => peers.reload(tls),
            (Some(tls), None) => tls.reload(),
            (None, _) => Ok(()),
        }
    }

    /// Sets the use of client certificates for new connections.
    pub(super) fn set_client_certificates(&self, settings: CertificateSettings) {
        if let Some(tls) = &self.tls {
            tls.ask_clients(client_certificates::ask(&settings));
        }
        self.identity.set_certificates(settings);
    }
}
