//! Room for commits: a full journal gives way to an empty one at once, and becomes tables beside
//! the commits that go on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::VbId;
use parking_lot::{Condvar, Mutex};

use super::drain::{Direct, Drain, LOOK_AGAIN};
use super::front::Layer;
use super::journal::Sealed;
use super::merge::{Stuck, pause_after};
use crate::disk::fault::is_shortage;
use crate::work::{Duty, Next, Running, Worker};

/// A full journal may grow to so many times its size while those before it cannot become tables.
const GROWTH_MAX: u64 = 2;

/// A drain is hurried once the journal after it is full to this part.
const HURRY_SHARE: u64 = 4;

/// Turns journals into tables, one at a time. Used by the one writer; dropping it waits for what
/// is under way.
pub(crate) struct Room {
    drain: Drain,
    sealed: Mutex<State>,
    waits: AtomicU64,
}

/// What becomes of the sealed journal.
enum State {
    /// There is none.
    None,
    /// It waits for that.
    Waiting(Sealed),
    /// It is being drained.
    Draining(Draining),
}

/// A journal that is drained, again and again until that succeeds.
struct Draining {
    worker: Box<dyn Running>,
    progress: Arc<Progress>,
}

/// How far that has come.
#[derive(Default)]
struct Progress {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Default)]
struct Now {
    stop: bool,
    ended: bool,
    /// The journal, if it is one still at the end.
    left: Option<Sealed>,
    /// Why the last attempt failed.
    failed: Option<Failure>,
}

/// A failure that can be told more than once.
#[derive(Clone)]
struct Failure {
    kind: io::ErrorKind,
    reason: String,
    for_good: bool,
}

impl Failure {
    fn of(stuck: &Stuck) -> Self {
        let io = match stuck.error() {
            fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => Some(io),
            _ => None,
        };
        let kind = match io {
            Some(io) if io.kind() == io::ErrorKind::ReadOnlyFilesystem => io.kind(),
            Some(io) if is_shortage(io) => io::ErrorKind::StorageFull,
            _ => io::ErrorKind::Other,
        };
        Self {
            kind,
            reason: stuck.error().to_string(),
            for_good: matches!(stuck, Stuck::Final(_)),
        }
    }

    fn stuck(&self) -> Stuck {
        let error = io::Error::new(self.kind, self.reason.clone()).into();
        if self.for_good {
            Stuck::Final(error)
        } else {
            Stuck::Later(error)
        }
    }
}

impl Progress {
    /// Notes a failure; `false` when there shall be no other attempt.
    fn failed(&self, stuck: &Stuck) -> bool {
        let mut now = self.now.lock();
        let failure = Failure::of(stuck);
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

impl Draining {
    /// Has it try at once if it makes a pause.
    fn retry_now(&self) {
        let mut now = self.progress.now.lock();
        if now.failed.take_if(|failed| !failed.for_good).is_some() {
            drop(now);
            self.worker.ring();
        }
    }

    /// Waits until the journal is in the tables, or an attempt has failed.
    fn wait(&self) -> Result<(), Stuck> {
        let mut now = self.progress.now.lock();
        loop {
            match &now.failed {
                _ if now.ended => return Ok(()),
                Some(failure) => return Err(failure.stuck()),
                None => self.progress.changed.wait(&mut now),
            }
        }
    }

    /// Waits for the end; gives the journal, if it is one still.
    fn join(self) -> Result<Option<Sealed>, Stuck> {
        self.worker.join();
        let mut now = self.progress.now.lock();
        match &now.failed {
            Some(failure) if failure.for_good => Err(failure.stuck()),
            _ => Ok(now.left.take()),
        }
    }
}

impl State {
    fn retry_now(&self) {
        if let Self::Draining(draining) = self {
            draining.retry_now();
        }
    }

    /// Waits for the end of a drain: afterwards there is no sealed journal, or an error.
    fn settle(&mut self) -> Result<(), Stuck> {
        if let Self::Draining(draining) = self {
            draining.wait()?;
        }
        match std::mem::replace(self, Self::None) {
            Self::Draining(draining) => {
                if let Some(sealed) = draining.join()? {
                    *self = Self::Waiting(sealed);
                }
            }
            other => *self = other,
        }
        Ok(())
    }
}

impl Room {
    /// With what opening found: the sealed journal is in the front, too.
    pub(crate) fn new(drain: Drain, sealed: Option<Sealed>) -> Self {
        Self {
            drain,
            sealed: Mutex::new(sealed.map_or(State::None, State::Waiting)),
            waits: AtomicU64::new(0),
        }
    }

    /// Sees to it that the journal has fewer than `bytes_max` bytes; says whether that took
    /// waiting, because the one before it is not in the tables yet. While that one cannot become
    /// tables, the journal grows beyond.
    ///
    /// # Errors
    /// `Later` when it has grown enough.
    ///
    /// Cost: mostly nothing. A new journal takes two syncs when there is no file to recycle.
    pub(crate) fn make(&self, bytes_max: u64) -> Result<bool, Stuck> {
        let mut state = self.sealed.lock();
        if matches!(&*state, State::Draining(draining) if draining.progress.has_ended()) {
            state.settle()?;
        }
        self.start(&mut state)?;
        let bytes = self.drain.journal.lock().bytes();
        self.hurry(bytes >= bytes_max / HURRY_SHARE);
        if bytes < bytes_max {
            return Ok(false);
        }
        let waits = matches!(&*state, State::Draining(_));
        if waits {
            self.waits.fetch_add(1, Ordering::SeqCst);
            if bytes >= GROWTH_MAX * bytes_max {
                state.retry_now();
            }
            match state.settle() {
                Err(Stuck::Later(_)) if bytes < GROWTH_MAX * bytes_max => return Ok(true),
                settled => settled?,
            }
        }
        *state = State::Waiting(self.rotate()?);
        self.start(&mut state)?;
        Ok(waits)
    }

    /// Writes all that is in front into the tables at once, together with a batch, if one is
    /// given. All or nothing, and durable.
    pub(crate) fn drain_now(&self, direct: Option<Direct<'_>>) -> Result<(), Stuck> {
        let mut state = self.sealed.lock();
        self.hurry(true);
        self.start(&mut state)?;
        state.retry_now();
        state.settle()?;
        let sealed = self.rotate()?;
        let drained = self.drain.run(&sealed, direct);
        match drained {
            Ok(()) => self.drain.retire(sealed),
            Err(_) => *state = State::Waiting(sealed),
        }
        drained
    }

    /// Bytes of the sealed journal.
    pub(crate) fn sealed_bytes(&self) -> u64 {
        let front = self.drain.front.read();
        front.sealed.as_ref().map_or(0, |sealed| sealed.bytes)
    }

    /// What merges.
    #[cfg(test)]
    pub(crate) fn merging(&self) -> &Arc<super::merge::Shared> {
        &self.drain.merging
    }

    /// How often a writer waited for a drain.
    #[cfg(test)]
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::SeqCst)
    }

    /// Whether the drain that is under way does without sleeping.
    fn hurry(&self, hurried: bool) {
        self.drain.hurried.store(hurried, Ordering::Relaxed);
    }

    /// Begins a new journal. There must be no sealed one.
    fn rotate(&self) -> Result<Sealed, Stuck> {
        let mut journal = self.drain.journal.lock();
        let sealed = journal.rotate().map_err(|error| {
            // A new journal that found no room is none; another error may be that of a sync.
            let later = is_shortage(&error);
            let stuck = if later { Stuck::Later } else { Stuck::Final };
            stuck(error.into())
        })?;
        // The journal is locked: nothing is added meanwhile, and readers wait for one at a time.
        let vbs: Vec<VbId> = self.drain.front.read().current.vbs.keys().collect();
        for vb in vbs {
            if let Some(vb) = self.drain.front.write().current.vbs.slot(vb) {
                vb.settle();
            }
        }
        let mut front = self.drain.front.write();
        assert!(front.sealed.is_none(), "journals are sealed one at a time");
        let current = Layer::empty(journal.file());
        let mut full = std::mem::replace(&mut front.current, current);
        full.bytes = sealed.bytes;
        front.sealed = Some(Arc::new(full));
        Ok(sealed)
    }

    /// Has a waiting journal drained beside commits; where that cannot be, it is drained here.
    fn start(&self, state: &mut State) -> Result<(), Stuck> {
        let sealed = match std::mem::replace(state, State::None) {
            State::Waiting(sealed) => sealed,
            other => {
                *state = other;
                return Ok(());
            }
        };
        let progress = Arc::new(Progress::default());
        let drainer = Drainer::new(self.drain.clone(), sealed, Arc::clone(&progress));
        let threads = &self.drain.merging.background.threads;
        match threads.start(Duty::Drain, Box::new(drainer)) {
            Ok(worker) => *state = State::Draining(Draining { worker, progress }),
            Err(error) => {
                tracing::warn!(%error, "no thread for a drain; commits wait for it");
                let sealed = progress.now.lock().left.take();
                if let Some(sealed) = sealed {
                    let done = self.drain.run(&sealed, None);
                    match done {
                        Ok(()) => self.drain.retire(sealed),
                        Err(_) => *state = State::Waiting(sealed),
                    }
                    done?;
                }
            }
        }
        Ok(())
    }
}

/// Drains a journal, with pauses between attempts that fail; gives it back where that has no end.
struct Drainer {
    drain: Drain,
    /// Until it is in the tables.
    sealed: Option<Sealed>,
    progress: Arc<Progress>,
    failures: u32,
    /// How long it has left time to merges.
    waited: Duration,
    /// After a failure: first how long, then until when.
    pause: Option<Duration>,
    pause_until_ns: u64,
}

impl Drainer {
    fn new(drain: Drain, sealed: Sealed, progress: Arc<Progress>) -> Self {
        Self {
            drain,
            sealed: Some(sealed),
            progress,
            failures: 0,
            waited: Duration::ZERO,
            pause: None,
            pause_until_ns: 0,
        }
    }
}

impl Worker for Drainer {
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
        if self.drain.waits_for_merging(self.waited) {
            self.waited += LOOK_AGAIN;
            return Next::At(after(LOOK_AGAIN));
        }
        let Some(sealed) = &self.sealed else {
            return Next::Done;
        };
        if let Err(stuck) = self.drain.run_at_once(sealed, None) {
            self.failures += 1;
            let failures = self.failures;
            if failures.is_power_of_two() {
                let error = stuck.error();
                tracing::warn!(%error, failures, "a journal did not become tables; trying again");
            }
            self.waited = Duration::ZERO;
            self.pause = Some(pause_after(failures));
            let goes_on = self.progress.failed(&stuck);
            return if goes_on { Next::Again } else { Next::Done };
        }
        if self.failures > 0 {
            tracing::info!("journals become tables again");
        }
        if let Some(sealed) = self.sealed.take() {
            self.drain.retire(sealed);
        }
        Next::Done
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        self.progress.end(self.sealed.take());
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.hurry(true);
        let state = std::mem::replace(&mut *self.sealed.lock(), State::None);
        if let State::Draining(draining) = state {
            draining.progress.now.lock().stop = true;
            draining.worker.ring();
            if !matches!(draining.join(), Ok(None)) {
                tracing::warn!("a journal did not become tables; it is replayed at the start");
            }
        }
    }
}

#[cfg(test)]
mod tests;
