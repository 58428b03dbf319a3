//! The address of an HTTP connection's peer.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use identity::{AuthenticatedUser, FAILURES_PER_CONNECTION};

/// The peer of a connection, as each of its requests carries it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// The same with its port, and the address of this node that it reached; unless it came over no socket.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    /// The name of the user whose certificate began the connection.
    pub(super) user: Option<Arc<str>>,
    /// The port listens on the loopback only.
    pub(super) on_loopback: bool,
    failures: Arc<AtomicU32>,
}

/// Travels with a request that is made on behalf of another user.
#[derive(Clone)]
pub(super) struct OnBehalf {
    /// The user that makes it.
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

    /// Over this connection, from `ends.0` to `ends.1`.
    pub(super) fn over(self, ends: Option<(SocketAddr, SocketAddr)>) -> Self {
        Self { ends, ..self }
    }

    /// With the certificate of this user.
    pub(super) fn certified(self, user: Option<Arc<str>>) -> Self {
        Self { user, ..self }
    }

    /// Notes a wrong login; whether the connection has had as many as it may have.
    pub(super) fn failed(&self) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_PER_CONNECTION
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // A request that came over no socket is one of this process; it has any name.
        let own = || Self::new(Ipv4Addr::LOCALHOST.into(), false);
        Ok(parts.extensions.get().cloned().unwrap_or_else(own))
    }
}
