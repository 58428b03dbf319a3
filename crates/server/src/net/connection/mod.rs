//! One connection: reads, lets the session work, writes.
//!
//! A connection at rest holds no buffer: input is read into a buffer that the worker's
//! connections share, and only what is incomplete, or cannot be sent yet, is kept apart.

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
use std::slice::from_ref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bucket::Wake as _;
use mio::event::Event;
use mio::net::TcpStream;
use prefetch_index::prefetch_index;
use registry::{Addresses, ConnectionInfo, Held, HeldBells, Mailbox};
use session::dcp::Produced;
use session::{Door, Received, Session, Verdict};

use self::reservation::RETRY_INTERVAL;
use self::state::{NextAction, SocketState};
use super::state::NetState;
use seal::Seal;

pub(super) use scratch::Scratch;
pub(super) use state::{ServedBy, TurnResult, WorkerContext};

/// Bytes read at once.
pub(super) const READ_BYTES: usize = 64 << 10;
/// Buffers that a large frame made larger than this are given back.
const KEEP_BYTES: usize = 256 << 10;

/// Interval at which streams that are deferred by congestion are tried again.
const STREAM_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// How long a peer may take to read the last answers before its connection is closed.
const LINGER: Duration = Duration::from_secs(1);

/// What a connection may do in one turn before others have theirs: a request that is tried again and
/// again while streams of the same connection send would have no end.
const TURNS: u32 = 16;

/// A connection, with or without its socket.
pub(super) struct Connection<S> {
    pub(super) stream: S,
    pub(super) session: Session,
    pub(super) info: Arc<ConnectionInfo>,
    pub(super) mailbox: Arc<Mailbox>,
    /// Where it is over TLS. Then what is unsent is sealed.
    tls: Option<Box<Seal>>,
    /// Input that was read but not consumed: part of a frame, or what waits behind a parked
    /// request or a full output.
    backlog: Vec<u8>,
    /// Output that the socket did not take, and how much of it was sent since.
    unsent: Vec<u8>,
    sent: usize,
    /// How much both are.
    held: Held,
    /// Its streams are deferred by congestion.
    streams_deferred: bool,
    next: NextAction,
    /// What it waits for has an end then: room, its peer, the last answer to be read.
    until: Option<Instant>,
    /// When a peer that does not read is given up.
    unread_until: Option<Instant>,
    socket: SocketState,
}

/// A connection between two threads: with its socket, but in no poll.
pub(crate) struct Moving {
    connection: Connection<std::net::TcpStream>,
}

/// A connection that a worker is to serve.
pub(crate) enum Arrival {
    /// A socket that was just accepted.
    New {
        stream: std::net::TcpStream,
        door: Door,
    },
    /// A connection from another worker.
    Moved(Box<Moving>),
}

impl<S> Connection<S> {
    /// The same with another socket, of which nothing is known yet.
    fn with<T>(self, change: impl FnOnce(S) -> T) -> Connection<T> {
        // It may bring input along; and the mail that told of an owed answer may have been read.
        let next = if !self.backlog.is_empty() || self.session.owes() {
            NextAction::Backlog
        } else if self.session.is_dcp() {
            NextAction::Produce
        } else {
            NextAction::Read
        };
        // Its peer may have ended what it sends without closing the socket, which is no event.
        let readable = self.tls.as_ref().is_some_and(|tls| tls.is_closed());
        let socket = SocketState {
            readable,
            ..SocketState::default()
        };
        Connection {
            stream: change(self.stream),
            session: self.session,
            info: self.info,
            mailbox: self.mailbox,
            tls: self.tls,
            backlog: self.backlog,
            unsent: self.unsent,
            sent: self.sent,
            held: self.held,
            streams_deferred: self.streams_deferred,
            next,
            until: None,
            unread_until: self.unread_until,
            socket,
        }
    }

    pub(super) fn end(mut self, node: &NetState) {
        self.session.end();
        node.connections.forget(self.info.id);
    }
}

impl Connection<TcpStream> {
    /// What arrived, as a connection of this thread; `None` if its peer is gone.
    pub(super) fn admitted(
        arrival: Arrival,
        node: &Arc<NetState>,
        context: &WorkerContext,
    ) -> Option<Self> {
        let (stream, door) = match arrival {
            Arrival::New { stream, door } => (stream, door),
            Arrival::Moved(moving) => {
                let mut connection = moving.connection.with(TcpStream::from_std);
                connection.session.move_to(&context.timings);
                return Some(connection);
            }
        };
        let mailbox = Arc::new(Mailbox::default());
        let tls = match door {
            Door::Tls => Some(sealed::seal(node)?),
            Door::Plain | Door::Classic => None,
        };
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
            node.connections.give_up();
            return None;
        };
        let tls_on = tls.is_some();
        let addresses = Addresses {
            peer,
            local,
            tls: tls_on,
        };
        let info = node.connections.register(addresses, &mailbox);
        let timings = Arc::clone(&context.timings);
        let session = Session::new(Arc::clone(&node.registry), Arc::clone(&info), timings, door);
        let (next, until) = match tls {
            Some(_) => (
                NextAction::Shake,
                Some(Instant::now() + node.waits.handshake),
            ),
            None => (NextAction::Read, None),
        };
        Some(Self {
            stream: TcpStream::from_std(stream),
            held: Held::nothing(&node.buffers, &info),
            streams_deferred: false,
            session,
            info,
            mailbox,
            tls,
            backlog: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            next,
            until,
            unread_until: None,
            socket: SocketState::default(),
        })
    }

    /// Leaves this thread, whose list of sockets it has left already. Mail that comes meanwhile is
    /// found in the next one.
    pub(super) fn move_to(self, served_by: ServedBy, node: &Arc<NetState>, context: WorkerContext) {
        let id = self.info.id;
        let connection = self.with(std::net::TcpStream::from);
        let arrival = Arrival::Moved(Box::new(Moving { connection }));
        match served_by {
            ServedBy::Worker(worker) => {
                context.pool.count_move();
                if let Err(Arrival::Moved(moving)) = context.pool.hand_over(worker, arrival) {
                    // The node stops.
                    moving.connection.end(node);
                }
            }
            ServedBy::OwnThread => {
                let there = Arc::clone(node);
                let context = WorkerContext {
                    served_by,
                    ..context
                };
                let started = node.own_threads.start(move || {
                    if let Err(error) = (context.alone)(arrival, there, context) {
                        tracing::error!(%error, "a connection cannot be served");
                    }
                });
                if let Err(error) = started {
                    tracing::error!(%error, "a connection has no thread");
                    node.connections.forget(id);
                }
            }
        }
    }

    /// Prefetches the memory that a turn reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_index(from_ref(&self.stream), 0);
        prefetch_index(from_ref(&self.next), 0);
        prefetch_index(from_ref(&self.backlog), 0);
        prefetch_index(from_ref(&self.session), 0);
        self.session.prefetch();
    }

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
            NextAction::AwaitRoom(more) => match self.await_room(more, scratch)? {
                Some(next) => next,
                None => {
                    return Ok(Some(TurnResult::Wait(Some(
                        Instant::now() + RETRY_INTERVAL,
                    ))));
                }
            },
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
        if self.streams_deferred && !self.is_crowded() {
            return None;
        }
        let mut limit = self.session.produce_within();
        if self.streams_deferred {
            limit = Some(limit.map_or(STREAM_RETRY_INTERVAL, |limit| {
                limit.min(STREAM_RETRY_INTERVAL)
            }));
        }
        match limit {
            Some(limit) if limit.is_zero() => (turns > 1).then_some(TurnResult::Again),
            limit => Some(TurnResult::Wait(limit.map(|limit| Instant::now() + limit))),
        }
    }

    /// Sends what the streams have, then goes on with `next`.
    fn produce(&mut self, next: NextAction, scratch: &mut Scratch) -> io::Result<NextAction> {
        if matches!(
            next,
            NextAction::Close | NextAction::Linger | NextAction::Drain
        ) {
            return Ok(next);
        }
        self.streams_deferred = !self.session.is_consumer() && self.is_crowded();
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
        let _after_the_answers = HeldBells::hold();
        let received = self.receive(input, &mut scratch.output);
        self.send(&mut scratch.output)?;
        Ok(self.after(&received))
    }

    fn turn_on_backlog(&mut self, scratch: &mut Scratch) -> io::Result<NextAction> {
        let _after_the_answers = HeldBells::hold();
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

    /// What to do next; input of a large frame is not read before there is room for all of it.
    fn after(&mut self, received: &Received) -> NextAction {
        self.note_held();
        match received.verdict {
            Verdict::NeedInput(more) => {
                if self.backlog.len().max(more) <= READ_BYTES || self.makes_room(more, true) {
                    self.session
                        .take_write_backoff()
                        .map_or(NextAction::Read, NextAction::Backoff)
                } else {
                    NextAction::AwaitRoom(more)
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
