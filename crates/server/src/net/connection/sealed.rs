//! A connection over TLS: the handshake, and its bytes through its [`Seal`](super::seal::Seal).

use std::io::{self, ErrorKind};
use std::time::Instant;

use super::arrival::Connection;
use super::scratch::{READ_BYTES, Scratch};
use super::seal::PARTIAL_BYTES_MAX;
use super::state::{NextAction, TurnResult};

/// Checks whether a handshake failed because the peer's certificate is refused or missing.
fn is_about_certificate(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(
        inner,
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    )
}

impl Connection {
    /// Checks whether the socket may hold more, although the bytes that were read completed no record.
    pub(in crate::net) fn has_more(&self) -> bool {
        self.socket.readable
    }

    /// Reads like [`Connection::read`]. `buffer` must have room for more than a record.
    pub(super) fn read_sealed(
        &mut self,
        buffer: &mut [u8],
        sealed: &mut Vec<u8>,
    ) -> io::Result<Option<usize>> {
        if sealed.is_empty() {
            sealed.resize(READ_BYTES, 0);
        }
        let kept = match &self.tls {
            Some(tls) if !tls.is_closed() => tls.begin(sealed),
            _ => return Ok(Some(0)),
        };
        debug_assert!(buffer.len() > PARTIAL_BYTES_MAX, "or nothing more is read");
        let room = buffer.len().min(sealed.len());
        let Some(count) = self.read_socket(&mut sealed[kept..room])? else {
            return Ok(None);
        };
        let (Some(tls), 1..) = (&mut self.tls, count) else {
            return Ok(Some(0));
        };
        let opened = tls.open(&mut sealed[..kept + count], buffer, &mut self.unsent);
        let closed = tls.is_closed();
        if !self.unsent.is_empty() {
            self.send_rest()?;
        }
        let opened = opened?;
        if closed {
            // The next read finds the end.
            self.socket.readable = true;
        }
        Ok((opened > 0 || closed).then_some(opened))
    }

    /// Seals all of `output`, sends as much as the socket takes, and keeps the rest. Returns all as taken.
    pub(super) fn send_sealed(&mut self, output: &[u8]) -> io::Result<usize> {
        if let (Some(tls), false) = (&mut self.tls, output.is_empty()) {
            tls.seal(output, &mut self.unsent)?;
        }
        self.send_rest()?;
        self.note_held();
        Ok(output.len())
    }

    /// Continues the handshake; `None` if it has to wait for the peer. A peer that breaks the protocol gets an alert,
    /// and the connection ends.
    pub(super) fn shake(&mut self, scratch: &mut Scratch) -> io::Result<Option<NextAction>> {
        self.awaits_handshake()?;
        if self.mailbox.has_mail() {
            return self.on_mail(NextAction::Shake, scratch).map(Some);
        }
        if !self.socket.readable {
            return Ok(None);
        }
        let read = match self.read(&mut scratch.input, &mut scratch.sealed) {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                tracing::debug!(connection = self.info.id, %error, "no handshake");
                if is_about_certificate(&error) {
                    self.session.note_certificate_problem(&error.to_string());
                }
                self.until = None;
                return Ok(Some(NextAction::Linger));
            }
            read => read?,
        };
        self.note_held();
        let shaking = self.tls.as_ref().is_some_and(|tls| tls.is_shaking());
        match read {
            Some(0) => Ok(Some(NextAction::Close)),
            None if shaking => Ok(Some(NextAction::Shake)),
            _ => {
                self.until = None;
                let certificate = self.tls.as_ref().and_then(|tls| tls.peer_certificate());
                self.session.begin_with_certificate(certificate);
                self.take_input(read.unwrap_or(0), scratch).map(Some)
            }
        }
    }

    /// Returns the wait for the rest of the handshake.
    ///
    /// # Errors
    /// The time limit is over.
    pub(super) fn awaits_handshake(&self) -> io::Result<TurnResult> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(TurnResult::Wait(self.until))
    }

    /// Sends the notice that nothing more comes, if the socket takes it at once.
    pub(in crate::net) fn say_goodbye(&mut self) {
        let Some(tls) = &mut self.tls else {
            return;
        };
        // The notice would not arrive behind output that the peer does not take.
        if tls.is_shaking() || !self.unsent.is_empty() {
            return;
        }
        let ended = tls.close(&mut self.unsent).and_then(|()| self.send_rest());
        if let Err(error) = ended {
            tracing::debug!(connection = self.info.id, %error, "ends without a word");
        }
        self.unsent = Vec::new();
        self.sent = 0;
    }
}
