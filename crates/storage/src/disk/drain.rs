//! A sealed journal becomes tables: one sorted run of all that it tells, atomic and durable.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fjall::{Keyspace, Slice};
use model::{Document, Seqno, VbId};
use parking_lot::{Mutex, RwLock};

use super::front::{Front, Layer, RowAt, VbFront};
use super::journal::{Journal, Sealed, prepare, retire};
use super::kept::Kept;
use super::memo::Memo;
use super::merge::{self, Stuck};
use crate::disk::place::{Place, Window};
use crate::history::place_of;
use crate::port::{Change, CommitInfo, VbBatch};
use crate::record::{
    RowKey, encode_history, encode_reference, encode_row, encode_vb, row_key, vb_key,
};

/// Where the tables say which generations of the journal they contain: behind everything else.
pub(crate) const DRAINED_KEY: [u8; 11] = [0xff; 11];

/// Runs beyond those that are merged, at which drains wait for the merge. Before that they pause: for ever longer, up to
/// `PAUSE_MAX` each, so that a merge which falls behind slows commits down instead of stopping them at once.
const RUNS_MORE: usize = 32;
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// How often a drain that waits for merging looks again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A drain that nobody waits for sleeps for a moment after so many bytes of rows, which take some
/// 100 us: threads that answer clients need not wait for the end of its slice.
const BYTES_PER_BREATH: usize = 64 << 10;

/// What a row counts for beside its bytes.
const ROW_BYTES: usize = 128;

/// What it asks to sleep; the system adds some 50 us.
const BREATH: Duration = Duration::from_micros(20);

/// Generations of the journal that the tables contain: all up to this one.
pub(crate) fn generations_drained(rows: &Keyspace) -> Result<u64, fjall::Error> {
    let Some(value) = rows.get(DRAINED_KEY)? else {
        return Ok(0);
    };
    let number = <[u8; 8]>::try_from(&*value).map_err(|_| {
        let reason = "the number of the journal has a wrong length";
        std::io::Error::new(std::io::ErrorKind::InvalidData, reason)
    })?;
    Ok(u64::from_be_bytes(number))
}

/// A batch that goes into the tables at once, past the journal.
pub(crate) struct Direct<'a> {
    pub(crate) batch: &'a VbBatch<'a>,
    pub(crate) memo: &'a Memo,
    /// Rows that go.
    pub(crate) gone: Vec<Seqno>,
    pub(crate) info: &'a mut CommitInfo,
}

/// What a drain works on; all of it is shared with the engine.
#[derive(Clone)]
pub(crate) struct Drain {
    pub(crate) merging: Arc<merge::Shared>,
    pub(crate) front: Arc<RwLock<Front>>,
    pub(crate) journal: Arc<Mutex<Journal>>,
    /// Whether somebody waits for the drain that is under way, or will soon.
    pub(crate) hurried: Arc<AtomicBool>,
    pub(crate) kept: Arc<Kept>,
    /// Bytes of rows that runs refer to.
    pub(crate) referred: Range<usize>,
}

impl Drain {
    /// Writes everything that is in the sealed journal into the tables, together with a batch, if
    /// one is given; then nothing is in front of them but the current journal, and the sealed one
    /// is to be retired. All or nothing, and durable.
    ///
    /// Cost: some nine syncs. While it writes, rows can be read, and the current journal is
    /// written into.
    pub(crate) fn run(&self, sealed: &Sealed, direct: Option<Direct<'_>>) -> Result<(), Stuck> {
        let mut waited = Duration::ZERO;
        while self.waits_for_merging(waited) {
            std::thread::sleep(LOOK_AGAIN);
            waited += LOOK_AGAIN;
        }
        self.run_at_once(sealed, direct)
    }

    /// The same, however far merging is behind.
    pub(crate) fn run_at_once(
        &self,
        sealed: &Sealed,
        direct: Option<Direct<'_>>,
    ) -> Result<(), Stuck> {
        let Some(layer) = self.front.read().sealed.clone() else {
            return Ok(());
        };
        let background = &self.merging.background;
        let added = self
            .merging
            .tables
            .add(sealed.generation, || self.write(sealed, &layer, direct));
        if added.is_err() {
            background.runs_failed.fetch_add(1, Ordering::Relaxed);
            return added;
        }
        // Only now: until here the same rows are seen twice, which does no harm.
        drop(self.front.write().sealed.take());
        self.merging.ring();
        Ok(())
    }

    fn write(
        &self,
        sealed: &Sealed,
        layer: &Layer,
        direct: Option<Direct<'_>>,
    ) -> Result<(), fjall::Error> {
        let generation = sealed.generation;
        let referred = if self.kept.is_begun() {
            self.referred.clone()
        } else {
            0..0
        };
        let is_referred = |(_, place): (Seqno, Place)| referred.contains(&place.length());
        let mut vbs = layer.vbs.iter();
        if vbs.any(|(_, vb)| vb.rows_from(Seqno::ZERO).any(is_referred)) {
            self.kept.keep(generation, sealed.bytes, &layer.file)?;
        }
        let mut tables = self.merging.tables.rows.start_ingestion()?;
        let mut since_breath = 0;
        Run {
            write: &mut |key, value| {
                since_breath += ROW_BYTES + value.as_ref().map_or(0, |value| value.len());
                if since_breath >= BYTES_PER_BREATH {
                    since_breath = 0;
                    self.breathe();
                }
                match value {
                    Some(value) => tables.write(key, value),
                    None => tables.write_tombstone(key),
                }
            },
            generation,
            referred,
            window: Window::new(Arc::clone(&layer.file)),
            scratch: Vec::new(),
        }
        .write_all(layer, direct)?;
        tables.write(DRAINED_KEY, Slice::from(generation.to_be_bytes()))?;
        self.merging.tables.sync_large()?;
        tables.finish()
    }

    /// Ends a journal that is in the tables, or leaves it to those who keep it; then there is the
    /// file of the next generation, so that nobody has to wait for it.
    pub(crate) fn retire(&self, sealed: Sealed) {
        let next = self.journal.lock().next_place();
        let next = if self.kept.has(sealed.generation) {
            self.kept.spare(&next).or_else(|| prepare(&next))
        } else {
            retire(sealed, &next)
        };
        if let Some((file, generation)) = next {
            self.journal.lock().recycled(file, generation);
        }
    }

    fn breathe(&self) {
        if !self.hurried.load(Ordering::Relaxed) {
            std::thread::sleep(BREATH);
        }
    }

    /// Whether merging is to catch up somewhat after so long a wait, and can.
    pub(crate) fn waits_for_merging(&self, waited: Duration) -> bool {
        if self.merging.is_failing() {
            return false;
        }
        let runs = self.merging.tables.rows.l0_table_count();
        let more = runs.saturating_sub(usize::from(self.merging.runs_merged()));
        more > RUNS_MORE || waited < pause_for(more)
    }
}

/// How long a drain pauses beside so many runs more than are merged.
fn pause_for(more: usize) -> Duration {
    let more = more.min(RUNS_MORE) as u32;
    PAUSE_MAX * (more * more) / (RUNS_MORE * RUNS_MORE) as u32
}

/// Takes a key with its value, or with none when it goes.
type Write<'a> = dyn FnMut(&[u8], Option<Slice>) -> Result<(), fjall::Error> + 'a;

/// One run of tables that is being written, in the order of keys.
struct Run<'a> {
    /// Adds a row, or its removal.
    write: &'a mut Write<'a>,
    generation: u64,
    /// Bytes of rows that it refers to.
    referred: Range<usize>,
    window: Window,
    scratch: Vec<u8>,
}

impl Run<'_> {
    fn write_all(
        &mut self,
        layer: &Layer,
        mut direct: Option<Direct<'_>>,
    ) -> Result<(), fjall::Error> {
        for (vb, found) in layer.vbs.iter() {
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

    fn write_vb(&mut self, vb: VbId, found: &VbFront) -> Result<(), fjall::Error> {
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
    fn row(&mut self, key: &RowKey, place: Place) -> Result<(), fjall::Error> {
        if self.referred.contains(&place.length()) {
            let reference = encode_reference(key, self.generation, place.number());
            return (self.write)(key, Some(Slice::from(&reference[..])));
        }
        self.copy(key, place)
    }

    fn copy(&mut self, key: &[u8], place: Place) -> Result<(), fjall::Error> {
        let value = self.window.row(place)?;
        (self.write)(key, Some(value))
    }

    /// Writes a batch, and of what is in front of the tables for its vBucket that which stays.
    fn write_direct(
        &mut self,
        found: Option<&VbFront>,
        direct: Direct<'_>,
    ) -> Result<(), fjall::Error> {
        let Direct {
            batch,
            memo,
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
        encode_vb(batch.vb, memo.value(batch), &mut self.scratch);
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
    Old(Place),
}

/// Every row that is written, stays or goes, once, by seqno. A row that is written does not go.
fn merge(batch: &VbBatch<'_>, found: Option<&VbFront>, gone: Vec<Seqno>) -> Vec<(Seqno, Source)> {
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
    fn drains_pause_ever_longer_beside_more_runs() {
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
