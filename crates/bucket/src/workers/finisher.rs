//! The finisher: tells the vBuckets of a large commit and frees what can go, while the flusher
//! writes the next one.

use std::sync::Arc;

use engine::FlushBatch;
use parking_lot::{Condvar, Mutex};
use storage::{KvStore, Next, Worker};

use crate::Bucket;
use crate::pool::Signal;

/// Commits on their way from the flusher to the finisher: one that waits, one under way.
///
/// A batch that is in here is durable. Its vBucket gives the flusher nothing else until it is told.
#[derive(Debug, Default)]
pub(crate) struct Finishing {
    desk: Mutex<Desk>,
    /// Rings when a commit is finished.
    finished: Condvar,
    /// For the finisher.
    pub(crate) signal: Signal,
}

#[derive(Debug, Default)]
struct Desk {
    /// Whether the finisher takes what is laid here.
    open: bool,
    waiting: Option<Vec<FlushBatch>>,
    busy: bool,
}

impl Finishing {
    /// Leaves a commit to the finisher; gives it back when there is none, or enough waits for it.
    pub(crate) fn hand_over(&self, batches: Vec<FlushBatch>) -> Result<(), Vec<FlushBatch>> {
        let mut desk = self.desk.lock();
        if !desk.open || desk.waiting.is_some() {
            return Err(batches);
        }
        desk.waiting = Some(batches);
        drop(desk);
        self.signal.ring();
        Ok(())
    }

    /// Waits until every commit that was handed over is finished.
    pub(crate) fn settle(&self) {
        let mut desk = self.desk.lock();
        self.finished
            .wait_while(&mut desk, |desk| desk.waiting.is_some() || desk.busy);
    }

    /// Whether a commit is not finished yet.
    pub(crate) fn is_busy(&self) -> bool {
        let desk = self.desk.lock();
        desk.busy || desk.waiting.is_some()
    }

    /// From now on the finisher takes what is laid here.
    pub(crate) fn open(&self) {
        self.desk.lock().open = true;
    }

    /// Nothing is laid here any more.
    pub(crate) fn close(&self) {
        self.desk.lock().open = false;
        self.signal.ring();
    }

    fn take(&self) -> Option<Vec<FlushBatch>> {
        let mut desk = self.desk.lock();
        let batches = desk.waiting.take()?;
        desk.busy = true;
        Some(batches)
    }
}

/// While there is this, the flusher leaves large commits to the finisher.
#[derive(Debug)]
#[must_use = "nothing is left to the finisher once it is dropped"]
pub struct LeavesCommits<'a>(&'a Finishing);

impl Drop for LeavesCommits<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Says that a commit is finished, whatever became of it.
struct Done<'a>(&'a Finishing);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.desk.lock().busy = false;
        self.0.finished.notify_all();
    }
}

impl<S: KvStore> Bucket<S> {
    /// Has the flusher leave large commits to [`Bucket::finish_step`] until what this gives is
    /// dropped. A thread that asks for it finishes them: others wait for that.
    pub fn leave_commits(&self) -> LeavesCommits<'_> {
        self.flushes.finishing.open();
        LeavesCommits(&self.flushes.finishing)
    }

    /// Finishes the commit that the flusher left, if there is one, and says so.
    pub fn finish_step(&self) -> bool {
        let Some(batches) = self.flushes.finishing.take() else {
            return false;
        };
        let _done = Done(&self.flushes.finishing);
        self.finish(batches, true, &|| {});
        true
    }
}

/// Finishes large commits.
pub(super) struct Finisher<S>(pub(super) Arc<Bucket<S>>);

impl<S: KvStore> Worker for Finisher<S> {
    fn step(&mut self, _: u64) -> Next {
        let Self(bucket) = self;
        if bucket.finish_step() {
            return Next::Again;
        }
        let stopped = bucket.is_stopping() && !bucket.flushes.finishing.desk.lock().open;
        if stopped { Next::Done } else { Next::OnSignal }
    }
}
