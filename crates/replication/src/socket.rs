//! A socket to another node, with TLS or without.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tls::tls_refusal;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// A stream of bytes in both directions.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// A connected socket.
pub(super) type Socket = Box<dyn ByteStream>;

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
        let connected = TlsConnector::from(config).connect(name, stream).await;
        Ok(Box::new(connected.map_err(refused)?) as Socket)
    });
    connected.await.map_err(|_| timed_out("connecting"))?
}

/// Returns the error of a handshake in words that are the same at each attempt, so that callers log it once.
fn refused(error: io::Error) -> io::Error {
    match tls_refusal(&error) {
        Some(reason) => io::Error::new(error.kind(), reason),
        None => error,
    }
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::{AtomicU64, Ordering};

    use tls::{Tls, TlsOptions, Trust};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::pki_types::UnixTime;
    use tokio_rustls::rustls::time_provider::TimeProvider;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// A clock in another century, which goes on by a second each time it is read.
    #[derive(Debug, Default)]
    struct Late(AtomicU64);

    impl TimeProvider for Late {
        fn current_time(&self) -> Option<UnixTime> {
            let seconds = 10_000_000_000 + self.0.fetch_add(1, Ordering::Relaxed);
            Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
        }
    }

    #[test]
    fn expired_certificate_is_told_in_the_same_words_at_each_attempt() {
        let home = std::env::temp_dir().join(format!("settee-socket-{}", std::process::id()));
        let listen = IpAddr::from(Ipv4Addr::LOCALHOST);
        let served = Tls::open(TlsOptions {
            certificate: None,
            data_dir: None,
            listen,
            advertised: Vec::new(),
            client_ca: None,
        })
        .unwrap();
        std::fs::write(&home, served.authority().as_bytes()).unwrap();
        let trust = Trust {
            ca: Some(home.clone()),
            ..Trust::default()
        };
        let mut config = trust.config().unwrap();
        std::fs::remove_file(home).unwrap();
        config.time_provider = Arc::new(Late::default());
        let config = Arc::new(config);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let listener = TcpListener::bind((listen, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            for _ in 0..2 {
                let accept = async {
                    let (stream, _) = listener.accept().await.unwrap();
                    let acceptor = TlsAcceptor::from(Arc::clone(&served.config));
                    assert!(acceptor.accept(stream).await.is_err());
                };
                let config = Some(Arc::clone(&config));
                let ((), connected) =
                    tokio::join!(accept, connect("127.0.0.1", port, config, LIMIT));
                let told = connected.err().unwrap().to_string();
                assert_eq!(told, "invalid peer certificate: it has expired");
            }
        });
    }
}
