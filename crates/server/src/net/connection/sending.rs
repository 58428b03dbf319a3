//! Output: what the socket takes at once, what waits for the peer, and the end.

use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use super::arrival::Connection;
use super::scratch::{KEEP_BYTES, Scratch};
use super::state::{NextAction, TurnResult};

/// How long a consumer of changes may take to read what one turn made for it.
const UNREAD_LIMIT: Duration = Duration::from_mins(6);
/// Reads of input that is dropped, in one turn.
const DRAINS: usize = 16;

impl Connection {
    /// Sends what the socket takes and keeps the rest; leaves `output` empty.
    pub(super) fn send(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let sent = self.send_some(output);
        if let Ok(sent) = sent
            && sent < output.len()
        {
            self.keep(output, sent..output.len());
        }
        output.clear();
        if output.capacity() > KEEP_BYTES {
            *output = Vec::new();
        }
        sent.map(drop)
    }

    /// Keeps the rest of `output`, of which `part` was not sent: what is large in the memory where it
    /// is, if that is the end of it, so that it is there once.
    pub(super) fn keep(&mut self, output: &mut Vec<u8>, part: Range<usize>) {
        let large = part.len() > KEEP_BYTES || part.start == 0;
        if self.unsent.is_empty() && part.end == output.len() && large {
            self.sent = part.start;
            std::mem::swap(&mut self.unsent, output);
        } else {
            self.unsent.extend_from_slice(&output[part]);
        }
        self.note_held();
    }

    /// Sends what the socket takes, unless something else is before it. Returns the number of bytes taken.
    pub(super) fn send_some(&mut self, output: &[u8]) -> io::Result<usize> {
        self.info.count_sent(output.len());
        if self.tls.is_some() {
            return self.send_sealed(output);
        }
        if self.unsent.is_empty() {
            write(&mut self.stream, output, &mut self.socket.writable)
        } else {
            Ok(0)
        }
    }

    /// Back-pressure: nothing more is read or run until the peer took what it asked for. `None` once
    /// it has.
    pub(super) fn send_unsent(&mut self) -> io::Result<Option<TurnResult>> {
        if self.mailbox.is_shutting_down() {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        if self.socket.writable {
            let count = self.send_rest()?;
            self.info.count_taken(count);
            if self.unsent.is_empty() {
                self.note_held();
                return Ok(None);
            }
        }
        if self.next == NextAction::Shake {
            return self.awaits_handshake().map(Some);
        }
        if !self.session.is_dcp() {
            return Ok(Some(TurnResult::Wait(None)));
        }
        // One that streams would hold back what it pins for ever.
        let now = Instant::now();
        let until = *self.unread_until.get_or_insert(now + UNREAD_LIMIT);
        if now >= until {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(Some(TurnResult::Wait(Some(until))))
    }

    /// Sends what the socket takes of the rest. Returns the number of bytes taken.
    pub(super) fn send_rest(&mut self) -> io::Result<usize> {
        let rest = &self.unsent[self.sent..];
        let count = write(&mut self.stream, rest, &mut self.socket.writable)?;
        self.sent += count;
        if self.sent == self.unsent.len() {
            (self.unsent, self.sent, self.unread_until) = (Vec::new(), 0, None);
        }
        Ok(count)
    }

    /// Reads and drops what still comes, for a while. A socket that is closed with input unread
    /// makes the system take back what the peer has not read yet.
    pub(super) fn drain(&mut self, scratch: &mut Scratch) -> io::Result<TurnResult> {
        let until = *self.until.get_or_insert_with(Instant::now);
        if self.mailbox.is_shutting_down() || Instant::now() >= until {
            return Ok(TurnResult::Ended);
        }
        for _ in 0..DRAINS {
            if !self.socket.readable {
                return Ok(TurnResult::Wait(Some(until)));
            }
            if self.read_socket(&mut scratch.input)? == Some(0) {
                return Ok(TurnResult::Ended);
            }
        }
        Ok(TurnResult::Again)
    }
}

/// Writes what the socket takes, and notes when it takes no more.
fn write(stream: &mut TcpStream, output: &[u8], writable: &mut bool) -> io::Result<usize> {
    let mut sent = 0;
    while sent < output.len() {
        match stream.write(&output[sent..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                *writable = false;
                break;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
