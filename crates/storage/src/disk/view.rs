//! Reading: snapshots, scans and fetches.

use std::sync::Arc;

use fjall::Readable;
use model::{Document, Seqno, VbId, VbRecord};

use super::engine::{Engine, read_error};
use crate::port::{Snapshot, Want};
use crate::record::{decode_row, row_key, row_meta, split_row_key};
use crate::{ErrorKind, StoreError};

/// A consistent view of one vBucket. Fields drop in order: the view before its database.
pub(crate) struct DiskSnapshot {
    view: fjall::Snapshot,
    vb: VbId,
    record: Option<VbRecord>,
    engine: Arc<Engine>,
}

impl DiskSnapshot {
    pub(crate) fn open(engine: Arc<Engine>, vb: VbId) -> Result<Self, StoreError> {
        let view = engine.db.snapshot();
        let stored = engine
            .stored_vb(&view, vb)
            .map_err(|error| error.into_store_error("opening a snapshot").of(vb))?;
        Ok(Self {
            view,
            vb,
            record: stored.map(|stored| stored.record),
            engine,
        })
    }

    /// The rows as they are stored, seqnos ascending from `from` up to the high seqno; from the
    /// back, descending.
    pub(crate) fn raw_rows(
        &self,
        from: Seqno,
        during: &'static str,
    ) -> impl DoubleEndedIterator<Item = Result<(Seqno, fjall::Slice), StoreError>> + use<> {
        let vb = self.vb;
        let start = row_key(vb, from);
        // Rows above the high seqno belong to a commit that is under way.
        let end = row_key(vb, self.high_seqno().next()).max(start);
        let rows = self.view.range(&self.engine.rows, start..end);
        rows.map(move |row| {
            let (key, value) = row
                .into_inner()
                .map_err(|error| read_error(error, during).of(vb))?;
            match split_row_key(&key) {
                Some((_, seqno)) => Ok((seqno, value)),
                None => Err(StoreError::new(ErrorKind::Corrupt, during).of(vb)),
            }
        })
    }

    fn decode(
        &self,
        seqno: Seqno,
        value: &[u8],
        during: &'static str,
    ) -> Result<Document, StoreError> {
        decode_row(self.vb, seqno, value).map_err(|error| corrupt(self.vb, seqno, error, during))
    }

    /// The document of one key, if it is in this view.
    pub(crate) fn fetch(&self, want: &Want<'_>) -> Result<Option<Document>, StoreError> {
        let during = "fetching a document";
        let Some(seqno) = want.seqno else {
            return self.search(want.key, during);
        };
        let found = self.view.get(&self.engine.rows, row_key(self.vb, seqno));
        let Some(value) = found.map_err(|error| read_error(error, during).of(self.vb))? else {
            return Ok(None);
        };
        let document = self.decode(seqno, &value, during)?;
        if document.key() != want.key {
            let error = StoreError::new(ErrorKind::Corrupt, during).of(self.vb);
            return Err(error.because(format!("another key lies at seqno {seqno}")));
        }
        Ok(Some(document))
    }

    fn search(&self, key: &[u8], during: &'static str) -> Result<Option<Document>, StoreError> {
        for row in self.raw_rows(Seqno::ZERO, during).rev() {
            let (seqno, value) = row?;
            let (meta, found) = row_meta(self.vb, seqno, &value)
                .map_err(|error| corrupt(self.vb, seqno, error, during))?;
            if found == key && !meta.kind.is_prepared() {
                return self.decode(seqno, &value, during).map(Some);
            }
        }
        Ok(None)
    }
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
        let mut rows = self.raw_rows(from, during);
        let mut failed = false;
        Box::new(std::iter::from_fn(move || {
            if failed {
                return None;
            }
            let document = rows
                .next()?
                .and_then(|(seqno, value)| self.decode(seqno, &value, during));
            failed = document.is_err();
            Some(document)
        }))
    }
}
