//! One connection: reads, lets the session work, writes.
//!
//! A connection at rest holds no buffer: input is read into a buffer that the worker's
//! connections share, and only what is incomplete, or cannot be sent yet, is kept apart.

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

use bucket::{Purpose, Reservation, Wake as _};
use mio::event::Event;
use session::dcp::Produced;
use session::{Received, Verdict};

use self::scratch::KEEP_BYTES;
use self::state::NextAction;

pub(crate) use arrival::Arrival;
pub(super) use arrival::{Connection, WorkerContext};
pub(super) use scratch::{READ_BYTES, Scratch};
pub(super) use state::{ServedBy, TurnResult};

/// How long a peer may take to read the last answers before its connection is closed.
const LINGER: Duration = Duration::from_secs(1);

/// What a connection may do in one turn before others have theirs: a request that is tried again and
/// again while streams of the same connection send would have no end.
const TURNS: u32 = 16;

impl Connection {
    /// Notes an event of the socket.
    pub(super) fn note_event(&mut self, event: &Event) {
        self.socket.read_closed |= event.is_read_closed() || event.is_error();
        self.socket.readable |= event.is_readable() || self.socket.read_closed;
        self.socket.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// The thread that is to serve it.
    fn served_by(&self, context: &WorkerContext) -> ServedBy {
        if self.session.is_consumer() {
            ServedBy::OwnThread
        } else {
            ServedBy::Worker(context.pool.worker_for(self.info.id, self.session.is_dcp()))
        }
    }

    /// Whether all there is to do is to read and run what has come.
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

    /// Reads what there is, up to the buffer's length; 0 at the end, `None` if there is nothing, or
    /// nothing whole of what is sealed. `sealed` is for TLS.
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
        loop {
            match self.stream.read(buffer) {
                Ok(count) => {
                    // What did not fill the buffer emptied the socket: more will be told of.
                    self.socket.readable = count == buffer.len() || self.socket.read_closed;
                    self.info.count_received(count);
                    return Ok(Some(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.socket.readable = false;
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs what came while there was no backlog, and appends the answers to `output`.
    #[inline]
    pub(super) fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> Received {
        let received = self.session.receive(input, output);
        self.backlog.extend_from_slice(&input[received.consumed..]);
        received
    }

    /// Sends the answers in this part of `output`, which may be gone afterwards if it is all.
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

    /// Goes on as far as is possible without waiting, and not so far that others wait for long.
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
            // What was put off until others had their turn is done in the next one.
            let put_off = matches!(self.next, NextAction::Again | NextAction::Produce);
            if turns > 0 && (put_off || turns >= TURNS) {
                return Ok(TurnResult::Again);
            }
            turns += 1;
            if let Some(step) = self.step(turns, scratch)? {
                return Ok(step);
            }
            // What a peer brings is not worked on where clients are served.
            if self.session.is_dcp()
                && (context.served_by == ServedBy::OwnThread || !self.session.is_consumer())
            {
                self.next = self.produce(self.next, scratch)?;
            }
        }
    }

    /// Does what is next, and says what comes then; a step if that has to wait.
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
                // A peer that sends all the time does not keep others waiting.
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

    /// Takes mail or input, if there is any; never waits. Mail first: it is rare, and input may
    /// never end.
    fn read_if_any(&mut self, scratch: &mut Scratch) -> io::Result<Option<NextAction>> {
        if self.mailbox.has_mail() {
            return self.on_mail(NextAction::Read, scratch).map(Some);
        }
        if !self.socket.readable {
            return Ok(None);
        }
        Ok(match self.read(&mut scratch.input, &mut scratch.sealed)? {
            Some(0) => Some(NextAction::Close),
            Some(count) => Some(self.take_input(count, scratch)?),
            None => self.socket.readable.then_some(NextAction::Read),
        })
    }

    /// How long a connection with streams may wait; `None` if its streams have to be produced.
    fn stream_wait(&mut self, turns: u32) -> Option<TurnResult> {
        let mut limit = self.session.produce_within();
        if self.streams_deferred {
            let Reservation::Wait { retry, .. } = self.reserve_stream() else {
                return None;
            };
            limit = Some(limit.map_or(retry, |limit| limit.min(retry)));
        }
        match limit {
            Some(limit) if limit.is_zero() => (turns > 1).then_some(TurnResult::Again),
            limit => Some(TurnResult::Wait(limit.map(|limit| Instant::now() + limit))),
        }
    }

    /// Reserves memory for messages of streams.
    fn reserve_stream(&self) -> Reservation {
        self.session.reserve(Purpose::Stream, 0, Duration::ZERO)
    }

    /// Sends what the streams have, then goes on with `next`.
    fn produce(&mut self, next: NextAction, scratch: &mut Scratch) -> io::Result<NextAction> {
        if matches!(
            next,
            NextAction::Close | NextAction::Linger | NextAction::Drain
        ) {
            return Ok(next);
        }
        self.streams_deferred = !self.session.is_consumer() && !self.reserve_stream().is_granted();
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
                // Looks again at the parked request, too; that does it no harm.
                self.mailbox.wake();
                NextAction::Park(limit)
            }
            (Produced::Idle | Produced::More, next) => next,
        })
    }

    /// Runs what came. Behind part of a frame it is put next to it: what is set aside for a
    /// frame grows with what has come of it, not with what its header claims.
    fn take_input(&mut self, count: usize, scratch: &mut Scratch) -> io::Result<NextAction> {
        let input = &scratch.input[..count];
        if !self.backlog.is_empty() {
            self.backlog.extend_from_slice(input);
            return Ok(NextAction::Backlog);
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

    /// What to do next. Input of a large frame is not read before there is memory for all of it.
    fn after(&mut self, received: &Received) -> NextAction {
        self.note_held();
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
