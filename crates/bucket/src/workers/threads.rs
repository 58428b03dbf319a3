//! The only place where the bucket starts threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use model::{VbId, VbUuid};
use parking_lot::Mutex;
use storage::{ErrorKind, KvStore, StoreError};

use super::compactor::pause_s;
use super::flusher::Flushed;
use crate::Bucket;
use crate::collections::ERASE_AGAIN;
use crate::signals::Bell;
use crate::stats::{Counters, FlusherState, WarmupStage};

/// How long the reliever rests when it could not free enough.
const RELIEVER_REST: Duration = Duration::from_millis(100);
/// What the flusher asks to sleep in between; the system adds some 50 us.
const BREATH: Duration = Duration::from_micros(20);
/// How often a drain that finds no space is tried before the stop goes on without it.
const DRAIN_TRIES: usize = 25;

/// Those who help the fetcher at most. As many reads more are under way then, for which a disk has room.
const HELPERS_MAX: usize = 3;

/// How often a stop that waits says so.
const STOP_TOLD_EVERY: Duration = Duration::from_secs(5);

/// Steps back behind the threads that answer clients: a flush may wait, a request may not.
///
/// Threads that this one starts later step back as well. Where the system cannot, nothing
/// changes.
pub fn yield_to_front_end() {
    #[cfg(target_os = "linux")]
    {
        const NICE: i32 = 10;
        let thread = rustix::thread::gettid();
        if let Err(error) = rustix::process::setpriority_process(Some(thread), NICE) {
            tracing::debug!(%error, "a worker keeps its priority");
        }
    }
}

/// The running workers of one bucket.
pub struct Workers<S> {
    bucket: Arc<Bucket<S>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<S: KvStore> Workers<S> {
    /// Starts warmup and the workers. `uuids` is used by warmup, `warmed_up` is called at its
    /// end, whether it went well or not.
    pub fn start(
        bucket: &Arc<Bucket<S>>,
        mut uuids: impl FnMut() -> VbUuid + Send + 'static,
        warmed_up: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut threads = Vec::new();
        let mut start = |name: &str, run: Box<dyn FnOnce() + Send>| -> std::io::Result<()> {
            threads.push(
                Builder::new()
                    .name(name.into())
                    .stack_size(1 << 20)
                    .spawn(run)?,
            );
            Ok(())
        };
        let this = Arc::clone(bucket);
        start(
            "flusher",
            Box::new(move || {
                this.warm_up(&mut uuids);
                warmed_up();
                yield_to_front_end();
                this.flush_until_stopped();
            }),
        )?;
        let this = Arc::clone(bucket);
        start("fetcher", Box::new(move || this.fetch_until_stopped()))?;
        let this = Arc::clone(bucket);
        start(
            "backfiller",
            Box::new(move || {
                yield_to_front_end();
                this.backfill_until_stopped();
            }),
        )?;
        let this = Arc::clone(bucket);
        start(
            "scanner",
            Box::new(move || {
                yield_to_front_end();
                this.scan_until_stopped();
            }),
        )?;
        let this = Arc::clone(bucket);
        start("reliever", Box::new(move || this.relieve_until_stopped()))?;
        let this = Arc::clone(bucket);
        start("expirer", Box::new(move || this.expire_until_stopped()))?;
        let this = Arc::clone(bucket);
        start("compactor", Box::new(move || this.compact_until_stopped()))?;
        let this = Arc::clone(bucket);
        start("decider", Box::new(move || this.decide_until_stopped()))?;
        Ok(Self {
            bucket: Arc::clone(bucket),
            threads: Mutex::new(threads),
        })
    }

    /// Makes everything durable, ends the workers and closes the store.
    ///
    /// # Errors
    /// What kept the last changes from becoming durable, or the store from closing cleanly.
    pub fn stop(&self) -> Result<(), StoreError> {
        self.bucket.stopping.store(true, Ordering::SeqCst);
        self.bucket.hurry();
        self.bucket.stop_bell.ring();
        self.bucket.fetch_bell.ring();
        self.bucket.backfills.bell.ring();
        self.bucket.scans.bell.ring();
        self.bucket.alarms.bell.ring();
        self.bucket.reliever_bell.ring();
        self.bucket.expiry_bell.ring();
        self.bucket.compactions.bell.ring();
        let stopped = Bell::default();
        std::thread::scope(|scope| {
            let told = Builder::new()
                .name("stopping".into())
                .spawn_scoped(scope, || self.tell_until(&stopped));
            if let Err(error) = told {
                tracing::warn!(%error, "nobody will tell what the stop waits for");
            }
            for thread in self.threads.lock().drain(..) {
                if thread.join().is_err() {
                    tracing::error!("a worker ended by a panic");
                }
            }
            let closed = self.bucket.close();
            stopped.ring();
            closed
        })
    }

    /// Says now and then that the bucket has not stopped yet, until it has.
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

impl<S: KvStore> Bucket<S> {
    /// Closes the store if nothing is missing in it. Else it is left as a crash would leave it,
    /// so that whoever opens it begins new histories for what is lost.
    fn close(&self) -> Result<(), StoreError> {
        if self.warmup().stage() == WarmupStage::Done {
            let failed_for_good = self.failure.lock().is_some_and(|kind| !kind.may_pass());
            // An operation that was under way may have come after the flusher's last look.
            while self.mark_dirty() {
                if failed_for_good || self.flush_step() != Flushed::Clean {
                    let kind = self.failure.lock().unwrap_or(ErrorKind::Io);
                    let error = StoreError::new(kind, "stopping");
                    return Err(error.because("changes are not durable"));
                }
            }
        } else if (0..self.vbuckets()).any(|index| self.begins_anew(VbId(index))) {
            return Ok(());
        }
        self.store.close()
    }

    /// Asks the vBuckets themselves what waits for the store, and says whether anything does.
    fn mark_dirty(&self) -> bool {
        for index in 0..self.vbuckets() {
            let dirty = self.with_vbucket(VbId(index), |vbucket| vbucket.is_dirty());
            if dirty == Some(true) {
                self.dirty.mark(VbId(index));
            }
        }
        for (vb, _) in self.writing.lock().iter() {
            self.dirty.mark(*vb);
        }
        self.dirty.any()
    }

    fn flush_until_stopped(&self) {
        match self.warmup().stage() {
            WarmupStage::Done => {}
            WarmupStage::Loading => return self.set_flusher_state(FlusherState::Stopped),
            WarmupStage::Failed => return,
        }
        std::thread::scope(|scope| {
            let leaves = self.leave_commits();
            let finisher = Builder::new()
                .name("finisher".into())
                .stack_size(1 << 20)
                .spawn_scoped(scope, || {
                    while self.finishing.wait() {
                        self.finish_step();
                    }
                });
            let leaves = match finisher {
                Ok(_) => Some(leaves),
                Err(error) => {
                    tracing::warn!(bucket = self.name(), %error, "the flusher works alone");
                    None
                }
            };
            self.flush_until_drained();
            drop(leaves);
        });
        self.set_flusher_state(FlusherState::Stopped);
    }

    fn flush_until_drained(&self) {
        let interval_ns = self.options.flush_interval_ms * 1_000_000;
        let mut tries_left = DRAIN_TRIES;
        loop {
            let started = self.clock.mono_ns();
            self.urgent.store(false, Ordering::SeqCst);
            let flushed = self.flush_step_with_breaths(&|| self.breathe());
            if self.is_stopping() {
                self.finishing.settle();
                let drained = flushed == Flushed::Clean && !self.dirty.any();
                if drained || flushed == Flushed::Failed || tries_left == 0 {
                    break;
                }
                tries_left -= 1;
            }
            match flushed {
                Flushed::Clean => self.rest(started, interval_ns),
                // Neither changes nor haste shorten the pause.
                Flushed::Retry(pause) => {
                    self.stop_bell.wait(Some(pause));
                }
                Flushed::Failed => {
                    self.stop_bell.wait(None);
                }
            }
        }
    }

    /// Lets go of the processor for a moment, so that threads which answer clients do not wait for
    /// the end of the flusher's slice (milliseconds, however low its priority). Yielding would
    /// give the rest of the slice away, too, and let it wait behind them for as long.
    fn breathe(&self) {
        if !self.urgent.load(Ordering::SeqCst) && !self.is_stopping() {
            self.hurry_bell.wait(Some(BREATH));
        }
    }

    /// Waits for changes, and then for more of them until the interval is over, unless somebody
    /// looks at what is durable.
    fn rest(&self, started_ns: u64, interval_ns: u64) {
        let in_a_hurry = || self.urgent.load(Ordering::SeqCst) || self.is_stopping();
        self.dirty
            .sleep(None, || self.dirty.any() || self.is_stopping());
        let elapsed = self.clock.mono_ns().saturating_sub(started_ns);
        if elapsed < interval_ns && !in_a_hurry() {
            self.hurry_bell
                .wait(Some(Duration::from_nanos(interval_ns - elapsed)));
        }
    }

    fn expire_until_stopped(&self) {
        yield_to_front_end();
        while !self.is_stopping() {
            // A ring ends the wait when the pause is another, or the bucket stops.
            let pause = Duration::from_secs(u64::from(self.expiry_pass_s()));
            let pause = self.expires().then_some(pause);
            if !self.expiry_bell.wait(pause) && self.warmup().stage() == WarmupStage::Done {
                let expired = self.expiry_step();
                tracing::debug!(
                    bucket = self.name(),
                    expired,
                    "looked for expired documents"
                );
            }
        }
    }

    fn compact_until_stopped(&self) {
        yield_to_front_end();
        let started_s = u64::from(self.clock.now().unix_s());
        let mut last_s = vec![started_s; usize::from(self.vbuckets())];
        let pause = Duration::from_secs(pause_s(self.options.purge_age_s));
        let mut again = None;
        while !self.is_stopping() {
            let history_pause = self.history_pause_s().map(Duration::from_secs);
            let pause = history_pause.map_or(pause, |sooner| sooner.min(pause));
            self.compactions.bell.wait(again.or(Some(pause)));
            if self.warmup().stage() != WarmupStage::Done {
                again = self
                    .collections
                    .erase
                    .load(Ordering::SeqCst)
                    .then_some(ERASE_AGAIN);
                continue;
            }
            if self.is_stopping() {
                continue;
            }
            self.serve_compactions();
            let erase = self.collections.erase.swap(false, Ordering::SeqCst);
            if erase || again.is_some() {
                again = (!self.erase_step()).then_some(ERASE_AGAIN);
            } else {
                self.compaction_step(&mut last_s);
                self.history_step();
            }
        }
    }

    /// Serves fetches until the bucket stops, with help while the disk is slow.
    fn fetch_until_stopped(&self) {
        std::thread::scope(|scope| {
            let (mut slow, mut helpers) = (0, 0);
            let mut help = || {
                if helpers < HELPERS_MAX {
                    let helper = Builder::new().name("fetcher".into()).stack_size(1 << 20);
                    match helper.spawn_scoped(scope, || self.help_to_fetch()) {
                        Ok(_) => helpers += 1,
                        Err(error) => tracing::debug!(%error, "nobody helps the fetcher"),
                    }
                }
                self.fetch_help_bell.ring();
            };
            while !self.is_stopping() {
                self.fetch_bell.wait(None);
                while self.fetch_waiting(&mut slow, &mut help) {}
            }
            self.fetch_help_bell.ring();
        });
    }

    fn help_to_fetch(&self) {
        let mut slow = 0;
        while !self.is_stopping() {
            self.fetch_help_bell.wait(None);
            while self.fetch_waiting(&mut slow, &mut || self.fetch_help_bell.ring()) {}
        }
        // It wakes one only.
        self.fetch_help_bell.ring();
    }

    fn relieve_until_stopped(&self) {
        // The ring that tells of the stop may have ended the rest below instead of this wait.
        while !self.is_stopping() {
            self.reliever_bell.wait(None);
            loop {
                if self.is_stopping() {
                    return;
                }
                let evicted = Counters::read(&self.counters().evicted);
                let relieved = self.relieve_step();
                let helped = Counters::read(&self.counters().evicted) > evicted;
                let helps = helped && !self.flooded.load(Ordering::Relaxed);
                if self.memory.used() > self.memory.low_mark() && !helps {
                    // It did all it could: another pass at once would find the same.
                    self.reliever_bell.wait(Some(RELIEVER_REST));
                }
                if relieved && self.call_off_relief() {
                    break;
                }
            }
        }
    }
}
