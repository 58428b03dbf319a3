//! The single writer of a store, and the state that it shares with the workers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::VbId;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use super::current::{Current, LogNote, LogPart};
use super::fault::{shortage, write_error};
use super::files::Files;
use super::log::{EntryKind, Log, LogGroup, LogPlace, LogRow};
use super::options::DiskOptions;
use super::state::State;
use super::tail::{LastStop, TailFile};
use crate::port::WorkTotals;
use crate::work::RunningWorker;
use crate::{ErrorKind, StoreError};

const CLOSING: &str = "closing";

/// Rows that are added to the index under one lock hold.
const STAGED_MAX: usize = 4096;

/// Factor by which a full log may grow while the previous one is not in runs yet.
const GROWTH_MAX: u64 = 2;

/// Part of its size limit that a log must have to be sealed when there is too little space.
const WORTH_SEALING: u64 = 8;

/// State shared by the store and its workers.
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
    /// Approximate number of superseded rows, rows of removed vBuckets, and removals in runs.
    pub(crate) dead_rows: AtomicU64,
    /// Whether vBuckets with rows in runs were removed since the last look for a merge.
    pub(crate) removed: AtomicBool,
    pub(crate) has_history: AtomicBool,
    /// The last committed group. A commit under way may not be counted yet.
    pub(crate) committed: AtomicU64,
    /// Whether documents of a MiB and more may exist.
    pub(crate) has_large: AtomicBool,
    /// Whether data that is not encrypted with the first key is to be written again.
    pub(crate) renewing: AtomicBool,
    pub(crate) flushing: Flushing,
    pub(crate) stopping: AtomicBool,
    pub(crate) upkeep: Mutex<WorkTotals>,
}

/// The flush worker as seen by writers.
#[derive(Default)]
pub(crate) struct Flushing {
    /// The sealed log, if it waits for the worker, and the error of the last attempt.
    pub(crate) state: Mutex<FlushState>,
    pub(crate) changed: Condvar,
    pub(crate) worker: Mutex<Option<Box<dyn RunningWorker>>>,
}

impl std::fmt::Debug for Flushing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flushing")
    }
}

#[derive(Debug, Default)]
pub(crate) struct FlushState {
    /// Whether a log is sealed.
    pub(crate) waiting: bool,
    /// Kind and text of the last error.
    pub(crate) failed: Option<(ErrorKind, String)>,
    /// The next log, created in advance.
    pub(crate) spare: Option<Log>,
}

impl Flushing {
    pub(crate) fn ring(&self) {
        if let Some(worker) = &*self.worker.lock() {
            worker.ring();
        }
    }
}

/// Whether commits are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterMode {
    Ready,
    Poisoned,
    Closed,
}

/// Writer of the log.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: Log,
    tail: TailFile,
    mode: WriterMode,
}

impl Writer {
    pub(crate) fn new(log: Log, tail: TailFile) -> Self {
        Self {
            log,
            tail,
            mode: WriterMode::Ready,
        }
    }

    /// Checks that commits are accepted.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`.
    pub(crate) fn check(&self, during: &'static str) -> Result<(), StoreError> {
        match self.mode {
            WriterMode::Ready => Ok(()),
            WriterMode::Poisoned => Err(StoreError::new(ErrorKind::Poisoned, during)),
            WriterMode::Closed => Err(StoreError::new(ErrorKind::Closed, during)),
        }
    }

    /// Converts a failed write of the log. Except for a shortage, the content of the file is
    /// unknown afterwards, and the store is poisoned.
    fn failed(&mut self, error: io::Error, during: &'static str) -> StoreError {
        match shortage(&error) {
            Some(kind) => StoreError::new(kind, during).because(error),
            None => self.poison(error, during),
        }
    }

    fn poison(&mut self, error: io::Error, during: &'static str) -> StoreError {
        self.mode = WriterMode::Poisoned;
        let tail = self.tail.tail;
        let noted = self
            .tail
            .note_durably(tail.group, tail.manifest, LastStop::Poisoned);
        if let Err(error) = noted {
            tracing::warn!(%error, "cannot note that a sync failed");
        }
        StoreError::new(ErrorKind::Poisoned, during).because(error)
    }

    /// Ends commits. Returns whether the store was open.
    ///
    /// # Errors
    /// `Poisoned`: a clean stop is impossible.
    pub(crate) fn end(&mut self) -> Result<bool, StoreError> {
        match std::mem::replace(&mut self.mode, WriterMode::Closed) {
            WriterMode::Closed => Ok(false),
            WriterMode::Poisoned => Err(StoreError::new(ErrorKind::Poisoned, CLOSING)),
            WriterMode::Ready => Ok(true),
        }
    }

    /// Records that the store was closed cleanly.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the stop counts as unclean.
    pub(crate) fn mark_clean(&mut self, manifest: u64) -> Result<(), StoreError> {
        let noted = self
            .tail
            .note_durably(self.log.last_group, manifest, LastStop::Clean);
        noted.map_err(|error| write_error(error, CLOSING))
    }
}

/// Changes of one group, which are atomic.
pub(crate) struct GroupWriter<'c> {
    pub(crate) core: &'c Core,
    pub(crate) writer: MutexGuard<'c, Writer>,
    /// Whether it waited for space.
    pub(crate) waited: bool,
    group: LogGroup,
    during: &'static str,
    /// Rows that are not in the index yet, and the first of those that are not linked.
    staged: Vec<LogRow>,
    from: usize,
    /// Other entries of the group, in its order.
    notes: Vec<LogNote>,
    failed: Option<io::Error>,
}

impl Core {
    /// Begins a group, after waiting for space if necessary.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`, `NoSpace`, `Io`.
    pub(crate) fn begin(&self, during: &'static str) -> Result<GroupWriter<'_>, StoreError> {
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
            if writer.log.end >= self.options.log_bytes / WORTH_SEALING {
                // As a run it takes less, if rows of it are dead. The caller tries again.
                let sealed = self.seal(&mut writer);
                sealed.map_err(|error| write_error(error, during))?;
            }
            let reason = format!("only {free} bytes are free");
            return Err(StoreError::new(ErrorKind::NoSpace, during).because(reason));
        }
        let waited = self.ensure_space(&mut writer, during)?;
        let group = writer.log.begin();
        let from = self.current.read().active.index.len();
        Ok(GroupWriter {
            core: self,
            writer,
            waited,
            group,
            during,
            staged: Vec::new(),
            from,
            notes: Vec::new(),
            failed: None,
        })
    }

    /// Switches to another log if this one is full. Returns whether it waited.
    fn ensure_space(&self, writer: &mut Writer, during: &'static str) -> Result<bool, StoreError> {
        let (bytes, bytes_max) = (writer.log.end, self.options.log_bytes);
        // A log with outdated encryption is not written any further.
        let outdated = !writer.log.file.is_current(&*self.files);
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
                // The worker retries at once.
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
            .map_err(|error| write_error(error, during))?;
        Ok(waits)
    }

    /// Seals the log if its encryption is outdated, unless there is a sealed one. A running
    /// commit does this itself.
    pub(crate) fn seal_stale(&self) -> io::Result<()> {
        let Some(mut writer) = self.writer.try_lock() else {
            return Ok(());
        };
        if writer.mode != WriterMode::Ready || writer.log.file.is_current(&*self.files) {
            return Ok(());
        }
        self.seal(&mut writer)
    }

    /// Seals the log, unless there is a sealed one.
    fn seal(&self, writer: &mut Writer) -> io::Result<()> {
        let mut flushing = self.flushing.state.lock();
        if flushing.waiting {
            return Ok(());
        }
        let spare = flushing.spare.take();
        drop(flushing);
        self.rotate(writer, spare)
    }

    /// Seals the log, and continues with the next one. There must be no sealed one.
    fn rotate(&self, writer: &mut Writer, spare: Option<Log>) -> io::Result<()> {
        let (number, last_group) = (writer.log.number + 1, writer.log.last_group);
        let next = match spare.filter(|spare| spare.number == number) {
            Some(spare) => spare.after(last_group),
            None => Log::create(&*self.files, number, last_group, self.options.log_bytes)?,
        };
        let mut current = self.current.write();
        let part = LogPart::empty(Arc::clone(&next.file), number, last_group);
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

impl GroupWriter<'_> {
    /// Adds an entry, unless an earlier one failed.
    pub(crate) fn put(
        &mut self,
        what: EntryKind,
        vb: VbId,
        value: &[u8],
        encode: impl FnOnce(&mut Vec<u8>, u64),
    ) -> Option<LogPlace> {
        if self.failed.is_some() {
            return None;
        }
        let put = self
            .writer
            .log
            .put(&mut self.group, (what, vb), value, encode);
        put.map_err(|error| self.failed = Some(error)).ok()
    }

    /// Adds a row to the index when the group is finished.
    pub(crate) fn row(&mut self, row: LogRow) {
        self.staged.push(row);
        if self.staged.len() >= STAGED_MAX {
            self.stage();
        }
    }

    /// Adds an entry that is no row.
    pub(crate) fn note(&mut self, note: LogNote) {
        self.notes.push(note);
    }

    /// Returns the state of a vBucket, including this group's entries.
    ///
    /// Cost: one lookup, as long as batches come in the order of their vBuckets.
    pub(crate) fn state(&self, vb: VbId) -> Option<State> {
        let is_later = matches!(self.notes.last(), Some(LogNote::State(last, ..)) if *last < vb);
        if !is_later {
            for note in self.notes.iter().rev() {
                match note {
                    LogNote::State(of, _, state) if *of == vb => return Some(state.clone()),
                    LogNote::Forget(of) if *of == vb => return None,
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

    /// Makes the group durable, then visible.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: the group does not count. `Poisoned`.
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
        if let Err(error) = self.writer.tail.note(group, manifest, LastStop::Running) {
            // Commits are durable without it; but a later loss of them would not be detected.
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

impl Drop for GroupWriter<'_> {
    fn drop(&mut self) {
        let mut current = self.core.current.write();
        current.active.index.unstage(self.from);
    }
}

impl Core {
    pub(crate) fn manifest_number(&self) -> u64 {
        self.current.read().version.manifest.contents.number
    }
}

/// Subtracts from the number of dead rows.
pub(crate) fn lower(counter: &AtomicU64, by: u64) {
    counter.update(Ordering::Relaxed, Ordering::Relaxed, |now| {
        now.saturating_sub(by)
    });
}
