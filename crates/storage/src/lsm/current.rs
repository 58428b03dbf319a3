//! The current content of a store: the logs, the runs, the states of the vBuckets.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::{Seqno, VbId};

use super::bytes::{FileKind, damaged, named};
use super::log::{EntryKind, LogIndex, LogOrder, LogPlace, LogRow, RecordAt};
use super::manifest::Manifest;
use super::row::{Row, ValuePlace, value_file};
use super::run::{Run, Section};
use super::sealed::StoreFile;
use super::state::{self, Lineage, State, StoredState};
use crate::per_vb::PerVb;

/// A log with its index.
#[derive(Debug)]
pub(crate) struct LogPart {
    pub(crate) file: Arc<StoreFile>,
    pub(crate) number: u64,
    pub(crate) index: LogIndex,
    pub(crate) order: LogOrder,
    /// Bytes of whole groups, and the last group, once the log is sealed.
    pub(crate) bytes: u64,
    pub(crate) last_group: u64,
}

impl LogPart {
    /// Creates a log without rows, after this group.
    pub(crate) fn empty(file: Arc<StoreFile>, number: u64, last_group: u64) -> Self {
        Self {
            file,
            number,
            index: LogIndex::default(),
            order: LogOrder::default(),
            bytes: 0,
            last_group,
        }
    }

    /// Iterates over the valid rows of a vBucket, the last one first.
    pub(crate) fn rows_of(&self, vb: VbId, lineage: &Lineage) -> impl Iterator<Item = &LogRow> {
        let limit = lineage.limit(self.index.epoch(vb)).unwrap_or(Seqno::ZERO);
        let rows = self.index.rows_of(vb);
        rows.filter(move |row| row.seqno <= limit)
    }

    fn read(&self, place: LogPlace, what: EntryKind, vb: VbId) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        place.read(&self.file, what, vb, &mut bytes)?;
        Ok(bytes)
    }

    /// Makes the rows from number `from` on valid, and applies the other entries of a group.
    pub(crate) fn link(
        &mut self,
        from: usize,
        states: &mut PerVb<State>,
        notes: impl IntoIterator<Item = LogNote>,
    ) {
        self.index.link(from, &self.file);
        for note in notes {
            match note {
                LogNote::Text(place) => self.index.text = Some(place),
                LogNote::Forget(vb) => {
                    self.index.forget(vb);
                    states.remove(vb);
                }
                LogNote::State(vb, place, state) => {
                    let limit = state.lineage.limit(self.index.epoch(vb));
                    self.index.set_record(vb, place, state.lineage.epoch, limit);
                    states.insert(vb, state);
                }
            }
        }
    }
}

/// Returns the encoded state of a vBucket from logs, the youngest first, and the manifest before them.
pub(crate) fn state_bytes<'l>(
    logs: impl IntoIterator<Item = &'l LogPart>,
    before: &Manifest,
    vb: VbId,
) -> io::Result<Option<Vec<u8>>> {
    for log in logs {
        match log
            .index
            .vb(vb)
            .map_or(RecordAt::Before, |rows| rows.record)
        {
            RecordAt::Before => {}
            RecordAt::Nowhere => return Ok(None),
            RecordAt::Log(place) => return log.read(place, EntryKind::Record, vb).map(Some),
        }
    }
    before.state(vb)
}

/// Returns the text of the bucket, as [`state_bytes`].
pub(crate) fn text_bytes<'l>(
    logs: impl IntoIterator<Item = &'l LogPart>,
    before: &Manifest,
) -> io::Result<Option<Vec<u8>>> {
    for log in logs {
        if let Some(place) = log.index.text {
            return log.read(place, EntryKind::Text, VbId(0)).map(Some);
        }
    }
    before.text()
}

/// An entry of a group beside its rows.
pub(crate) enum LogNote {
    State(VbId, LogPlace, State),
    Forget(VbId),
    Text(LogPlace),
}

/// A file with values of rows in runs.
#[derive(Clone, Debug)]
pub(crate) struct ValueFile {
    pub(crate) file: Arc<StoreFile>,
    pub(crate) bytes: u64,
}

/// The files in the manifest.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) manifest: Manifest,
    /// The runs, the youngest first.
    pub(crate) runs: Vec<Arc<Run>>,
    pub(crate) values: BTreeMap<u64, ValueFile>,
}

impl Version {
    /// Iterates over the runs with valid rows of a vBucket, the youngest first, with the highest valid seqno.
    pub(crate) fn sections<'a>(
        &'a self,
        vb: VbId,
        lineage: &'a Lineage,
    ) -> impl Iterator<Item = (&'a Arc<Run>, &'a Section, Seqno)> {
        self.runs.iter().filter_map(move |run| {
            let section = run.section(vb)?;
            let limit = lineage.limit(section.epoch)?;
            (section.lowest <= limit).then_some((run, section, limit))
        })
    }
}

/// The data for reads. Commits change it once they are durable.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) active: LogPart,
    /// A full log that is being written to runs.
    pub(crate) sealed: Option<Arc<LogPart>>,
    pub(crate) version: Arc<Version>,
    pub(crate) states: PerVb<State>,
    pub(crate) walks: WalkBytes,
}

/// Memory of walks over vBuckets, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct WalkBytes(Arc<AtomicUsize>);

impl WalkBytes {
    /// Returns the sum of all walks.
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts that a walk holds `after` bytes instead of `before`.
    pub(crate) fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.0.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.0.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

impl Current {
    /// Iterates over the logs, the younger one first.
    pub(crate) fn logs(&self) -> impl Iterator<Item = &LogPart> {
        [Some(&self.active), self.sealed.as_deref()]
            .into_iter()
            .flatten()
    }

    /// Removes earlier epochs of a vBucket that have no rows.
    pub(crate) fn forget_epochs(&self, vb: VbId, lineage: &mut Lineage) {
        let logs = self.logs().filter_map(|log| Some(log.index.vb(vb)?.epoch));
        let runs = self.version.runs.iter();
        let runs = runs.filter_map(|run| Some(run.section(vb)?.epoch));
        let there: Vec<u64> = logs.chain(runs).collect();
        lineage.retain(|epoch| there.contains(&epoch));
    }

    /// Returns the state of a vBucket with its record; `None` if it does not exist.
    pub(crate) fn stored(&self, vb: VbId) -> io::Result<Option<StoredState>> {
        if self.states.get(vb).is_none() {
            return Ok(None);
        }
        let bytes = state_bytes(self.logs(), &self.version.manifest, vb)?;
        let bytes = bytes.ok_or_else(|| state::no_record(vb))?;
        let stored = state::decode(&bytes).ok_or_else(|| state::no_record(vb))?;
        Ok(Some(stored))
    }

    /// Returns the text of the bucket.
    pub(crate) fn text(&self) -> io::Result<Option<Vec<u8>>> {
        text_bytes(self.logs(), &self.version.manifest)
    }

    /// Returns the files of values.
    pub(crate) fn values(&self) -> Values {
        let file = |log: &LogPart| (ValuePlace::of_log(log.number), Arc::clone(&log.file));
        Values {
            logs: [Some(file(&self.active)), self.sealed.as_deref().map(file)],
            version: Arc::clone(&self.version),
        }
    }

    /// Whether the logs may have a row of a name with this hash.
    pub(crate) fn may_have_in_logs(&self, vb: VbId, hash: u64) -> bool {
        self.logs().any(|log| log.index.has_hash(vb, hash))
    }

    /// Reads the newest row of a name in the logs into `bytes`. Returns whether there is one. The
    /// younger log may have the older row, because the removal of a row may be written after a
    /// newer row.
    pub(crate) fn find_in_logs(
        &self,
        vb: VbId,
        (name, hash): (&[u8], u64),
        lineage: &Lineage,
        bytes: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let mut newest = None;
        let mut found_bytes = Vec::new();
        for log in self.logs() {
            let Some(limit) = lineage.limit(log.index.epoch(vb)) else {
                continue;
            };
            let found = log
                .index
                .find(vb, (name, hash), &log.file, &mut found_bytes)?;
            let Some(row) = found.filter(|row| row.seqno <= limit) else {
                continue;
            };
            if newest.is_none_or(|seqno| row.seqno > seqno) {
                newest = Some(row.seqno);
                std::mem::swap(bytes, &mut found_bytes);
            }
            if !row.gone {
                break;
            }
        }
        Ok(newest.is_some())
    }
}

/// The files of values that rows refer to.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    /// The logs, the younger one first.
    logs: [Option<(u64, Arc<StoreFile>)>; 2],
    pub(crate) version: Arc<Version>,
}

impl Values {
    fn file(&self, number: u64) -> io::Result<&Arc<StoreFile>> {
        let mut logs = self.logs.iter().flatten();
        if let Some((_, file)) = logs.find(|(known, _)| *known == number) {
            return Ok(file);
        }
        let listed = self.version.values.get(&number);
        let listed = listed.ok_or_else(|| damaged("a row refers to a file that is not there"))?;
        Ok(&listed.file)
    }

    /// Iterates over the names of the logs.
    pub(crate) fn log_names(&self) -> impl Iterator<Item = String> {
        let logs = self.logs.iter().flatten();
        logs.map(|(number, _)| FileKind::Log.name(number >> 1))
    }

    /// Reads a value into `value`, which has its length.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if it is not the written value.
    pub(crate) fn read_into(&self, place: ValuePlace, value: &mut [u8]) -> io::Result<()> {
        let read = place.read_into(self.file(place.file)?, value);
        let (kind, number) = value_file(place.file);
        read.map_err(|error| named(&kind.name(number), error))
    }

    /// Returns the document of a row.
    ///
    /// # Errors
    /// Those of reading its value, and `InvalidData` for an invalid row.
    pub(crate) fn document(&self, row: Row<'_>) -> io::Result<model::Document> {
        row.document(|place, value| self.read_into(place, value))
    }
}
