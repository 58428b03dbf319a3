//! Output of a connection: direct writes, back-pressure, and the end.

use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use super::arrival::Connection;
use super::scratch::{KEEP_BYTES, Scratch};
use super::state::{NextAction, TurnResult};

/// Time limit for a consumer of changes to read the output of one turn.
const UNREAD_LIMIT: Duration = Duration::from_mins(6);
/// Largest number of reads of dropped input in one turn.
const DRAINS: usize = 16;

impl Connection {
    /// Sends as much as the socket takes and keeps the rest; leaves `output` empty.
    pub(super) fn send(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let sent = self.send_some(output);
        if let (Ok(sent), true) = (&sent, self.session.is_in_long_answer()) {
            self.info.count_taken(*sent);
        }
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

    /// Keeps the unsent `part` of `output`. A large part at the end of `output` stays in that buffer, so that its bytes
    /// are in memory once.
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

    /// Sends as much as the socket takes, unless other output is before it. Returns the number of bytes taken.
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

    /// Applies back-pressure: the connection reads and runs nothing until the peer has taken its output. Returns `None`
    /// once it has.
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
        // Disconnect a peer with streams after a time limit: it would pin memory for ever.
        let now = Instant::now();
        let until = *self.unread_until.get_or_insert(now + UNREAD_LIMIT);
        if now >= until {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(Some(TurnResult::Wait(Some(until))))
    }

    /// Sends more of the kept output. Returns the number of bytes taken.
    pub(super) fn send_rest(&mut self) -> io::Result<usize> {
        let rest = &self.unsent[self.sent..];
        let count = write(&mut self.stream, rest, &mut self.socket.writable)?;
        self.sent += count;
        if self.sent == self.unsent.len() {
            (self.unsent, self.sent, self.unread_until) = (Vec::new(), 0, None);
        }
        Ok(count)
    }

    /// Reads and drops input until a time limit. If a socket is closed with unread input, the system discards output
    /// that the peer has not read yet.
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

/// Writes as much as the socket takes, and clears `writable` when the socket takes no more.
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
