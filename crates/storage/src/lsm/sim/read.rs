//! Reads a store in all ways, and compares the results.

use std::collections::BTreeMap;

use model::{Document, Seqno, VbId, VbRecord};

use super::workload::ABSENT;
use super::world::VbState;
use crate::port::{DocumentRequest, KvStore, Snapshot};
use crate::{KeyQuery, KeyRange, KeyRow, StoreError};

/// A deviation from the expected state.
#[derive(Debug)]
pub(crate) enum Deviation {
    /// The store reported an error.
    Said(StoreError),
    /// The store reported no error.
    Silent(String),
}

impl From<StoreError> for Deviation {
    fn from(error: StoreError) -> Self {
        Self::Said(error)
    }
}

impl std::fmt::Display for Deviation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Said(error) => write!(f, "{error}"),
            Self::Silent(text) => write!(f, "{text}"),
        }
    }
}

pub(super) fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), Deviation> {
    if holds {
        Ok(())
    } else {
        Err(Deviation::Silent(text()))
    }
}

/// A vBucket as it was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadVBucket {
    pub(crate) record: VbRecord,
    pub(crate) rows: BTreeMap<Seqno, Document>,
    /// Rows with the history.
    pub(crate) all: BTreeMap<Seqno, Document>,
    pub(crate) history_from: Option<Seqno>,
}

/// Whether two documents are equal in everything.
pub(crate) fn same(one: &Document, other: &Document) -> bool {
    one.meta() == other.meta()
        && one.key().len() == other.key().len()
        && one.key_and_value() == other.key_and_value()
}

fn same_rows<'d>(
    one: impl ExactSizeIterator<Item = &'d Document>,
    other: impl ExactSizeIterator<Item = &'d Document>,
) -> bool {
    one.len() == other.len() && one.zip(other).all(|(one, other)| same(one, other))
}

impl ReadVBucket {
    /// Whether the view equals a state.
    pub(crate) fn shows(&self, state: &VbState) -> bool {
        let mut all = state.all();
        all.retain(|seqno, _| !state.unsure.contains(seqno) || self.all.contains_key(seqno));
        self.record == state.record
            && same_rows(self.rows.values(), state.rows.values())
            && same_rows(self.all.values(), all.values().copied())
            && self.history_from == state.history.keys().next().copied()
    }

    /// Describes the differences in short.
    pub(crate) fn differs(&self, state: &VbState) -> String {
        let seqnos = |rows: &mut dyn Iterator<Item = &Seqno>| {
            let list: Vec<String> = rows.map(|seqno| seqno.0.to_string()).collect();
            list.join(" ")
        };
        format!(
            "found record {:?}\n rows {}\n all {} from {:?}\n  want record {:?}\n rows {}\n all {} from {:?}",
            self.record,
            seqnos(&mut self.rows.keys()),
            seqnos(&mut self.all.keys()),
            self.history_from,
            state.record,
            seqnos(&mut state.rows.keys()),
            seqnos(&mut state.all().keys()),
            state.history.keys().next(),
        )
    }

    /// Returns the state, if it is between two states of a compaction or of a trim of the history.
    pub(crate) fn between(&self, from: &VbState, to: &VbState) -> Option<VbState> {
        let whole = VbRecord {
            purge_seqno: self.record.purge_seqno,
            ..from.record.clone()
        };
        let purged = from.record.purge_seqno..=to.record.purge_seqno;
        if self.record != whole || !purged.contains(&self.record.purge_seqno) {
            return None;
        }
        let is_of = |(seqno, row): (&Seqno, &Document), among: &BTreeMap<Seqno, &Document>| {
            among.get(seqno).is_some_and(|other| same(row, other))
        };
        let refs =
            |rows: &'_ BTreeMap<Seqno, Document>| -> Vec<Seqno> { rows.keys().copied().collect() };
        let from_rows = from.rows.iter().map(|(seqno, row)| (*seqno, row)).collect();
        let fits = self.rows.iter().all(|row| is_of(row, &from_rows))
            && self.all.iter().all(|row| is_of(row, &from.all()))
            && to.rows.keys().all(|seqno| self.rows.contains_key(seqno))
            && to.all().keys().all(|seqno| self.all.contains_key(seqno));
        let purge = self.record.purge_seqno;
        let told = from.rows.iter().all(|(seqno, row)| {
            let gone = !self.rows.contains_key(seqno);
            !(gone && row.kind().is_tombstone() && to.record.purge_seqno >= *seqno)
                || purge >= *seqno
        });
        if !fits || !told {
            return None;
        }
        let mut history = from.history.clone();
        history.retain(|seqno, _| {
            self.history_from.is_some_and(|first| *seqno >= first) && self.all.contains_key(seqno)
        });
        let unsure = history
            .keys()
            .filter(|seqno| !to.history.contains_key(seqno));
        let unsure = unsure
            .filter(|seqno| self.rows.contains_key(seqno))
            .copied()
            .collect();
        let state = VbState {
            record: self.record.clone(),
            rows: self.rows.clone(),
            history,
            unsure,
            points: None,
        };
        let rest = refs(&self.all).into_iter();
        let mut rest = rest.filter(|seqno| !state.all().contains_key(seqno));
        (rest.next().is_none() && self.shows(&state)).then_some(state)
    }
}

/// The content of a store, with the errors of its parts.
pub(crate) struct ReadBack {
    pub(crate) vbs: BTreeMap<VbId, Result<ReadVBucket, Deviation>>,
    pub(crate) manifest: Result<Option<Vec<u8>>, Deviation>,
}

/// Reads the whole store.
pub(crate) fn read(store: &dyn KvStore) -> Result<ReadBack, Deviation> {
    let mut vbs = BTreeMap::new();
    for (vb, record) in store.load()? {
        let view = read_vb(store, vb).and_then(|view| {
            ensure(view.record == record, || {
                format!("{vb}: a snapshot has another record than it was loaded with")
            })?;
            Ok(view)
        });
        vbs.insert(vb, view);
    }
    for vb in super::workload::VBS {
        if !vbs.contains_key(&vb) {
            let snapshot = store.snapshot(vb)?;
            let rows = snapshot.with_history(Seqno::ZERO).count();
            ensure(snapshot.record().is_none() && rows == 0, || {
                format!("{vb} has no record and {rows} rows")
            })?;
        }
    }
    let manifest = store.manifest().map_err(Deviation::Said);
    Ok(ReadBack { vbs, manifest })
}

fn rows_of(
    rows: Box<dyn Iterator<Item = Result<Document, StoreError>> + Send + '_>,
) -> Result<BTreeMap<Seqno, Document>, Deviation> {
    let mut found: BTreeMap<Seqno, Document> = BTreeMap::new();
    for row in rows {
        let row = row?;
        let ascends = found
            .last_key_value()
            .is_none_or(|last| *last.0 < row.seqno());
        ensure(ascends, || format!("seqno {} does not ascend", row.seqno()))?;
        found.insert(row.seqno(), row);
    }
    Ok(found)
}

/// Reads a snapshot.
pub(crate) fn view(snapshot: &dyn Snapshot) -> Result<ReadVBucket, Deviation> {
    let record = snapshot.record().cloned();
    let record = record.ok_or_else(|| Deviation::Silent("there is no record".to_owned()))?;
    ensure(snapshot.high_seqno() == record.high_seqno, || {
        "the snapshot ends elsewhere than its record".to_owned()
    })?;
    ensure(snapshot.purge_seqno() == record.purge_seqno, || {
        "the snapshot is purged further than its record".to_owned()
    })?;
    let rows = rows_of(snapshot.by_seqno(Seqno::ZERO))?;
    let all = rows_of(snapshot.with_history(Seqno::ZERO))?;
    let middle = Seqno(record.high_seqno.0 / 2);
    let later = rows_of(snapshot.by_seqno(middle))?;
    ensure(
        later.keys().eq(rows.range(middle..).map(|row| row.0)),
        || format!("other rows from {middle} on"),
    )?;
    let later = rows_of(snapshot.with_history(middle))?;
    ensure(
        later.keys().eq(all.range(middle..).map(|row| row.0)),
        || format!("another history from {middle} on"),
    )?;
    Ok(ReadVBucket {
        record,
        rows,
        all,
        history_from: snapshot.history_from()?,
    })
}

/// Reads a vBucket, by seqno and by key.
pub(crate) fn read_vb(store: &dyn KvStore, vb: VbId) -> Result<ReadVBucket, Deviation> {
    let of_vb = |wrong: Deviation| match wrong {
        Deviation::Silent(text) => Deviation::Silent(format!("{vb}: {text}")),
        said @ Deviation::Said(_) => said,
    };
    let snapshot = store.snapshot(vb)?;
    let view = view(&*snapshot).map_err(of_vb)?;
    by_fetch(store, vb, &view.rows).map_err(of_vb)?;
    by_look(&*snapshot, &view.rows).map_err(of_vb)?;
    Ok(view)
}

/// Checks that each row is found by its seqno, and committed ones by their key.
fn by_fetch(
    store: &dyn KvStore,
    vb: VbId,
    rows: &BTreeMap<Seqno, Document>,
) -> Result<(), Deviation> {
    let mut wants = Vec::new();
    let mut expected = Vec::new();
    for (seqno, row) in rows {
        wants.push(DocumentRequest {
            key: row.key(),
            seqno: Some(*seqno),
        });
        expected.push(Some(row));
        if !row.kind().is_prepared() {
            wants.push(DocumentRequest {
                key: row.key(),
                seqno: None,
            });
            expected.push(Some(row));
        }
    }
    let end = rows.last_key_value().map_or(Seqno::ZERO, |row| *row.0);
    for seqno in [None, Some(end.next())] {
        wants.push(DocumentRequest { key: ABSENT, seqno });
        expected.push(None);
    }
    let found = store.fetch(vb, &wants)?;
    ensure(found.len() == wants.len(), || {
        "another number was fetched".to_owned()
    })?;
    for ((want, found), expected) in wants.iter().zip(&found).zip(expected) {
        let right = match (found, expected) {
            (Some(found), Some(expected)) => same(found, expected),
            (None, None) => true,
            _ => false,
        };
        ensure(right, || {
            let found = found.as_ref().map(|row| (row.seqno(), row.kind()));
            format!(
                "fetching {want:?} found {found:?}, a walk {:?}",
                expected.map(Document::seqno)
            )
        })?;
    }
    Ok(())
}

/// Checks that the keys of live documents are found in order.
fn by_look(snapshot: &dyn Snapshot, rows: &BTreeMap<Seqno, Document>) -> Result<(), Deviation> {
    let range = KeyRange::default();
    let look = KeyQuery {
        range: &range,
        keys_only: true,
        bytes_max: 1 << 20,
        wants: &|_, _| true,
    };
    let found = look.look(snapshot)?;
    let found: Vec<&[u8]> = found
        .rows
        .iter()
        .filter_map(|row| match row {
            KeyRow::Key(key) => Some(&**key),
            KeyRow::Whole(_) => None,
        })
        .collect();
    let lives = |row: &&Document| !row.kind().is_prepared() && !row.kind().is_tombstone();
    let mut expected: Vec<&[u8]> = rows.values().filter(lives).map(Document::key).collect();
    expected.sort_unstable();
    ensure(found == expected, || {
        "the keys in order are others than those by seqno".to_owned()
    })
}
