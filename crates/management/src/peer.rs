//! The address of an HTTP connection's peer.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use identity::{AuthenticatedUser, FAILURES_PER_CONNECTION};

/// The peer of a connection; each request of the connection carries it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// Address and port of the peer, and the address of this node; `None` for a request without a socket.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    /// Name of the user in the certificate of the connection.
    pub(super) user: Option<Arc<str>>,
    /// True if the port listens on the loopback only.
    pub(super) on_loopback: bool,
    failures: Arc<AtomicU32>,
}

/// Extension of a request that is made on behalf of another user.
#[derive(Clone)]
pub(super) struct OnBehalf {
    /// The user that sends it.
    pub(super) real: AuthenticatedUser,
}

impl Peer {
    pub(super) fn new(address: IpAddr, on_loopback: bool) -> Self {
        Self {
            address,
            ends: None,
            user: None,
            on_loopback,
            failures: Arc::default(),
        }
    }

    /// Sets the ends of the connection: from `ends.0` to `ends.1`.
    pub(super) fn over(self, ends: Option<(SocketAddr, SocketAddr)>) -> Self {
        Self { ends, ..self }
    }

    /// Sets the user of the certificate.
    pub(super) fn certified(self, user: Option<Arc<str>>) -> Self {
        Self { user, ..self }
    }

    /// Counts a wrong login. Returns whether the connection has reached the limit.
    pub(super) fn failed(&self) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_PER_CONNECTION
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // A request without a socket comes from this process; it may have any host name.
        let own = || Self::new(Ipv4Addr::LOCALHOST.into(), false);
        Ok(parts.extensions.get().cloned().unwrap_or_else(own))
    }
}
