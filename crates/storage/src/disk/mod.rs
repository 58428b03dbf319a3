//! The store on disk. Files and directories are touched nowhere else.
//!
//! ```text
//! DiskStore -- writer: Mutex<Writer>        one at a time: commit, rollback, remove, compact
//!     |          |- directory               LOCK, FORMAT, CLEAN
//!     |          |- tails                   last acknowledged commit of each vBucket
//!     |          `- memos                   last acknowledged state of each vBucket
//!     `------- engine: RwLock<Option<Arc>>  the database; taken out to be opened again
//! ```
//!
//! A commit goes into the journal, as one group that counts as a whole or not at all. A full
//! journal becomes tables in the background, while an empty one has taken over; a very large commit
//! becomes tables at once, with what is journaled. Rows above the high seqno
//! of their vBucket's record do not count; opening removes them.
//!
//! A failed sync of the journal poisons the store, because what the device holds is unknown from then
//! on. A full file system does not: what was begun of the commit does not count. What fails in the
//! background (a journal that becomes tables, a merge of tables) is given up whole and tried again; commits
//! go on while the journal has room.

mod commit;
mod drain;
mod engine;
mod fault;
mod framed;
mod front;
mod history;
mod journal;
mod kept;
mod layout;
mod links;
mod lists;
mod locate;
mod maintain;
mod manifest;
mod memo;
mod merge;
pub mod names;
mod per_vb;
mod place;
mod recover;
mod room;
mod salvage;
mod segments;
mod survey;
mod tables;
mod tails;
mod threads;
mod view;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::{Document, Meta, Seqno, VbId, VbRecord};
use parking_lot::{Mutex, RwLock};

use crate::port::{
    CommitInfo, Compacted, DamagedRow, DiskUsage, Keep, KvStore, LoadedVb, Snapshot, Upkeep,
    VbBatch, Want,
};
use crate::work::Threads;
use crate::{ErrorKind, HistoryKept, HistoryLimits, StoreError};
use engine::Engine;
use fault::EngineError;
use layout::Directory;
use tails::Tails;
use view::{DiskSnapshot, View};
use writer::Writer;

pub use layout::{OpenError, OpenErrorKind};
pub use salvage::{SalvageError, Salvaged, salvage};

/// Sizes of a [`DiskStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Bytes of blocks read from disk that are kept in memory; taken only as blocks are read.
    pub cache_bytes: u64,
    /// Bytes of the journal at which it becomes tables. In memory it takes 16 bytes a row.
    pub journal_bytes: u64,
    /// A commit is refused with `NoSpace` while fewer bytes are free on the file system, so that
    /// what runs in the background does not meet a full one.
    pub free_bytes_min: u64,
    /// A vBucket's batch of at least so many changes is written as tables at once, past the
    /// journal: it is written once instead of twice, but takes some nine syncs.
    pub direct_rows_min: usize,
    /// Rows of at least so many bytes lie in files of their own beside the tables. A merge holds
    /// a row of each run in memory, and writes all rows but these anew. A store keeps the number
    /// with which it was made.
    pub apart_bytes_min: u32,
    /// Rows of at least so many bytes, and below those apart, are not copied when a journal becomes
    /// tables: these refer to them until they are merged.
    pub refer_bytes_min: u32,
    /// A merge of runs does not copy rows of the youngest journals either, as long as these hold at
    /// most so many percent of what lives: most of them are dead by the time of a later one.
    pub left_percent: u32,
    /// Bytes that live, up to which a merge of runs takes all tables there are. Beyond that it takes some of
    /// them, and leaves no rows in journals.
    pub whole_bytes_max: u64,
    /// When no tables were added for so long, what is dead in them is merged away, ...
    pub quiet: Duration,
    /// ... if it is at least so many bytes, and half of all.
    pub dead_bytes_min: u64,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 16 << 20,
            journal_bytes: 32 << 20,
            free_bytes_min: 32 << 20,
            direct_rows_min: 30_000,
            apart_bytes_min: 1 << 20,
            refer_bytes_min: 512,
            left_percent: 130,
            whole_bytes_max: 6 << 30,
            quiet: Duration::from_secs(2),
            dead_bytes_min: 64 << 20,
        }
    }
}

/// What opening a [`DiskStore`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Whether the store is a new one.
    pub fresh: bool,
    /// Whether the last stop was a clean one; after any other, every active vBucket begins a new
    /// history. A fresh store is clean.
    pub clean: bool,
    /// Whether it came after a failed sync. What was read of the files then is on disk by now.
    pub poisoned: bool,
}

/// A [`KvStore`] in a directory, which is locked for this process until the store is dropped or
/// closed.
pub struct DiskStore {
    path: PathBuf,
    options: DiskOptions,
    /// Held while something is written. Taken before `engine`.
    writer: Mutex<Writer>,
    /// `None` while it is opened again, and after closing.
    engine: RwLock<Option<Arc<Engine>>>,
    background: Arc<merge::Background>,
    /// The directory says that there is a manifest.
    manifest_noted: AtomicBool,
}

impl DiskStore {
    /// Opens the store in directory `path`, or makes one in an empty or missing directory.
    ///
    /// # Errors
    /// See [`OpenErrorKind`]; what is in the directory stays as it is.
    ///
    /// Cost: reads one record per vBucket, replays the journal ([`DiskOptions::journal_bytes`] and one commit of it);
    /// making a store takes 34 syncs, 31 of them the database's.
    pub fn open(path: &Path, options: DiskOptions) -> Result<(Self, Opened), OpenError> {
        Self::open_with(threads::OwnThreads::shared(), path, options)
    }

    /// [`DiskStore::open`], with what runs in the background run by `threads` instead of threads of
    /// its own.
    ///
    /// # Errors
    /// As [`DiskStore::open`].
    pub fn open_with(
        threads: Arc<dyn Threads>,
        path: &Path,
        options: DiskOptions,
    ) -> Result<(Self, Opened), OpenError> {
        let mut directory = Directory::lock(path)?;
        let fresh = directory.is_fresh();
        let background = Arc::new(merge::Background::new(threads));
        let io =
            |error: std::io::Error| open_error(path, layout::io_kind(&error), &error.to_string());
        let acknowledged = tails::read(&directory.tails()).map_err(io)?;
        let engine = Engine::open(&directory, &options, &background, &acknowledged)
            .map_err(|error| engine_open_error(&directory, error))?;
        let engine = Arc::new(engine);
        let found = engine
            .recover()
            .map_err(|error| engine_open_error(&directory, error))?;
        let mut tails = Tails::open(&directory.tails()).map_err(io)?;
        if !directory.is_clean() {
            tails.write_again().map_err(io)?;
        }
        if let Some(reason) = directory.poisoned() {
            let path = path.display();
            tracing::warn!(%path, reason, "a sync failed before the last stop; what was read of it is written again");
        }
        let poisoned = directory.poisoned().is_some();
        let clean = directory.begin().map_err(io)? || fresh;
        engine.kept.begin();
        let store = Self {
            path: path.to_owned(),
            options,
            writer: Mutex::new(Writer::new(directory, tails, &found, &background)),
            engine: RwLock::new(Some(engine)),
            background,
            manifest_noted: AtomicBool::new(false),
        };
        let opened = Opened {
            fresh,
            clean,
            poisoned,
        };
        Ok((store, opened))
    }

    /// The directory, unless the store is closed.
    fn open_path(&self, during: &'static str) -> Result<PathBuf, StoreError> {
        let writer = self.writer.lock();
        if writer.is_closed() {
            return Err(StoreError::new(ErrorKind::Closed, during));
        }
        Ok(writer.path().to_owned())
    }

    /// The database, for reading.
    fn reader(&self, during: &'static str) -> Result<Arc<Engine>, StoreError> {
        if let Some(engine) = &*self.engine.read() {
            return Ok(Arc::clone(engine));
        }
        let kind = if self.writer.lock().is_closed() {
            ErrorKind::Closed
        } else {
            ErrorKind::Io
        };
        Err(StoreError::new(kind, during).because("the database is not open"))
    }

    /// Bytes that the cache of blocks may still grow by; 0 while the database is being opened.
    #[must_use]
    pub fn cache_room(&self) -> u64 {
        let engine = self.engine.try_read();
        let engine = engine.as_deref().and_then(Option::as_ref);
        engine.map_or(0, |engine| engine.cache_room())
    }
}

impl KvStore for DiskStore {
    fn load(&self) -> Result<Vec<LoadedVb>, StoreError> {
        let during = "loading";
        let engine = self.reader(during)?;
        let vbs: Vec<VbId> = self.writer.lock().memos().keys().collect();
        let mut loaded = Vec::with_capacity(vbs.len());
        for vb in vbs {
            let stored = View::open(Arc::clone(&engine), vb).stored_vb();
            let Some(stored) = stored.map_err(|error| error.into_store_error(during))? else {
                continue;
            };
            loaded.push(LoadedVb {
                vb,
                record: stored.record,
            });
        }
        Ok(loaded)
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
        commit::commit(self, batches)
    }

    fn fetch(&self, vb: VbId, wants: &[Want<'_>]) -> Result<Vec<Option<Document>>, StoreError> {
        let engine = self.reader("fetching documents")?;
        let fetch = |want| view::fetch(&engine, vb, want);
        wants.iter().map(fetch).collect()
    }

    fn may_have_large(&self) -> bool {
        let engine = self.engine.try_read();
        let engine = engine.as_deref().and_then(Option::as_ref);
        engine.is_none_or(|engine| engine.may_have_large())
    }

    fn snapshot(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        Ok(Box::new(DiskSnapshot::open(
            self.reader("opening a snapshot")?,
            vb,
        )?))
    }

    fn rollback(&self, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError> {
        maintain::rollback(self, vb, to)
    }

    fn compact(
        &self,
        vb: VbId,
        keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
    ) -> Result<Compacted, StoreError> {
        maintain::compact(self, vb, keep)
    }

    fn may_have_history(&self) -> Result<bool, StoreError> {
        let mut writer = self.writer.lock();
        let directory = writer.directory_mut();
        let directory =
            directory.ok_or_else(|| StoreError::new(ErrorKind::Closed, "looking for a history"))?;
        Ok(directory.has_history())
    }

    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Result<HistoryKept, StoreError> {
        history::trim(self, vb, limits, dead)
    }

    fn remove(&self, vbs: &[VbId]) -> Result<(), StoreError> {
        maintain::remove(self, vbs)
    }

    fn manifest(&self) -> Result<Option<Vec<u8>>, StoreError> {
        manifest::read(&self.open_path(manifest::READING)?)
    }

    fn set_manifest(&self, text: &[u8]) -> Result<(), StoreError> {
        // A commit holds the writer through its sync, and it is only needed for the first manifest.
        let is_open = self
            .engine
            .try_read()
            .is_some_and(|engine| engine.is_some());
        if is_open && self.manifest_noted.load(Ordering::Acquire) {
            return manifest::write(&self.path, text);
        }
        manifest::write(&self.open_path(manifest::WRITING)?, text)?;
        let mut writer = self.writer.lock();
        let Some(directory) = writer.directory_mut() else {
            return Err(StoreError::new(ErrorKind::Closed, manifest::WRITING));
        };
        directory.note_manifest().map_err(manifest::not_written)?;
        self.manifest_noted.store(true, Ordering::Release);
        Ok(())
    }

    fn locate(&self, vb: VbId, after: Seqno, high: Seqno) -> DamagedRow {
        self.reader("looking for damage")
            .map(|engine| locate::locate(&engine, &self.path, vb, (after, high)))
            .unwrap_or_default()
    }

    fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        // Whoever asks serves clients: a commit is not waited for, nor the disk that holds it up.
        let during = "measuring";
        let io = |why: &dyn std::fmt::Display| {
            StoreError::new(ErrorKind::Io, during).because(why.to_string())
        };
        let opening = || io(&"the database is being opened");
        let engine = self.engine.try_read().ok_or_else(opening)?.clone();
        let engine = engine.map_or_else(|| self.reader(during), Ok)?;
        let data_bytes = engine.rows.disk_space() + engine.journal_bytes() + engine.kept.bytes();
        let file_bytes = layout::bytes_below(&self.path).map_err(|error| io(&error))?;
        Ok(DiskUsage {
            data_bytes,
            file_bytes,
        })
    }

    fn upkeep(&self) -> Upkeep {
        self.background.upkeep()
    }

    fn close(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock();
        let engine = self.engine.write().take();
        writer.close(engine)
    }
}

fn open_error(path: &Path, kind: OpenErrorKind, reason: &str) -> OpenError {
    OpenError {
        path: path.to_owned(),
        kind,
        reason: reason.to_owned(),
    }
}

fn engine_open_error(directory: &Directory, error: EngineError) -> OpenError {
    let (path, database) = (directory.path(), directory.database());
    let mut file = None;
    let (kind, reason) = match error {
        EngineError::Record(vb, error) => {
            (OpenErrorKind::Damaged, format!("record of {vb}: {error}"))
        }
        EngineError::Database(error) => {
            if matches!(error, fjall::Error::InvalidVersion(_)) {
                file = Some(database.join("version").display().to_string());
            }
            (database_error_kind(&error), database_reason(&error))
        }
    };
    if kind != OpenErrorKind::Damaged || reason.contains(&*path.to_string_lossy()) {
        return open_error(path, kind, &reason);
    }
    // The database does not tell which of its files it could not read.
    let file = file
        .or_else(|| lists::damaged(&database).map(|error| error.to_string()))
        .unwrap_or_else(|| database.display().to_string());
    open_error(path, kind, &format!("{file}: {reason}"))
}

/// Without what is around an error that has words of its own.
fn database_reason(error: &fjall::Error) -> String {
    match error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => io.to_string(),
        _ => error.to_string(),
    }
}

fn database_error_kind(error: &fjall::Error) -> OpenErrorKind {
    match error {
        fjall::Error::Locked => OpenErrorKind::InUse,
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => match io.kind() {
            // The directory was there when it was locked: what is missing now is a part of it.
            // The others come of places that cannot be.
            std::io::ErrorKind::NotFound
            | std::io::ErrorKind::InvalidInput
            | std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::InvalidData => OpenErrorKind::Damaged,
            _ => layout::io_kind(io),
        },
        _ => OpenErrorKind::Damaged,
    }
}

#[cfg(test)]
mod tests;
