//! One connection: reads, lets the session work, writes.
//!
//! A connection at rest holds no buffer: input is read into a buffer that the worker's
//! connections share, and only what is incomplete, or cannot be sent yet, is kept apart.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use bucket::Wake as _;

use super::buffers::Held;
use super::mailbox::{HeldBells, Mailbox};
use super::worker::{Arrival, Home, Place};
use crate::connections::ConnectionInfo;
use crate::node::NodeState;
use crate::session::dcp::Produced;
use crate::session::{Received, Session, Verdict};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Buffers that a large frame made larger than this are given back.
const KEEP_BYTES: usize = 256 << 10;

/// So few that their worker often has nothing to do.
const FEW_CONNECTIONS: usize = 128;

/// How long a consumer of changes may take to read what one turn made for it.
const UNREAD_LIMIT: Duration = Duration::from_mins(6);

/// How often streams that wait for room look again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long a peer may take to read the last answers before its connection is closed.
const LINGER: Duration = Duration::from_secs(1);

thread_local! {
    /// Buffers that the connections of one worker share; never held across an await.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: vec![0; READ_BYTES],
        output: Vec::new(),
    });
}

struct Scratch {
    input: Vec<u8>,
    output: Vec<u8>,
}

struct Connection<S> {
    stream: S,
    session: Session,
    info: Arc<ConnectionInfo>,
    mailbox: Arc<Mailbox>,
    /// Input that was read but not consumed: part of a frame, or what waits behind a parked
    /// request or a full output.
    backlog: Vec<u8>,
    /// Output that the socket did not take.
    unsent: Vec<u8>,
    /// How much both are.
    held: Held,
    /// Its streams wait until others hold less.
    held_back: bool,
}

/// What to do after a turn.
enum Next {
    Read,
    /// Run what is in the backlog.
    Backlog,
    /// There is more in the backlog; others go first.
    Again,
    Park(Duration),
    /// Others must hold less before the rest of a large request is read.
    AwaitRoom(usize),
    /// The streams have more to send; whatever can be read goes first.
    Produce,
    /// Close once the peer has read what was sent.
    Linger,
    Close,
}

impl Next {
    /// Whether a connection may leave its thread before it.
    fn may_move(&self) -> bool {
        matches!(
            self,
            Self::Read | Self::Produce | Self::Again | Self::Backlog
        )
    }
}

/// A connection between two threads: with its socket, but on nobody's list of sockets.
pub(crate) struct Moving {
    connection: Connection<std::net::TcpStream>,
}

/// How the connection's time in a thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Closed,
    Moves(Place),
}

/// Serves a connection until it ends or moves.
pub(super) async fn serve(arrival: Arrival, node: Arc<NodeState>, home: Home) {
    let Some(mut connection) = admit(arrival, &node, &home) else {
        return;
    };
    match connection.run(&home).await {
        Ok(Ended::Closed) => {}
        Ok(Ended::Moves(place)) => return connection.move_to(place, &node, home),
        Err(error) => {
            tracing::debug!(connection = connection.info.id, %error, "connection ended");
        }
    }
    connection.end(&node);
}

/// What arrived, as a connection of this thread; `None` if its peer is gone.
fn admit(arrival: Arrival, node: &Arc<NodeState>, home: &Home) -> Option<Connection<TcpStream>> {
    match arrival {
        Arrival::New { stream, classic } => {
            let mailbox = Arc::new(Mailbox::default());
            let entered = TcpStream::from_std(stream).ok().and_then(|stream| {
                let info = node.connections.register(&stream, &mailbox)?;
                Some((stream, info))
            });
            let Some((stream, info)) = entered else {
                node.connections.give_up();
                return None;
            };
            let session = Session::new(
                Arc::clone(node),
                Arc::clone(&info),
                Arc::clone(&home.timings),
                classic,
            );
            Some(Connection {
                stream,
                held: Held::nothing(&node.buffers, &info),
                held_back: false,
                session,
                info,
                mailbox,
                backlog: Vec::new(),
                unsent: Vec::new(),
            })
        }
        Arrival::Moved(moving) => {
            let (stream, mut rest) = moving.connection.part();
            rest.session.timings = Arc::clone(&home.timings);
            match TcpStream::from_std(stream) {
                Ok(stream) => Some(rest.with(stream)),
                Err(error) => {
                    tracing::debug!(connection = rest.info.id, %error, "connection ended");
                    rest.end(node);
                    None
                }
            }
        }
    }
}

impl<S> Connection<S> {
    /// The socket, and the rest.
    fn part(self) -> (S, Connection<()>) {
        let rest = Connection {
            stream: (),
            session: self.session,
            info: self.info,
            mailbox: self.mailbox,
            backlog: self.backlog,
            unsent: self.unsent,
            held: self.held,
            held_back: self.held_back,
        };
        (self.stream, rest)
    }

    /// The same with another socket.
    fn with<T>(self, stream: T) -> Connection<T> {
        Connection {
            stream,
            session: self.session,
            info: self.info,
            mailbox: self.mailbox,
            backlog: self.backlog,
            unsent: self.unsent,
            held: self.held,
            held_back: self.held_back,
        }
    }

    /// Notes how much is set aside for the peer.
    fn note_held(&mut self) {
        self.held
            .note(self.backlog.capacity() + self.unsent.capacity());
    }

    fn end(mut self, node: &NodeState) {
        self.session.end();
        node.connections.forget(self.info.id);
    }
}

impl Connection<TcpStream> {
    /// Leaves this thread. Mail that comes meanwhile is found in the next one.
    fn move_to(self, place: Place, node: &Arc<NodeState>, home: Home) {
        let id = self.info.id;
        let (stream, rest) = self.part();
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(connection = id, %error, "connection ended");
                return rest.end(node);
            }
        };
        let arrival = Arrival::Moved(Box::new(Moving {
            connection: rest.with(stream),
        }));
        match place {
            Place::Worker(worker) => {
                if let Err(Arrival::Moved(moving)) = home.crew.hand_over(worker, arrival) {
                    // The node stops.
                    moving.connection.end(node);
                }
            }
            Place::OwnThread => {
                let there = Arc::clone(node);
                let home = Home { place, ..home };
                let started = node.own_threads.start(move || serve(arrival, there, home));
                if let Err(error) = started {
                    tracing::error!(%error, "a connection has no thread");
                    node.connections.forget(id);
                }
            }
        }
    }

    /// Where it is to be served.
    fn place(&self, home: &Home) -> Place {
        if self.session.is_consumer() {
            Place::OwnThread
        } else {
            Place::Worker(home.crew.home(self.info.id, self.session.is_dcp()))
        }
    }

    async fn run(&mut self, home: &Home) -> io::Result<Ended> {
        // What comes from another thread may bring input along, or be in the middle of sending; and
        // the mail that told of an owed answer may have been read there.
        let mut next = if !self.backlog.is_empty() || self.session.owes() {
            Next::Backlog
        } else if self.session.is_dcp() {
            Next::Produce
        } else {
            Next::Read
        };
        loop {
            if !self.unsent.is_empty() {
                self.send_unsent().await?;
            }
            if next.may_move() && self.place(home) != home.place {
                return Ok(Ended::Moves(self.place(home)));
            }
            next = match next {
                Next::Close => return Ok(Ended::Closed),
                Next::Linger => return self.linger().await,
                Next::Again => {
                    tokio::task::yield_now().await;
                    self.turn_on_backlog()?
                }
                Next::Backlog => self.turn_on_backlog()?,
                Next::Produce => {
                    tokio::task::yield_now().await;
                    self.read_if_any().await?
                }
                Next::Read if self.session.is_dcp() => self.read_or_produce().await?,
                Next::Read => {
                    // The worker looks at its other sockets without sleeping first. With few
                    // connections the next request has often come by then, and a sleep less
                    // is worth more than the look. With many it does not sleep anyway.
                    if self.session.node.connections.counts().0 <= FEW_CONNECTIONS {
                        tokio::task::yield_now().await;
                    }
                    self.read().await?
                }
                Next::Park(limit) => self.parked(limit).await?,
                Next::AwaitRoom(more) => self.await_room(more).await?,
            };
            // What a peer brings is not worked on where clients are served.
            if self.session.is_dcp()
                && (home.place == Place::OwnThread || !self.session.is_consumer())
            {
                next = self.produce(next)?;
            }
        }
    }

    async fn read(&mut self) -> io::Result<Next> {
        poll_fn(|task| SCRATCH.with_borrow_mut(|scratch| self.poll_read(task, scratch))).await
    }

    /// Waits for input and for news of the streams, and not beyond their next deadline.
    async fn read_or_produce(&mut self) -> io::Result<Next> {
        let mut limit = self.session.produce_within();
        if self.held_back {
            limit = Some(limit.map_or(LOOK_AGAIN, |limit| limit.min(LOOK_AGAIN)));
        }
        let Some(limit) = limit else {
            return self.read().await;
        };
        match tokio::time::timeout(limit, self.read()).await {
            Ok(next) => next,
            Err(_) => Ok(Next::Read),
        }
    }

    /// Takes input if there is any; never waits.
    async fn read_if_any(&mut self) -> io::Result<Next> {
        poll_fn(|task| {
            let read = SCRATCH.with_borrow_mut(|scratch| self.poll_read(task, scratch));
            Poll::Ready(match read {
                Poll::Ready(next) => next,
                Poll::Pending => Ok(Next::Read),
            })
        })
        .await
    }

    /// Sends what the streams have, then goes on with `next`.
    fn produce(&mut self, next: Next) -> io::Result<Next> {
        if matches!(next, Next::Close | Next::Linger) {
            return Ok(next);
        }
        self.held_back = !self.session.is_consumer() && self.held.all().is_crowded();
        if self.held_back {
            return Ok(match next {
                Next::Produce => Next::Read,
                next => next,
            });
        }
        let produced = SCRATCH.with_borrow_mut(|scratch| {
            let produced = self.session.produce(&mut scratch.output);
            self.send(&mut scratch.output)?;
            io::Result::Ok(produced)
        })?;
        Ok(match (produced, next) {
            (Produced::Silent, _) => Next::Close,
            (Produced::More, Next::Read | Next::Produce) => Next::Produce,
            (Produced::More, Next::Park(limit)) => {
                // Looks again at the parked request, too; that does it no harm.
                self.mailbox.wake();
                Next::Park(limit)
            }
            (Produced::Idle | Produced::More, next) => next,
        })
    }

    /// Mail first: it is rare, and input may never end.
    ///
    /// `poll_read` and not `try_read`: a read that did not fill the buffer emptied the socket,
    /// which only the former takes as a reason not to ask the system again.
    fn poll_read(
        &mut self,
        task: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<io::Result<Next>> {
        if self.mailbox.poll_posted(task).is_ready() {
            return Poll::Ready(self.on_mail(Next::Read, scratch));
        }
        let mut buffer = ReadBuf::new(&mut scratch.input);
        ready!(Pin::new(&mut self.stream).poll_read(task, &mut buffer))?;
        let count = buffer.filled().len();
        if count == 0 {
            return Poll::Ready(Ok(Next::Close));
        }
        self.info.count_received(count);
        Poll::Ready(self.take_input(count, scratch))
    }

    /// Runs what came. Behind part of a frame it is put next to it: what is set aside for a
    /// frame grows with what has come of it, not with what its header claims.
    fn take_input(&mut self, count: usize, scratch: &mut Scratch) -> io::Result<Next> {
        let input = &scratch.input[..count];
        if !self.backlog.is_empty() {
            self.backlog.extend_from_slice(input);
            return Ok(Next::Backlog);
        }
        let _after_the_answers = HeldBells::hold();
        let received = self.session.receive(input, &mut scratch.output);
        self.backlog.extend_from_slice(&input[received.consumed..]);
        self.send(&mut scratch.output)?;
        Ok(self.after(&received))
    }

    fn turn_on_backlog(&mut self) -> io::Result<Next> {
        SCRATCH.with_borrow_mut(|scratch| {
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
        })
    }

    /// What to do next; input of a large frame is not read before there is room for all of it.
    fn after(&mut self, received: &Received) -> Next {
        self.note_held();
        match received.verdict {
            Verdict::NeedInput(more) => {
                if self.backlog.len().max(more) <= READ_BYTES || self.makes_room(more) {
                    Next::Read
                } else {
                    Next::AwaitRoom(more)
                }
            }
            Verdict::OutputFull => Next::Again,
            Verdict::Parked(limit) => Next::Park(limit),
            Verdict::Close => Next::Linger,
        }
    }

    /// Takes memory for `more` bytes of a frame, if there is room.
    fn makes_room(&mut self, more: usize) -> bool {
        if self.backlog.capacity() - self.backlog.len() < more {
            if self.held.all().is_crowded() {
                return false;
            }
            // With what may come behind the frame, so that it does not grow for that.
            self.backlog.reserve_exact(more + READ_BYTES);
            self.note_held();
        }
        true
    }

    /// Waits until others hold less.
    async fn await_room(&mut self, more: usize) -> io::Result<Next> {
        if self.makes_room(more) {
            return Ok(Next::Read);
        }
        self.info.note_waiting(true);
        let posted = tokio::select! {
            () = self.mailbox.posted() => true,
            () = self.held.all().room() => false,
        };
        self.info.note_waiting(false);
        if posted {
            return SCRATCH.with_borrow_mut(|scratch| self.on_mail(Next::AwaitRoom(more), scratch));
        }
        Ok(Next::AwaitRoom(more))
    }

    async fn parked(&mut self, limit: Duration) -> io::Result<Next> {
        let posted = tokio::time::timeout(limit, self.mailbox.posted()).await;
        if posted.is_ok() {
            let park = Next::Park(limit);
            match SCRATCH.with_borrow_mut(|scratch| self.on_mail(park, scratch))? {
                Next::Park(limit) if !self.session.was_woken() => return Ok(Next::Park(limit)),
                Next::Close => return Ok(Next::Close),
                _ => {}
            }
        }
        self.turn_on_backlog()
    }

    fn on_mail(&mut self, otherwise: Next, scratch: &mut Scratch) -> io::Result<Next> {
        let mail = self.mailbox.take();
        if mail.shutdown {
            return Ok(Next::Close);
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
            return Ok(Next::Backlog);
        }
        Ok(otherwise)
    }

    /// Sends what the socket takes and keeps the rest; leaves `output` empty.
    fn send(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        self.info.count_sent(output.len());
        let mut sent = 0;
        if self.unsent.is_empty() {
            while sent < output.len() {
                match self.stream.try_write(&output[sent..]) {
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => {
                        output.clear();
                        return Err(error);
                    }
                }
            }
        }
        if sent < output.len() {
            if sent == 0 && self.unsent.is_empty() {
                std::mem::swap(&mut self.unsent, output);
            } else {
                self.unsent.extend_from_slice(&output[sent..]);
            }
            self.note_held();
        }
        output.clear();
        if output.capacity() > KEEP_BYTES {
            *output = Vec::new();
        }
        Ok(())
    }

    /// Back-pressure: nothing more is read or run until the peer took what it asked for.
    async fn send_unsent(&mut self) -> io::Result<()> {
        let mut rest = &self.unsent[..];
        // One that streams would hold back what it pins for ever.
        let late = tokio::time::sleep(UNREAD_LIMIT);
        tokio::pin!(late);
        while !rest.is_empty() {
            tokio::select! {
                sent = self.stream.write(rest) => match sent? {
                    0 => return Err(ErrorKind::WriteZero.into()),
                    count => {
                        rest = &rest[count..];
                        self.info.count_taken(count);
                    }
                },
                () = self.mailbox.shutting_down() => {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                () = &mut late, if self.session.is_dcp() => {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
        }
        self.unsent = Vec::new();
        self.note_held();
        Ok(())
    }

    /// Ends the output, then reads and drops what still comes, for a while. A socket that is
    /// closed with input unread makes the system take back what the peer has not read yet.
    async fn linger(&mut self) -> io::Result<Ended> {
        self.stream.shutdown().await?;
        let drained = async {
            loop {
                self.stream.readable().await?;
                let read =
                    SCRATCH.with_borrow_mut(|scratch| self.stream.try_read(&mut scratch.input));
                match read {
                    Ok(0) => return Ok(Ended::Closed),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        };
        tokio::select! {
            drained = drained => drained,
            () = self.mailbox.shutting_down() => Ok(Ended::Closed),
            () = tokio::time::sleep(LINGER) => Ok(Ended::Closed),
        }
    }
}
