//! The workers of one bucket: their start and their common end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::{VbId, VbUuid};
use storage::{ErrorKind, KvStore, StoreError, Worker};

use super::backfiller::Backfiller;
use super::compactor::Compactor;
use super::expirer::Expirer;
use super::fetcher::Fetcher;
use super::flusher::{Flushed, Flusher};
use super::refiller::Refiller;
use super::reliever::Reliever;
use super::warmup::Warmup;
use crate::Bucket;
use crate::durable::DurableTimeouts;
use crate::pool::{Handle, Lane, Pool, Signal};
use crate::scans::Scanner;
use crate::signals::Bell;
use crate::stats::WarmupStage;

/// Interval between two log messages of a stop that waits.
const STOP_TOLD_EVERY: Duration = Duration::from_secs(5);

/// Totals of a worker of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerFigures {
    /// Name of the worker.
    pub name: &'static str,
    /// The lane of the pool in which it runs.
    pub lane: &'static str,
    /// Whether a step is under way or due.
    pub busy: bool,
    /// Number of steps.
    pub steps: u64,
    /// Duration of all steps in nanoseconds.
    pub busy_ns: u64,
}

/// The running workers of one bucket.
pub struct Workers<S> {
    bucket: Arc<Bucket<S>>,
    handles: Vec<(Lane, &'static str, Handle)>,
    /// Kept so that it lives as long as the workers.
    pool: Arc<Pool>,
}

impl<S: KvStore> Workers<S> {
    /// Starts warmup and the workers. Warmup uses `uuids`, and calls `warmed_up` at its end, successful or not.
    ///
    /// # Errors
    /// A thread could not be started; then none of the workers runs.
    pub fn start(
        pool: &Arc<Pool>,
        bucket: &Arc<Bucket<S>>,
        uuids: impl FnMut() -> VbUuid + Send + 'static,
        warmed_up: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut workers = Self {
            bucket: Arc::clone(bucket),
            handles: Vec::new(),
            pool: Arc::clone(pool),
        };
        let started = workers.start_all(uuids, warmed_up);
        if started.is_err() {
            workers.join();
        }
        started.map(|()| workers)
    }

    fn start_all(
        &mut self,
        uuids: impl FnMut() -> VbUuid + Send + 'static,
        warmed_up: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let bucket = Arc::clone(&self.bucket);
        let this = || Arc::clone(&bucket);
        self.add(
            Lane::Prompt,
            Reliever::new(this()),
            &bucket.relieving.signal,
        )?;
        self.add(Lane::Prompt, DurableTimeouts(this()), &bucket.alarms.signal)?;
        self.add(Lane::Calm, Expirer::new(this()), &bucket.expiry.signal)?;
        self.add(
            Lane::Flush,
            Flusher::new(this()),
            &bucket.flushes.dirty.signal,
        )?;
        for signal in bucket.fetches.signals() {
            self.add(Lane::Fetch, Fetcher::new(this()), signal)?;
        }
        self.add(Lane::Read, Backfiller(this()), &bucket.backfills.signal)?;
        self.add(Lane::Fetch, Scanner(this()), &bucket.scans.signal)?;
        let compactor = Compactor::new(this());
        self.add(Lane::Read, compactor, &bucket.compactions.signal)?;
        self.add(Lane::Read, Refiller::new(this()), &bucket.warmed_up)?;
        for warmup in Warmup::workers(&bucket, uuids, warmed_up) {
            self.add(Lane::Warmup, warmup, &Signal::default())?;
        }
        Ok(())
    }

    fn add<W: Worker + 'static>(
        &mut self,
        lane: Lane,
        worker: W,
        signal: &Signal,
    ) -> std::io::Result<()> {
        let handle = self.pool.start(lane, Box::new(worker))?;
        signal.connect(handle.clone());
        self.handles.push((lane, name_of::<W>(), handle));
        Ok(())
    }

    /// Returns the totals of each worker, including those of a finished warmup.
    ///
    /// Cost: a lock of the lane of each.
    pub fn figures(&self) -> Vec<WorkerFigures> {
        let figures = |(lane, name, handle): &(Lane, &'static str, Handle)| WorkerFigures {
            name,
            lane: lane.name(),
            busy: handle.is_busy(),
            steps: handle.steps.count.load(Ordering::Relaxed),
            busy_ns: handle.steps.busy_ns.load(Ordering::Relaxed),
        };
        self.handles.iter().map(figures).collect()
    }

    /// Makes everything durable, ends the workers and closes the store.
    ///
    /// # Errors
    /// The reason why the last changes are not durable, or the store did not close cleanly.
    pub fn stop(&self) -> Result<(), StoreError> {
        let stopped = Bell::default();
        std::thread::scope(|scope| {
            let reporter = self.pool.start_beside(scope, || self.tell_until(&stopped));
            if let Err(error) = reporter {
                tracing::warn!(%error, "what the stop waits for will not be told");
            }
            self.join();
            let closed = self.bucket.close();
            stopped.ring();
            closed
        })
    }

    /// Stops the workers and waits for their end.
    fn join(&self) {
        self.bucket.stopping.store(true, Ordering::SeqCst);
        for (_, _, handle) in &self.handles {
            handle.ring();
        }
        for (_, _, handle) in &self.handles {
            handle.join();
        }
    }

    /// Logs at an interval that the bucket has not stopped yet, until it has.
    fn tell_until(&self, stopped: &Bell) {
        while !stopped.wait(Some(STOP_TOLD_EVERY)) {
            let flusher = self.bucket.flusher_state();
            tracing::warn!(
                bucket = self.bucket.name(),
                ?flusher,
                "still stopping: waiting for the disk"
            );
        }
    }
}

/// Returns the name of a type without its path and parameters.
fn name_of<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    let name = name.split('<').next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}

impl<S: KvStore> Bucket<S> {
    /// Closes the store if it has all changes. Otherwise it stays as after a crash, so that the
    /// next opening begins new histories for lost changes.
    fn close(&self) -> Result<(), StoreError> {
        let stage = self.warmup().stage();
        if stage != WarmupStage::Failed {
            let failed_for_good = self
                .flushes
                .failure
                .lock()
                .is_some_and(|kind| !kind.may_pass());
            // An operation under way may have made changes after the flusher's last check.
            while self.mark_dirty() {
                if failed_for_good || self.flush_step() != Flushed::Clean {
                    let kind = self.flushes.failure.lock().unwrap_or(ErrorKind::Io);
                    let error = StoreError::new(kind, "stopping");
                    return Err(error.because("changes are not durable"));
                }
            }
        }
        let begins_anew = |index| self.begins_anew(VbId(index));
        if stage != WarmupStage::Done && (0..self.vbuckets()).any(begins_anew) {
            return Ok(());
        }
        if stage == WarmupStage::Done {
            self.write_summary();
        }
        self.store.close()
    }

    /// Marks vBuckets that have changes for the store. Returns whether there are any.
    fn mark_dirty(&self) -> bool {
        for index in 0..self.vbuckets() {
            let dirty = self.with_vbucket(VbId(index), |vbucket| vbucket.is_dirty());
            if dirty == Some(true) {
                self.flushes.dirty.mark(VbId(index));
            }
        }
        for (vb, _) in self.flushes.writing.lock().iter() {
            self.flushes.dirty.mark(*vb);
        }
        self.flushes.dirty.any()
    }
}
