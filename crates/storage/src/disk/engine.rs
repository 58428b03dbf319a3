//! What is behind the disk store: sorted tables, and the journal in front of them.
//!
//! ```text
//! group -> journal -> front (where each row lies in the journals)
//!                       | drain, when a journal is full and another one has taken over:
//!                       v one sorted run
//!                     tables (fjall)
//! ```
//!
//! Nothing is written into the tables but sorted runs, so their own journal and memtable stay
//! empty.

use std::fs::File;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fjall::compaction::filter::Factory;
use fjall::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PartitioningPolicy, PinningPolicy,
};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions,
    Slice,
};
use model::{Seqno, VbId};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::DiskOptions;
use super::drain::Drain;
use super::front::{Found, Front, Layer, RECORD, Staged};
use super::journal::{Entry, Group, Journal};
use super::kept::{Kept, TakingOver};
use super::layout::Directory;
use super::merge::{Background, Merger, Stuck, Tables};
use super::per_vb::PerVb;
use super::room::Room;
use super::survey::{Acknowledged, ROWS_END, Survey, vbs};
use super::view::View;
use super::writer::is_shortage;
use crate::history::{HISTORY_END, place_of};
use crate::record::{DecodeError, StoredVb, VbValue, encode_vb, row_key};
use crate::{ErrorKind, StoreError};

/// Rows that one group removes at most when many go: some 100 kB.
const ROWS_PER_GROUP: usize = 5_000;

/// Bytes of the tables' own journals above which old ones are worked off; the least that the
/// database takes.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// Bytes of the tables' own memtable; only a store of an earlier format has anything in it.
const MEMTABLE_BYTES: u64 = 4 << 20;

/// Bits of the filter that tells which of these runs a row is not in: one in a hundred is asked
/// in vain. What they were merged into has no filters; a row that is looked for is there.
const FILTER_BITS: f32 = 10.0;

/// Files kept open.
const OPEN_FILES_MAX: usize = 128;

/// An open database. Dropping the last handle closes it. Fields drop in order: who drains first.
pub(crate) struct Engine {
    pub(crate) room: Room,
    /// Dropped after who drains, who may wait for it.
    _merger: Merger,
    pub(crate) rows: Keyspace,
    pub(crate) db: Database,
    pub(crate) kept: Arc<Kept>,
    pub(crate) front: Arc<RwLock<Front>>,
    /// Taken before `front`.
    pub(crate) journal: Arc<Mutex<Journal>>,
    journal_bytes_max: u64,
    /// Bytes of the journal that is written into, when somebody could look last.
    journal_bytes: AtomicU64,
    apart_bytes_min: usize,
    /// Whether any row of the journals may be one that will lie apart.
    journaled_large: AtomicBool,
}

/// A record that cannot be decoded, or a database that does not answer.
pub(crate) enum EngineError {
    Record(VbId, DecodeError),
    Database(fjall::Error),
}

impl From<fjall::Error> for EngineError {
    fn from(error: fjall::Error) -> Self {
        Self::Database(error)
    }
}

impl From<std::io::Error> for EngineError {
    fn from(error: std::io::Error) -> Self {
        Self::Database(error.into())
    }
}

impl EngineError {
    /// The error of a read.
    pub(crate) fn into_store_error(self, during: &'static str) -> StoreError {
        match self {
            Self::Record(vb, error) => StoreError::new(ErrorKind::Corrupt, during)
                .of(vb)
                .because(error),
            Self::Database(error) => read_error(error, during),
        }
    }
}

/// What a failed read of the database means.
pub(crate) fn read_error(error: fjall::Error, during: &'static str) -> StoreError {
    let kind = match &error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            match error.kind() {
                // Parts of files that were there when they were written.
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
                _ => ErrorKind::Io,
            }
        }
        _ => ErrorKind::Corrupt,
    };
    StoreError::new(kind, during).because(error)
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
        if !directory.is_fresh() {
            // Before anything is removed or written that depends on them.
            directory.sync_names()?;
            if !directory.is_clean() {
                Journal::write_again(directory.path())?;
            }
        }
        let kept = Arc::new(Kept::read(directory.path())?);
        let Survey {
            db,
            rows,
            drained,
            journals,
            mut layers,
            journaled_large,
        } = Survey::of(directory, options, &kept, acknowledged)?;
        kept.clear_spares()?;
        if directory.is_fresh() {
            directory.sync_names()?;
        }
        if directory.keeps_journals() {
            kept.begin();
        }
        let (sealed, journal) =
            Journal::open(directory.path(), journals, options.journal_bytes, &kept)?;
        for vb in layers.values_mut().flat_map(PerVb::values_mut) {
            vb.settle();
        }
        let mut layer = |file: &Arc<File>, generation| Layer {
            file: Arc::clone(file),
            vbs: layers.remove(&generation).unwrap_or_default(),
            bytes: sealed.as_ref().map_or(0, |sealed| sealed.bytes),
        };
        let front = Front {
            current: layer(journal.file(), journal.generation()),
            sealed: sealed
                .as_ref()
                .map(|sealed| Arc::new(layer(&sealed.file, sealed.generation))),
        };
        let (front, journal) = (Arc::new(RwLock::new(front)), Arc::new(Mutex::new(journal)));
        let tables = Tables::new(rows.clone(), db.clone(), drained, Arc::clone(&kept));
        let merger = Merger::start(tables, Arc::clone(background), options)?;
        let drain = Drain {
            merging: Arc::clone(&merger.shared),
            front: Arc::clone(&front),
            journal: Arc::clone(&journal),
            hurried: Arc::default(),
            kept: Arc::clone(&kept),
            referred: options.refer_bytes_min as usize..options.apart_bytes_min as usize,
        };
        Ok(Self {
            room: Room::new(drain, sealed),
            _merger: merger,
            rows,
            db,
            kept,
            front,
            journal,
            journal_bytes_max: options.journal_bytes,
            journal_bytes: AtomicU64::new(0),
            apart_bytes_min: options.apart_bytes_min as usize,
            journaled_large: AtomicBool::new(journaled_large),
        })
    }

    /// Begins a group of changes, which count together or not at all. One at a time.
    pub(crate) fn changes(&self) -> Changes<'_> {
        let mut journal = self.journal.lock();
        Changes {
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

    /// Makes room in the journal for another commit, and says whether that took waiting.
    pub(crate) fn make_room(&self) -> Result<bool, Stuck> {
        self.room.make(self.journal_bytes_max)
    }

    /// Whether there may be rows that lie apart, or will.
    pub(crate) fn may_have_large(&self) -> bool {
        let apart = || {
            self.rows
                .tree
                .current_version()
                .blob_files
                .iter()
                .next()
                .is_some()
        };
        self.journaled_large.load(Ordering::Relaxed) || apart()
    }

    /// Bytes that the cache of blocks may still grow by.
    pub(crate) fn cache_room(&self) -> u64 {
        let (all, taken) = (self.db.cache_capacity(), self.db.cache_size());
        all.saturating_sub(taken)
    }

    /// Bytes of the journals; while one is written or synced, as of the last call before that. Waits
    /// for neither.
    pub(crate) fn journal_bytes(&self) -> u64 {
        if let Some(journal) = self.journal.try_lock() {
            self.journal_bytes.store(journal.bytes(), Ordering::Relaxed);
        }
        self.journal_bytes.load(Ordering::Relaxed) + self.room.sealed_bytes()
    }

    /// The value of a row as it is now.
    pub(crate) fn get(&self, vb: VbId, seqno: Seqno) -> Result<Option<Slice>, fjall::Error> {
        let found = self.front.read().find(vb, seqno);
        match found {
            Found::Journal(file, place) => Ok(Some(place.read(&file)?)),
            Found::Gone => Ok(None),
            Found::Tables => {
                let key = row_key(vb, seqno);
                self.kept.look_up(&key, || self.rows.get(key))
            }
        }
    }

    /// Every vBucket with a record. Rows that count for none are removed: they lie above the high
    /// seqno of their record, or have none, because whatever removed them was cut short.
    ///
    /// Cost: four seeks per vBucket.
    pub(crate) fn recover(self: &Arc<Self>) -> Result<Vec<(VbId, StoredVb)>, EngineError> {
        let mut found = Vec::new();
        let mut removed = 0;
        let layers = self.front.read();
        let journaled = layers.layers().flat_map(|layer| layer.vbs.keys()).collect();
        drop(layers);
        for vb in vbs(&self.rows, journaled)? {
            let view = View::open(Arc::clone(self), vb);
            let stored = view.stored_vb()?;
            let end = stored
                .as_ref()
                .map_or(Seqno::ZERO, |one| one.record.high_seqno.next());
            let cleared = self.remove_rows(&view, end);
            removed += cleared.map_err(Stuck::into_error)?;
            found.extend(stored.map(|one| (vb, one)));
        }
        if removed > 0 {
            tracing::info!(rows = removed, "removed rows of what was cut short");
            self.sync()?;
        }
        Ok(found)
    }

    /// Removes the rows from seqno `from` on that `view` sees, those of the history as well, in
    /// several groups, not durably; tells how many.
    ///
    /// # Errors
    /// `Later`: what was begun is finished by opening again.
    pub(crate) fn remove_rows(&self, view: &View, from: Seqno) -> Result<usize, Stuck> {
        let mut removed = 0;
        let history = view.seqnos(place_of(from), HISTORY_END);
        let mut rows = view.seqnos(from, ROWS_END).chain(history).peekable();
        while rows.peek().is_some() {
            self.make_room()?;
            let mut changes = self.changes();
            for row in rows.by_ref().take(ROWS_PER_GROUP) {
                let seqno = row.map_err(Stuck::Later)?;
                changes.remove(view.vb, seqno).map_err(not_written)?;
                removed += 1;
            }
            changes.write().map_err(not_written)?;
        }
        Ok(removed)
    }

    /// Removes records and rows of vBuckets, not durably, in as few groups as their rows fill: each
    /// new group syncs the one before.
    ///
    /// # Errors
    /// As [`Engine::remove_rows`], with the vBucket.
    pub(crate) fn remove_vbs(self: &Arc<Self>, vbs: &[VbId]) -> Result<(), (VbId, Stuck)> {
        let mut changes = self.changes();
        let mut in_group = 0;
        for &vb in vbs {
            let view = View::open(Arc::clone(self), vb);
            let history = view.seqnos(place_of(Seqno::ZERO), HISTORY_END);
            let rows = view.seqnos(Seqno::ZERO, ROWS_END).chain(history);
            // The record goes first: rows without one do not count.
            for seqno in std::iter::once(Ok(RECORD)).chain(rows) {
                let seqno = seqno.map_err(|error| (vb, Stuck::Later(error)))?;
                if in_group == ROWS_PER_GROUP {
                    changes.write().map_err(|error| (vb, not_written(error)))?;
                    self.make_room().map_err(|stuck| (vb, stuck))?;
                    changes = self.changes();
                    in_group = 0;
                }
                let removed = changes.remove(vb, seqno);
                removed.map_err(|error| (vb, not_written(error)))?;
                in_group += 1;
            }
        }
        let last = vbs.last().copied().unwrap_or_default();
        changes.write().map_err(|error| (last, not_written(error)))
    }
}

/// Opens or makes the database, whose merges take over the rows of journals that are kept.
pub(crate) fn open_tables(
    database: &Path,
    options: &DiskOptions,
    kept: &Arc<Kept>,
) -> Result<(Database, Keyspace), fjall::Error> {
    let taking_over: Arc<dyn Factory> = Arc::new(TakingOver(AssertUnwindSafe(Arc::clone(kept))));
    let db = Database::builder(database)
        .with_compaction_filter_factories(Arc::new(move |_| Some(Arc::clone(&taking_over))))
        // Its workers would take a failed merge for the end; see `merge`.
        .worker_threads_unchecked(0)
        .cache_size(options.cache_bytes)
        .max_cached_files(Some(OPEN_FILES_MAX))
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .manual_journal_persist(true)
        .open()?;
    let rows = db.keyspace("rows", || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(MEMTABLE_BYTES)
            .filter_policy(filters())
            // Of the indexes only the tops lie in memory; the rest is read through the cache.
            .index_block_pinning_policy(PinningPolicy::new([true, false]))
            .index_block_partitioning_policy(PartitioningPolicy::new([false, true]))
            .data_block_compression_policy(CompressionPolicy::disabled())
            .index_block_compression_policy(CompressionPolicy::disabled())
            .with_kv_separation(Some(apart(options.apart_bytes_min)))
    })?;
    Ok((db, rows))
}

/// How large rows lie apart from the tables: each in a file, which goes once the row is gone from
/// all tables. So none of these files is ever rewritten for what is left of it.
fn apart(bytes_min: u32) -> KvSeparationOptions {
    KvSeparationOptions::default()
        .separation_threshold(bytes_min)
        .file_target_size(1)
        .compression(CompressionType::None)
}

/// What it means that the journal took no more.
fn not_written(error: fjall::Error) -> Stuck {
    match &error {
        fjall::Error::Io(io) if is_shortage(io) => Stuck::Later(error),
        _ => Stuck::Final(error),
    }
}

/// Filters for the runs that lie side by side. To the database, what it is given as a sorted run
/// is of level 1, wherever it then lies; what was merged is of the level where it lies, which is 1
/// only in stores of many terabytes.
fn filters() -> FilterPolicy {
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS));
    FilterPolicy::new([bloom, bloom, FilterPolicyEntry::None])
}

/// A group of changes on its way. Dropped before [`Changes::write`], it never was.
pub(crate) struct Changes<'a> {
    engine: &'a Engine,
    journal: MutexGuard<'a, Journal>,
    group: Group,
    staged: Staged,
}

impl Changes<'_> {
    /// A row, or at [`RECORD`] a record, as [`Journal::put`] takes it. Tells its bytes.
    pub(crate) fn put<'v>(
        &mut self,
        vb: VbId,
        seqno: Seqno,
        encode: impl FnOnce(&mut Vec<u8>) -> &'v [u8],
    ) -> Result<usize, fjall::Error> {
        let key = row_key(vb, seqno);
        let place = self.journal.put(&mut self.group, &key, encode)?;
        if place.length() >= self.engine.apart_bytes_min {
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
            .apply(&mut self.engine.front.write().current.vbs);
        Ok(())
    }
}
