//! The store: its directory, the one writer, and the open database.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::VbId;
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::durable_tails::{self, DurableTails};
use super::engine::Engine;
use super::fault::{EngineError, io_cause};
use super::layout::{self, Directory, OpenError, OpenErrorKind};
use super::options::DiskOptions;
use super::view::DiskSnapshot;
use super::writer::Writer;
use super::{merge, table_lists, threads};
use crate::work::Threads;
use crate::{ErrorKind, StoreError};

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
    pub(super) path: PathBuf,
    pub(super) options: DiskOptions,
    /// Held while something is written. Taken before `engine`.
    pub(super) writer: Mutex<Writer>,
    /// `None` while it is opened again, and after closing.
    pub(super) engine: RwLock<Option<Arc<Engine>>>,
    pub(super) background: Arc<merge::Background>,
    /// The directory says that there is a manifest.
    pub(super) manifest_noted: AtomicBool,
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
        Self::open_with(Arc::new(threads::OwnThreads), path, options)
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
        let fresh = directory.fresh;
        let background = Arc::new(merge::Background::new(threads));
        let io = |error: std::io::Error| {
            OpenError::new(path, layout::io_kind(&error), &error.to_string())
        };
        let acknowledged = durable_tails::read(&directory.tails()).map_err(io)?;
        let engine = Engine::open(&directory, &options, &background, &acknowledged)
            .map_err(|error| engine_open_error(&directory, error))?;
        let engine = Arc::new(engine);
        let found = engine
            .recover()
            .map_err(|error| engine_open_error(&directory, error))?;
        let mut tails = DurableTails::open(&directory.tails()).map_err(io)?;
        if !directory.clean {
            tails.write_again().map_err(io)?;
        }
        if let Some(reason) = &directory.poisoned {
            let path = path.display();
            tracing::warn!(%path, reason, "a sync failed before the last stop; what was read of it is written again");
        }
        let poisoned = directory.poisoned.is_some();
        let clean = directory.begin().map_err(io)? || fresh;
        engine.value_log.begin();
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

    /// The writer and the database, ready to be written to.
    pub(super) fn write_access(
        &self,
        during: &'static str,
    ) -> Result<(MutexGuard<'_, Writer>, Arc<Engine>), StoreError> {
        let mut writer = self.writer.lock();
        let engine = writer.ready(&self.engine, &self.options, during)?;
        Ok((writer, engine))
    }

    /// A view of a vBucket whose rows are to be thinned out, with its epoch; `None` when it has no record.
    pub(super) fn thinning(
        &self,
        vb: VbId,
        during: &'static str,
    ) -> Result<Option<(u64, DiskSnapshot)>, StoreError> {
        let (writer, engine) = self.write_access(during)?;
        let Some(state) = writer.states().get(vb) else {
            return Ok(None);
        };
        Ok(Some((state.epoch, DiskSnapshot::open(engine, vb)?)))
    }

    /// The directory, unless the store is closed.
    pub(super) fn open_path(&self, during: &'static str) -> Result<&Path, StoreError> {
        if self.writer.lock().is_closed() {
            return Err(StoreError::new(ErrorKind::Closed, during));
        }
        Ok(&self.path)
    }

    /// The database, for reading.
    pub(super) fn reader(&self, during: &'static str) -> Result<Arc<Engine>, StoreError> {
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
    pub fn cache_room(&self) -> u64 {
        let engine = self.engine.try_read();
        let engine = engine.as_deref().and_then(Option::as_ref);
        engine.map_or(0, |engine| engine.cache_room())
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
            // Without what is around an error that has words of its own.
            let reason =
                io_cause(&error).map_or_else(|| error.to_string(), std::io::Error::to_string);
            (database_error_kind(&error), reason)
        }
    };
    if kind != OpenErrorKind::Damaged || reason.contains(&*path.to_string_lossy()) {
        return OpenError::new(path, kind, &reason);
    }
    // The database does not tell which of its files it could not read.
    let file = file
        .or_else(|| table_lists::damaged(&database).map(|error| error.to_string()))
        .unwrap_or_else(|| database.display().to_string());
    OpenError::new(path, kind, &format!("{file}: {reason}"))
}

fn database_error_kind(error: &fjall::Error) -> OpenErrorKind {
    if matches!(error, fjall::Error::Locked) {
        return OpenErrorKind::InUse;
    }
    let io = io_cause(error).filter(|io| {
        // The directory was there when it was locked: what is missing now is a part of it.
        // The others come of places that cannot be.
        !matches!(
            io.kind(),
            std::io::ErrorKind::NotFound
                | std::io::ErrorKind::InvalidInput
                | std::io::ErrorKind::UnexpectedEof
                | std::io::ErrorKind::InvalidData
        )
    });
    io.map_or(OpenErrorKind::Damaged, layout::io_kind)
}
