//! The one writer of a store, and what it shares with the workers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::VbId;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use super::current::{Current, LogPart, Note};
use super::fault::shortage;
use super::files::Files;
use super::log::{Group, Log, LogIndex, LogOrder, LogRow, Place, What};
use super::options::DiskOptions;
use super::state::State;
use super::tail::{Left, TailFile};
use crate::work::Running;
use crate::{ErrorKind, StoreError};

const CLOSING: &str = "closing";

/// Rows that are added to the index under one lock.
const STAGED_MAX: usize = 4096;

/// A full log may grow to so many times its size while the one before is not in runs yet.
const GROWTH_MAX: u64 = 2;

/// What is shared by the store and its workers.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) options: DiskOptions,
    /// Taken before `switch`.
    pub(crate) writer: Mutex<Writer>,
    /// Held while the manifest is replaced. Taken before `current`.
    pub(crate) switch: Mutex<()>,
    pub(crate) current: RwLock<Current>,
    pub(crate) next_file: AtomicU64,
    pub(crate) next_epoch: AtomicU64,
    /// Rows in runs that are superseded or gone, about.
    pub(crate) dead_rows: AtomicU64,
    pub(crate) has_history: AtomicBool,
    /// The last group.
    pub(crate) committed: AtomicU64,
    /// There may be documents of a MiB and more.
    pub(crate) has_large: AtomicBool,
    /// What is not encrypted with the first key shall be written again.
    pub(crate) renewing: AtomicBool,
    pub(crate) flushing: Flushing,
    pub(crate) stopping: AtomicBool,
    pub(crate) counters: Counters,
}

/// What was done in the background.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) merges: AtomicU64,
    pub(crate) merges_failed: AtomicU64,
    pub(crate) runs_failed: AtomicU64,
}

/// The worker that makes runs of logs, as writers see it.
#[derive(Default)]
pub(crate) struct Flushing {
    /// The log that shall become runs, if it waits for that, and why the last attempt failed.
    pub(crate) state: Mutex<FlushState>,
    pub(crate) changed: Condvar,
    pub(crate) worker: Mutex<Option<Box<dyn Running>>>,
}

impl std::fmt::Debug for Flushing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flushing")
    }
}

#[derive(Debug, Default)]
pub(crate) struct FlushState {
    /// A log is sealed.
    pub(crate) waiting: bool,
    /// Kind and words of the last failure.
    pub(crate) failed: Option<(ErrorKind, String)>,
    /// The next log, made ahead.
    pub(crate) spare: Option<Log>,
}

impl Flushing {
    pub(crate) fn ring(&self) {
        if let Some(worker) = &*self.worker.lock() {
            worker.ring();
        }
    }
}

/// Whether commits are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Ready,
    Poisoned,
    Closed,
}

/// What writes into the log.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: Log,
    tail: TailFile,
    mode: Mode,
}

impl Writer {
    pub(crate) fn new(log: Log, tail: TailFile) -> Self {
        Self {
            log,
            tail,
            mode: Mode::Ready,
        }
    }

    /// Whether commits are taken.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`.
    pub(crate) fn check(&self, during: &'static str) -> Result<(), StoreError> {
        match self.mode {
            Mode::Ready => Ok(()),
            Mode::Poisoned => Err(StoreError::new(ErrorKind::Poisoned, during)),
            Mode::Closed => Err(StoreError::new(ErrorKind::Closed, during)),
        }
    }

    /// What a failed write of the log means. But for a shortage nothing is known of the file from then on.
    fn failed(&mut self, error: io::Error, during: &'static str) -> StoreError {
        match shortage(&error) {
            Some(kind) => StoreError::new(kind, during).because(error),
            None => self.poison(error, during),
        }
    }

    fn poison(&mut self, error: io::Error, during: &'static str) -> StoreError {
        self.mode = Mode::Poisoned;
        let tail = self.tail.tail;
        let noted = self.tail.note(tail.group, tail.manifest, Left::Poisoned);
        if let Err(error) = noted.and_then(|()| self.tail.sync()) {
            tracing::warn!(%error, "cannot note that a sync failed");
        }
        StoreError::new(ErrorKind::Poisoned, during).because(error)
    }

    /// Takes no more commits; tells whether the store was open until now.
    ///
    /// # Errors
    /// `Poisoned`: it cannot be left as a clean one.
    pub(crate) fn end(&mut self) -> Result<bool, StoreError> {
        match std::mem::replace(&mut self.mode, Mode::Closed) {
            Mode::Closed => Ok(false),
            Mode::Poisoned => Err(StoreError::new(ErrorKind::Poisoned, CLOSING)),
            Mode::Ready => Ok(true),
        }
    }

    /// Notes that the store was closed, with all that is on disk.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the stop counts as unclean.
    pub(crate) fn mark_clean(&mut self, manifest: u64) -> Result<(), StoreError> {
        let noted = self.tail.note(self.log.last_group, manifest, Left::Clean);
        noted.and_then(|()| self.tail.sync()).map_err(|error| {
            let kind = shortage(&error).unwrap_or(ErrorKind::Io);
            StoreError::new(kind, CLOSING).because(error)
        })
    }
}

/// Changes that count together or not at all.
pub(crate) struct Changes<'c> {
    pub(crate) core: &'c Core,
    pub(crate) writer: MutexGuard<'c, Writer>,
    group: Group,
    during: &'static str,
    /// Rows that are not in the index yet, and the first of those that are not linked.
    staged: Vec<LogRow>,
    from: usize,
    /// What the group says of vBuckets, in its order.
    notes: Vec<Note>,
    failed: Option<io::Error>,
}

impl Core {
    /// Begins a group, once there is space for it; tells whether that took waiting.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`, `NoSpace`, `Io`.
    pub(crate) fn begin(&self, during: &'static str) -> Result<(Changes<'_>, bool), StoreError> {
        let mut writer = self.writer.lock();
        writer.check(during)?;
        let free = match self.files.free_bytes() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let error = io::Error::new(error.kind(), "the directory was removed");
                return Err(writer.poison(error, during));
            }
            free => free.map_err(|error| StoreError::new(ErrorKind::Io, during).because(error))?,
        };
        if free < self.options.free_bytes_min {
            let reason = format!("only {free} bytes are free");
            return Err(StoreError::new(ErrorKind::NoSpace, during).because(reason));
        }
        let waited = self.ensure_space(&mut writer, during)?;
        let group = writer.log.begin();
        let from = self.current.read().active.index.len();
        let changes = Changes {
            core: self,
            writer,
            group,
            during,
            staged: Vec::new(),
            from,
            notes: Vec::new(),
            failed: None,
        };
        Ok((changes, waited))
    }

    /// Turns to another log when this one is full; tells whether that took waiting.
    fn ensure_space(&self, writer: &mut Writer, during: &'static str) -> Result<bool, StoreError> {
        let (bytes, bytes_max) = (writer.log.end, self.options.log_bytes);
        // Into one that is encrypted in another way nothing more is written.
        let outdated = !writer.log.is_current(&*self.files);
        if bytes < bytes_max && !outdated {
            return Ok(false);
        }
        let mut state = self.flushing.state.lock();
        let waits = state.waiting;
        if waits {
            if bytes < GROWTH_MAX * bytes_max && !outdated {
                return Ok(false);
            }
            if state.failed.take().is_some() {
                // It is tried again at once.
                self.flushing.ring();
            }
            while state.waiting && state.failed.is_none() {
                self.flushing.changed.wait(&mut state);
            }
            if let Some((kind, reason)) = state.failed.as_ref().filter(|_| state.waiting) {
                return Err(StoreError::new(*kind, during).because(reason.clone()));
            }
        }
        let spare = state.spare.take();
        drop(state);
        self.rotate(writer, spare)
            .map_err(|error| not_begun(&error, during))?;
        Ok(waits)
    }

    /// Seals the log if it is not encrypted as it should be, unless there is a sealed one. A commit that is under way does that
    /// itself.
    ///
    /// # Errors
    /// Those of making the next one.
    pub(crate) fn seal_stale(&self) -> io::Result<()> {
        let Some(mut writer) = self.writer.try_lock() else {
            return Ok(());
        };
        let is_due = writer.mode == Mode::Ready && !writer.log.is_current(&*self.files);
        let mut flushing = self.flushing.state.lock();
        if flushing.waiting || !is_due {
            return Ok(());
        }
        let spare = flushing.spare.take();
        drop(flushing);
        self.rotate(&mut writer, spare)
    }

    /// Seals the log, and goes on with the next one. There must be no sealed one.
    fn rotate(&self, writer: &mut Writer, spare: Option<Log>) -> io::Result<()> {
        let (number, last_group) = (writer.log.number + 1, writer.log.last_group);
        let next = match spare.filter(|spare| spare.number == number) {
            Some(spare) => spare.after(last_group),
            None => Log::create(&*self.files, number, last_group, self.options.log_bytes)?,
        };
        let mut current = self.current.write();
        let part = LogPart {
            file: Arc::clone(&next.file),
            number,
            index: LogIndex::default(),
            order: LogOrder::default(),
            bytes: 0,
            last_group,
        };
        let mut full = std::mem::replace(&mut current.active, part);
        (full.bytes, full.last_group) = (writer.log.end, last_group);
        current.sealed = Some(Arc::new(full));
        drop(current);
        writer.log = next;
        self.flushing.state.lock().waiting = true;
        self.flushing.ring();
        Ok(())
    }
}

impl Changes<'_> {
    /// Adds an entry, unless one before failed.
    pub(crate) fn put(
        &mut self,
        what: What,
        vb: VbId,
        value: &[u8],
        encode: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Option<Place> {
        if self.failed.is_some() {
            return None;
        }
        let put = self
            .writer
            .log
            .put(&mut self.group, (what, vb), value, encode);
        put.map_err(|error| self.failed = Some(error)).ok()
    }

    /// Has a row that was put counted.
    pub(crate) fn row(&mut self, row: LogRow) {
        self.staged.push(row);
        if self.staged.len() >= STAGED_MAX {
            self.stage();
        }
    }

    /// Notes what was put beside rows.
    pub(crate) fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// The number of the log, as values name it.
    pub(crate) fn log_number(&self) -> u64 {
        self.writer.log.number
    }

    /// The state of a vBucket, as of what this group says.
    ///
    /// Cost: one look, as long as batches come in the order of their vBuckets.
    pub(crate) fn state(&self, vb: VbId) -> Option<State> {
        let is_later = matches!(self.notes.last(), Some(Note::State(last, ..)) if *last < vb);
        if !is_later {
            for note in self.notes.iter().rev() {
                match note {
                    Note::State(of, _, state) if *of == vb => return Some(state.clone()),
                    Note::Forget(of) if *of == vb => return None,
                    _ => {}
                }
            }
        }
        self.core.current.read().states.get(vb).cloned()
    }

    fn stage(&mut self) {
        let mut current = self.core.current.write();
        for row in self.staged.drain(..) {
            current.active.index.stage(row);
        }
    }

    /// Makes the group durable, then seen.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing of it counts. `Poisoned`.
    pub(crate) fn finish(mut self) -> Result<(), StoreError> {
        let finished = match self.failed.take() {
            Some(error) => Err(error),
            None => self.writer.log.finish(std::mem::take(&mut self.group)),
        };
        if let Err(error) = finished {
            return Err(self.writer.failed(error, self.during));
        }
        if let Err(error) = self.writer.log.sync() {
            return Err(self.writer.poison(error, self.during));
        }
        let (group, manifest) = (self.writer.log.last_group, self.core.manifest_number());
        if let Err(error) = self.writer.tail.note(group, manifest, Left::Running) {
            // Commits are durable without it; only a loss of them would go unnoticed.
            tracing::warn!(%error, "cannot note what was acknowledged");
        }
        self.core.committed.store(group, Ordering::Relaxed);
        self.stage();
        let mut current = self.core.current.write();
        let Current { active, states, .. } = &mut *current;
        active.link(self.from, states, self.notes.drain(..));
        self.from = active.index.len();
        drop(current);
        Ok(())
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        let mut current = self.core.current.write();
        current.active.index.unstage(self.from);
    }
}

impl Core {
    /// The last group that was committed, as of the last time that no commit was under way.
    pub(crate) fn last_group(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    pub(crate) fn manifest_number(&self) -> u64 {
        self.current.read().version.manifest.contents.number
    }
}

/// What it means that the next log could not be made: the one that is written into is whole.
fn not_begun(error: &io::Error, during: &'static str) -> StoreError {
    let kind = shortage(error).unwrap_or(ErrorKind::Io);
    StoreError::new(kind, during).because(error.to_string())
}

/// Counts down what is dead.
pub(crate) fn lower(counter: &AtomicU64, by: u64) {
    let lowered = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
        Some(now.saturating_sub(by))
    });
    debug_assert!(lowered.is_ok(), "it always has a next value");
}
