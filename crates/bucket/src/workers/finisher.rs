//! The finisher: tells the vBuckets of a large commit and frees what can go, while the flusher
//! writes the next one.

use engine::FlushBatch;
use parking_lot::{Condvar, Mutex};
use storage::KvStore;

use crate::Bucket;

/// Commits on their way from the flusher to the finisher: one that waits, one under way.
///
/// A batch that is in here is durable. Its vBucket gives the flusher nothing else until it is told.
#[derive(Debug, Default)]
pub(crate) struct Finishing {
    desk: Mutex<Desk>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Desk {
    /// Whether somebody takes what is laid here.
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
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until every commit that was handed over is finished.
    pub(crate) fn settle(&self) {
        let mut desk = self.desk.lock();
        self.changed
            .wait_while(&mut desk, |desk| desk.waiting.is_some() || desk.busy);
    }

    /// Whether a commit is not finished yet.
    pub(crate) fn is_busy(&self) -> bool {
        let desk = self.desk.lock();
        desk.busy || desk.waiting.is_some()
    }

    /// Waits for a commit; `false` when there is none and no more come.
    pub(crate) fn wait(&self) -> bool {
        let mut desk = self.desk.lock();
        self.changed
            .wait_while(&mut desk, |desk| desk.open && desk.waiting.is_none());
        desk.waiting.is_some()
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
        self.0.desk.lock().open = false;
        self.0.changed.notify_all();
    }
}

/// Says that a commit is finished, whatever became of it.
struct Done<'a>(&'a Finishing);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.desk.lock().busy = false;
        self.0.changed.notify_all();
    }
}

impl<S: KvStore> Bucket<S> {
    /// Has the flusher leave large commits to [`Bucket::finish_step`] until what this gives is
    /// dropped. Whoever asks for it finishes them: others wait for that.
    pub fn leave_commits(&self) -> LeavesCommits<'_> {
        self.finishing.desk.lock().open = true;
        LeavesCommits(&self.finishing)
    }

    /// Finishes the commit that the flusher left, if there is one, and says so.
    pub fn finish_step(&self) -> bool {
        let Some(batches) = self.finishing.take() else {
            return false;
        };
        let _done = Done(&self.finishing);
        self.finish(batches, true, &|| {});
        true
    }
}
