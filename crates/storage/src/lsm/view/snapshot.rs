//! A view of one vBucket that later commits do not change.

use std::io;
use std::ops::ControlFlow;

use model::{CollectionId, Document, Seqno, VbId, VbRecord};

use super::rows::{NameRange, RowView};
use super::seqnos::{BySeqno, Range};
use crate::StoreError;
use crate::key_range::KeyRange;
use crate::lsm::current::Current;
use crate::lsm::fault::read_error_of;
use crate::lsm::row::{DOCUMENT, HISTORY};
use crate::merged::merged;
use crate::port::{DocumentResult, Documents, RowLooker, ScannedRow, Snapshot};

/// A consistent view of one vBucket.
pub(crate) struct DiskSnapshot {
    /// The rows; none without a record.
    pub(crate) rows: RowView,
    record: Option<VbRecord>,
}

impl DiskSnapshot {
    /// Opens a view of the current content.
    pub(crate) fn open(current: &Current, vb: VbId) -> io::Result<Self> {
        let stored = current.stored(vb)?;
        let (record, state) = stored.map(|stored| (stored.record, stored.state)).unzip();
        let lineage = state.unwrap_or_default().lineage;
        let rows = RowView::open(current, vb, lineage);
        Ok(Self { rows, record })
    }

    /// Iterates over documents from a seqno on.
    fn documents(
        &self,
        range: Range,
        from: Seqno,
        during: &'static str,
    ) -> impl Iterator<Item = DocumentResult> + Send {
        let rows = BySeqno::new(&self.rows, range, from);
        rows.map(move |row| row.map_err(read_error_of(self.rows.vb, during)))
    }
}

/// Ends after the first error.
fn until_error(
    mut rows: impl Iterator<Item = DocumentResult>,
) -> impl Iterator<Item = DocumentResult> {
    let mut failed = false;
    std::iter::from_fn(move || {
        let row = (!failed).then(|| rows.next()).flatten()?;
        failed = row.is_err();
        Some(row)
    })
}

impl Snapshot for DiskSnapshot {
    fn record(&self) -> Option<&VbRecord> {
        self.record.as_ref()
    }

    fn by_seqno(&self, from: Seqno) -> Documents<'_> {
        let rows = self.documents(Range::Newest, from, "scanning");
        Box::new(until_error(rows))
    }

    fn beside_documents(&self, events: Seqno) -> Result<Vec<Document>, StoreError> {
        let lowest = (events < self.high_seqno()).then(|| events.next());
        self.rows.beside_documents(lowest)
    }

    fn history_from(&self) -> Result<Option<Seqno>, StoreError> {
        let mut first = None;
        self.rows.by_name(
            Seqno::ZERO,
            &[NameRange::of_tag(HISTORY)],
            &mut |row| {
                first = Some(row.seqno());
                Ok(ControlFlow::Break(()))
            },
            "looking for the history",
        )?;
        Ok(first)
    }

    fn with_history(&self, from: Seqno) -> Documents<'_> {
        let during = "scanning with history";
        let rows = self.documents(Range::Newest, from, during);
        let history = self.documents(Range::History, from, during);
        Box::new(until_error(merged(rows, history)))
    }

    fn look(
        &self,
        lowest: Seqno,
        range: &KeyRange,
        f: &mut RowLooker<'_>,
    ) -> Result<(), StoreError> {
        let during = "scanning by key";
        let io = read_error_of(self.rows.vb, during);
        let events = KeyRange::of_collection(CollectionId::SYSTEM);
        let parts = range.without(&events);
        let names: Vec<NameRange> = parts
            .map(|part| NameRange::of_keys(DOCUMENT, &part))
            .collect();
        self.rows.by_name(
            lowest,
            &names,
            &mut |row| {
                f(ScannedRow {
                    meta: &row.meta().map_err(&io)?,
                    key: row.key(),
                    value_bytes: row.value_bytes() as usize,
                    document: &|| self.rows.values.document(row).map_err(&io),
                })
            },
            during,
        )
    }

    fn newest(&self, rows: u64) -> Seqno {
        self.rows.newest(rows)
    }
}
