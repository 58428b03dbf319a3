//! Rotation of journals: a full journal gives way to an empty one at once, and becomes tables beside
//! the commits that go on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::VbId;
use parking_lot::{Condvar, Mutex};

use super::flush::{DirectBatch, Flush, LOOK_AGAIN};
use super::journal::Sealed;
use super::log_index::JournalIndex;
use super::merge::{TablesError, pause_after};
use crate::disk::fault::{io_cause, is_shortage};
use crate::work::{Duty, Next, Running, Worker};

/// A full journal may grow to so many times its size while those before it cannot become tables.
const GROWTH_MAX: u64 = 2;

/// Turns journals into tables, one at a time. Used by the one writer; dropping it waits for what
/// is under way.
pub(crate) struct Rotation {
    flush: Flush,
    sealed: Mutex<SealedState>,
    waits: AtomicU64,
}

/// What becomes of the sealed journal.
enum SealedState {
    /// There is none.
    None,
    /// It waits for that.
    Waiting(Sealed),
    /// It is being flushed.
    Flushing(RunningFlush),
}

/// A journal that is flushed, again and again until that succeeds.
struct RunningFlush {
    worker: Box<dyn Running>,
    progress: Arc<FlushProgress>,
}

/// How far that has come.
#[derive(Default)]
struct FlushProgress {
    now: Mutex<FlushStatus>,
    changed: Condvar,
}

#[derive(Default)]
struct FlushStatus {
    stop: bool,
    ended: bool,
    /// The journal, if it is one still at the end.
    left: Option<Sealed>,
    /// Why the last attempt failed.
    failed: Option<FlushFailure>,
}

/// A failure that can be told more than once.
#[derive(Clone)]
struct FlushFailure {
    kind: io::ErrorKind,
    reason: String,
    for_good: bool,
}

impl FlushFailure {
    fn of(error: &TablesError) -> Self {
        let kind = match io_cause(error.error()) {
            Some(io) if io.kind() == io::ErrorKind::ReadOnlyFilesystem => io.kind(),
            Some(io) if is_shortage(io) => io::ErrorKind::StorageFull,
            _ => io::ErrorKind::Other,
        };
        Self {
            kind,
            reason: error.error().to_string(),
            for_good: matches!(error, TablesError::Final(_)),
        }
    }

    fn error(&self) -> TablesError {
        let error = io::Error::new(self.kind, self.reason.clone()).into();
        if self.for_good {
            TablesError::Final(error)
        } else {
            TablesError::Later(error)
        }
    }
}

impl FlushProgress {
    /// Notes a failure; `false` when there shall be no other attempt.
    fn failed(&self, error: &TablesError) -> bool {
        let mut now = self.now.lock();
        let failure = FlushFailure::of(error);
        let goes_on = !failure.for_good && !now.stop;
        now.failed = Some(failure);
        self.changed.notify_all();
        goes_on
    }

    fn end(&self, left: Option<Sealed>) {
        let mut now = self.now.lock();
        now.ended = true;
        now.left = left;
        self.changed.notify_all();
    }

    fn has_ended(&self) -> bool {
        self.now.lock().ended
    }
}

impl RunningFlush {
    /// Has it try at once if it makes a pause.
    fn retry_now(&self) {
        let mut now = self.progress.now.lock();
        if now.failed.take_if(|failed| !failed.for_good).is_some() {
            drop(now);
            self.worker.ring();
        }
    }

    /// Waits until the journal is in the tables, or an attempt has failed.
    fn wait(&self) -> Result<(), TablesError> {
        let mut now = self.progress.now.lock();
        loop {
            match &now.failed {
                _ if now.ended => return Ok(()),
                Some(failure) => return Err(failure.error()),
                None => self.progress.changed.wait(&mut now),
            }
        }
    }

    /// Waits for the end; gives the journal, if it is one still.
    fn join(self) -> Result<Option<Sealed>, TablesError> {
        self.worker.join();
        let mut now = self.progress.now.lock();
        match &now.failed {
            Some(failure) if failure.for_good => Err(failure.error()),
            _ => Ok(now.left.take()),
        }
    }
}

impl SealedState {
    fn retry_now(&self) {
        if let Self::Flushing(running) = self {
            running.retry_now();
        }
    }

    /// Waits for the end of a flush: afterwards there is no sealed journal, or an error.
    fn settle(&mut self) -> Result<(), TablesError> {
        if let Self::Flushing(running) = self {
            running.wait()?;
        }
        match std::mem::replace(self, Self::None) {
            Self::Flushing(running) => {
                if let Some(sealed) = running.join()? {
                    *self = Self::Waiting(sealed);
                }
            }
            other => *self = other,
        }
        Ok(())
    }
}

impl Rotation {
    /// With what opening found: the sealed journal is in the index, too.
    pub(crate) fn new(flush: Flush, sealed: Option<Sealed>) -> Self {
        Self {
            flush,
            sealed: Mutex::new(sealed.map_or(SealedState::None, SealedState::Waiting)),
            waits: AtomicU64::new(0),
        }
    }

    /// Rotates the journal unless it has fewer than `bytes_max` bytes; returns whether that took
    /// waiting, because the one before it is not in the tables yet. While that one cannot become
    /// tables, the journal grows beyond.
    ///
    /// # Errors
    /// `Later` when it has grown enough.
    ///
    /// Cost: mostly nothing. A new journal takes two syncs when there is no file to recycle.
    pub(crate) fn ensure_space(&self, bytes_max: u64) -> Result<bool, TablesError> {
        let mut state = self.sealed.lock();
        if matches!(&*state, SealedState::Flushing(running) if running.progress.has_ended()) {
            state.settle()?;
        }
        self.start(&mut state)?;
        let bytes = self.flush.journal.lock().bytes();
        if bytes < bytes_max {
            return Ok(false);
        }
        let waits = matches!(&*state, SealedState::Flushing(_));
        if waits {
            self.waits.fetch_add(1, Ordering::SeqCst);
            if bytes >= GROWTH_MAX * bytes_max {
                state.retry_now();
            }
            match state.settle() {
                Err(TablesError::Later(_)) if bytes < GROWTH_MAX * bytes_max => return Ok(true),
                settled => settled?,
            }
        }
        *state = SealedState::Waiting(self.rotate()?);
        self.start(&mut state)?;
        Ok(waits)
    }

    /// Writes all that the journals have into the tables at once, together with a batch, if one is
    /// given. All or nothing, and durable.
    pub(crate) fn flush_now(&self, direct: Option<DirectBatch<'_>>) -> Result<(), TablesError> {
        let mut state = self.sealed.lock();
        self.start(&mut state)?;
        state.retry_now();
        state.settle()?;
        let sealed = self.rotate()?;
        self.flush_here(&mut state, sealed, direct)
    }

    /// Flushes a journal, which is kept to be tried again when that fails.
    fn flush_here(
        &self,
        state: &mut SealedState,
        sealed: Sealed,
        direct: Option<DirectBatch<'_>>,
    ) -> Result<(), TablesError> {
        let flushed = self.flush.run(&sealed, direct);
        match flushed {
            Ok(()) => self.flush.retire(sealed),
            Err(_) => *state = SealedState::Waiting(sealed),
        }
        flushed
    }

    /// Bytes of the sealed journal.
    pub(crate) fn sealed_bytes(&self) -> u64 {
        let index = self.flush.index.read();
        index.sealed.as_ref().map_or(0, |sealed| sealed.bytes)
    }

    /// What merges.
    #[cfg(test)]
    pub(crate) fn merging(&self) -> &Arc<super::merge::MergeShared> {
        &self.flush.merging
    }

    /// How often a writer waited for a flush.
    #[cfg(test)]
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::SeqCst)
    }

    /// Begins a new journal. There must be no sealed one.
    fn rotate(&self) -> Result<Sealed, TablesError> {
        let mut journal = self.flush.journal.lock();
        let sealed = journal.rotate().map_err(|error| {
            // A new journal that found no space is none; another error may be that of a sync.
            if is_shortage(&error) {
                TablesError::Later(error.into())
            } else {
                TablesError::Final(error.into())
            }
        })?;
        // The journal is locked: nothing is added meanwhile, and readers wait for one at a time.
        let vbs: Vec<VbId> = self.flush.index.read().current.vbs.keys().collect();
        for vb in vbs {
            if let Some(vb) = self.flush.index.write().current.vbs.slot(vb) {
                vb.settle();
            }
        }
        let mut index = self.flush.index.write();
        assert!(index.sealed.is_none(), "journals are sealed one at a time");
        let current = JournalIndex::empty(journal.file());
        let mut full = std::mem::replace(&mut index.current, current);
        full.bytes = sealed.bytes;
        index.sealed = Some(Arc::new(full));
        Ok(sealed)
    }

    /// Has a waiting journal flushed beside commits; where that cannot be, it is flushed here.
    fn start(&self, state: &mut SealedState) -> Result<(), TablesError> {
        let sealed = match std::mem::replace(state, SealedState::None) {
            SealedState::Waiting(sealed) => sealed,
            other => {
                *state = other;
                return Ok(());
            }
        };
        let progress = Arc::new(FlushProgress::default());
        let worker = FlushWorker::new(self.flush.clone(), sealed, Arc::clone(&progress));
        let threads = &self.flush.merging.background.threads;
        match threads.start(Duty::Drain, Box::new(worker)) {
            Ok(worker) => *state = SealedState::Flushing(RunningFlush { worker, progress }),
            Err(error) => {
                tracing::warn!(%error, "no thread for a drain; commits wait for it");
                let sealed = progress.now.lock().left.take();
                sealed.map_or(Ok(()), |sealed| self.flush_here(state, sealed, None))?;
            }
        }
        Ok(())
    }
}

/// Flushes a journal, with pauses between attempts that fail; gives it back where that has no end.
struct FlushWorker {
    flush: Flush,
    /// Until it is in the tables.
    sealed: Option<Sealed>,
    progress: Arc<FlushProgress>,
    failures: u32,
    /// How long it has left time to merges.
    waited: Duration,
    /// After a failure: first how long, then until when.
    pause: Option<Duration>,
    pause_until_ns: u64,
}

impl FlushWorker {
    fn new(flush: Flush, sealed: Sealed, progress: Arc<FlushProgress>) -> Self {
        Self {
            flush,
            sealed: Some(sealed),
            progress,
            failures: 0,
            waited: Duration::ZERO,
            pause: None,
            pause_until_ns: 0,
        }
    }
}

impl Worker for FlushWorker {
    fn step(&mut self, now_ns: u64) -> Next {
        let after = |pause: Duration| now_ns + pause.as_nanos() as u64;
        if let Some(pause) = self.pause.take() {
            self.pause_until_ns = after(pause);
        }
        if self.failures > 0 {
            let now = self.progress.now.lock();
            if now.stop {
                return Next::Done;
            }
            // Nothing failed any more: it is to try at once.
            if now.failed.is_some() && now_ns < self.pause_until_ns {
                return Next::At(self.pause_until_ns);
            }
        }
        if self.flush.awaits_merge(self.waited) {
            self.waited += LOOK_AGAIN;
            return Next::At(after(LOOK_AGAIN));
        }
        let Some(sealed) = &self.sealed else {
            return Next::Done;
        };
        if let Err(error) = self.flush.run_at_once(sealed, None) {
            self.failures += 1;
            let failures = self.failures;
            if failures.is_power_of_two() {
                let error = error.error();
                tracing::warn!(%error, failures, "a journal did not become tables; trying again");
            }
            self.waited = Duration::ZERO;
            self.pause = Some(pause_after(failures));
            let goes_on = self.progress.failed(&error);
            return if goes_on { Next::Again } else { Next::Done };
        }
        if self.failures > 0 {
            tracing::info!("journals become tables again");
        }
        if let Some(sealed) = self.sealed.take() {
            self.flush.retire(sealed);
        }
        Next::Done
    }
}

impl Drop for FlushWorker {
    fn drop(&mut self) {
        self.progress.end(self.sealed.take());
    }
}

impl Drop for Rotation {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *self.sealed.lock(), SealedState::None);
        if let SealedState::Flushing(running) = state {
            running.progress.now.lock().stop = true;
            running.worker.ring();
            if !matches!(running.join(), Ok(None)) {
                tracing::warn!("a journal did not become tables; it is replayed at the start");
            }
        }
    }
}

#[cfg(test)]
mod tests;
