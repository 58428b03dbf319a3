//! The event loop of a thread that serves connections: it polls for ready connections, then serves all of them. One
//! pass is a round.
//!
//! Requests of different connections run in groups: the thread reads all inputs, prefetches the documents of all, runs
//! all, and sends all answers. So waits for memory overlap, and a client that has many connections wakes up once for
//! several answers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use registry::{Bell, Ring};
use session::{Received, Session};

use super::connection::{Arrival, Connection, READ_BYTES, Scratch, TurnResult, WorkerContext};
use super::inbox::{ALARM, Inbox, Messages};
use super::state::NetState;

/// Largest number of events that one poll takes.
const EVENTS: usize = 1024;
/// Largest number of connections in a group.
const TOGETHER: usize = 8;
/// Smallest buffer for the input of a connection that joins a group, bytes. It is larger than a TLS record, a part of
/// which may be kept already.
const ROOM_BYTES: usize = 24 << 10;
/// Size of a group's answers above which they are sent before its next request runs, bytes.
const ANSWERS_BYTES: usize = 64 << 10;

/// A shorter wait sleeps without `poll`, which counts in milliseconds.
const SHORT: Duration = Duration::from_millis(1);
/// Longest sleep without polling sockets while a backed-off connection's timer is pending.
const MAX_SLEEP_WITHOUT_POLLING: Duration = Duration::from_micros(100);

struct ConnectionSlot {
    connection: Connection,
    /// True if the connection is in the list of ready ones.
    queued: bool,
    /// Time of its timer.
    timer: Option<Instant>,
}

/// A member of a group: its slot, and the range of its input.
struct GroupRequest {
    slot: usize,
    input: Range<usize>,
}

/// A member whose request was run: its slot, the range of its answer, and the result.
struct FinishedRequest {
    slot: usize,
    answer: Range<usize>,
    received: Received,
}

/// The connections of one thread, with its poll, timers and buffers.
pub(super) struct EventLoop {
    node: Arc<NetState>,
    context: WorkerContext,
    poll: Poll,
    events: Events,
    inbox: Arc<Inbox<Arrival>>,
    messages: Messages<Arrival>,
    slots: Vec<Option<Box<ConnectionSlot>>>,
    free: Vec<usize>,
    ready: VecDeque<usize>,
    /// Connections that send a long answer in parts. A round serves one of them, so that other connections wait for one
    /// part at most.
    long: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    group: Vec<GroupRequest>,
    answered: Vec<FinishedRequest>,
    scratch: Scratch,
}

impl EventLoop {
    pub(super) fn new(
        node: Arc<NetState>,
        context: WorkerContext,
        poll: Poll,
        inbox: Arc<Inbox<Arrival>>,
    ) -> Self {
        Self {
            node,
            context,
            poll,
            events: Events::with_capacity(EVENTS),
            inbox,
            messages: Messages::default(),
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            long: VecDeque::new(),
            timers: BinaryHeap::new(),
            group: Vec::new(),
            answered: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Serves until the inbox is closed and all connections have ended.
    pub(super) fn run(mut self) {
        loop {
            self.read_messages();
            if self.messages.closed && self.is_empty() {
                return;
            }
            self.turn();
        }
    }

    /// Serves one connection until it ends.
    pub(super) fn run_for(mut self, arrival: Arrival) {
        self.admit(arrival);
        while !self.is_empty() {
            self.read_messages();
            self.turn();
        }
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Sleeps if there is nothing to do, then runs a round.
    fn turn(&mut self) {
        if let Err(error) = self.look()
            && error.kind() != io::ErrorKind::Interrupted
        {
            tracing::error!(%error, "the system does not tell what is ready");
        }
        self.ring_timers();
        self.round();
    }

    fn read_messages(&mut self) {
        let closed = self.messages.closed;
        self.inbox.take(&mut self.messages);
        let mut arrivals = std::mem::take(&mut self.messages.arrivals);
        for arrival in arrivals.drain(..) {
            self.admit(arrival);
        }
        self.messages.arrivals = arrivals;
        if self.messages.closed && !closed {
            // Connections that arrived last were not registered when all were shut down.
            for slot in self.slots.iter().flatten() {
                slot.connection.mailbox.shut_down();
            }
        }
        let mut rung = std::mem::take(&mut self.messages.rung);
        for slot in rung.drain(..) {
            self.enqueue(slot);
        }
        self.messages.rung = rung;
    }

    /// Assigns a slot to a connection, and queues it for the next round.
    fn admit(&mut self, arrival: Arrival) {
        let Some(mut connection) = Connection::admitted(arrival, &self.node, &self.context) else {
            return;
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let both = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        if let Err(error) = registry.register(&mut connection.stream, Token(slot), both) {
            tracing::warn!(%error, "a connection cannot be watched");
            self.free.push(slot);
            return connection.end(&self.node);
        }
        connection.mailbox.hang(Bell {
            inbox: Arc::clone(&self.inbox) as Arc<dyn Ring>,
            slot,
        });
        self.slots[slot] = Some(Box::new(ConnectionSlot {
            connection,
            queued: false,
            timer: None,
        }));
        self.enqueue(slot);
    }

    fn enqueue(&mut self, number: usize) {
        if let Some(Some(slot)) = self.slots.get_mut(number)
            && !slot.queued
        {
            slot.queued = true;
            if slot.connection.session.is_in_long_answer() {
                self.long.push_back(number);
            } else {
                self.ready.push_back(number);
            }
        }
    }

    fn has_none_ready(&self) -> bool {
        self.ready.is_empty() && self.long.is_empty()
    }

    /// Polls for ready connections; sleeps if there is nothing to do.
    fn look(&mut self) -> io::Result<()> {
        let sleeps = self.has_none_ready() && self.inbox.falls_asleep(&self.messages);
        let patience = if sleeps {
            let next = self.timers.peek();
            next.map(|Reverse((at, _))| at.saturating_duration_since(Instant::now()))
        } else {
            Some(Duration::ZERO)
        };
        let patience = patience.map(|patience| sleep_without_polling(patience).unwrap_or(patience));
        let polled = self.poll.poll(&mut self.events, patience);
        if sleeps {
            self.inbox.wakes_up();
        }
        polled?;
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            if event.token() == ALARM {
                continue;
            }
            let number = event.token().0;
            if let Some(Some(slot)) = self.slots.get_mut(number) {
                slot.connection.note_event(event);
                // A connection that backs off reads nothing until its timer.
                if !slot.connection.is_backing_off() {
                    self.enqueue(number);
                }
            }
        }
        self.events = events;
        Ok(())
    }

    fn ring_timers(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(&Reverse((at, number))) = self.timers.peek() {
            if at > now {
                return;
            }
            self.timers.pop();
            if let Some(Some(slot)) = self.slots.get_mut(number)
                && slot.timer == Some(at)
            {
                slot.timer = None;
                slot.connection.end_backoff(now);
                self.enqueue(number);
            }
        }
    }

    /// Runs a turn of each ready connection.
    fn round(&mut self) {
        self.ready.extend(self.long.pop_front());
        let mut left = self.ready.len();
        while left > 0 {
            left -= self.gather(left);
            self.run_group();
        }
    }

    /// Reads the input of a group from the next `left` ready connections. The group ends at a connection that has more
    /// to do than to read; such connections before the first member get their turn at once. Returns the number of
    /// connections taken from the list.
    fn gather(&mut self, left: usize) -> usize {
        let mut read = 0;
        let mut taken = 0;
        while taken < left && self.group.len() < TOGETHER && READ_BYTES - read >= ROOM_BYTES {
            let Some(&number) = self.ready.front() else {
                break;
            };
            let slot = self.slots.get_mut(number).and_then(Option::as_mut);
            let reads = slot.is_some_and(|slot| slot.connection.only_reads(&self.context));
            // The turn of this connection may need the buffers of the group.
            if !reads && !self.group.is_empty() {
                break;
            }
            self.ready.pop_front();
            taken += 1;
            let Some(Some(slot)) = self.slots.get_mut(number) else {
                continue;
            };
            slot.queued = false;
            if !reads {
                self.advance(number);
                continue;
            }
            let connection = &mut slot.connection;
            let scratch = &mut self.scratch;
            match connection.read(&mut scratch.input[read..], &mut scratch.sealed) {
                Ok(Some(0)) => self.advance(number),
                Ok(Some(count)) => {
                    let input = read..read + count;
                    read = input.end;
                    let slot = number;
                    self.group.push(GroupRequest { slot, input });
                }
                Ok(None) if connection.has_more() => self.enqueue(number),
                Ok(None) => {}
                Err(error) => self.fail(number, &error),
            }
        }
        taken
    }

    fn run_group(&mut self) {
        let group = std::mem::take(&mut self.group);
        self.prefetch_documents(&group);
        for member in &group {
            if self.scratch.output.len() >= ANSWERS_BYTES {
                self.answer();
            }
            let Some(Some(slot)) = self.slots.get_mut(member.slot) else {
                continue;
            };
            let before = self.scratch.output.len();
            let input = &self.scratch.input[member.input.clone()];
            let received = slot.connection.receive(input, &mut self.scratch.output);
            self.answered.push(FinishedRequest {
                slot: member.slot,
                answer: before..self.scratch.output.len(),
                received,
            });
        }
        self.answer();
        for member in &group {
            let slot = self.slots.get(member.slot).and_then(Option::as_ref);
            if slot.is_some_and(|slot| slot.connection.session.is_in_long_answer()) {
                self.enqueue(member.slot);
            } else {
                self.advance(member.slot);
            }
        }
        self.group = group;
        self.group.clear();
    }

    /// Prefetches the documents of the first request of each member.
    fn prefetch_documents(&self, group: &[GroupRequest]) {
        if group.len() < 2 {
            return;
        }
        Session::prefetch_first_documents(group.iter().filter_map(|member| {
            let slot = self.slots.get(member.slot)?.as_ref()?;
            let input = self.scratch.input.get(member.input.clone())?;
            Some((&slot.connection.session, input))
        }));
    }

    /// Sends the answers of the group.
    fn answer(&mut self) {
        let mut answered = std::mem::take(&mut self.answered);
        let mut output = std::mem::take(&mut self.scratch.output);
        for FinishedRequest {
            slot: number,
            answer,
            received,
        } in answered.drain(..)
        {
            let Some(Some(slot)) = self.slots.get_mut(number) else {
                continue;
            };
            if let Err(error) = slot.connection.answer(&mut output, answer, &received) {
                self.fail(number, &error);
            }
        }
        output.clear();
        self.scratch.output = output;
        self.scratch.shrink();
        self.answered = answered;
    }

    /// Advances a connection as far as it can go without waiting.
    fn advance(&mut self, number: usize) {
        let Some(Some(slot)) = self.slots.get_mut(number) else {
            return;
        };
        match slot.connection.advance(&self.context, &mut self.scratch) {
            Ok(TurnResult::Wait(None)) => {}
            Ok(TurnResult::Wait(Some(until))) => {
                if slot.timer.is_none_or(|timer| timer > until) {
                    slot.timer = Some(until);
                    self.timers.push(Reverse((until, number)));
                }
            }
            Ok(TurnResult::Again) => self.enqueue(number),
            Ok(TurnResult::Ended) => self.remove(number),
            Ok(TurnResult::Moves(served_by)) => {
                let Some(mut connection) = self.take(number) else {
                    return;
                };
                match self.poll.registry().deregister(&mut connection.stream) {
                    Ok(()) => connection.move_to(served_by, &self.node, self.context.clone()),
                    Err(error) => {
                        tracing::debug!(%error, "connection ended");
                        connection.end(&self.node);
                    }
                }
            }
            Err(error) => self.fail(number, &error),
        }
    }

    fn take(&mut self, number: usize) -> Option<Connection> {
        let slot = self.slots.get_mut(number)?.take()?;
        self.free.push(number);
        Some(slot.connection)
    }

    fn remove(&mut self, number: usize) {
        if let Some(mut connection) = self.take(number) {
            connection.say_goodbye();
            connection.end(&self.node);
        }
    }

    fn fail(&mut self, number: usize, error: &io::Error) {
        if let Some(connection) = self.take(number) {
            tracing::debug!(connection = connection.info.id, %error, "connection ended");
            connection.end(&self.node);
        }
    }
}

/// Sleeps without `poll`, because `poll` waits for whole milliseconds; at most [`MAX_SLEEP_WITHOUT_POLLING`] at a time.
/// Returns the time to poll after the sleep.
fn sleep_without_polling(patience: Duration) -> Option<Duration> {
    if patience.is_zero() || patience >= SHORT {
        return None;
    }
    std::thread::sleep(patience.min(MAX_SLEEP_WITHOUT_POLLING));
    Some(Duration::ZERO)
}
