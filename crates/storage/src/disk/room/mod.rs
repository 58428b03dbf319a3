//! Room for commits: a full journal gives way to an empty one at once, and becomes tables beside
//! the commits that go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use model::VbId;
use parking_lot::Mutex;

use super::drain::{Direct, Drain};
use super::front::Layer;
use super::journal::Sealed;

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
    /// It waits for a thread.
    Waiting(Sealed),
    /// A thread is at it.
    Draining(JoinHandle<Result<(), fjall::Error>>),
}

impl State {
    /// Waits for the thread, if there is one.
    fn settle(&mut self) -> Result<(), fjall::Error> {
        match std::mem::replace(self, Self::None) {
            Self::Draining(thread) => thread.join().unwrap_or(Err(fjall::Error::Poisoned)),
            other => {
                *self = other;
                Ok(())
            }
        }
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
    /// waiting, because the one before it is not in the tables yet. Tells of a drain that failed.
    ///
    /// Cost: mostly nothing. A new journal takes two syncs when there is no file to recycle.
    pub(crate) fn make(&self, bytes_max: u64) -> Result<bool, fjall::Error> {
        let mut state = self.sealed.lock();
        if matches!(&*state, State::Draining(thread) if thread.is_finished()) {
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
            state.settle()?;
        }
        *state = State::Waiting(self.rotate()?);
        self.start(&mut state)?;
        Ok(waits)
    }

    /// Writes all that is in front into the tables at once, together with a batch, if one is
    /// given. All or nothing, and durable.
    pub(crate) fn drain_now(&self, direct: Option<Direct<'_>>) -> Result<(), fjall::Error> {
        let mut state = self.sealed.lock();
        self.hurry(true);
        self.start(&mut state)?;
        state.settle()?;
        let sealed = self.rotate()?;
        self.drain.run(sealed, direct)
    }

    /// Bytes of the sealed journal.
    pub(crate) fn sealed_bytes(&self) -> u64 {
        let front = self.drain.front.read();
        front.sealed.as_ref().map_or(0, |sealed| sealed.bytes)
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
    fn rotate(&self) -> Result<Sealed, fjall::Error> {
        let mut journal = self.drain.journal.lock();
        let sealed = journal.rotate()?;
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

    /// Gives a waiting journal to a thread; where there can be none, it is drained here.
    fn start(&self, state: &mut State) -> Result<(), fjall::Error> {
        match std::mem::replace(state, State::None) {
            State::Waiting(sealed) => {
                let sealed = Arc::new(Mutex::new(Some(sealed)));
                let (drain, given) = (self.drain.clone(), Arc::clone(&sealed));
                match Builder::new()
                    .name("drain".into())
                    .spawn(move || drain.run_taking(&given))
                {
                    Ok(thread) => *state = State::Draining(thread),
                    Err(error) => {
                        tracing::warn!(%error, "no thread for a drain; commits wait for it");
                        self.drain.run_taking(&sealed)?;
                    }
                }
            }
            other => *state = other,
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.hurry(true);
        if let Err(error) = self.sealed.lock().settle() {
            tracing::warn!(%error, "a journal did not become tables; it is replayed at the start");
        }
    }
}

#[cfg(test)]
mod tests;
