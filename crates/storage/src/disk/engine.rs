//! What is behind the disk store: sorted tables, and the journal before them.
//!
//! ```text
//! group -> journal -> log index (where each row lies in the journals)
//!                       | flush, when a journal is full and another one has taken over:
//!                       v one sorted run
//!                     tables (fjall)
//! ```
//!
//! Nothing is written into the tables but sorted runs, so their own journal and memtable stay
//! empty.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fjall::{AbstractTree, Database, Keyspace, Slice};
use model::{Seqno, VbId};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::fault::{EngineError, is_shortage};
use super::flush::Flush;
use super::journal::{Entry, Group, Journal};
use super::layout::Directory;
use super::log_index::{JournalIndex, LogIndex, RECORD, RowLocation, Staged};
use super::merge::{Background, Merger, Tables, TablesError};
use super::options::DiskOptions;
use super::per_vb::PerVb;
use super::rotation::Rotation;
use super::survey::{Acknowledged, Survey};
use super::value_log::ValueLog;
use crate::record::{VbValue, encode_vb, row_key};

/// An open database. Dropping the last handle closes it. Fields drop in order: the flush first.
pub(crate) struct Engine {
    pub(crate) rotation: Rotation,
    /// Dropped after the flush, which may wait for it.
    _merger: Merger,
    pub(crate) rows: Keyspace,
    pub(crate) db: Database,
    pub(crate) value_log: Arc<ValueLog>,
    pub(crate) index: Arc<RwLock<LogIndex>>,
    /// Taken before `index`.
    pub(crate) journal: Arc<Mutex<Journal>>,
    journal_bytes_max: u64,
    /// Bytes of the journal that is written into, as of the last look at it.
    journal_bytes: AtomicU64,
    blob_bytes_min: usize,
    /// Whether any row of the journals may be one that will lie apart.
    journaled_large: AtomicBool,
}

impl Engine {
    /// Opens or makes the database in `directory/db`, and the journal beside it, once all that was
    /// acknowledged is proven to be there.
    ///
    /// # Errors
    /// Before that nothing is removed or written.
    pub(crate) fn open(
        directory: &Directory,
        options: &DiskOptions,
        background: &Arc<Background>,
        acknowledged: &Acknowledged,
    ) -> Result<Self, EngineError> {
        directory.check_database()?;
        if !directory.fresh {
            // Before anything is removed or written that depends on them.
            directory.sync_names()?;
            if !directory.clean {
                Journal::write_again(directory.path())?;
            }
        }
        let value_log = Arc::new(ValueLog::read(directory.path())?);
        let Survey {
            db,
            rows,
            flushed,
            journals,
            mut indexes,
            journaled_large,
        } = Survey::of(directory, options, &value_log, acknowledged)?;
        value_log.clear_spares()?;
        if directory.fresh {
            directory.sync_names()?;
        }
        if directory.keeps_journals() {
            value_log.begin();
        }
        let (sealed, journal) = Journal::open(
            directory.path(),
            journals,
            options.journal_bytes,
            &value_log,
        )?;
        for vb in indexes.values_mut().flat_map(PerVb::values_mut) {
            vb.settle();
        }
        let mut index = |file: &Arc<File>, generation| JournalIndex {
            file: Arc::clone(file),
            vbs: indexes.remove(&generation).unwrap_or_default(),
            bytes: sealed.as_ref().map_or(0, |sealed| sealed.bytes),
        };
        let index = LogIndex {
            current: index(journal.file(), journal.generation()),
            sealed: sealed
                .as_ref()
                .map(|sealed| Arc::new(index(&sealed.file, sealed.generation))),
        };
        let (index, journal) = (Arc::new(RwLock::new(index)), Arc::new(Mutex::new(journal)));
        let tables = Tables::new(rows.clone(), db.clone(), flushed, Arc::clone(&value_log));
        let merger = Merger::start(tables, Arc::clone(background), options)?;
        let flush = Flush {
            merging: Arc::clone(&merger.shared),
            index: Arc::clone(&index),
            journal: Arc::clone(&journal),
            value_log: Arc::clone(&value_log),
            referred: options.refer_bytes_min as usize..options.blob_bytes_min as usize,
        };
        Ok(Self {
            rotation: Rotation::new(flush, sealed),
            _merger: merger,
            rows,
            db,
            value_log,
            index,
            journal,
            journal_bytes_max: options.journal_bytes,
            journal_bytes: AtomicU64::new(0),
            blob_bytes_min: options.blob_bytes_min as usize,
            journaled_large: AtomicBool::new(journaled_large),
        })
    }

    /// Begins a group of changes, which count together or not at all. One at a time.
    pub(crate) fn changes(&self) -> ChangeGroup<'_> {
        let mut journal = self.journal.lock();
        ChangeGroup {
            engine: self,
            group: journal.begin(),
            journal,
            staged: Staged::default(),
        }
    }

    /// Makes everything written durable. After a failure nothing is known of what is on disk.
    pub(crate) fn sync(&self) -> Result<(), fjall::Error> {
        Ok(self.journal.lock().sync()?)
    }

    /// Makes space in the journal for another commit; returns whether that took waiting.
    pub(crate) fn ensure_journal_space(&self) -> Result<bool, TablesError> {
        self.rotation.ensure_space(self.journal_bytes_max)
    }

    /// Whether there may be rows that lie apart, or will.
    pub(crate) fn may_have_large(&self) -> bool {
        let has_blobs = || {
            self.rows
                .tree
                .current_version()
                .blob_files
                .iter()
                .next()
                .is_some()
        };
        self.journaled_large.load(Ordering::Relaxed) || has_blobs()
    }

    /// Bytes that the cache of blocks may still grow by.
    pub(crate) fn cache_room(&self) -> u64 {
        let (all, inlined) = (self.db.cache_capacity(), self.db.cache_size());
        all.saturating_sub(inlined)
    }

    /// Bytes of the journals; while one is written or synced, as of the last call before that. Waits
    /// for neither.
    pub(crate) fn journal_bytes(&self) -> u64 {
        if let Some(journal) = self.journal.try_lock() {
            self.journal_bytes.store(journal.bytes(), Ordering::Relaxed);
        }
        self.journal_bytes.load(Ordering::Relaxed) + self.rotation.sealed_bytes()
    }

    /// The value of a row as it is now.
    pub(crate) fn get(&self, vb: VbId, seqno: Seqno) -> Result<Option<Slice>, fjall::Error> {
        let found = self.index.read().find(vb, seqno);
        match found {
            RowLocation::Journal(file, place) => Ok(Some(place.read(&file)?)),
            RowLocation::Gone => Ok(None),
            RowLocation::Tables => {
                let key = row_key(vb, seqno);
                self.value_log.look_up(&key, || self.rows.get(key))
            }
        }
    }
}

/// What it means that the journal took no more.
pub(crate) fn not_written(error: fjall::Error) -> TablesError {
    match &error {
        fjall::Error::Io(io) if is_shortage(io) => TablesError::Later(error),
        _ => TablesError::Final(error),
    }
}

/// A group of changes on its way. Dropped before [`ChangeGroup::write`], it never was.
pub(crate) struct ChangeGroup<'a> {
    engine: &'a Engine,
    journal: MutexGuard<'a, Journal>,
    group: Group,
    staged: Staged,
}

impl ChangeGroup<'_> {
    /// A row, or at [`RECORD`] a record, as [`Journal::put`] takes it. Tells its bytes.
    pub(crate) fn put<'v>(
        &mut self,
        vb: VbId,
        seqno: Seqno,
        encode: impl FnOnce(&mut Vec<u8>) -> &'v [u8],
    ) -> Result<usize, fjall::Error> {
        let key = row_key(vb, seqno);
        let place = self.journal.put(&mut self.group, &key, encode)?;
        if place.length() >= self.engine.blob_bytes_min {
            self.engine.journaled_large.store(true, Ordering::Relaxed);
        }
        self.staged.push(Entry::Put(vb, seqno, place));
        Ok(place.length())
    }

    /// The record of a vBucket.
    pub(crate) fn put_record(
        &mut self,
        vb: VbId,
        value: VbValue<'_>,
    ) -> Result<usize, fjall::Error> {
        self.put(vb, RECORD, |out| {
            encode_vb(vb, value, out);
            &[]
        })
    }

    /// Takes a row, or a record, away.
    pub(crate) fn remove(&mut self, vb: VbId, seqno: Seqno) -> Result<(), fjall::Error> {
        self.journal.remove(&mut self.group, &row_key(vb, seqno))?;
        self.staged.push(Entry::Remove(vb, seqno));
        Ok(())
    }

    /// Writes the group: it is seen from now on, and durable after [`Engine::sync`].
    pub(crate) fn write(mut self) -> Result<(), fjall::Error> {
        self.journal.finish(self.group)?;
        self.staged
            .apply(&mut self.engine.index.write().current.vbs);
        Ok(())
    }
}
