//! The workers as one crew: how many of them serve, and which one serves a connection.
//!
//! A worker that has several connections answers many of them for each time that it sleeps
//! and is woken, and that is most of what a small request costs. So connections stay together
//! on few workers, and spread when those have no time left and the machine has: see
//! `net::balance`. A connection that finds itself at the wrong worker moves before it waits
//! for input.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::Poll;
use registry::Serving;

use super::inbox::Inbox;

/// All workers of a node.
pub(crate) struct Crew<A> {
    doors: Vec<Arc<Inbox<A>>>,
    serving: Arc<Serving>,
}

/// What each worker waits with, and its side of its door.
pub(crate) struct Doors<A> {
    pub(super) inside: Vec<(Poll, Arc<Inbox<A>>)>,
}

impl<A> Crew<A> {
    /// A crew of so many, at least one, of which one serves; and their doors.
    ///
    /// # Errors
    /// The system gives no descriptors.
    pub(crate) fn new(workers: usize) -> io::Result<(Self, Doors<A>)> {
        let door = || {
            let poll = Poll::new()?;
            let inbox = Arc::new(Inbox::new(poll.registry())?);
            io::Result::Ok((poll, inbox))
        };
        let inside: Vec<_> = (0..workers.max(1))
            .map(|_| door())
            .collect::<io::Result<_>>()?;
        let crew = Self {
            doors: inside.iter().map(|(_, inbox)| Arc::clone(inbox)).collect(),
            serving: Arc::default(),
        };
        Ok((crew, Doors { inside }))
    }

    /// Workers that there are.
    pub(crate) fn len(&self) -> usize {
        self.doors.len()
    }

    /// How many workers serve, and how often connections moved, for statistics.
    pub(crate) fn serving(&self) -> &Arc<Serving> {
        &self.serving
    }

    /// Workers that serve; at least one.
    pub(crate) fn serves_with(&self) -> usize {
        self.serving.threads.load(Ordering::Relaxed)
    }

    /// Changes how many serve. Connections follow with their next request.
    pub(crate) fn serve_with(&self, workers: usize) {
        let threads = workers.clamp(1, self.len());
        self.serving.threads.store(threads, Ordering::Relaxed);
    }

    /// The worker that serves connection `number`. Streams of changes fill the crew from the
    /// other end, so that they and short requests meet last.
    pub(super) fn home(&self, number: u64, streams: bool) -> usize {
        let place = usize::try_from(number % self.serves_with() as u64).unwrap_or(0);
        if streams {
            self.len() - 1 - place
        } else {
            place
        }
    }

    /// Counts a connection that goes from one worker to another.
    pub(super) fn count_move(&self) {
        self.serving.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives a connection to a worker, or back when that has ended.
    pub(super) fn hand_over(&self, worker: usize, arrival: A) -> Result<(), A> {
        match self.doors.get(worker) {
            Some(door) => door.deliver(arrival),
            None => Err(arrival),
        }
    }
}
