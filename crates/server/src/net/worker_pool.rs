//! The pool of worker threads: it sets how many workers serve, and which one serves a connection.
//!
//! A worker with several connections answers many of them for each sleep and wake, and these are most of the cost of a
//! small request. So connections stay together on few workers. They spread when those have no time left and a processor
//! is idle: see `net::balance`. A connection at the wrong worker moves before it waits for input.

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
    /// Creates a pool of `workers`, at least one, of which one serves; with their inboxes.
    ///
    /// # Errors
    /// The system has no descriptors left.
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

    /// Returns the number of workers.
    pub(crate) fn len(&self) -> usize {
        self.inboxes.len()
    }

    /// Returns the number of serving workers and of moved connections, for statistics.
    pub(crate) fn serving(&self) -> &Arc<Serving> {
        &self.serving
    }

    /// Returns the number of serving workers; at least one.
    pub(crate) fn serves_with(&self) -> usize {
        self.serving.threads.load(Ordering::Relaxed)
    }

    /// Sets the number of serving workers. Connections move with their next request.
    pub(crate) fn serve_with(&self, workers: usize) {
        let threads = workers.clamp(1, self.len());
        self.serving.threads.store(threads, Ordering::Relaxed);
    }

    /// Returns the worker that serves connection `number`. Connections with streams fill the pool from the other end,
    /// so that they share a worker with short requests only if there is no other.
    pub(super) fn worker_for(&self, number: u64, streams: bool) -> usize {
        let place = usize::try_from(number % self.serves_with() as u64).unwrap_or(0);
        if streams {
            self.len() - 1 - place
        } else {
            place
        }
    }

    /// Counts a connection that moves from one worker to another.
    pub(super) fn count_move(&self) {
        self.serving.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Hands a connection to a worker. Returns it if the worker has ended.
    pub(super) fn hand_over(&self, worker: usize, arrival: A) -> Result<(), A> {
        match self.inboxes.get(worker) {
            Some(inbox) => inbox.deliver(arrival),
            None => Err(arrival),
        }
    }
}
