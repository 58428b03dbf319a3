//! Listening sockets and the threads that accept connections.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use management::Refusals;
use session::Door;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::connection::Arrival;
use super::state::NetState;
use super::worker_pool::WorkerPool;
use crate::config::StartError;

/// Pause after the system refused a connection, most likely for lack of descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);
/// TCP keepalive with the values of the reference server.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(6);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Opens a listening socket.
///
/// # Errors
/// The port is taken or not allowed; the error names it.
pub(crate) fn bind(purpose: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || -> io::Result<TcpListener> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(1024)?;
        Ok(socket.into())
    };
    open().map_err(|source| StartError::Listen {
        purpose,
        address,
        source,
    })
}

/// A listening socket with its accepting thread.
pub(crate) struct Listener {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Accepts connections and hands each to the pool.
    pub(crate) fn start(
        listener: TcpListener,
        door: Door,
        node: Arc<NetState>,
        pool: Arc<WorkerPool<Arrival>>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let thread = Builder::new()
            .name("accept".into())
            .stack_size(256 << 10)
            .spawn(move || {
                let mut refusals = Refusals::of(address.port());
                for arrived in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    match arrived.and_then(prepare) {
                        Ok(stream) if node.connections.admit() => {
                            hand_over(&node, &pool, stream, door);
                        }
                        Ok(_) => refusals.note(&"too many connections (ulimit -n)"),
                        Err(error) => {
                            refusals.note(&error);
                            std::thread::sleep(REFUSED_PAUSE);
                        }
                    }
                }
            })?;
        Ok(Self {
            address,
            stopping,
            thread: Some(thread),
        })
    }

    /// Stops accepting and closes the socket.
    pub(crate) fn stop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // The thread blocks in accept(): a connection to itself lets it check the flag.
        let mut door = self.address;
        if door.ip().is_unspecified() {
            door.set_ip(match door.ip() {
                std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let knocked = TcpStream::connect_timeout(&door, Duration::from_secs(1)).is_ok();
        if let (Some(thread), true) = (self.thread.take(), knocked)
            && thread.join().is_err()
        {
            tracing::error!("the accepting thread ended by a panic");
        }
    }
}

/// Passes an admitted connection to a worker.
fn hand_over(node: &NetState, pool: &WorkerPool<Arrival>, stream: TcpStream, door: Door) {
    // Another connection may take this number first; then this one moves to another worker.
    let worker = pool.worker_for(node.connections.opened() + 1, false);
    if pool
        .hand_over(worker, Arrival::New { stream, door })
        .is_err()
    {
        node.connections.give_up();
        tracing::debug!("a connection came after the workers ended");
    }
}

/// Bytes that the system takes before the peer has room for them. By default it takes some MiB, and more only after
/// the peer has read a third of them: a connection whose peer reads slowly would seem to stand still.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

fn prepare(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let socket = socket2::SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    Ok(stream)
}
