//! The pool of worker threads: how many of them serve, and which one serves a connection.
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
pub(crate) struct WorkerPool<A> {
    inboxes: Vec<Arc<Inbox<A>>>,
    serving: Arc<Serving>,
}

/// The poll and the inbox of each worker.
pub(crate) struct WorkerInboxes<A> {
    pub(super) ends: Vec<(Poll, Arc<Inbox<A>>)>,
}

impl<A> WorkerPool<A> {
    /// A pool of so many, at least one, of which one serves; and their inboxes.
    ///
    /// # Errors
    /// The system gives no descriptors.
    pub(crate) fn new(workers: usize) -> io::Result<(Self, WorkerInboxes<A>)> {
        let inbox = || {
            let poll = Poll::new()?;
            let inbox = Arc::new(Inbox::new(poll.registry())?);
            io::Result::Ok((poll, inbox))
        };
        let ends: Vec<_> = (0..workers.max(1))
            .map(|_| inbox())
            .collect::<io::Result<_>>()?;
        let pool = Self {
            inboxes: ends.iter().map(|(_, inbox)| Arc::clone(inbox)).collect(),
            serving: Arc::default(),
        };
        Ok((pool, WorkerInboxes { ends }))
    }

    /// Workers that there are.
    pub(crate) fn len(&self) -> usize {
        self.inboxes.len()
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

    /// The worker that serves connection `number`. Streams of changes fill the pool from the
    /// other end, so that they and short requests meet last.
    pub(super) fn worker_for(&self, number: u64, streams: bool) -> usize {
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
        match self.inboxes.get(worker) {
            Some(inbox) => inbox.deliver(arrival),
            None => Err(arrival),
        }
    }
}
