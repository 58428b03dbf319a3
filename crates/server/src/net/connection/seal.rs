//! TLS of a connection's bytes: records are opened and sealed here; nothing is read from or written to the socket.
//!
//! An idle connection keeps only the keys, and the bytes of an incomplete record.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};
use rustls::{Error, ServerConfig};

use crate::net::state::NetState;

/// Limit of kept bytes of an incomplete record or handshake message. A record is never that large.
pub(super) const PARTIAL_BYTES_MAX: usize = 20 << 10;
/// Limit of bytes from a peer before the handshake is over.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// Overhead of a record beside its content, and the largest content.
const RECORD_OVERHEAD: usize = 32;
const RECORD_BYTES: usize = 16 << 10;

/// The TLS state of one connection.
pub(super) struct Seal {
    tls: UnbufferedServerConnection,
    partial: Vec<u8>,
    handshake_bytes: usize,
    peer_closed: bool,
    closed: bool,
}

impl Seal {
    /// Creates the TLS state of a new connection. Returns `None` if the connection cannot be served; its slot is freed
    /// then.
    pub(super) fn of_connection(node: &NetState) -> Option<Box<Self>> {
        let tls = node.tls.as_ref().map(Self::new);
        match tls {
            Some(Ok(seal)) => Some(Box::new(seal)),
            failed => {
                let error = failed.and_then(Result::err);
                tracing::error!(?error, "a connection over TLS cannot be served");
                node.connections.give_up();
                None
            }
        }
    }

    fn new(config: &Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self {
            tls: UnbufferedServerConnection::new(Arc::clone(config))?,
            partial: Vec::new(),
            handshake_bytes: 0,
            peer_closed: false,
            closed: false,
        })
    }

    /// Checks whether the handshake is still in progress: no data may be sent or received yet.
    pub(super) fn is_shaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Returns the peer's certificate, DER, once the handshake is over.
    pub(super) fn peer_certificate(&self) -> Option<&[u8]> {
        Some(self.tls.peer_certificates()?.first()?)
    }

    /// Checks whether the peer announced that it sends nothing more.
    pub(super) fn is_closed(&self) -> bool {
        self.peer_closed
    }

    /// Returns the kept bytes of an incomplete record.
    pub(super) fn held(&self) -> usize {
        self.partial.capacity()
    }

    /// Copies the kept bytes to the beginning of `sealed`; the next bytes of the socket belong behind them. Returns
    /// their number.
    pub(super) fn begin(&self, sealed: &mut [u8]) -> usize {
        let kept = self.partial.len();
        sealed[..kept].copy_from_slice(&self.partial);
        kept
    }

    /// Opens the complete records, and keeps the bytes behind them. Returns the number of bytes written to `opened`,
    /// which must be as large as `sealed`. Answers of TLS are appended to `output`; after an error that is the alert
    /// with the reason.
    ///
    /// # Errors
    /// The peer broke the protocol, or sent more than it may.
    pub(super) fn open(
        &mut self,
        sealed: &mut [u8],
        opened: &mut [u8],
        output: &mut Vec<u8>,
    ) -> io::Result<usize> {
        let came = sealed.len() - self.partial.len();
        let (mut used, mut count) = (0, 0);
        loop {
            let status = self.tls.process_tls_records(&mut sealed[used..]);
            let mut discard = status.discard;
            let ended = match status.state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(broken)?;
                        let end = count + record.payload.len();
                        opened[count..end].copy_from_slice(record.payload);
                        (count, discard) = (end, discard + record.discard);
                    }
                    false
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.peer_closed = true;
                    true
                }
                Ok(ConnectionState::WriteTraffic(_) | ConnectionState::BlockedHandshake) => true,
                Ok(state) => {
                    send_own(state, output)?;
                    false
                }
                Err(error) => {
                    self.say_why(output);
                    return Err(broken(error));
                }
            };
            used += discard;
            if ended {
                break;
            }
        }
        self.keep(&sealed[used..]);
        self.check_limits(came)?;
        Ok(count)
    }

    fn keep(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
            self.partial.extend_from_slice(rest);
        }
    }

    fn check_limits(&mut self, came: usize) -> io::Result<()> {
        if self.is_shaking() {
            self.handshake_bytes += came;
        }
        let long = self.handshake_bytes > HANDSHAKE_BYTES_MAX;
        if long || self.partial.len() > PARTIAL_BYTES_MAX {
            let reason = "a handshake or a record is too long";
            return Err(io::Error::new(ErrorKind::InvalidData, reason));
        }
        Ok(())
    }

    /// Appends the alert that is pending after an error.
    fn say_why(&mut self, output: &mut Vec<u8>) {
        if !self.tls.wants_write() {
            return;
        }
        let status = self.tls.process_tls_records(&mut []);
        if let Ok(state @ ConnectionState::EncodeTlsData(_)) = status.state
            && let Err(error) = send_own(state, output)
        {
            tracing::debug!(%error, "an alert was not made");
        }
    }

    /// Appends `plain` to `output` as records.
    ///
    /// # Errors
    /// The handshake is not over, or the keys are used up.
    pub(super) fn seal(&mut self, plain: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        let records = plain.len() / RECORD_BYTES + 1;
        let room = plain.len() + records * RECORD_OVERHEAD;
        self.write(output, |traffic, output| {
            append(output, room, |room| traffic.encrypt(plain, room))
        })
    }

    /// Appends the notice that nothing more will be sent to `output`, on the first call.
    ///
    /// # Errors
    /// The handshake is not over.
    pub(super) fn close(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        self.write(output, |traffic, output| {
            append(output, 8 * RECORD_OVERHEAD, |room| {
                traffic.queue_close_notify(room)
            })
        })
    }

    fn write(
        &mut self,
        output: &mut Vec<u8>,
        write: impl FnOnce(&mut Traffic<'_>, &mut Vec<u8>) -> Result<(), EncryptError>,
    ) -> io::Result<()> {
        loop {
            // Pass the kept bytes: the library has seen them, and remembers them by position.
            let status = self.tls.process_tls_records(&mut self.partial);
            let UnbufferedStatus { discard, state, .. } = status;
            match state.map_err(broken)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    write(&mut traffic, output).map_err(io::Error::other)?;
                    self.partial.drain(..discard);
                    return Ok(());
                }
                ConnectionState::PeerClosed => self.peer_closed = true,
                state => send_own(state, output)?,
            }
            self.partial.drain(..discard);
        }
    }
}

type Traffic<'a> = rustls::unbuffered::WriteTraffic<'a, ServerConnectionData>;

/// The missing room, if an error is about missing room.
trait MissingSpace {
    fn needs(&self) -> Option<usize>;
}

impl MissingSpace for EncodeError {
    fn needs(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            Self::AlreadyEncoded => None,
        }
    }
}

impl MissingSpace for EncryptError {
    fn needs(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            Self::EncryptExhausted => None,
        }
    }
}

/// Appends the bytes that `write` produces. If `room` is not enough, calls `write` again with more.
fn append<E: MissingSpace>(
    output: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
) -> Result<(), E> {
    let before = output.len();
    output.resize(before + room, 0);
    let mut written = write(&mut output[before..]);
    if let Some(needed) = written.as_ref().err().and_then(MissingSpace::needs) {
        output.resize(before + needed, 0);
        written = write(&mut output[before..]);
    }
    output.truncate(before + *written.as_ref().unwrap_or(&0));
    written.map(drop)
}

/// Appends messages of TLS itself.
fn send_own(
    state: ConnectionState<'_, '_, ServerConnectionData>,
    output: &mut Vec<u8>,
) -> io::Result<()> {
    match state {
        ConnectionState::EncodeTlsData(mut data) => {
            append(output, 0, |room| data.encode(room)).map_err(io::Error::other)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(())
        }
        state => {
            let reason = format!("TLS cannot go on: {state:?}");
            Err(io::Error::new(ErrorKind::InvalidData, reason))
        }
    }
}

fn broken(error: Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
