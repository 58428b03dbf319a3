//! A socket to another node, with TLS or without.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// A stream of bytes in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connected socket.
pub(super) type Socket = Box<dyn Stream>;

/// Connects within `limit`, over TLS if `tls` is set.
pub(super) async fn connect(
    host: &str,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    limit: Duration,
) -> io::Result<Socket> {
    let connected = timeout(limit, async {
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let Some(config) = tls else {
            return Ok(Box::new(stream) as Socket);
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?) as Socket)
    });
    connected.await.map_err(|_| timed_out("connecting"))?
}

/// Sends all of `bytes` within `limit`.
pub(super) async fn send(socket: &mut Socket, bytes: &[u8], limit: Duration) -> io::Result<()> {
    let sent = timeout(limit, async {
        socket.write_all(bytes).await?;
        socket.flush().await
    });
    sent.await.map_err(|_| timed_out("sending"))?
}

pub(super) fn timed_out(during: &str) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("{during} took too long"))
}
