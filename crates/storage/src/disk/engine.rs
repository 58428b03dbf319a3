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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fjall::{AbstractTree, Database, Keyspace, Slice};
use model::{Seqno, VbId};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::DiskOptions;
use super::drain::Drain;
use super::fault::{EngineError, is_shortage};
use super::front::{Found, Front, Layer, RECORD, Staged};
use super::journal::{Entry, Group, Journal};
use super::kept::Kept;
use super::layout::Directory;
use super::merge::{Background, Merger, Stuck, Tables};
use super::per_vb::PerVb;
use super::room::Room;
use super::survey::{Acknowledged, Survey};
use crate::record::{VbValue, encode_vb, row_key};

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
}

/// What it means that the journal took no more.
pub(crate) fn not_written(error: fjall::Error) -> Stuck {
    match &error {
        fjall::Error::Io(io) if is_shortage(io) => Stuck::Later(error),
        _ => Stuck::Final(error),
    }
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
