//! What an opening reads before it changes anything: the tables, the journals behind them, and whether they
//! have all that was acknowledged.
//!
//! ```text
//! lists of tables     match their checksums, all files are there       lists
//! database            on links, if it would remove anything            links
//! journals            follow the tables without a gap                  journal, value_log
//! records             none is behind the tails
//! then                what does not count is cleared away
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use fjall::{Database, Keyspace, Slice};
use model::{Seqno, VbId};

use super::durable_tails::DurableTail;
use super::flush::{self, FLUSHED_KEY};
use super::journal::{Entry, Journal, Replayed};
use super::layout::Directory;
use super::links::{self, Links};
use super::log_index::{RowAt, VbIndex};
use super::options::DiskOptions;
use super::per_vb::PerVb;
use super::table_lists;
use super::value_log::ValueLog;
use crate::disk::fault::EngineError;
use crate::disk::tables::open_tables;
use crate::history::{HISTORY_END, place_of};
use crate::record::{
    DecodeError, REFERENCE_BYTES, StoredVb, decode_vb, row_key, split_row_key, vb_key,
};

/// Above the seqno of every row.
pub(crate) const ROWS_END: Seqno = Seqno(1 << 48);

/// What was acknowledged of each vBucket.
pub(crate) type Acknowledged = [(VbId, DurableTail)];

/// What each journal tells, by its generation.
pub(crate) type JournalIndexes = BTreeMap<u64, PerVb<VbIndex>>;

/// A database and the journals that follow its tables.
pub(crate) struct Survey {
    pub(crate) db: Database,
    pub(crate) rows: Keyspace,
    /// The last generation of the journal that is in the tables.
    pub(crate) flushed: u64,
    pub(crate) journals: Replayed,
    pub(crate) indexes: JournalIndexes,
    /// Whether any row of the journals may be one that will lie apart.
    pub(crate) journaled_large: bool,
}

impl Survey {
    /// Opens the database of a directory once everything is proven to be there.
    ///
    /// # Errors
    /// Nothing was removed or written, neither by this nor by the database.
    pub(crate) fn of(
        directory: &Directory,
        options: &DiskOptions,
        value_log: &Arc<ValueLog>,
        acknowledged: &Acknowledged,
    ) -> Result<Self, EngineError> {
        if !directory.fresh {
            links::clear(directory)?;
            let leftovers = table_lists::check(&directory.database())?;
            if leftovers.any {
                let links = Links::make(directory)?;
                let found = Self::read(directory, links.database(), options, value_log)?;
                found.prove(directory, acknowledged)?;
                if leftovers.newer {
                    found.prove_references(value_log)?;
                }
            }
        }
        let found = Self::read(directory, &directory.database(), options, value_log)?;
        found.prove(directory, acknowledged)?;
        Ok(found)
    }

    fn read(
        directory: &Directory,
        database: &Path,
        options: &DiskOptions,
        value_log: &Arc<ValueLog>,
    ) -> Result<Self, EngineError> {
        let (db, rows) = open_tables(database, options, value_log)?;
        let flushed = flush::generations_flushed(&rows)?;
        value_log.open(flushed)?;
        if directory.has_journal() {
            Journal::check(directory.path(), flushed)?;
        }
        let mut indexes = JournalIndexes::new();
        let blob_bytes_min = options.blob_bytes_min as usize;
        let mut journaled_large = false;
        let journals = Journal::replay(directory.path(), flushed, &mut |generation, group| {
            let vbs = indexes.entry(generation).or_default();
            for entry in group {
                let (Entry::Put(vb, ..) | Entry::Remove(vb, _)) = entry;
                if let Entry::Put(.., place) = entry {
                    journaled_large |= place.length() >= blob_bytes_min;
                }
                vbs.slot(vb).get_or_insert_default().apply(entry);
            }
        })?;
        Ok(Self {
            db,
            rows,
            flushed,
            journals,
            indexes,
            journaled_large,
        })
    }

    /// Reads every record, and looks where opening will look for rows that do not count.
    ///
    /// # Errors
    /// A record is damaged, or behind what was acknowledged, or missing.
    fn prove(&self, directory: &Directory, acknowledged: &Acknowledged) -> Result<(), EngineError> {
        let mut found = BTreeMap::new();
        let journaled = self.indexes.values().flat_map(PerVb::keys).collect();
        for vb in vbs(&self.rows, journaled)? {
            let stored = self.record(vb)?;
            let end = stored.as_ref();
            let end = end.map_or(Seqno::ZERO, |one| one.record.high_seqno.next());
            for (from, to) in [(end, ROWS_END), (place_of(end), HISTORY_END)] {
                let mut rows = self.rows.range(row_key(vb, from)..row_key(vb, to));
                if let Some(first) = rows.next() {
                    first.key()?;
                }
            }
            found.extend(stored.map(|one| (vb, one)));
        }
        let behind = |(vb, tail): &&(VbId, DurableTail)| {
            let commit = found.get(vb).map_or(0, |one| one.commit);
            commit < tail.commit
        };
        let mut lost = acknowledged.iter().filter(behind);
        let Some((vb, tail)) = lost.next() else {
            return Ok(());
        };
        let high = found.get(vb).map_or(0, |one| one.record.high_seqno.0);
        let more = lost.count();
        let reason = format!(
            "{}, or the tables before it, lack acknowledged commits: {vb} had come to seqno {}, {high} was found; \
             {more} other vBuckets",
            directory.journal(self.journals.last()).display(),
            tail.high_seqno,
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, reason).into())
    }

    /// The record of a vBucket, as the last journal that knows of it, or the tables, have it.
    fn record(&self, vb: VbId) -> Result<Option<StoredVb>, EngineError> {
        let mut value = None;
        let mut known = RowAt::Below;
        for (generation, index) in self.indexes.iter().rev() {
            known = index.get(vb).map_or(RowAt::Below, |index| index.record);
            if let (RowAt::Journal(place), Some(file)) = (known, self.journals.file(*generation)) {
                value = Some(place.read(file)?);
            }
            if known != RowAt::Below {
                break;
            }
        }
        if known == RowAt::Below {
            value = self.rows.get(vb_key(vb))?;
        }
        let stored = value.map(|value: Slice| decode_vb(vb, &value));
        stored
            .transpose()
            .map_err(|error| EngineError::Record(vb, error))
    }

    /// Looks whether the journals are there that the tables refer to: a list that was replaced long ago
    /// may refer to some that went since.
    ///
    /// Cost: reads all tables.
    fn prove_references(&self, value_log: &ValueLog) -> Result<(), EngineError> {
        for row in self.rows.iter() {
            let (key, value) = row.into_inner()?;
            if value.len() == REFERENCE_BYTES {
                value_log.prove(&key, &value)?;
            }
        }
        Ok(())
    }
}

/// The vBuckets of which there is anything, ascending: those that journals tell of, and those of the tables.
///
/// Cost: a look for the record of each; a seek, which passes over removed rows, only where there
/// is none.
pub(crate) fn vbs(
    rows: &Keyspace,
    journaled: BTreeSet<VbId>,
) -> Result<BTreeSet<VbId>, EngineError> {
    let mut vbs = journaled;
    let mut next = Some(VbId(0));
    while let Some(from) = next {
        if rows.contains_key(vb_key(from))? {
            vbs.insert(from);
            next = from.0.checked_add(1).map(VbId);
            continue;
        }
        let Some(first) = rows.range(row_key(from, Seqno::ZERO)..).next() else {
            break;
        };
        let key = first.key()?;
        if *key == FLUSHED_KEY {
            break;
        }
        let Some((vb, _)) = split_row_key(&key) else {
            let error = DecodeError::Content("a row key has a wrong length");
            return Err(EngineError::Record(from, error));
        };
        vbs.insert(vb);
        next = vb.0.checked_add(1).map(VbId);
    }
    Ok(vbs)
}
