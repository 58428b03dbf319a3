//! Reading: snapshots, scans and fetches.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use fjall::{Readable, Slice};
use model::{Document, Seqno, VbId, VbRecord};

use super::engine::Engine;
use super::log_index::{JournalIndex, RowAt, VbIndex};
use super::value_log::{Segments, ValueReader};
use crate::disk::fault::{EngineError, read_error};
use crate::disk::value_position::Window;
use crate::history::{merged, place_of, seqno_at};
use crate::port::{LookedAt, RowLooker, Snapshot, Want};
use crate::record::{
    StoredVb, decode_row, decode_vb, open_row, row_key, row_meta, split_row_key, vb_key,
};
use crate::{ErrorKind, StoreError};

/// Everything that is stored of one vBucket at a moment: what was in the tables, and what was in
/// the journals. Fields drop in order: what is seen before its database.
pub(crate) struct View {
    pub(crate) vb: VbId,
    tables: fjall::Snapshot,
    current: (VbIndex, Arc<File>),
    sealed: Option<Arc<JournalIndex>>,
    value_log: Arc<Segments>,
    engine: Arc<Engine>,
}

impl View {
    /// What is there now.
    ///
    /// Cost: a copy of what the current journal knows of the vBucket, 16 bytes a row.
    pub(crate) fn open(engine: Arc<Engine>, vb: VbId) -> Self {
        // The tables too are looked at under the lock: the journal may become tables right after.
        // What rows refer to is looked at before, and only the run of the sealed one can come between.
        let index = engine.index.read();
        let value_log = engine.value_log.files();
        let (tables, file) = (engine.db.snapshot(), Arc::clone(&index.current.file));
        let current = index.current.vbs.get(vb).cloned().unwrap_or_default();
        let sealed = index.sealed.clone();
        drop(index);
        let current = current.settled();
        Self {
            vb,
            tables,
            current: (current, file),
            sealed,
            value_log,
            engine,
        }
    }

    /// What the sealed journal tells.
    fn sealed(&self) -> Option<(&VbIndex, &Arc<File>)> {
        let index = self.sealed.as_ref()?;
        Some((index.vbs.get(self.vb)?, &index.file))
    }

    /// The record.
    pub(crate) fn stored_vb(&self) -> Result<Option<StoredVb>, EngineError> {
        let (current, file) = &self.current;
        let above = [Some((current, file)), self.sealed()];
        let known = above
            .into_iter()
            .flatten()
            .find(|(index, _)| index.record != RowAt::Below);
        let value = match known.map(|(index, file)| (index.record, file)) {
            Some((RowAt::Journal(place), file)) => Some(place.read(file)?),
            Some((RowAt::Nowhere, _)) => None,
            Some((RowAt::Below, _)) | None => {
                self.tables.get(&self.engine.rows, vb_key(self.vb))?
            }
        };
        value
            .map(|bytes| decode_vb(self.vb, &bytes))
            .transpose()
            .map_err(|error| EngineError::Record(self.vb, error))
    }

    /// The rows from seqno `from` on and below `end` as they are stored, seqnos ascending.
    pub(crate) fn rows(
        &self,
        from: Seqno,
        end: Seqno,
    ) -> impl Iterator<Item = Result<(Seqno, Slice), fjall::Error>> + Send + '_ {
        let keys = row_key(self.vb, from)..row_key(self.vb, end.max(from));
        let tables = self.tables.range(&self.engine.rows, keys).map(|row| {
            let (key, value) = row.into_inner()?;
            match split_row_key(&key) {
                Some((_, seqno)) => Ok((seqno, value)),
                None => Err(fjall::Error::Io(std::io::ErrorKind::InvalidData.into())),
            }
        });
        let mut values = ValueReader::new(Arc::clone(&self.value_log));
        let referred = move |row: Row| {
            let (seqno, value) = row?;
            let row = values.referred(&row_key(self.vb, seqno), &value)?;
            Ok((seqno, row.unwrap_or(value)))
        };
        let (current, file) = &self.current;
        let below = over(self.sealed(), from..end, tables);
        over(Some((current, file)), from..end, below.map(referred))
    }

    /// The seqnos of the rows in a range, each once and in no order. No row is read, so a damaged one counts as well.
    pub(crate) fn seqnos<'a>(
        &'a self,
        from: Seqno,
        end: Seqno,
    ) -> impl Iterator<Item = Result<Seqno, fjall::Error>> + 'a {
        let current = &self.current.0;
        let sealed = self.sealed().map(|(index, _)| index);
        let keys = row_key(self.vb, from)..row_key(self.vb, end.max(from));
        let tables = self.tables.range(&self.engine.rows, keys).map(|row| {
            let known = split_row_key(&row.key()?).map(|(_, seqno)| seqno);
            known.ok_or_else(|| fjall::Error::Io(std::io::ErrorKind::InvalidData.into()))
        });
        let hides = move |index: Option<&VbIndex>, seqno: &Result<Seqno, _>| {
            let known = index.zip(seqno.as_ref().ok());
            known.is_some_and(|(index, seqno)| index.hides(*seqno))
        };
        let written = |index: Option<&'a VbIndex>| {
            let rows = index
                .into_iter()
                .flat_map(move |index| index.rows_from(from));
            let seqnos = rows.map(|(seqno, _)| seqno);
            seqnos.take_while(move |seqno| *seqno < end).map(Ok)
        };
        let below = written(sealed).chain(tables.filter(move |seqno| !hides(sealed, seqno)));
        written(Some(current)).chain(below.filter(move |seqno| !hides(Some(current), seqno)))
    }
}

/// A row as it is stored.
type Row = Result<(Seqno, Slice), fjall::Error>;

/// The rows of a journal, and those `below` of which it knows nothing.
fn over<'a>(
    journal: Option<(&'a VbIndex, &'a Arc<File>)>,
    seqnos: Range<Seqno>,
    below: impl Iterator<Item = Row> + Send + 'a,
) -> impl Iterator<Item = Row> + Send + 'a {
    let index = journal.map(|(index, _)| index);
    let hidden = move |seqno| index.is_some_and(|index| index.hides(seqno));
    let mut below = below
        .filter(move |row| !matches!(row, Ok((seqno, _)) if hidden(*seqno)))
        .peekable();
    let rows = index.into_iter().flat_map({
        let from = seqnos.start;
        move |index| index.rows_from(from)
    });
    let mut rows = rows
        .take_while(move |(seqno, _)| *seqno < seqnos.end)
        .peekable();
    let mut window = journal.map(|(_, file)| Window::new(Arc::clone(file)));
    std::iter::from_fn(move || {
        let Some(((seqno, place), window)) = rows.peek().copied().zip(window.as_mut()) else {
            return below.next();
        };
        if below
            .peek()
            .is_some_and(|row| row.as_ref().map_or(true, |(before, _)| *before < seqno))
        {
            return below.next();
        }
        rows.next();
        let value = window.row(place);
        Some(value.map(|value| (seqno, value)).map_err(Into::into))
    })
}

/// A consistent view of one vBucket, as its record says.
pub(crate) struct DiskSnapshot {
    view: View,
    record: Option<VbRecord>,
}

impl DiskSnapshot {
    pub(crate) fn open(engine: Arc<Engine>, vb: VbId) -> Result<Self, StoreError> {
        let view = View::open(engine, vb);
        let stored = view
            .stored_vb()
            .map_err(|error| error.into_store_error("opening a snapshot").of(vb))?;
        Ok(Self {
            view,
            record: stored.map(|stored| stored.record),
        })
    }

    /// The rows of the history as they are stored, by their places.
    pub(crate) fn raw_history(
        &self,
        from: Seqno,
        during: &'static str,
    ) -> impl Iterator<Item = Result<(Seqno, Slice), StoreError>> + Send + '_ {
        let end = place_of(self.high_seqno().next());
        let rows = self.view.rows(place_of(from), end);
        rows.map(move |row| row.map_err(|error| read_error(error, during).of(self.view.vb)))
    }

    /// Documents out of rows, until the first error.
    fn decoded<'a>(
        &'a self,
        mut rows: impl Iterator<Item = Result<(Seqno, Slice), StoreError>> + Send + 'a,
        during: &'static str,
    ) -> Box<dyn Iterator<Item = Result<Document, StoreError>> + Send + 'a> {
        let mut failed = false;
        Box::new(std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let document = rows.next()?.and_then(|(place, value)| {
                decode_row(self.view.vb, place, &value)
                    .map_err(|error| corrupt(self.view.vb, place, error, during))
            });
            failed = document.is_err();
            Some(document)
        }))
    }

    /// The rows as they are stored, seqnos ascending from `from` up to the high seqno.
    pub(crate) fn raw_rows(
        &self,
        from: Seqno,
        during: &'static str,
    ) -> impl Iterator<Item = Result<(Seqno, Slice), StoreError>> + Send + '_ {
        // What is above the high seqno does not count.
        let rows = self.view.rows(from, self.high_seqno().next());
        rows.map(move |row| row.map_err(|error| read_error(error, during).of(self.view.vb)))
    }
}

/// The document of one key, as it is stored now.
pub(crate) fn fetch(
    engine: &Arc<Engine>,
    vb: VbId,
    want: &Want<'_>,
) -> Result<Option<Document>, StoreError> {
    let during = "fetching a document";
    let Some(seqno) = want.seqno else {
        return search(engine, vb, want.key);
    };
    let found = engine.get(vb, seqno);
    let Some(value) = found.map_err(|error| read_error(error, during).of(vb))? else {
        return Ok(None);
    };
    let document =
        decode_row(vb, seqno, &value).map_err(|error| corrupt(vb, seqno, error, during))?;
    if !want.key.is_empty() && document.key() != want.key {
        let error = StoreError::new(ErrorKind::Corrupt, during).of(vb);
        return Err(error.because(format!("another key lies at seqno {seqno}")));
    }
    Ok(Some(document))
}

/// Walks the whole vBucket for a key.
fn search(engine: &Arc<Engine>, vb: VbId, key: &[u8]) -> Result<Option<Document>, StoreError> {
    let during = "fetching a document";
    let snapshot = DiskSnapshot::open(Arc::clone(engine), vb)?;
    let mut newest = None;
    for row in snapshot.raw_rows(Seqno::ZERO, during) {
        let (seqno, value) = row?;
        let (meta, found) =
            row_meta(vb, seqno, &value).map_err(|error| corrupt(vb, seqno, error, during))?;
        if found == key && !meta.kind.is_prepared() {
            newest = Some((seqno, value));
        }
    }
    let document = newest.map(|(seqno, value)| {
        decode_row(vb, seqno, &value).map_err(|error| corrupt(vb, seqno, error, during))
    });
    document.transpose()
}

/// A row that is not what it should be.
pub(crate) fn corrupt(
    vb: VbId,
    seqno: Seqno,
    error: crate::record::DecodeError,
    during: &'static str,
) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, during)
        .of(vb)
        .because(format!("row {seqno}: {error}"))
}

impl Snapshot for DiskSnapshot {
    fn high_seqno(&self) -> Seqno {
        self.record
            .as_ref()
            .map_or(Seqno::ZERO, |record| record.high_seqno)
    }

    fn purge_seqno(&self) -> Seqno {
        self.record
            .as_ref()
            .map_or(Seqno::ZERO, |record| record.purge_seqno)
    }

    fn record(&self) -> Option<&VbRecord> {
        self.record.as_ref()
    }

    fn by_seqno(
        &self,
        from: Seqno,
    ) -> Box<dyn Iterator<Item = Result<Document, StoreError>> + Send + '_> {
        let during = "scanning";
        self.decoded(self.raw_rows(from, during), during)
    }

    fn history_from(&self) -> Result<Option<Seqno>, StoreError> {
        let mut rows = self.raw_history(Seqno::ZERO, "looking for the history");
        let first = rows.next().transpose()?;
        Ok(first.map(|(place, _)| seqno_at(place)))
    }

    fn with_history(
        &self,
        from: Seqno,
    ) -> Box<dyn Iterator<Item = Result<Document, StoreError>> + Send + '_> {
        let during = "scanning with history";
        let (rows, history) = (self.raw_rows(from, during), self.raw_history(from, during));
        self.decoded(merged(rows, history), during)
    }

    fn look(&self, f: &mut RowLooker<'_>) -> Result<(), StoreError> {
        let during = "scanning";
        for row in self.raw_rows(Seqno::ZERO, during) {
            let (seqno, value) = row?;
            let (meta, key_len, key_and_value) = open_row(self.view.vb, seqno, &value)
                .map_err(|error| corrupt(self.view.vb, seqno, error, during))?;
            let flow = f(LookedAt {
                meta: &meta,
                key: &key_and_value[..key_len],
                document: &|| Ok(Document::from_joined(key_and_value, key_len, &meta)),
            })?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }
}
