//! One connection: reads input, runs the session, writes output.
//!
//! An idle connection holds no buffer. Input is read into a buffer that the connections of a worker share. The
//! connection keeps only incomplete input, and output that cannot be sent yet.

mod arrival;
mod reservation;
mod scratch;
mod seal;
mod sealed;
mod sending;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::ops::Range;
use std::time::{Duration, Instant};

use bucket::Wake as _;
use mio::event::Event;
use mio::net::TcpStream;
use session::dcp::Produced;
use session::{Received, Verdict};

use self::scratch::KEEP_BYTES;
use self::state::{NextAction, SocketState};

pub(crate) use arrival::Arrival;
pub(super) use arrival::{Connection, WorkerContext};
pub(super) use scratch::{READ_BYTES, Scratch};
pub(super) use state::{ServedBy, TurnResult};

/// Time limit for a peer to read the last answers before its connection is closed.
const LINGER: Duration = Duration::from_secs(1);

/// Steps of a connection in one turn before others get theirs. A request that is retried while streams of the same
/// connection send would have no end.
const TURNS: u32 = 16;

impl Connection {
    /// Notes an event of the socket.
    pub(super) fn note_event(&mut self, event: &Event) {
        self.socket.read_closed |= event.is_read_closed() || event.is_error();
        self.socket.readable |= event.is_readable() || self.socket.read_closed;
        self.socket.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// Returns the thread that is to serve the connection.
    fn served_by(&self, context: &WorkerContext) -> ServedBy {
        if self.session.is_consumer() {
            ServedBy::OwnThread
        } else {
            ServedBy::Worker(context.pool.worker_for(self.info.id, self.session.is_dcp()))
        }
    }

    /// Checks whether the connection only has to read and run input.
    #[inline]
    pub(super) fn only_reads(&self, context: &WorkerContext) -> bool {
        self.next == NextAction::Read
            && self.socket.readable
            && self.unsent.is_empty()
            && self.backlog.is_empty()
            && !self.session.is_dcp()
            && !self.mailbox.has_mail()
            && self.served_by(context) == context.served_by
    }

    /// Reads into `buffer`, at most its length. Returns 0 at the end of input, `None` if there is nothing, or no whole
    /// TLS record. `sealed` is a buffer for TLS.
    #[inline]
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        sealed: &mut Vec<u8>,
    ) -> io::Result<Option<usize>> {
        if self.tls.is_some() {
            return self.read_sealed(buffer, sealed);
        }
        self.read_socket(buffer)
    }

    fn read_socket(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let read = read(&mut self.stream, buffer, &mut self.socket)?;
        self.info.count_received(read.unwrap_or(0));
        Ok(read)
    }

    /// Reads more of a value that is received into its document. Returns `None` if there is no such value, or over TLS,
    /// where the input may hold more than the value.
    fn read_value(&mut self) -> Option<io::Result<Option<usize>>> {
        if self.tls.is_some() {
            return None;
        }
        let (stream, socket) = (&mut self.stream, &mut self.socket);
        let read = self.session.read_value(|space| {
            let space_max = space.len().min(KEEP_BYTES);
            let read = read(stream, &mut space[..space_max], socket);
            let count = read.as_ref().map_or(0, |count| count.unwrap_or(0));
            (count, read)
        })?;
        if let Ok(Some(count)) = read {
            self.info.count_received(count);
        }
        Some(read)
    }

    /// Runs input that came while the backlog was empty, and appends the answers to `output`.
    #[inline]
    pub(super) fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> Received {
        let received = self.session.receive(input, output);
        self.backlog.extend_from_slice(&input[received.consumed..]);
        if self.session.is_in_long_answer() {
            // The next connections of a group find what this one holds.
            self.note_held();
        }
        received
    }

    /// Sends the answers in this part of `output`. `output` may be emptied if the part is all of it.
    pub(super) fn answer(
        &mut self,
        output: &mut Vec<u8>,
        part: Range<usize>,
        received: &Received,
    ) -> io::Result<()> {
        if part == (0..output.len()) {
            self.send(output)?;
        } else if let Some(answer) = output.get(part.clone()) {
            let sent = self.send_some(answer)?;
            if sent < answer.len() {
                self.keep(output, part.start + sent..part.end);
            }
        }
        self.next = self.after(received);
        Ok(())
    }

    /// Advances the connection until it has to wait, or until its turn is over.
    pub(super) fn advance(
        &mut self,
        context: &WorkerContext,
        scratch: &mut Scratch,
    ) -> io::Result<TurnResult> {
        let mut turns = 0;
        loop {
            if !self.unsent.is_empty()
                && let Some(step) = self.send_unsent()?
            {
                return Ok(step);
            }
            if self.next.may_move() && self.served_by(context) != context.served_by {
                return Ok(TurnResult::Moves(self.served_by(context)));
            }
            // An action that was deferred for other connections runs in the next turn.
            let put_off = matches!(self.next, NextAction::Again | NextAction::Produce);
            if turns > 0 && (put_off || turns >= TURNS) {
                return Ok(TurnResult::Again);
            }
            turns += 1;
            if let Some(step) = self.step(turns, scratch)? {
                return Ok(step);
            }
            // Changes from a peer are not applied in a thread that serves clients.
            if self.session.is_dcp()
                && (context.served_by == ServedBy::OwnThread || !self.session.is_consumer())
            {
                self.next = self.produce(self.next, scratch)?;
            }
        }
    }

    /// Runs the next action and sets the following one. Returns a result if the turn ends.
    fn step(&mut self, turns: u32, scratch: &mut Scratch) -> io::Result<Option<TurnResult>> {
        self.next = match self.next {
            NextAction::Shake => match self.shake(scratch)? {
                Some(next) => next,
                None => return Ok(Some(TurnResult::Wait(self.until))),
            },
            NextAction::Close => return Ok(Some(TurnResult::Ended)),
            NextAction::Linger => {
                self.say_goodbye();
                self.stream.shutdown(Shutdown::Write)?;
                self.until = Some(Instant::now() + LINGER);
                NextAction::Drain
            }
            NextAction::Drain => return self.drain(scratch).map(Some),
            NextAction::Again | NextAction::Backlog => self.turn_on_backlog(scratch)?,
            NextAction::Produce => self.read_if_any(scratch)?.unwrap_or(NextAction::Read),
            NextAction::Read => match self.read_if_any(scratch)? {
                // A peer that sends all the time must not delay others.
                Some(NextAction::Read) if turns > 1 && self.socket.readable => NextAction::Again,
                Some(next) => next,
                None if self.session.is_dcp() => match self.stream_wait(turns) {
                    Some(step) => return Ok(Some(step)),
                    None => NextAction::Read,
                },
                None => return Ok(Some(TurnResult::Wait(None))),
            },
            NextAction::Park(limit) => {
                let until = *self.until.get_or_insert_with(|| Instant::now() + limit);
                if self.mailbox.has_mail() {
                    self.until = None;
                    match self.on_mail(NextAction::Park(limit), scratch)? {
                        NextAction::Park(limit) if !self.session.was_woken() => {
                            NextAction::Park(limit)
                        }
                        NextAction::Close => NextAction::Close,
                        _ => self.turn_on_backlog(scratch)?,
                    }
                } else if Instant::now() >= until {
                    self.until = None;
                    self.turn_on_backlog(scratch)?
                } else {
                    return Ok(Some(TurnResult::Wait(Some(until))));
                }
            }
            NextAction::Backoff(rest) => match self.back_off_after_write(rest, scratch)? {
                Some(next) => next,
                None => return Ok(Some(TurnResult::Wait(self.until))),
            },
            NextAction::Skip(left) => match self.skip(left, scratch)? {
                Some(next) => next,
                None => return Ok(Some(TurnResult::Wait(None))),
            },
            NextAction::AwaitMemory { more, since } => {
                match self.await_memory(more, since, scratch)? {
                    Some(next) => next,
                    None => return Ok(Some(TurnResult::Wait(self.until))),
                }
            }
        };
        Ok(None)
    }

    /// Takes mail or input, if there is any; never waits. Mail goes first: it is rare, and input may never end.
    fn read_if_any(&mut self, scratch: &mut Scratch) -> io::Result<Option<NextAction>> {
        if self.mailbox.has_mail() {
            return self.on_mail(NextAction::Read, scratch).map(Some);
        }
        if !self.socket.readable {
            return Ok(None);
        }
        if let Some(read) = self.read_value() {
            return Ok(match read? {
                Some(0) => Some(NextAction::Close),
                Some(_) => Some(self.after_value_input()),
                None => None,
            });
        }
        Ok(match self.read(&mut scratch.input, &mut scratch.sealed)? {
            // A peer that sends nothing more may still read: it gets the answers that it is owed.
            Some(0) => (!self.session.owes()).then_some(NextAction::Close),
            Some(count) => Some(self.take_input(count, scratch)?),
            None => self.socket.readable.then_some(NextAction::Read),
        })
    }

    /// Returns the next action after a part of a value that is received into its document.
    fn after_value_input(&self) -> NextAction {
        match self.session.value_bytes_missing() {
            Some(1..) => NextAction::Read,
            _ => NextAction::Backlog,
        }
    }

    /// Returns the wait of a connection with streams; `None` if its streams have something to send.
    fn stream_wait(&mut self, turns: u32) -> Option<TurnResult> {
        let mut limit = self.session.produce_within();
        if self.streams_deferred {
            let retry = self.session.streams_wait()?;
            limit = Some(limit.map_or(retry, |limit| limit.min(retry)));
        }
        match limit {
            Some(limit) if limit.is_zero() => (turns > 1).then_some(TurnResult::Again),
            limit => Some(TurnResult::Wait(limit.map(|limit| Instant::now() + limit))),
        }
    }

    /// Sends messages of the streams, then returns the next action.
    fn produce(&mut self, next: NextAction, scratch: &mut Scratch) -> io::Result<NextAction> {
        if matches!(
            next,
            NextAction::Close | NextAction::Linger | NextAction::Drain
        ) {
            return Ok(next);
        }
        self.streams_deferred =
            !self.session.is_consumer() && self.session.streams_wait().is_some();
        if self.streams_deferred {
            return Ok(match next {
                NextAction::Produce => NextAction::Read,
                next => next,
            });
        }
        let produced = self.session.produce(&mut scratch.output);
        self.send(&mut scratch.output)?;
        Ok(match (produced, next) {
            (Produced::Silent, _) => NextAction::Close,
            (Produced::More, NextAction::Read | NextAction::Produce) => NextAction::Produce,
            (Produced::More, NextAction::Park(limit)) => {
                // The wake also retries the parked request, which is harmless.
                self.mailbox.wake();
                NextAction::Park(limit)
            }
            (Produced::Idle | Produced::More, next) => next,
        })
    }

    /// Runs the input in `scratch`. If part of a frame waits, the input is appended to it: the memory for a frame grows
    /// with its received bytes, not with the length in its header.
    fn take_input(&mut self, count: usize, scratch: &mut Scratch) -> io::Result<NextAction> {
        let input = &scratch.input[..count];
        if !self.backlog.is_empty() {
            let in_place = self.session.fill_value(input);
            self.backlog.extend_from_slice(&input[in_place..]);
            return Ok(self.after_value_input());
        }
        let received = self.receive(input, &mut scratch.output);
        self.send(&mut scratch.output)?;
        Ok(self.after(&received))
    }

    fn turn_on_backlog(&mut self, scratch: &mut Scratch) -> io::Result<NextAction> {
        let received = self.session.receive(&self.backlog, &mut scratch.output);
        self.backlog.drain(..received.consumed);
        if self.backlog.is_empty() && self.backlog.capacity() > 0 {
            self.backlog = Vec::new();
        } else if received.consumed > KEEP_BYTES {
            self.backlog.shrink_to_fit();
        }
        self.send(&mut scratch.output)?;
        Ok(self.after(&received))
    }

    /// Returns the next action after a run. Input of a large frame is not read until there is memory for all of it.
    fn after(&mut self, received: &Received) -> NextAction {
        self.note_held();
        let is_parked = matches!(received.verdict, Verdict::Parked(_));
        self.info.note_owing(is_parked || self.session.owes());
        match received.verdict {
            Verdict::NeedInput(more) => {
                let is_small = self.backlog.len().max(more) <= READ_BYTES;
                if is_small || self.reserve_input(more, Duration::ZERO).is_granted() {
                    self.session
                        .take_write_backoff()
                        .map_or(NextAction::Read, NextAction::Backoff)
                } else {
                    NextAction::AwaitMemory {
                        more,
                        since: Instant::now(),
                    }
                }
            }
            Verdict::OutputFull => NextAction::Again,
            Verdict::Parked(limit) => NextAction::Park(limit),
            Verdict::Close => NextAction::Linger,
        }
    }

    fn on_mail(&mut self, otherwise: NextAction, scratch: &mut Scratch) -> io::Result<NextAction> {
        let mail = self.mailbox.take();
        if mail.shutdown {
            return Ok(NextAction::Close);
        }
        if mail.wake {
            self.session.wake();
        }
        let settles = mail.wake && self.session.owes();
        if mail.map_changed {
            self.session.push_map(&mut scratch.output);
            self.send(&mut scratch.output)?;
        }
        if settles {
            return Ok(NextAction::Backlog);
        }
        Ok(otherwise)
    }
}

/// Reads some bytes, and clears `readable` when the socket has no more. Returns `None` if it has none.
fn read(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    socket: &mut SocketState,
) -> io::Result<Option<usize>> {
    loop {
        match stream.read(buffer) {
            Ok(count) => {
                // A short read emptied the socket: an event will report more input.
                socket.readable = count == buffer.len() || socket.read_closed;
                return Ok(Some(count));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                socket.readable = false;
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
