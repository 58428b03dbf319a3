//! The readable content of a damaged store.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use model::{Cas, Document, Seqno, VbId, VbRecord};

use crate::lsm::bytes::FileKind;
use crate::lsm::check::{Inventory, States, ValueFiles};
use crate::lsm::files::Files;
use crate::lsm::log::{Entry, EntryKind, ExistingLog, LogPlace};
use crate::lsm::row::{HISTORY, Row};
use crate::lsm::run::{FoundBlock, scan};
use crate::lsm::sealed::{self, StoreFile};
use crate::lsm::state::Lineage;
use crate::per_vb::PerVb;

/// A row of a log.
#[derive(Clone, Copy)]
struct Logged {
    /// Number of the log.
    log: u64,
    place: LogPlace,
    epoch: u64,
}

/// The undamaged content of a store.
pub(super) struct Old<'f> {
    values: ValueFiles<'f>,
    /// Whether the manifest is undamaged, so that only its files and vBuckets are read.
    trusted: bool,
    states: States,
    logged: PerVb<Vec<Logged>>,
    /// The logs of these rows.
    logs: BTreeMap<u64, Arc<StoreFile>>,
    /// Blocks of runs, each with its file.
    blocks: PerVb<Vec<(Arc<StoreFile>, FoundBlock)>>,
    /// The text of the bucket.
    pub(super) text: Option<Vec<u8>>,
    pub(super) text_lost: bool,
    pub(super) commits_lost: u64,
}

/// The valid rows of a vBucket.
pub(super) struct SalvagedRows {
    pub(super) record: Option<VbRecord>,
    /// The newest row of each name, without removals.
    pub(super) rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) metas: Highest,
    /// Number of rows of the history.
    pub(super) versions: u64,
}

/// Highest values of a vBucket's rows, which its record must cover.
#[derive(Default)]
pub(super) struct Highest {
    pub(super) seqno: Seqno,
    pub(super) cas: Cas,
    pub(super) deleted_rev: u64,
}

impl<'f> Old<'f> {
    /// Reads the undamaged content; `None` if the store was never used.
    pub(super) fn read(files: &'f dyn Files) -> io::Result<Option<Self>> {
        let Some(mut inventory) = Inventory::of(files)? else {
            return Ok(None);
        };
        inventory.widen(files)?;
        let mut old = Self {
            values: ValueFiles::new(files),
            trusted: inventory.trusted,
            states: States::default(),
            logged: PerVb::default(),
            logs: BTreeMap::new(),
            blocks: PerVb::default(),
            text: None,
            text_lost: inventory.manifest.is_none(),
            commits_lost: 0,
        };
        old.read_manifest(&inventory);
        old.read_logs(files, &inventory)?;
        for (number, _) in &inventory.runs {
            match sealed::open_any(files, FileKind::Run, *number) {
                Ok(file) => {
                    for block in scan(&file, *number)? {
                        let blocks = old.blocks.slot(block.vb).get_or_insert_default();
                        blocks.push((Arc::clone(&file), block));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(old))
    }

    fn read_manifest(&mut self, inventory: &Inventory) {
        let Some(manifest) = &inventory.manifest else {
            return;
        };
        self.states.read(manifest);
        match manifest.text() {
            Ok(text) => self.text = text,
            Err(_damaged) => self.text_lost = true,
        }
    }

    fn read_logs(&mut self, files: &dyn Files, inventory: &Inventory) -> io::Result<()> {
        // Earlier logs have an older text than the manifest.
        let manifest = inventory.manifest.as_ref();
        let first_log = manifest.map_or(0, |manifest| manifest.contents.first_log);
        let contents = inventory.contents();
        let mut last = contents.map(|contents| contents.flushed_group);
        for number in &inventory.logs {
            let log = match ExistingLog::open_any(files, *number) {
                Ok(log) => log,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let mut pending = PerVb::default();
            let has_text = *number >= first_log || self.text.is_none();
            let follows = last.filter(|_| self.trusted);
            let found = log.search(follows, &mut |entry| {
                self.entry(*number, &entry, &mut pending);
                if entry.what == EntryKind::Text && has_text {
                    self.text = Some(entry.body.to_vec());
                    self.text_lost = false;
                }
                Ok(())
            })?;
            if self.trusted {
                self.commits_lost += found.missing.iter().map(|one| one.groups).sum::<u64>();
            }
            last = last.max(Some(found.groups.last_group));
            self.logs.insert(*number, log.file);
        }
        let acknowledged = inventory.tail.map_or(0, |tail| tail.group);
        self.commits_lost += acknowledged.saturating_sub(last.unwrap_or(0));
        Ok(())
    }

    /// Collects rows of a group until the state of their vBucket follows, which has their epoch.
    fn entry(&mut self, log: u64, entry: &Entry<'_>, pending: &mut PerVb<Vec<LogPlace>>) {
        self.states.apply(entry);
        match entry.what {
            EntryKind::Row => {
                let rows = pending.slot(entry.vb).get_or_insert_default();
                rows.push(entry.place);
            }
            EntryKind::Record => {
                let Some(stored) = crate::lsm::state::decode(entry.body) else {
                    return;
                };
                let epoch = stored.state.lineage.epoch;
                let places = pending.remove(entry.vb).unwrap_or_default();
                let rows = self.logged.slot(entry.vb).get_or_insert_default();
                rows.extend(places.into_iter().map(|place| Logged { log, place, epoch }));
            }
            EntryKind::Forget | EntryKind::Text => {}
        }
    }

    /// Returns all vBuckets with any data, ascending.
    pub(super) fn vbs(&self) -> Vec<VbId> {
        let states = self.states.vbs.keys();
        let mut vbs: Vec<VbId> = states
            .chain(self.logged.keys())
            .chain(self.blocks.keys())
            .collect();
        vbs.sort_unstable();
        vbs.dedup();
        vbs
    }

    /// Returns the lineage of a vBucket and its record; `None` if it does not exist.
    ///
    /// Without its state, the rows of its last epoch are valid.
    fn lineage(&self, vb: VbId) -> Option<(Lineage, Option<VbRecord>)> {
        let logged = self.logged.get(vb).into_iter().flatten();
        let blocks = self.blocks.get(vb).into_iter().flatten();
        let epochs = logged.map(|row| row.epoch);
        let epochs = epochs.chain(blocks.map(|(_, block)| block.epoch));
        let newest = epochs.max().unwrap_or(0);
        if let Some(stored) = self.states.get(vb)
            && (self.trusted || stored.state.lineage.epoch >= newest)
        {
            return Some((stored.state.lineage.clone(), Some(stored.record.clone())));
        }
        let forgotten = self.states.vbs.get(vb).map_or(0, |found| found.forgotten);
        (!self.trusted && newest > forgotten).then(|| (Lineage::new(newest), None))
    }

    /// Returns the valid rows of a vBucket; `None` if it does not exist.
    pub(super) fn rows_of(&mut self, vb: VbId) -> io::Result<Option<SalvagedRows>> {
        let Some((lineage, record)) = self.lineage(vb) else {
            return Ok(None);
        };
        let mut newest = Newest::default();
        for (file, block) in self.blocks.remove(vb).unwrap_or_default() {
            if let Some(limit) = lineage.limit(block.epoch) {
                block.read(&file, &mut |row| {
                    newest.add(row, limit);
                    Ok(())
                })?;
            }
        }
        let mut bytes = Vec::new();
        for row in self.logged.remove(vb).unwrap_or_default() {
            let Some(limit) = lineage.limit(row.epoch) else {
                continue;
            };
            let Some(file) = self.logs.get(&row.log) else {
                continue;
            };
            // The row was readable before.
            if row.place.read(file, EntryKind::Row, vb, &mut bytes).is_ok() {
                newest.add(Row::of(&bytes)?, limit);
            }
        }
        Ok(Some(newest.end(record)))
    }

    /// Returns the document of a row.
    pub(super) fn document(&mut self, row: &[u8]) -> io::Result<Document> {
        let row = Row::of(row)?;
        let apart = row
            .place()
            .map(|place| self.values.read(place))
            .transpose()?;
        row.document(|_, value| {
            value.copy_from_slice(apart.as_deref().unwrap_or_default());
            Ok(())
        })
    }
}

/// The newest row of each name.
#[derive(Default)]
struct Newest {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Newest {
    fn add(&mut self, row: Row<'_>, limit: Seqno) {
        if row.seqno() > limit {
            return;
        }
        let order = |row: Row<'_>| (row.seqno(), row.is_gone());
        match self.rows.get_mut(row.name()) {
            None => {
                self.rows.insert(row.name().to_vec(), row.bytes.to_vec());
            }
            Some(known) => {
                let known_row = Row::first_of(known);
                if known_row.is_none_or(|known| order(known) <= order(row)) {
                    known.clear();
                    known.extend_from_slice(row.bytes);
                }
            }
        }
    }

    fn end(mut self, record: Option<VbRecord>) -> SalvagedRows {
        let (mut metas, mut versions) = (Highest::default(), 0);
        self.rows.retain(|_, bytes| {
            let Some(row) = Row::first_of(bytes).filter(|row| !row.is_gone()) else {
                return false;
            };
            if let Ok(meta) = row.meta() {
                metas.seqno = metas.seqno.max(meta.seqno);
                metas.cas = metas.cas.max(meta.cas);
                if meta.kind.is_tombstone() {
                    metas.deleted_rev = metas.deleted_rev.max(meta.rev);
                }
            }
            versions += u64::from(row.tag() == HISTORY);
            row.tag() != HISTORY
        });
        SalvagedRows {
            record,
            rows: self.rows,
            metas,
            versions,
        }
    }
}
