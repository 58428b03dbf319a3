//! A connection's bytes, with TLS or without.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// The likely reason why a server does not answer a handshake.
pub(crate) const NO_TLS: &str = "a port without TLS needs couchbase:// instead of couchbases://";

/// A socket, with TLS or without.
pub enum Link<S: Read + Write> {
    /// Without TLS.
    Plain(S),
    /// Over TLS.
    Sealed(Box<StreamOwned<ClientConnection, S>>),
}

impl<S: Read + Write> fmt::Debug for Link<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_sealed() {
            "over TLS"
        } else {
            "plain"
        })
    }
}

impl<S: Read + Write> Link<S> {
    /// Returns the socket.
    pub fn socket(&self) -> &S {
        match self {
            Self::Plain(socket) => socket,
            Self::Sealed(stream) => &stream.sock,
        }
    }

    /// Returns the socket, for an event loop.
    pub fn socket_mut(&mut self) -> &mut S {
        match self {
            Self::Plain(socket) => socket,
            Self::Sealed(stream) => &mut stream.sock,
        }
    }

    /// Returns whether the link uses TLS: a short read may leave bytes in the TLS buffer.
    pub fn is_sealed(&self) -> bool {
        matches!(self, Self::Sealed(_))
    }

    /// Converts the socket and keeps the TLS session.
    pub fn map<T: Read + Write>(self, change: impl FnOnce(S) -> T) -> Link<T> {
        match self {
            Self::Plain(socket) => Link::Plain(change(socket)),
            Self::Sealed(stream) => {
                let StreamOwned { conn, sock } = *stream;
                Link::Sealed(Box::new(StreamOwned::new(conn, change(sock))))
            }
        }
    }
}

impl Link<TcpStream> {
    /// Starts TLS on a connected socket; the handshake runs with the first bytes.
    ///
    /// # Errors
    /// `host` is not a valid server name.
    pub fn seal(socket: TcpStream, host: &str, config: Arc<ClientConfig>) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Self::Sealed(Box::new(StreamOwned::new(connection, socket))))
    }
}

/// Replaces the error of a connection that ends in the handshake: a server without TLS closes it.
fn in_words<S: Read + Write>(
    stream: &StreamOwned<ClientConnection, S>,
    error: io::Error,
) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof && stream.conn.is_handshaking() {
        return io::Error::new(
            error.kind(),
            format!("closed in the handshake of TLS; {NO_TLS}"),
        );
    }
    error
}

impl<S: Read + Write> Read for Link<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Sealed(stream) => stream.read(buffer).map_err(|error| in_words(stream, error)),
        }
    }
}

impl<S: Read + Write> Write for Link<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Sealed(stream) => stream.write(bytes).map_err(|error| in_words(stream, error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Sealed(stream) => stream.flush().map_err(|error| in_words(stream, error)),
        }
    }
}
