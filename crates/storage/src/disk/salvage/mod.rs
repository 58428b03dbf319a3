//! Salvage: copies what can still be read of a damaged store into a new one.
//!
//! It needs neither the database's lists of tables nor their indexes: every block of a table that
//! passes its checksum tells rows, each of which has a checksum of its own over its place and
//! content. So nothing is copied that was not written.
//!
//! ```text
//! tables   each block that is whole: rows, rows that lie in journals, and rows that went
//! journals as opening replays them, and what is whole behind damage -> newest row of each key
//! ```
//!
//! A row that a later table says went does not come back. What opening would have cleared away, because
//! it was cut short, may: it was written, though never acknowledged.

mod tables;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{
    Document, FailoverEntry, FailoverLog, Seqno, SnapshotRange, VbId, VbRecord, VbState, VbUuid,
};

use super::acknowledged::{Name, name};
use super::flush::FLUSHED_KEY;
use super::journal::{Entry, Journal};
use super::layout::{self, OpenError};
use super::log_index::RECORD;
use super::options::DiskOptions;
use super::store::DiskStore;
use super::table_lists::{CURRENT, KEYSPACES, ROWS, TableList};
use super::value_log::{self, Segments, ValueReader};
use super::{durable_tails, manifest};
use crate::disk::journal_files::journals;
use crate::disk::value_position::ValuePosition;
use crate::history::is_history;
use crate::port::VbBatch;
use crate::record::{REFERENCE_BYTES, StoredVb, decode_row, decode_vb, row_key, split_row_key};
use crate::{KvStore, StoreError};
use tables::{TableFiles, TableRow};

pub(super) use tables::BLOB_HEADER_BYTES;

/// Documents and bytes that one commit into the new store takes.
const COMMIT_ROWS: usize = 10_000;
const COMMIT_BYTES: usize = 8 << 20;

/// What a salvage brought, and what it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// vBuckets of which something was copied.
    pub vbuckets: u64,
    /// The highest of them.
    pub last: Option<VbId>,
    /// Rows copied, tombstones included.
    pub rows: u64,
    /// Parts of files of tables and journals that are not what was written, by file, and files that are missing;
    /// rows in them are lost, if they are not elsewhere. Without the list of tables that counts
    /// (`current`), rows that were removed may be back.
    pub damaged: Vec<(PathBuf, u64)>,
    /// Rows that are not what was written.
    pub rows_damaged: u64,
    /// vBuckets that got a new record: their history begins anew.
    pub without_record: Vec<VbId>,
    /// vBuckets of which the last acknowledged commits are missing, as far as is known: the high
    /// seqno that was acknowledged, and the one that was found.
    pub behind: Vec<(VbId, Seqno, Seqno)>,
    /// The manifest of the collections is damaged or missing; the new store has none.
    pub manifest_lost: bool,
    /// Versions of a history, which is not copied: it begins anew, so that it has no hole.
    pub history_left: u64,
}

impl Salvaged {
    /// Whether anything is known to be damaged or missing.
    pub fn is_whole(&self) -> bool {
        self.damaged.is_empty()
            && self.rows_damaged == 0
            && self.without_record.is_empty()
            && self.behind.is_empty()
            && !self.manifest_lost
            && self.history_left == 0
    }
}

/// Why nothing, or not all that can be read, was copied.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// A process has the store open.
    #[error("{0}: in use by another process")]
    InUse(PathBuf),
    /// The old store cannot be read at all.
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// The new store cannot be made.
    #[error(transparent)]
    Target(#[from] OpenError),
    /// There is something in the place of the new store.
    #[error("{0}: there is a store already")]
    Occupied(PathBuf),
    /// The new store cannot be written.
    #[error(transparent)]
    Write(#[from] StoreError),
}

/// Where the bytes of a row are.
#[derive(Clone, Copy)]
enum RowSource {
    /// In this block of a table.
    Block(tables::BlockAt),
    /// In the value log, where this block of a table says.
    Kept(tables::BlockAt),
    /// In the journal of this generation.
    Journal(u64, ValuePosition),
}

/// What is known of a row.
#[derive(Clone, Copy)]
struct RowVersion {
    /// The version that was written later has the greater one.
    order: u64,
    /// `None`: it went.
    at: Option<RowSource>,
}

/// What was found of one vBucket.
#[derive(Default)]
struct SalvagedVb {
    rows: BTreeMap<Seqno, RowVersion>,
    record: Option<StoredVb>,
    removed: bool,
    /// Places of what is there of its history, and of what went.
    history: BTreeMap<Seqno, bool>,
}

/// Copies every row of the store in `from` that can be read into a new store in `to`, which must
/// be empty or missing. Nothing in `from` is changed. The new store is left as an unclean stop
/// leaves it, so every active vBucket of it begins a new history.
///
/// # Errors
/// See [`SalvageError`]. Damage is no error.
///
/// Cost: reads the store three times; some 100 bytes of memory a row.
pub fn salvage(from: &Path, to: &Path) -> Result<Salvaged, SalvageError> {
    let read = |error: io::Error| SalvageError::Read(from.to_owned(), error);
    let _lock = lock(from)?;
    let mut old = OldStore::default();
    old.read_tables(from).map_err(read)?;
    let tails = durable_tails::read(&layout::tails_of(from)).map_err(read)?;
    let files = old.read_journals(from).map_err(read)?;
    let (store, opened) = DiskStore::open(to, DiskOptions::default())?;
    if !opened.fresh {
        return Err(SalvageError::Occupied(to.to_owned()));
    }
    match manifest::read(from) {
        Ok(Some(text)) => store.set_manifest(&text)?,
        Ok(None) => old.report.manifest_lost = layout::is_manifest_noted(from),
        Err(_damaged) => old.report.manifest_lost = true,
    }
    for (vb, found) in std::mem::take(&mut old.vbs) {
        old.copy(vb, found, &files, &store)?;
    }
    for (vb, tail) in tails {
        let high = old.copied.get(&vb).copied().unwrap_or_default();
        if high < tail.high_seqno {
            old.report.behind.push((vb, tail.high_seqno, high));
        }
    }
    Ok(old.report)
}

/// The tables of the store in `path` that are not what was written.
///
/// Cost: reads all of them.
pub(super) fn damaged_tables(path: &Path) -> Vec<PathBuf> {
    tables::damaged(&path.join("db"))
}

/// Locks the store against other processes. Changes nothing.
fn lock(from: &Path) -> Result<Option<File>, SalvageError> {
    let Ok(file) = File::open(from.join("LOCK")) else {
        return Ok(None);
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Err(SalvageError::InUse(from.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(SalvageError::Read(from.to_owned(), error)),
    }
}

/// The old store as far as it was read.
#[derive(Default)]
struct OldStore {
    tables: TableFiles,
    value_log: ValueReader,
    flushed: u64,
    vbs: BTreeMap<VbId, SalvagedVb>,
    /// High seqnos of what was copied.
    copied: BTreeMap<VbId, Seqno>,
    report: Salvaged,
}

impl OldStore {
    fn read_tables(&mut self, from: &Path) -> io::Result<()> {
        let mut files = Segments::new();
        for (generation, path) in journals(from)? {
            files.insert(generation, Arc::new(File::open(path)?));
        }
        self.value_log = ValueReader::new(Arc::new(files));
        self.tables = TableFiles::find(&from.join("db"))?;
        for number in 0..self.tables.files.len() {
            let mut file = RowsOfFile::default();
            let (vbs, flushed) = (&mut self.vbs, &mut self.flushed);
            let rows_damaged = &mut self.report.rows_damaged;
            let damaged = self.tables.read(number, &mut |row_told| {
                let row = split_row_key(row_told.key);
                match (row, row_told) {
                    (None, TableRow { key, value, .. }) => {
                        let number = value.and_then(|value| <[u8; 8]>::try_from(value).ok());
                        if let Some(number) = number.filter(|_| *key == FLUSHED_KEY) {
                            *flushed = (*flushed).max(u64::from_be_bytes(number));
                        }
                    }
                    (Some((vb, RECORD)), TableRow { value, .. }) => {
                        let found = vbs.entry(vb).or_default();
                        match value.map(|value| decode_vb(vb, value)) {
                            Some(Ok(stored)) => {
                                file.commits.insert(vb, stored.commit);
                                found.take_record(stored);
                            }
                            Some(Err(_)) => *rows_damaged += 1,
                            None => found.removed = true,
                        }
                    }
                    // The history is not copied: what it has beyond the rows was replaced.
                    (Some((vb, place)), TableRow { value, .. }) if is_history(place) => {
                        // What went is never written anew but by a rollback, which begins anew.
                        let history = &mut vbs.entry(vb).or_default().history;
                        *history.entry(place).or_insert(true) &= value.is_some();
                    }
                    (Some((vb, seqno)), TableRow { value, at, .. }) => {
                        let at = value.map(|value| match value.len() {
                            REFERENCE_BYTES => RowSource::Kept(at),
                            _ => RowSource::Block(at),
                        });
                        file.add(vb, seqno, at);
                    }
                }
            })?;
            file.tell(vbs);
            if damaged > 0 {
                let file = self.tables.files[number].clone();
                self.report.damaged.push((file, damaged));
            }
        }
        self.check_listed(&from.join("db"))?;
        for found in self.vbs.values_mut() {
            found.rows.retain(|_, version| version.at.is_some());
            if found.removed && found.rows.is_empty() {
                found.record = None;
            }
        }
        Ok(())
    }

    /// Tells of the list of tables, or of files of it, that are missing or not what was written: a table that
    /// ends early has no gap.
    fn check_listed(&mut self, database: &Path) -> io::Result<()> {
        let rows = database.join(KEYSPACES).join(ROWS);
        let damaged = match TableList::read(&rows) {
            Ok(list) => list.damaged(&rows)?,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => vec![rows.join(CURRENT)],
            Err(error) => return Err(error),
        };
        for path in damaged {
            if self.report.damaged.iter().all(|(known, _)| *known != path) {
                self.report.damaged.push((path, 1));
            }
        }
        Ok(())
    }

    /// Applies the journals on top; gives their files.
    fn read_journals(&mut self, from: &Path) -> io::Result<Segments> {
        let value_log = value_log::read(from).unwrap_or_default();
        let oldest = journals(from)?.into_iter().map(|(number, _)| number);
        let oldest = oldest
            .filter(|number| !value_log.contains_key(number))
            .min();
        // The tables may have lost the number; a journal that they contain, and that is not in the value log, is
        // seldom there.
        let flushed = match oldest {
            Some(oldest) if self.flushed == 0 => oldest.saturating_sub(1),
            _ => self.flushed,
        };
        let (files, groups, damaged) = Journal::read_all(from, flushed)?;
        self.report.damaged.extend(damaged);
        for (generation, group) in groups {
            for entry in group {
                self.apply(entry, generation, &files[&generation])?;
            }
        }
        Ok(files)
    }

    fn apply(&mut self, entry: Entry, generation: u64, file: &File) -> io::Result<()> {
        let (Entry::Put(vb, ..) | Entry::Remove(vb, _)) = entry;
        let found = self.vbs.entry(vb).or_default();
        match entry {
            Entry::Put(_, RECORD, place) => match decode_vb(vb, &place.read(file)?) {
                Ok(stored) => found.take_record(stored),
                Err(_) => self.report.rows_damaged += 1,
            },
            Entry::Remove(_, RECORD) => *found = SalvagedVb::default(),
            Entry::Put(_, place, _) if is_history(place) => {
                found.history.insert(place, true);
            }
            Entry::Remove(_, place) if is_history(place) => {
                found.history.remove(&place);
            }
            Entry::Put(_, seqno, place) => {
                let at = Some(RowSource::Journal(generation, place));
                found.rows.insert(seqno, RowVersion { order: 0, at });
            }
            Entry::Remove(_, seqno) => {
                found.rows.remove(&seqno);
            }
        }
        Ok(())
    }

    fn copy(
        &mut self,
        vb: VbId,
        found: SalvagedVb,
        files: &Segments,
        store: &DiskStore,
    ) -> Result<(), SalvageError> {
        let left = found.history.values().filter(|there| **there).count();
        self.report.history_left += left as u64;
        let documents = self.documents(vb, &found.rows, files);
        if found.record.is_none() && documents.is_empty() {
            return Ok(());
        }
        if found.record.is_none() {
            self.report.without_record.push(vb);
        }
        let record = found
            .record
            .map_or_else(|| new_record(vb), |stored| stored.record);
        let record = covering(record, &documents);
        write(store, vb, &record, &documents)?;
        self.copied.insert(vb, record.high_seqno);
        self.report.vbuckets += 1;
        self.report.last = self.report.last.max(Some(vb));
        self.report.rows += documents.len() as u64;
        Ok(())
    }

    /// The newest row of each key that can be read, by seqno.
    fn documents(
        &mut self,
        vb: VbId,
        rows: &BTreeMap<Seqno, RowVersion>,
        files: &Segments,
    ) -> Vec<(Document, Seqno)> {
        let mut newest: BTreeMap<Name, usize> = BTreeMap::new();
        let mut documents: Vec<Option<(Document, Seqno)>> = Vec::new();
        for (seqno, version) in rows {
            let value = match version.at {
                Some(RowSource::Block(at)) => self.tables.value(at, vb, *seqno),
                Some(RowSource::Kept(at)) => self.tables.value(at, vb, *seqno).and_then(|value| {
                    let row = self.value_log.referred(&row_key(vb, *seqno), &value);
                    row.ok().flatten().map(|row| row.to_vec())
                }),
                Some(RowSource::Journal(generation, place)) => {
                    let file = files.get(&generation);
                    file.and_then(|file| place.read(file).ok())
                        .map(|value| value.to_vec())
                }
                None => continue,
            };
            let document = value.and_then(|value| decode_row(vb, *seqno, &value).ok());
            let Some(document) = document else {
                self.report.rows_damaged += 1;
                continue;
            };
            let key = name(document.kind(), document.key());
            if let Some(older) = newest.insert(key, documents.len()) {
                documents[older] = None;
            }
            documents.push(Some((document, Seqno::ZERO)));
        }
        documents.into_iter().flatten().collect()
    }
}

/// What one table file tells of rows, in the order of keys.
#[derive(Default)]
struct RowsOfFile {
    rows: Vec<(VbId, Seqno, Option<RowSource>)>,
    /// Of each vBucket the last commit of which the file has anything: that in its record.
    commits: BTreeMap<VbId, u64>,
}

impl RowsOfFile {
    /// Of the same row the file tells the newest first.
    fn add(&mut self, vb: VbId, seqno: Seqno, at: Option<RowSource>) {
        let last = self.rows.last();
        if last.is_none_or(|(of, row, _)| (*of, *row) != (vb, seqno)) {
            self.rows.push((vb, seqno, at));
        }
    }

    /// Hands it on. A row went, and was written anew, when the vBucket was rolled back between: the
    /// commits of the files tell which came last. A file without records says that for certain of
    /// nothing but what went.
    fn tell(self, vbs: &mut BTreeMap<VbId, SalvagedVb>) {
        let of_file = self.commits.values().max().copied();
        for (vb, seqno, at) in self.rows {
            let order = self.commits.get(&vb).copied().or(of_file);
            let order = order.unwrap_or(if at.is_some() { 0 } else { u64::MAX });
            let rows = &mut vbs.entry(vb).or_default().rows;
            let known = rows.get(&seqno);
            // Two files that tell the same are a run and what it was merged into.
            let counts = known.is_none_or(|known| match known.at {
                Some(_) if known.order == order => !matches!(at, Some(RowSource::Kept(_))),
                _ => known.order < order,
            });
            if counts {
                rows.insert(seqno, RowVersion { order, at });
            }
        }
    }
}

impl SalvagedVb {
    /// The record of the later commit counts.
    fn take_record(&mut self, stored: StoredVb) {
        let older = self
            .record
            .as_ref()
            .is_none_or(|known| known.commit <= stored.commit);
        if older {
            self.record = Some(stored);
        }
    }
}

/// The record of a vBucket of which only rows are left.
fn new_record(vb: VbId) -> VbRecord {
    VbRecord {
        state: VbState::Active,
        high_seqno: Seqno::ZERO,
        purge_seqno: Seqno::ZERO,
        snapshot: SnapshotRange {
            start: Seqno::ZERO,
            end: Seqno::ZERO,
        },
        high_prepared: Seqno::ZERO,
        high_completed: Seqno::ZERO,
        max_cas: model::Cas(0),
        max_deleted_rev: 0,
        // Only for as long as it takes: the first start gives it a history of its own.
        failover_log: FailoverLog::new(FailoverEntry {
            uuid: VbUuid(u64::from(vb.0) + 1),
            seqno: Seqno::ZERO,
        }),
        topology: String::new(),
        term: 0,
    }
}

/// The record with all documents within it: it may be older than they are.
fn covering(mut record: VbRecord, documents: &[(Document, Seqno)]) -> VbRecord {
    for (document, _) in documents {
        record.high_seqno = record.high_seqno.max(document.seqno());
        record.max_cas = record.max_cas.max(document.meta().cas);
        if document.kind().is_tombstone() {
            record.max_deleted_rev = record.max_deleted_rev.max(document.meta().rev);
        }
    }
    record.snapshot.end = record.snapshot.end.max(record.high_seqno);
    record
}

fn write(
    store: &DiskStore,
    vb: VbId,
    record: &VbRecord,
    documents: &[(Document, Seqno)],
) -> Result<(), StoreError> {
    let mut rest = documents;
    loop {
        let mut bytes = 0;
        let fits = rest.iter().take(COMMIT_ROWS).take_while(|(document, _)| {
            bytes += document.key_and_value().len();
            bytes <= COMMIT_BYTES
        });
        let count = fits.count().max(1).min(rest.len());
        let (now, later) = rest.split_at(count);
        store.commit(&[VbBatch {
            vb,
            record,
            changes: &now,
        }])?;
        rest = later;
        if rest.is_empty() {
            return Ok(());
        }
    }
}
