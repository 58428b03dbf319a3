//! A store in memory, lost with the process: for ephemeral buckets and for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Document, Kind, Meta, Seqno, VbId, VbRecord};
use parking_lot::Mutex;

use crate::history::{HistoryKept, HistoryLimits, Trim};
use crate::key_range::KeyRange;
use crate::merged::merged;
use crate::points::RestorePoints;
use crate::port::{
    Change, CommitInfo, Compacted, DiskUsage, DocumentRequest, Documents, Keep, KvStore, RowLooker,
    ScannedRow, Snapshot, VbBatch, is_beside,
};
use crate::{ErrorKind, StoreError};

/// A [`KvStore`] in memory. It shares the given documents and copies none.
///
/// Cost: a snapshot is O(1), but the first commit to a vBucket while a snapshot of it exists copies
/// that vBucket's index.
#[derive(Debug, Default)]
pub struct MemStore {
    state: Mutex<MemState>,
}

#[derive(Debug, Default)]
struct MemState {
    vbuckets: BTreeMap<VbId, Arc<Contents>>,
    manifest: Option<Vec<u8>>,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Contents {
    record: VbRecord,
    points: RestorePoints,
    rows: BTreeMap<Seqno, Document>,
    /// Documents with their write times in Unix seconds.
    history: BTreeMap<Seqno, (Document, u32)>,
}

impl Contents {
    fn apply(&mut self, batch: &VbBatch<'_>) -> CommitInfo {
        let mut info = CommitInfo::default();
        batch.changes.for_each(&mut |change| match change {
            Change::Put {
                document,
                supersedes,
            } => {
                self.remove(supersedes);
                info.rows += 1;
                info.bytes += document.key_and_value().len() as u64;
                self.rows.insert(document.seqno(), document.as_stored());
            }
            Change::Remove { seqno, .. } => self.remove(seqno),
            Change::Keep { document, at_s } => {
                info.bytes += document.key_and_value().len() as u64;
                let row = (document.as_stored(), at_s);
                self.history.insert(document.seqno(), row);
            }
        });
        let purge_seqno = self.record.purge_seqno.max(batch.record.purge_seqno);
        self.record = VbRecord {
            purge_seqno,
            ..batch.record.clone()
        };
        if self.record.snapshot.end == self.record.high_seqno {
            self.points.add(self.record.high_seqno);
        }
        info
    }

    fn remove(&mut self, seqno: Seqno) {
        self.points.row_gone(seqno);
        self.rows.remove(&seqno);
    }

    fn fetch(&self, want: &DocumentRequest<'_>) -> Option<Document> {
        let found = if let Some(seqno) = want.seqno {
            self.rows.get(&seqno)
        } else {
            let mut newest_first = self.rows.values().rev();
            newest_first
                .find(|document| document.key() == want.key && !document.kind().is_prepared())
        };
        found.filter(|document| document.key() == want.key).cloned()
    }
}

impl MemStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn with_open<T>(
        &self,
        during: &'static str,
        f: impl FnOnce(&mut MemState) -> T,
    ) -> MemResult<T> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(StoreError::new(ErrorKind::Closed, during));
        }
        Ok(f(&mut state))
    }

    fn contents(&self, vb: VbId, during: &'static str) -> MemResult<Option<Arc<Contents>>> {
        self.with_open(during, |state| state.vbuckets.get(&vb).cloned())
    }
}

type MemResult<T> = Result<T, StoreError>;

impl KvStore for MemStore {
    fn load(&self) -> MemResult<BTreeMap<VbId, VbRecord>> {
        self.with_open("loading", |state| {
            let all = state.vbuckets.iter();
            all.map(|(vb, contents)| (*vb, contents.record.clone()))
                .collect()
        })
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> MemResult<CommitInfo> {
        self.with_open("committing", |state| {
            let mut total = CommitInfo::default();
            for batch in batches {
                let contents = state.vbuckets.entry(batch.vb).or_insert_with(|| {
                    Arc::new(Contents {
                        record: batch.record.clone(),
                        points: RestorePoints::default(),
                        rows: BTreeMap::new(),
                        history: BTreeMap::new(),
                    })
                });
                let info = Arc::make_mut(contents).apply(batch);
                total.rows += info.rows;
                total.bytes += info.bytes;
            }
            total
        })
    }

    fn fetch(&self, vb: VbId, wants: &[DocumentRequest<'_>]) -> MemResult<Vec<Option<Document>>> {
        let contents = self.contents(vb, "fetching documents")?;
        let fetch = |want| contents.as_ref()?.fetch(want);
        Ok(wants.iter().map(fetch).collect())
    }

    /// Cost: a visit of every row.
    fn may_have(&self, vb: VbId, key: &[u8]) -> bool {
        let want = DocumentRequest { key, seqno: None };
        let contents = self.contents(vb, "fetching documents");
        contents.is_ok_and(|contents| contents.is_some_and(|rows| rows.fetch(&want).is_some()))
    }

    fn snapshot(&self, vb: VbId) -> MemResult<Box<dyn Snapshot>> {
        Ok(Box::new(MemSnapshot {
            contents: self.contents(vb, "opening a snapshot")?,
        }))
    }

    fn rollback(&self, vb: VbId, to: Seqno) -> MemResult<VbRecord> {
        let during = "rolling back";
        let rolled = self.with_open(during, |state| {
            let contents = Arc::make_mut(state.vbuckets.get_mut(&vb)?);
            if to < contents.record.high_seqno {
                let point = contents.points.go_back(to);
                contents.rows.split_off(&point.next());
                contents.history.split_off(&point.next());
                crate::port::rolled_back(&mut contents.record, point);
            }
            Some(contents.record.clone())
        })?;
        rolled.ok_or_else(|| {
            StoreError::new(ErrorKind::Corrupt, during)
                .of(vb)
                .because("it has no record")
        })
    }

    fn rollback_point(&self, vb: VbId, to: Seqno) -> MemResult<Seqno> {
        let contents = self.contents(vb, "looking for the way back")?;
        Ok(contents.map_or(Seqno::ZERO, |contents| {
            let high = contents.record.high_seqno;
            if to < high {
                contents.points.clone().go_back(to)
            } else {
                high
            }
        }))
    }

    fn compact(
        &self,
        vb: VbId,
        keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
    ) -> MemResult<Compacted> {
        self.with_open("compacting", |state| {
            let Some(contents) = state.vbuckets.get_mut(&vb).map(Arc::make_mut) else {
                return Compacted::default();
            };
            let mut done = Compacted::default();
            let (high, mut purged) = (contents.record.high_seqno, contents.record.purge_seqno);
            contents.rows.retain(|seqno, document| {
                let verdict = if *seqno == high {
                    Keep::Keep
                } else {
                    keep(&document.meta(), document.key())
                };
                let stays = verdict == Keep::Keep;
                let gone = document.kind().is_tombstone() || document.kind() == Kind::Abort;
                if verdict == Keep::Drop && gone {
                    purged = purged.max(*seqno);
                }
                done.kept += u64::from(stays);
                done.dropped += u64::from(!stays);
                stays
            });
            if done.dropped > 0 {
                contents.points.clear();
            }
            contents.record.purge_seqno = purged;
            Compacted {
                purge_seqno: purged,
                ..done
            }
        })
    }

    fn may_have_history(&self) -> MemResult<bool> {
        self.with_open("looking for a history", |state| {
            let mut all = state.vbuckets.values();
            all.any(|contents| !contents.history.is_empty())
        })
    }

    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> MemResult<HistoryKept> {
        self.with_open("trimming the history", |state| {
            let Some(contents) = state.vbuckets.get_mut(&vb).map(Arc::make_mut) else {
                return HistoryKept::default();
            };
            let bytes_of = |row: &Document| row.key_and_value().len() as u64;
            let bytes = contents.history.values().map(|row| bytes_of(&row.0)).sum();
            let mut trim = Trim::new(limits, bytes);
            contents.history.retain(|seqno, (row, at_s)| {
                let dead = dead(&row.meta(), row.key());
                !trim.goes(*seqno, bytes_of(row), *at_s, dead)
            });
            trim.end()
        })
    }

    fn remove(&self, vbs: &[VbId]) -> MemResult<()> {
        // The rows are freed outside of the lock.
        self.with_open("removing", |state| {
            let removed = vbs.iter().map(|vb| state.vbuckets.remove(vb));
            removed.collect::<Vec<_>>()
        })
        .map(drop)
    }

    fn manifest(&self) -> MemResult<Option<Vec<u8>>> {
        self.with_open("reading the manifest", |state| state.manifest.clone())
    }

    fn set_manifest(&self, text: &[u8]) -> MemResult<()> {
        self.with_open("keeping the manifest", |state| {
            state.manifest = Some(text.to_vec());
        })
    }

    fn disk_usage(&self) -> MemResult<DiskUsage> {
        self.with_open("measuring", |_| DiskUsage::default())
    }

    fn close(&self) -> MemResult<()> {
        let contents = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.vbuckets)
        };
        drop(contents);
        Ok(())
    }
}

struct MemSnapshot {
    contents: Option<Arc<Contents>>,
}

impl Snapshot for MemSnapshot {
    fn record(&self) -> Option<&VbRecord> {
        self.contents.as_ref().map(|contents| &contents.record)
    }

    fn by_seqno(&self, from: Seqno) -> Documents<'_> {
        match &self.contents {
            Some(contents) => Box::new(contents.rows.range(from..).map(|(_, row)| Ok(row.clone()))),
            None => Box::new(std::iter::empty()),
        }
    }

    fn history_from(&self) -> MemResult<Option<Seqno>> {
        let contents = self.contents.as_ref();
        Ok(contents.and_then(|contents| Some(*contents.history.first_key_value()?.0)))
    }

    fn with_history(&self, from: Seqno) -> Documents<'_> {
        let Some(contents) = &self.contents else {
            return Box::new(std::iter::empty());
        };
        let history = contents.history.range(from..);
        let history = history.map(|(_, (row, _))| Ok(row.clone()));
        Box::new(merged(self.by_seqno(from), history))
    }

    /// Cost: a visit of every row from there on.
    fn look(&self, lowest: Seqno, range: &KeyRange, f: &mut RowLooker<'_>) -> MemResult<()> {
        let contents = self.contents.iter();
        let rows = contents.flat_map(|contents| contents.rows.range(lowest..));
        let rows = rows.map(|(_, row)| row);
        let inside = |row: &&Document| range.contains(row.key()) && !is_beside(row);
        // The last of several rows of one key is the newest.
        let by_key: BTreeMap<&[u8], &Document> =
            rows.filter(inside).map(|row| (row.key(), row)).collect();
        for (key, row) in by_key {
            let flow = f(ScannedRow {
                meta: &row.meta(),
                key,
                value_bytes: row.value().len(),
                document: &|| Ok(row.clone()),
            })?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn newest(&self, rows: u64) -> Seqno {
        let seqnos = self.contents.iter();
        let mut seqnos = seqnos.flat_map(|contents| contents.rows.keys().rev());
        let before = usize::try_from(rows).unwrap_or(usize::MAX);
        seqnos.nth(before).map_or(Seqno::ZERO, |seqno| seqno.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mem_store_passes_the_suite() {
        crate::suite::run(&mut |_| MemStore::new());
    }

    #[test]
    fn documents_are_shared_without_copies() {
        let store = MemStore::new();
        let document = crate::suite::document(1, "k", "v");
        crate::suite::put(&store, VbId(0), &[(document.clone(), Seqno::ZERO)]);
        let wants = [DocumentRequest {
            key: document.key(),
            seqno: Some(Seqno(1)),
        }];
        let found = store.fetch(VbId(0), &wants).unwrap();
        assert!(found[0].as_ref().unwrap().same_as(&document));
    }
}
