//! Limits on HTTP connections: their number and their lifetime.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use identity::CertificateVerdict;
use registry::HANDSHAKE_TIMEOUT;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{Error, ServerConfig};

use super::closing::stopped;
use super::peer::Peer;
use super::routes::router;
use super::stand_in;
use super::{access, audited};
use crate::refusals::Refusals;
use crate::view::NodeView;

/// Largest number of connections at a time, however many descriptors there are.
pub const CONNECTIONS_MAX: usize = 512;

/// Time limit of a request's head, and so of the next request on an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest head, bytes. A position in a change stream is up to 14 KB of it.
const HEAD_BYTES_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 64;
/// Limit of output that is made ahead of a peer's reading, bytes.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Limit of input that the system buffers ahead of the node's reading, bytes.
const UNTAKEN_BYTES_MAX: usize = 64 << 10;
/// Time after which a peer with unacknowledged or unread bytes is disconnected.
const UNREAD_TIMEOUT: Duration = Duration::from_mins(1);
/// Time limit of running requests after the node stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after the system refused a connection, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A socket on which HTTP is served.
pub struct HttpDoor {
    listener: TcpListener,
    connections_max: usize,
    tls: Option<TlsAcceptor>,
}

impl HttpDoor {
    /// Creates a door for at most `connections_max` connections at a time; further ones wait in the listen queue.
    pub fn new(
        listener: TcpListener,
        connections_max: usize,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        Self {
            listener,
            connections_max,
            tls: tls.map(TlsAcceptor::from),
        }
    }
}

/// The sockets on which HTTP is served.
pub struct HttpDoors {
    /// Management.
    pub http: HttpDoor,
    /// Management over TLS.
    pub https: Option<HttpDoor>,
    /// The stand-in for queries and indexes.
    pub query: Option<HttpDoor>,
    /// The stand-in for search.
    pub search: Option<HttpDoor>,
}

/// Serves HTTP on these sockets until `shutdown` turns true or its sender is dropped. Then it stops accepting, ends
/// streams, and lets running requests finish for up to two seconds.
///
/// Runs on any Tokio runtime with time and I/O enabled. Cost: the memory of two tasks per connection, no thread.
pub async fn serve(doors: HttpDoors, view: Arc<dyn NodeView>, shutdown: watch::Receiver<bool>) {
    let served = |app| {
        let view = Arc::clone(&view);
        Served { app, view }
    };
    let management = served(router(Arc::clone(&view), shutdown.clone()));
    let stand_in = served(stand_in::router(Arc::clone(&view), shutdown.clone()));
    let HttpDoors {
        http,
        https,
        query,
        search,
    } = doors;
    let stand_ins = [query, search].into_iter().flatten();
    let stand_ins = stand_ins.map(|door| (door, stand_in.clone()));
    let of_management = [Some(http), https].into_iter().flatten();
    let of_management = of_management.map(|door| (door, management.clone()));
    let all = of_management.chain(stand_ins);
    join_all(all.map(|(door, served)| serve_door(door, served, shutdown.clone()))).await;
}

/// The routes of a socket, with the node.
#[derive(Clone)]
struct Served {
    app: Router,
    /// The node; it checks certificates.
    view: Arc<dyn NodeView>,
}

async fn serve_door(door: HttpDoor, served: Served, shutdown: watch::Receiver<bool>) {
    let HttpDoor {
        listener,
        connections_max,
        tls,
    } = door;
    let own = listener.local_addr();
    let port = own.as_ref().map_or(0, SocketAddr::port);
    let on_loopback = own.is_ok_and(|own| own.ip().to_canonical().is_loopback());
    let slots = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    let mut stopping = shutdown.clone();
    let mut refusals = Refusals::of(port);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stopped(&mut stopping) => break,
            accepted = accept(&listener, &slots, &mut refusals) => accepted,
        };
        if let Some(accepted) = accepted {
            let peer = Peer::new(accepted.address.ip(), on_loopback).over(accepted.ends());
            let (tls, served) = (tls.clone(), served.clone());
            connections.spawn(welcome(accepted, peer, tls, served, shutdown.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let drained = time::timeout(DRAIN_TIMEOUT, async {
        while connections.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::info!(
            connections = connections.len(),
            "HTTP requests cut short by shutdown"
        );
    }
}

/// A connection that was accepted.
struct Accepted {
    stream: TcpStream,
    address: SocketAddr,
    /// Its slot among the connections at a time.
    slot: OwnedSemaphorePermit,
}

impl Accepted {
    /// Returns the addresses of both ends.
    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let own = self.stream.local_addr().ok()?;
        Some((self.address, own))
    }
}

/// Accepts the next connection once there is a slot for it; `None` if the system refused it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    refusals: &mut Refusals,
) -> Option<Accepted> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some(Accepted {
            stream,
            address: peer,
            slot,
        }),
        Err(error) => {
            refusals.note(&error);
            time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Serves one connection, from its first byte to its last.
async fn welcome(
    accepted: Accepted,
    peer: Peer,
    tls: Option<TlsAcceptor>,
    Served { app, view }: Served,
    mut shutdown: watch::Receiver<bool>,
) {
    let Accepted {
        stream,
        slot: _slot,
        ..
    } = accepted;
    if let Err(error) = guard(&stream) {
        tracing::debug!(%error, "cannot set options of an HTTP connection");
    }
    let Some(tls) = tls else {
        return converse(stream, peer, app, shutdown).await;
    };
    let shaken = tokio::select! {
        shaken = time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => shaken,
        () = stopped(&mut shutdown) => return,
    };
    match shaken {
        Ok(Ok(stream)) => {
            access::await_users(&*view).await;
            let shown = stream.get_ref().1.peer_certificates();
            let certificate = shown.and_then(|chain| chain.first());
            let certified = match view
                .identity()
                .judge_certificate(certificate.map(|one| &**one))
            {
                CertificateVerdict::NoUser => None,
                CertificateVerdict::User(user) => Some(user.name),
                CertificateVerdict::Refused(reason) => {
                    return audited::certificate_problem(&*view, &peer, reason);
                }
            };
            converse(stream, peer.certified(certified), app, shutdown).await;
        }
        Ok(Err(error)) => {
            if is_about_certificate(&error) {
                audited::certificate_problem(&*view, &peer, &error.to_string());
            }
            tracing::debug!(%error, "no handshake of HTTPS");
        }
        Err(_) => tracing::debug!("a handshake of HTTPS took too long"),
    }
}

/// Checks whether a handshake failed because the peer's certificate is refused or missing.
fn is_about_certificate(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(
        inner,
        Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented)
    )
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    app: Router,
    mut shutdown: watch::Receiver<bool>,
) {
    let routes = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut shutdown) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP connection ended");
    }
}

/// Sets options so that a peer that vanished, or that does not read, is disconnected.
fn guard(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(UNREAD_TIMEOUT);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_recv_buffer_size(UNTAKEN_BYTES_MAX)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNREAD_TIMEOUT))?;
    Ok(())
}
