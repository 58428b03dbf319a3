//! A sealed journal becomes tables: one sorted run of all that it tells, atomic and durable.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fjall::{Keyspace, Slice};
use model::{Document, Seqno, VbId};
use parking_lot::{Mutex, RwLock};

use super::acknowledged::AcknowledgedVb;
use super::journal::{Journal, Sealed, prepare, retire};
use super::log_index::{JournalIndex, LogIndex, RowAt, VbIndex};
use super::merge::{self, TablesError};
use super::value_log::ValueLog;
use crate::disk::value_position::{ValuePosition, Window};
use crate::history::place_of;
use crate::port::{Change, CommitInfo, VbBatch};
use crate::record::{
    RowKey, encode_history, encode_reference, encode_row, encode_vb, row_key, vb_key,
};

/// Where the tables say which generations of the journal they contain: behind everything else.
pub(crate) const FLUSHED_KEY: [u8; 11] = [0xff; 11];

/// Runs beyond those that are merged, at which flushes wait for the merge. Before that they pause: for ever longer, up to
/// `PAUSE_MAX` each, so that a merge which falls behind slows commits down instead of stopping them at once.
const RUNS_MORE: usize = 32;
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// How often a flush that waits for merging looks again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Generations of the journal that the tables contain: all up to this one.
pub(crate) fn generations_flushed(rows: &Keyspace) -> Result<u64, fjall::Error> {
    let Some(value) = rows.get(FLUSHED_KEY)? else {
        return Ok(0);
    };
    let number = <[u8; 8]>::try_from(&*value).map_err(|_| {
        let reason = "the number of the journal has a wrong length";
        std::io::Error::new(std::io::ErrorKind::InvalidData, reason)
    })?;
    Ok(u64::from_be_bytes(number))
}

/// A batch that goes into the tables at once, past the journal.
pub(crate) struct DirectBatch<'a> {
    pub(crate) batch: &'a VbBatch<'a>,
    pub(crate) state: &'a AcknowledgedVb,
    /// Rows that go.
    pub(crate) gone: Vec<Seqno>,
    pub(crate) info: &'a mut CommitInfo,
}

/// What a flush works on; all of it is shared with the engine.
#[derive(Clone)]
pub(crate) struct Flush {
    pub(crate) merging: Arc<merge::MergeShared>,
    pub(crate) index: Arc<RwLock<LogIndex>>,
    pub(crate) journal: Arc<Mutex<Journal>>,
    pub(crate) value_log: Arc<ValueLog>,
    /// Bytes of rows that runs refer to.
    pub(crate) referred: Range<usize>,
}

impl Flush {
    /// Writes everything that is in the sealed journal into the tables, together with a batch, if
    /// one is given; then only the current journal is newer than they are, and the sealed one
    /// is to be retired. All or nothing, and durable.
    ///
    /// Cost: some nine syncs. While it writes, rows can be read, and the current journal is
    /// written into.
    pub(crate) fn run(
        &self,
        sealed: &Sealed,
        direct: Option<DirectBatch<'_>>,
    ) -> Result<(), TablesError> {
        let mut waited = Duration::ZERO;
        while self.awaits_merge(waited) {
            std::thread::sleep(LOOK_AGAIN);
            waited += LOOK_AGAIN;
        }
        self.run_at_once(sealed, direct)
    }

    /// The same, however far merging is behind.
    pub(crate) fn run_at_once(
        &self,
        sealed: &Sealed,
        direct: Option<DirectBatch<'_>>,
    ) -> Result<(), TablesError> {
        let Some(index) = self.index.read().sealed.clone() else {
            return Ok(());
        };
        let background = &self.merging.background;
        let added = self
            .merging
            .tables
            .add(sealed.generation, || self.write(sealed, &index, direct));
        if added.is_err() {
            background.runs_failed.fetch_add(1, Ordering::Relaxed);
            return added;
        }
        // Only now: until here the same rows are seen twice, which does no harm.
        drop(self.index.write().sealed.take());
        self.merging.ring();
        Ok(())
    }

    fn write(
        &self,
        sealed: &Sealed,
        index: &JournalIndex,
        direct: Option<DirectBatch<'_>>,
    ) -> Result<(), fjall::Error> {
        let generation = sealed.generation;
        let referred = if self.value_log.is_begun() {
            self.referred.clone()
        } else {
            0..0
        };
        let is_referred = |(_, place): (Seqno, ValuePosition)| referred.contains(&place.length());
        let mut vbs = index.vbs.iter();
        if vbs.any(|(_, vb)| vb.rows_from(Seqno::ZERO).any(is_referred)) {
            self.value_log.keep(generation, sealed.bytes, &index.file)?;
        }
        let mut tables = self.merging.tables.rows.start_ingestion()?;
        RunWriter {
            write: &mut |key, value| match value {
                Some(value) => tables.write(key, value),
                None => tables.write_tombstone(key),
            },
            generation,
            referred,
            window: Window::new(Arc::clone(&index.file)),
            scratch: Vec::new(),
        }
        .write_all(index, direct)?;
        tables.write(FLUSHED_KEY, Slice::from(generation.to_be_bytes()))?;
        self.merging.tables.sync_large()?;
        tables.finish()
    }

    /// Ends a journal that is in the tables, or leaves it to the value log; then there is the
    /// file of the next generation, so that no commit has to wait for it.
    pub(crate) fn retire(&self, sealed: Sealed) {
        let next = self.journal.lock().next_place();
        let next = if self.value_log.has(sealed.generation) {
            self.value_log.spare(&next).or_else(|| prepare(&next))
        } else {
            retire(sealed, &next)
        };
        if let Some((file, generation)) = next {
            self.journal.lock().recycled(file, generation);
        }
    }

    /// Whether merging is to catch up somewhat after so long a wait, and can.
    pub(crate) fn awaits_merge(&self, waited: Duration) -> bool {
        if self.merging.is_failing() {
            return false;
        }
        let runs = self.merging.tables.rows.l0_table_count();
        let more = runs.saturating_sub(usize::from(self.merging.runs_merged()));
        more > RUNS_MORE || waited < pause_for(more)
    }
}

/// How long a flush pauses beside so many runs more than are merged.
fn pause_for(more: usize) -> Duration {
    let more = more.min(RUNS_MORE) as u32;
    PAUSE_MAX * (more * more) / (RUNS_MORE * RUNS_MORE) as u32
}

/// Takes a key with its value, or with none when it goes.
type WriteRow<'a> = dyn FnMut(&[u8], Option<Slice>) -> Result<(), fjall::Error> + 'a;

/// One run of tables that is being written, in the order of keys.
struct RunWriter<'a> {
    /// Adds a row, or its removal.
    write: &'a mut WriteRow<'a>,
    generation: u64,
    /// Bytes of rows that it refers to.
    referred: Range<usize>,
    window: Window,
    scratch: Vec<u8>,
}

impl RunWriter<'_> {
    fn write_all(
        &mut self,
        index: &JournalIndex,
        mut direct: Option<DirectBatch<'_>>,
    ) -> Result<(), fjall::Error> {
        for (vb, found) in index.vbs.iter() {
            if let Some(first) = direct.take_if(|direct| direct.batch.vb <= vb) {
                let same = first.batch.vb == vb;
                self.write_direct(same.then_some(found), first)?;
                if same {
                    continue;
                }
            }
            self.write_vb(vb, found)?;
        }
        match direct {
            Some(last) => self.write_direct(None, last),
            None => Ok(()),
        }
    }

    fn write_vb(&mut self, vb: VbId, found: &VbIndex) -> Result<(), fjall::Error> {
        let mut gone = found.gone().peekable();
        for (seqno, place) in found.rows_from(Seqno::ZERO) {
            while let Some(before) = gone.next_if(|gone| *gone <= seqno) {
                if before < seqno {
                    (self.write)(&row_key(vb, before), None)?;
                }
            }
            self.row(&row_key(vb, seqno), place)?;
        }
        for seqno in gone {
            (self.write)(&row_key(vb, seqno), None)?;
        }
        match found.record {
            RowAt::Journal(place) => self.copy(&vb_key(vb), place),
            RowAt::Nowhere => (self.write)(&vb_key(vb), None),
            RowAt::Below => Ok(()),
        }
    }

    /// A row of the journal, or where it lies.
    fn row(&mut self, key: &RowKey, place: ValuePosition) -> Result<(), fjall::Error> {
        if self.referred.contains(&place.length()) {
            let reference = encode_reference(key, self.generation, place.number());
            return (self.write)(key, Some(Slice::from(&reference[..])));
        }
        self.copy(key, place)
    }

    fn copy(&mut self, key: &[u8], place: ValuePosition) -> Result<(), fjall::Error> {
        let value = self.window.row(place)?;
        (self.write)(key, Some(value))
    }

    /// Writes a batch, and of what the journal has of its vBucket that which stays.
    fn write_direct(
        &mut self,
        found: Option<&VbIndex>,
        direct: DirectBatch<'_>,
    ) -> Result<(), fjall::Error> {
        let DirectBatch {
            batch,
            state,
            gone,
            info,
        } = direct;
        for (seqno, source) in merge(batch, found, gone) {
            let key = row_key(batch.vb, seqno);
            match source {
                Source::New(document) => {
                    self.scratch.clear();
                    encode_row(batch.vb, &document, &mut self.scratch);
                    info.rows += 1;
                    info.bytes += self.scratch.len() as u64;
                    (self.write)(&key, Some(Slice::from(&self.scratch[..])))?;
                }
                Source::Kept(document, at_s) => {
                    self.scratch.clear();
                    encode_history(batch.vb, &document, at_s, &mut self.scratch);
                    info.bytes += self.scratch.len() as u64;
                    (self.write)(&key, Some(Slice::from(&self.scratch[..])))?;
                }
                Source::Gone => (self.write)(&key, None)?,
                Source::Old(place) => self.row(&key, place)?,
            }
        }
        self.scratch.clear();
        encode_vb(batch.vb, state.value(batch), &mut self.scratch);
        info.bytes += self.scratch.len() as u64;
        (self.write)(&vb_key(batch.vb), Some(Slice::from(&self.scratch[..])))
    }
}

/// What becomes of a row. In this order one counts more than the next.
enum Source {
    /// It is written.
    New(Document),
    /// It is written into the history, at this time.
    Kept(Document, u32),
    /// It goes.
    Gone,
    /// It stays as the journal has it.
    Old(ValuePosition),
}

/// Every row that is written, stays or goes, once, by seqno. A row that is written does not go.
fn merge(batch: &VbBatch<'_>, found: Option<&VbIndex>, gone: Vec<Seqno>) -> Vec<(Seqno, Source)> {
    let mut rows = Vec::with_capacity(batch.changes.len() + gone.len());
    rows.extend(gone.into_iter().map(|seqno| (seqno, Source::Gone)));
    batch.changes.for_each(&mut |change| match change {
        Change::Put { document, .. } => {
            rows.push((document.seqno(), Source::New(document.clone())));
        }
        Change::Keep { document, at_s } => {
            let source = Source::Kept(document.clone(), at_s);
            rows.push((place_of(document.seqno()), source));
        }
        Change::Remove(_) => {}
    });
    if let Some(found) = found {
        let stay = found.rows_from(Seqno::ZERO);
        rows.extend(stay.map(|(seqno, place)| (seqno, Source::Old(place))));
        let gone = found.gone().filter(|seqno| !found.has(*seqno));
        rows.extend(gone.map(|seqno| (seqno, Source::Gone)));
    }
    let rank = |source: &Source| match source {
        Source::New(_) | Source::Kept(..) => 0,
        Source::Gone => 1,
        Source::Old(_) => 2,
    };
    rows.sort_by_key(|(seqno, source)| (*seqno, rank(source)));
    rows.dedup_by_key(|(seqno, _)| *seqno);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{document, record};

    #[test]
    fn flushes_pause_ever_longer_beside_more_runs() {
        assert_eq!(pause_for(0), Duration::ZERO);
        assert_eq!(pause_for(RUNS_MORE / 2), PAUSE_MAX / 4);
        assert_eq!(pause_for(RUNS_MORE), PAUSE_MAX);
        assert_eq!(pause_for(1_000), PAUSE_MAX);
    }

    #[test]
    fn rows_are_sorted_and_a_written_one_does_not_go() {
        let changes = [
            (document(9, "a", ""), Seqno(2)),
            (document(7, "b", ""), Seqno(0)),
        ];
        let changes = &changes.as_slice();
        let batch = VbBatch {
            vb: model::VbId(1),
            record: &record(9),
            changes,
        };
        let gone = vec![Seqno(2), Seqno(7), Seqno(2), Seqno(8)];
        let rows: Vec<_> = merge(&batch, None, gone)
            .iter()
            .map(|(seqno, source)| (seqno.0, matches!(source, Source::New(_))))
            .collect();
        assert_eq!(rows, [(2, false), (7, true), (8, false), (9, true)]);
    }
}
