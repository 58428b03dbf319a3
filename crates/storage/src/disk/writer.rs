//! The writing half of a disk store: whether it may be written to, and what a failure makes of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use model::{Seqno, VbId};
use parking_lot::RwLock;

use super::acknowledged::{AcknowledgedVb, AcknowledgedVbs, Name, name};
use super::durable_tails::{DurableTail, DurableTails};
use super::engine::Engine;
use super::layout::{Directory, available_bytes};
use super::merge::{Background, TablesError};
use super::options::DiskOptions;
use super::view::View;
use crate::disk::fault::{EngineError, Unwritten, io_cause, is_shortage, read_error, shortage};
use crate::record::{StoredVb, row_meta};
use crate::{ErrorKind, StoreError};

/// Bytes that must be free before a database is opened again: what opening itself may write.
const REOPEN_BYTES_MIN: u64 = 16 << 20;

/// What a write may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Ready,
    /// A write failed for want of space: the database has to be opened again.
    Reopen,
    /// A sync failed: never again.
    Poisoned,
    Closed,
}

/// Which step of a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedStep {
    /// Handing bytes to the operating system.
    Write,
    /// Having them put on the device.
    Sync,
}

/// The state that one writer at a time works with.
pub(crate) struct Writer {
    /// `None` after closing; unlocks.
    directory: Option<Directory>,
    tails: DurableTails,
    states: AcknowledgedVbs,
    mode: Mode,
    last_commit: u64,
    last_epoch: u64,
    waited: bool,
    background: Arc<Background>,
}

impl Writer {
    pub(crate) fn new(
        directory: Directory,
        tails: DurableTails,
        found: &[(VbId, StoredVb)],
        background: &Arc<Background>,
    ) -> Self {
        let stored = found.iter().map(|(_, stored)| stored.commit);
        let last_commit = stored.chain(tails.all().map(|(_, tail)| tail.commit)).max();
        Self {
            directory: Some(directory),
            tails,
            states: found
                .iter()
                .map(|(vb, stored)| (*vb, AcknowledgedVb::of(stored, 0)))
                .collect(),
            mode: Mode::Ready,
            last_commit: last_commit.unwrap_or(0),
            last_epoch: 0,
            waited: false,
            background: Arc::clone(background),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.mode == Mode::Closed
    }

    /// Whether the last [`Writer::ready`] had to wait for space in the journal.
    pub(crate) fn waited(&self) -> bool {
        self.waited
    }

    pub(crate) fn states(&self) -> &AcknowledgedVbs {
        &self.states
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory
            .as_ref()
            .map_or(Path::new(""), Directory::path)
    }

    /// The directory, unless the store is closed.
    pub(crate) fn directory_mut(&mut self) -> Option<&mut Directory> {
        self.directory.as_mut()
    }

    /// A number for the next commit.
    pub(crate) fn next_commit(&mut self) -> u64 {
        self.last_commit += 1;
        self.last_commit
    }

    /// A mark for a vBucket whose rows begin anew.
    pub(crate) fn next_epoch(&mut self) -> u64 {
        self.last_epoch += 1;
        self.last_epoch
    }

    /// The database, ready to be written to: opens it again when that is due.
    pub(crate) fn ready(
        &mut self,
        engine: &RwLock<Option<Arc<Engine>>>,
        options: &DiskOptions,
        during: &'static str,
    ) -> Result<Arc<Engine>, StoreError> {
        let ready = self.with_space(engine, options, during);
        if self.mode != Mode::Reopen || ready.is_ok() {
            return ready;
        }
        // What failed was begun earlier, in the background: there may be space again.
        self.with_space(engine, options, during)
    }

    fn with_space(
        &mut self,
        engine: &RwLock<Option<Arc<Engine>>>,
        options: &DiskOptions,
        during: &'static str,
    ) -> Result<Arc<Engine>, StoreError> {
        match self.mode {
            Mode::Closed => return Err(StoreError::new(ErrorKind::Closed, during)),
            Mode::Poisoned => return Err(StoreError::new(ErrorKind::Poisoned, during)),
            Mode::Ready => self.check_space(options.free_bytes_min, during)?,
            Mode::Reopen => {
                self.check_space(options.free_bytes_min.max(REOPEN_BYTES_MIN), during)?;
                self.reopen(engine, options, during)?;
            }
        }
        let engine = engine.read().clone();
        let engine = engine.ok_or_else(|| StoreError::new(ErrorKind::Closed, during))?;
        let rotation = engine.ensure_journal_space();
        self.waited = rotation.map_err(|error| match error {
            TablesError::Later(error) => not_now(error, during),
            TablesError::Final(error) => self.failed(error, FailedStep::Write, during),
        })?;
        Ok(engine)
    }

    fn check_space(&self, bytes_min: u64, during: &'static str) -> Result<(), StoreError> {
        if bytes_min == 0 {
            return Ok(());
        }
        // A file system that does not tell has space until a write fails.
        match available_bytes(self.path()) {
            Ok(bytes) if bytes < bytes_min => Err(StoreError::new(ErrorKind::NoSpace, during)
                .because(format!("{bytes} bytes are free, {bytes_min} are needed"))),
            _ => Ok(()),
        }
    }

    /// What a failed write means, and what it makes of the store.
    pub(crate) fn failed(
        &mut self,
        error: fjall::Error,
        step: FailedStep,
        during: &'static str,
    ) -> StoreError {
        let io = io_cause(&error).filter(|_| step == FailedStep::Write);
        let shortage = io.and_then(shortage);
        self.mode = shortage.map_or(Mode::Poisoned, |_| Mode::Reopen);
        if let (Mode::Poisoned, Some(directory)) = (self.mode, &self.directory) {
            directory.note_poisoned(&format!("{during}: {error}"));
        }
        StoreError::new(shortage.unwrap_or(ErrorKind::Poisoned), during).because(error)
    }

    /// What a write that did not succeed means. After one that the journal refused, and before
    /// which nothing of the same commit was written, everything can go on.
    pub(crate) fn failed_write(
        &mut self,
        error: Unwritten,
        partly: bool,
        during: &'static str,
    ) -> StoreError {
        match error {
            Unwritten::Refused(fjall::Error::Io(io)) if is_shortage(&io) && !partly => {
                not_now(io.into(), during)
            }
            Unwritten::Later(error) => {
                if partly {
                    self.mode = Mode::Reopen;
                }
                not_now(error, during)
            }
            Unwritten::Refused(error) | Unwritten::Unknown(error) => {
                self.failed(error, FailedStep::Write, during)
            }
        }
    }

    /// Clearing rows away failed in the middle, by reading or by writing; what was begun is
    /// finished by opening again.
    pub(crate) fn interrupted(&mut self, error: TablesError, during: &'static str) -> StoreError {
        match error {
            TablesError::Final(error) => self.failed(error, FailedStep::Write, during),
            TablesError::Later(error) => {
                self.mode = Mode::Reopen;
                not_now(error, during)
            }
        }
    }

    /// Makes everything written durable, and only then the new states the acknowledged ones.
    pub(crate) fn acknowledge(
        &mut self,
        engine: &Engine,
        next: impl IntoIterator<Item = (VbId, AcknowledgedVb)>,
        during: &'static str,
    ) -> Result<(), StoreError> {
        engine
            .sync()
            .map_err(|error| self.failed(error, FailedStep::Sync, during))?;
        let mut notes = Vec::new();
        for (vb, state) in next {
            let tail = DurableTail {
                high_seqno: state.high_seqno,
                commit: state.commit,
            };
            notes.push((vb, Some(tail)));
            self.states.insert(vb, state);
        }
        if let Err(error) = self.tails.note(notes.into_iter()) {
            // The commit is durable without it; only a later loss would be noticed less well.
            tracing::warn!(%error, "cannot note the last commit in the tails file");
        }
        Ok(())
    }

    /// Forgets vBuckets before their rows go, so that their absence is never taken for a loss.
    pub(crate) fn forget(&mut self, vbs: &[VbId], during: &'static str) -> Result<(), StoreError> {
        let noted = self
            .tails
            .note(vbs.iter().map(|vb| (*vb, None)))
            .and_then(|()| self.tails.sync());
        for vb in vbs {
            self.states.remove(*vb);
        }
        noted.map_err(|error| {
            let kind = shortage(&error).unwrap_or(ErrorKind::Io);
            self.mode = Mode::Reopen;
            StoreError::new(kind, during).because(error)
        })
    }

    /// Opens the database again, and finds out what of the failed commits is there.
    fn reopen(
        &mut self,
        slot: &RwLock<Option<Arc<Engine>>>,
        options: &DiskOptions,
        during: &'static str,
    ) -> Result<(), StoreError> {
        let mut slot = slot.write();
        if let Some(engine) = slot.take()
            && let Err(engine) = Arc::try_unwrap(engine)
        {
            *slot = Some(engine);
            return Err(StoreError::new(ErrorKind::NoSpace, during)
                .because("snapshots are held; the database cannot be opened again yet"));
        }
        let Some(directory) = &self.directory else {
            return Err(StoreError::new(ErrorKind::Closed, during));
        };
        let failed = |error| match error {
            EngineError::Database(error) => not_now(error, during),
            error @ EngineError::Record(..) => error.into_store_error(during),
        };
        let acknowledged: Vec<_> = self.tails.all().collect();
        let engine = Engine::open(directory, options, &self.background, &acknowledged);
        let engine = Arc::new(engine.map_err(failed)?);
        let found = engine.recover().map_err(failed)?;
        self.adopt(&engine, found, during)?;
        *slot = Some(engine);
        self.mode = Mode::Ready;
        tracing::info!("the store is open again after a shortage");
        Ok(())
    }

    /// Compares what is there with what was acknowledged.
    fn adopt(
        &mut self,
        engine: &Arc<Engine>,
        found: Vec<(VbId, StoredVb)>,
        during: &'static str,
    ) -> Result<(), StoreError> {
        let mut states = AcknowledgedVbs::default();
        for (vb, stored) in found {
            let acknowledged = self.states.remove(vb).unwrap_or_default();
            let mut state = AcknowledgedVb::of(&stored, acknowledged.epoch);
            if stored.commit < acknowledged.commit {
                return Err(self.lost(vb, during));
            }
            if stored.commit > acknowledged.commit {
                let (after, high) = (acknowledged.high_seqno, stored.record.high_seqno);
                state.orphans = orphans(engine, vb, after, high)
                    .map_err(|error| error.into_store_error(during))?;
                self.last_commit = self.last_commit.max(stored.commit);
            }
            states.insert(vb, state);
        }
        let missing = self.states.keys().next();
        if let Some(vb) = missing {
            return Err(self.lost(vb, during));
        }
        self.states = states;
        Ok(())
    }

    fn lost(&mut self, vb: VbId, during: &'static str) -> StoreError {
        self.mode = Mode::Poisoned;
        StoreError::new(ErrorKind::Poisoned, during)
            .of(vb)
            .because("acknowledged commits are lost")
    }

    /// As if every commit after `acknowledged` had failed for want of space.
    #[cfg(test)]
    pub(crate) fn pretend_failed(&mut self, acknowledged: AcknowledgedVbs) {
        self.states = acknowledged;
        self.mode = Mode::Reopen;
    }

    /// Ends everything; see `KvStore::close`.
    pub(crate) fn close(&mut self, engine: Option<Arc<Engine>>) -> Result<(), StoreError> {
        let during = "closing";
        let mode = std::mem::replace(&mut self.mode, Mode::Closed);
        let Some(directory) = self.directory.take() else {
            return Ok(());
        };
        let kind = match mode {
            Mode::Ready => None,
            Mode::Reopen => Some(ErrorKind::NoSpace),
            Mode::Poisoned | Mode::Closed => Some(ErrorKind::Poisoned),
        };
        if let Some(kind) = kind {
            return Err(StoreError::new(kind, during));
        }
        let synced = engine.as_ref().map_or(Ok(()), |engine| engine.sync());
        synced.map_err(|error| StoreError::new(ErrorKind::Poisoned, during).because(error))?;
        drop(engine);
        self.tails
            .sync()
            .and_then(|()| directory.mark_clean())
            .map_err(|error| {
                let kind = shortage(&error).unwrap_or(ErrorKind::Io);
                StoreError::new(kind, during).because(error)
            })
    }
}

/// What it means that something was not done and may be tried again.
fn not_now(error: fjall::Error, during: &'static str) -> StoreError {
    match io_cause(&error).and_then(shortage) {
        Some(kind) => StoreError::new(kind, during).because(error),
        None => read_error(error, during),
    }
}

/// Keys and seqnos of the rows above `after`, up to `high`.
fn orphans(
    engine: &Arc<Engine>,
    vb: VbId,
    after: Seqno,
    high: Seqno,
) -> Result<BTreeMap<Name, Seqno>, EngineError> {
    let mut found = BTreeMap::new();
    for row in View::open(Arc::clone(engine), vb).rows(after.next(), high.next()) {
        let (seqno, value) = row?;
        let (meta, key) =
            row_meta(vb, seqno, &value).map_err(|error| EngineError::Record(vb, error))?;
        found.insert(name(meta.kind, key), seqno);
    }
    Ok(found)
}
