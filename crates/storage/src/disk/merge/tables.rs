//! The tables, and what attempts that failed left among their files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use fjall::{AbstractTree, Database, Keyspace};
use parking_lot::Mutex;

use super::plan::Left;
use crate::disk::names;
use crate::disk::table_lists::{BLOBS, CURRENT, TABLES};
use crate::disk::value_log::ValueLog;

/// The database looks what is read after so many snapshots.
const SNAPSHOTS_BEFORE_A_LOOK: u32 = 10_000;

/// Numbers of tables that are remembered; an attempt uses far fewer.
const INSTALLED_MAX: usize = 8_192;

/// Why something that makes tables did not.
pub(crate) enum TablesError {
    /// Nothing of it counts, all that it was made of is there, and it may be tried again.
    Later(fjall::Error),
    /// What the disk says of the tables is not known any more.
    Final(fjall::Error),
}

impl TablesError {
    /// What happened.
    pub(crate) fn error(&self) -> &fjall::Error {
        let (Self::Later(error) | Self::Final(error)) = self;
        error
    }

    /// The same, of the caller's own.
    pub(crate) fn into_error(self) -> fjall::Error {
        let (Self::Later(error) | Self::Final(error)) = self;
        error
    }
}

/// What is known beside what the database knows.
#[derive(Default)]
struct Lists {
    /// Something failed since the list on disk was last seen to be the one in memory.
    doubted: bool,
    /// Numbers of tables that attempts which failed may have left.
    left: Option<Range<u64>>,
    /// Above the number of every file of a large row that ever counted; only runs add such files.
    large_end: u64,
    /// The last generation of the journal that is in the tables.
    flushed: u64,
    /// The first generation that each table may refer to.
    refers: BTreeMap<u64, u64>,
}

/// The tables. Runs are added one at a time, and beside that tables are merged, one merge at a
/// time.
pub(crate) struct Tables {
    pub(crate) rows: Keyspace,
    pub(crate) db: Database,
    /// Held while a run is added.
    lists: Mutex<Lists>,
    /// Tables that counted when a merge began: one that does not any more may still be read.
    pub(super) installed: Mutex<BTreeSet<u64>>,
    pub(super) value_log: Arc<ValueLog>,
    left: Mutex<Option<Left>>,
}

impl Tables {
    pub(crate) fn new(
        rows: Keyspace,
        db: Database,
        flushed: u64,
        value_log: Arc<ValueLog>,
    ) -> Self {
        let tables = Self {
            rows,
            db,
            lists: Mutex::default(),
            installed: Mutex::default(),
            value_log,
            left: Mutex::default(),
        };
        {
            let mut lists = tables.lists.lock();
            (lists.large_end, lists.flushed) = (tables.large_end(), flushed);
            lists.refers = tables.first_referred();
        }
        tables
    }

    /// What is known of tables that were there before: any may refer to the first journal of the value log; but
    /// below runs none does once there are several levels, since rows are left in journals
    /// only as long as merges take all tables.
    fn first_referred(&self) -> BTreeMap<u64, u64> {
        let first = self.value_log.listed().keys().next().copied();
        let first = first.unwrap_or(u64::MAX);
        let runs = self.runs();
        let below = if self.has_levels() { u64::MAX } else { first };
        let tables = self.ids().into_iter();
        tables
            .map(|id| (id, if runs.contains(&id) { first } else { below }))
            .collect()
    }

    /// Whether tables below runs lie in more than one level.
    pub(super) fn has_levels(&self) -> bool {
        let version = self.rows.tree.current_version();
        let last = version.level_count() - 1;
        version
            .iter_levels()
            .take(last)
            .skip(1)
            .any(|level| !level.is_empty())
    }

    /// Whether tables below runs may refer to journals.
    pub(super) fn below_refers(&self) -> bool {
        let lists = self.lists.lock();
        let runs = self.runs();
        let mut below = lists.refers.iter().filter(|(id, _)| !runs.contains(id));
        below.any(|(_, first)| *first <= lists.flushed)
    }

    /// The last generation of the journal that is in the tables.
    pub(super) fn flushed(&self) -> u64 {
        self.lists.lock().flushed
    }

    /// What the last merge since the opening left in journals.
    pub(super) fn left(&self) -> Option<Left> {
        *self.left.lock()
    }

    /// Adds the run of a generation of the journal: what `write` makes counts as a whole or not at all.
    pub(crate) fn add(
        &self,
        generation: u64,
        write: impl FnOnce() -> Result<(), fjall::Error>,
    ) -> Result<(), TablesError> {
        let mut lists = self.lists.lock();
        self.settle(&mut lists)?;
        let first = self.rows.tree.next_table_id();
        write().map_err(|error| {
            self.failed(&mut lists, first);
            TablesError::Later(error)
        })?;
        lists.large_end = lists.large_end.max(self.large_end());
        lists.flushed = generation;
        for run in self.runs() {
            lists.refers.entry(run).or_insert(generation);
        }
        Ok(())
    }

    /// Merges tables by `merge`, which takes over the rows of journals up to generation `taken`. When that
    /// fails, its inputs count as before, and its output is
    /// removed, unless the disk does not even tell what counts; then that is done the next time.
    pub(crate) fn merge(
        &self,
        inlined: u64,
        merge: impl FnOnce() -> Result<(), fjall::Error>,
    ) -> Result<(), TablesError> {
        self.clear()?;
        let first = self.rows.tree.next_table_id();
        {
            let mut installed = self.installed.lock();
            installed.extend(self.ids());
            while installed.len() > INSTALLED_MAX {
                installed.pop_first();
            }
        }
        let (runs, flushed) = {
            let lists = self.lists.lock();
            (self.runs(), lists.flushed)
        };
        self.value_log.inline_up_to(inlined);
        merge().map_err(|error| {
            self.failed(&mut self.lists.lock(), first);
            match self.clear() {
                Err(TablesError::Final(error)) => TablesError::Final(error),
                _ => TablesError::Later(error),
            }
        })?;
        let unreferred = self.note_merged(inlined);
        if self.runs().is_disjoint(&runs) {
            let (listed, live) = (self.value_log.listed(), self.value_log.live());
            *self.left.lock() = Some(Left::of(&listed, &live, inlined, flushed));
        }
        if let Err(error) = self.value_log.release(unreferred.min(flushed)) {
            tracing::warn!(%error, "cannot let go of journals; the next merge does");
        }
        Ok(())
    }

    /// Notes what the tables that were made refer to, and tells up to which generation no table refers to any.
    fn note_merged(&self, inlined: u64) -> u64 {
        let mut lists = self.lists.lock();
        let ids = self.ids();
        lists.refers.retain(|id, _| ids.contains(id));
        for id in ids {
            lists.refers.entry(id).or_insert(inlined.saturating_add(1));
        }
        let first = lists.refers.values().min();
        first.map_or(u64::MAX, |first| first.saturating_sub(1))
    }

    /// Numbers of the tables that are runs, and were not merged.
    fn runs(&self) -> BTreeSet<u64> {
        let version = self.rows.tree.current_version();
        let mut runs = BTreeSet::new();
        for run in version.l0().iter() {
            runs.extend(run.iter().map(lsm_tree::Table::id));
        }
        runs
    }

    /// Lets go of tables without readers: their files are removed, and merges leave out
    /// what only they had. Gives the number before which there are none.
    ///
    /// The database finds that out only when a run is added, and for what was there before that one.
    /// So another number is given out and nothing written under it, and as many snapshots are
    /// taken as make it look: a millisecond or two.
    pub(crate) fn forget(&self) -> u64 {
        let lists = self.lists.lock();
        let readers = &self.db.supervisor.snapshot_tracker;
        readers.publish(self.db.supervisor.seqno.next());
        for _ in 0..SNAPSHOTS_BEFORE_A_LOOK {
            drop(self.db.snapshot());
        }
        let unread = readers.get_seqno_safe_to_gc();
        let mut versions = self.rows.tree.get_version_history_lock();
        if let Err(error) = versions.maintenance(self.rows.path(), unread) {
            tracing::warn!(%error, "cannot remove an old list of tables");
        }
        drop(lists);
        unread
    }

    /// Makes the names of the files of large rows durable, which the database does not do.
    ///
    /// Cost: a sync, which has nothing to do where there are no new ones.
    pub(crate) fn sync_large(&self) -> io::Result<()> {
        names::sync(&self.rows.path().join(BLOBS))
    }

    /// Removes what attempts that failed have left.
    fn clear(&self) -> Result<(), TablesError> {
        let mut lists = self.lists.lock();
        self.settle(&mut lists)?;
        let Some(left) = lists.left.take() else {
            return Ok(());
        };
        let counting = self.ids();
        let installed = self.installed.lock();
        for number in left.filter(|number| !counting.contains(number)) {
            if installed.contains(&number) {
                continue;
            }
            self.remove(TABLES, number);
        }
        let large = fs::read_dir(self.rows.path().join(BLOBS));
        for entry in large.into_iter().flatten().flatten() {
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(number) = number.filter(|number| *number >= lists.large_end) {
                self.remove(BLOBS, number);
            }
        }
        Ok(())
    }

    fn remove(&self, folder: &str, number: u64) {
        let file = self.rows.path().join(folder).join(number.to_string());
        if let Err(error) = names::remove_unsynced(&file) {
            let file = file.display();
            tracing::warn!(%error, %file, "cannot remove what failed; the next start does");
        }
    }

    /// Above the numbers of the files of large rows that count.
    fn large_end(&self) -> u64 {
        let version = self.rows.tree.current_version();
        let numbers = version.blob_files.iter().map(|file| file.id() + 1);
        numbers.max().unwrap_or(0)
    }

    /// Numbers of the tables that count.
    pub(super) fn ids(&self) -> BTreeSet<u64> {
        let mut ids = BTreeSet::new();
        for table in self.rows.tree.current_version().iter_tables() {
            ids.insert(table.id());
        }
        ids
    }

    fn failed(&self, lists: &mut Lists, first: u64) {
        lists.doubted = true;
        let end = self.rows.tree.next_table_id();
        let first = lists
            .left
            .as_ref()
            .map_or(first, |left| left.start.min(first));
        lists.left = Some(first..end);
    }

    /// Sees to it that the list on disk is the one in memory. A failed attempt may have put its own
    /// there, without knowing whether it stays: the next one would be written over it.
    fn settle(&self, lists: &mut Lists) -> Result<(), TablesError> {
        if !lists.doubted {
            return Ok(());
        }
        let mut number = [0; 8];
        let read = File::open(self.rows.path().join(CURRENT))
            .and_then(|mut file| file.read_exact(&mut number));
        read.map_err(|error| TablesError::Later(error.into()))?;
        if u64::from_le_bytes(number) != self.rows.tree.current_version().id() {
            let reason = "a list of tables was written, and perhaps not for good";
            return Err(TablesError::Final(io::Error::other(reason).into()));
        }
        lists.doubted = false;
        Ok(())
    }
}
