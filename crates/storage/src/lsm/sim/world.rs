//! Expected content of a store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Document, Kind, Meta, Seqno, VbId, VbRecord};

use crate::points::RestorePoints;
use crate::port::{Change, Changes, Keep, VbBatch, rolled_back};

/// Expected content of a vBucket.
#[derive(Clone, Debug)]
pub(crate) struct VbState {
    pub(crate) record: VbRecord,
    pub(crate) rows: BTreeMap<Seqno, Document>,
    /// History with write times in Unix seconds.
    pub(crate) history: BTreeMap<Seqno, (Document, u32)>,
    /// Rows of the history that an interrupted trim may have dropped; they are among the current
    /// rows, so a read cannot distinguish.
    pub(crate) unsure: BTreeSet<Seqno>,
    /// Restore points; `None` if unknown.
    pub(crate) points: Option<RestorePoints>,
}

impl VbState {
    fn new(record: &VbRecord) -> Self {
        Self {
            record: record.clone(),
            rows: BTreeMap::new(),
            history: BTreeMap::new(),
            unsure: BTreeSet::new(),
            points: Some(RestorePoints::default()),
        }
    }

    /// Returns rows and history together.
    pub(crate) fn all(&self) -> BTreeMap<Seqno, &Document> {
        let history = self.history.iter();
        let mut all: BTreeMap<_, _> = history.map(|(seqno, row)| (*seqno, &row.0)).collect();
        all.extend(self.rows.iter().map(|(seqno, row)| (*seqno, row)));
        all
    }

    fn remove(&mut self, seqno: Seqno) {
        if let Some(points) = &mut self.points {
            points.row_gone(seqno);
        }
        self.rows.remove(&seqno);
    }

    fn change(&mut self, batch: &Batch) {
        for change in &batch.changes {
            match change {
                OwnedChange::Put(document, supersedes) => {
                    self.remove(*supersedes);
                    self.rows.insert(document.seqno(), document.as_stored());
                }
                OwnedChange::Remove(row) => self.remove(row.seqno()),
                OwnedChange::Keep(document, at_s) => {
                    let row = (document.as_stored(), *at_s);
                    self.history.insert(document.seqno(), row);
                }
            }
        }
        self.record = VbRecord {
            purge_seqno: self.record.purge_seqno.max(batch.record.purge_seqno),
            ..batch.record.clone()
        };
        if self.record.snapshot.end == self.record.high_seqno
            && let Some(points) = &mut self.points
        {
            points.add(self.record.high_seqno);
        }
    }

    fn roll_back(&mut self, to: Seqno) {
        if to >= self.record.high_seqno {
            return;
        }
        let points = self.points.get_or_insert_default();
        let point = points.go_back(to);
        self.rows.split_off(&point.next());
        self.history.split_off(&point.next());
        rolled_back(&mut self.record, point);
    }

    fn compact(&mut self, verdicts: Verdicts) {
        let (high, before) = (self.record.high_seqno, self.rows.len());
        let mut purged = self.record.purge_seqno;
        self.rows.retain(|seqno, row| {
            let verdict = verdicts.of(&row.meta(), row.key());
            if *seqno == high || verdict == Keep::Keep {
                return true;
            }
            let gone = row.kind().is_tombstone() || row.kind() == Kind::Abort;
            if gone && verdict == Keep::Drop {
                purged = purged.max(*seqno);
            }
            false
        });
        self.record.purge_seqno = purged;
        if self.rows.len() < before {
            self.points = Some(RestorePoints::default());
        }
    }

    /// Drops history before a time, up to the first row that stays, and dead rows.
    fn trim(&mut self, trim: TrimBy) {
        let mut stay = false;
        self.history.retain(|_, (row, at_s)| {
            stay |= *at_s >= trim.before_s;
            stay && !trim.is_dead(row.key())
        });
    }
}

/// Rule for the rows that a compaction drops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdicts {
    /// Tombstones and aborts up to here are dropped.
    pub(crate) gone_to: Seqno,
    /// Keys with this remainder are erased.
    pub(crate) erased: Option<u8>,
}

impl Verdicts {
    pub(crate) fn of(self, meta: &Meta, key: &[u8]) -> Keep {
        let gone = meta.kind.is_tombstone() || meta.kind == Kind::Abort;
        if self.erased.is_some() && self.erased == remainder(key) {
            Keep::Erase
        } else if gone && meta.seqno <= self.gone_to {
            Keep::Drop
        } else {
            Keep::Keep
        }
    }
}

/// Returns the remainder of a key: a number below 7.
fn remainder(key: &[u8]) -> Option<u8> {
    key.last().map(|byte| byte % 7)
}

/// Rule for the rows of a history that are dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrimBy {
    pub(crate) before_s: u32,
    /// Keys with this remainder are dead.
    pub(crate) dead: Option<u8>,
}

impl TrimBy {
    pub(crate) fn is_dead(self, key: &[u8]) -> bool {
        self.dead.is_some() && self.dead == remainder(key)
    }
}

/// A change of a batch.
#[derive(Clone, Debug)]
pub(crate) enum OwnedChange {
    Put(Document, Seqno),
    /// Removes this row.
    Remove(Document),
    Keep(Document, u32),
}

/// A vBucket's part of a commit.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) vb: VbId,
    pub(crate) record: VbRecord,
    pub(crate) changes: Vec<OwnedChange>,
}

impl Batch {
    pub(crate) fn as_batch(&self) -> VbBatch<'_> {
        VbBatch {
            vb: self.vb,
            record: &self.record,
            changes: self,
        }
    }
}

impl Changes for Batch {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        for change in &self.changes {
            f(match change {
                OwnedChange::Put(document, supersedes) => Change::Put {
                    document,
                    supersedes: *supersedes,
                },
                OwnedChange::Remove(row) => Change::Remove {
                    key: row.key(),
                    prepared: row.kind().is_prepared(),
                    seqno: row.seqno(),
                },
                OwnedChange::Keep(document, at_s) => Change::Keep {
                    document,
                    at_s: *at_s,
                },
            });
        }
    }
}

/// A call that changes a store.
#[derive(Clone, Debug)]
pub(crate) enum StoreCall {
    Commit(Vec<Batch>),
    Rollback(VbId, Seqno),
    Remove(Vec<VbId>),
    Compact(VbId, Verdicts),
    Trim(VbId, TrimBy),
    Manifest(Vec<u8>),
}

impl StoreCall {
    /// Returns the vBuckets that it changes.
    pub(crate) fn touched(&self) -> BTreeSet<VbId> {
        match self {
            Self::Commit(batches) => batches.iter().map(|batch| batch.vb).collect(),
            Self::Rollback(vb, _) | Self::Compact(vb, _) | Self::Trim(vb, _) => [*vb].into(),
            Self::Remove(vbs) => vbs.iter().copied().collect(),
            Self::Manifest(_) => BTreeSet::new(),
        }
    }

    /// Whether an interrupted step may leave a vBucket in an intermediate state.
    pub(crate) fn has_parts(&self) -> bool {
        matches!(self, Self::Compact(..) | Self::Trim(..))
    }
}

/// Expected content of a store. Cost of a copy: a pointer a vBucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) vbs: BTreeMap<VbId, Arc<VbState>>,
    pub(crate) manifest: Option<Vec<u8>>,
}

impl World {
    /// Returns the content after a step.
    pub(crate) fn after(&self, step: &StoreCall) -> Self {
        let mut after = self.clone();
        let mut with = |vb: &VbId, f: &dyn Fn(&mut VbState)| {
            if let Some(state) = after.vbs.get_mut(vb) {
                f(Arc::make_mut(state));
            }
        };
        match step {
            StoreCall::Commit(batches) => {
                for batch in batches {
                    let state = after.vbs.entry(batch.vb);
                    let state = state.or_insert_with(|| Arc::new(VbState::new(&batch.record)));
                    Arc::make_mut(state).change(batch);
                }
            }
            StoreCall::Rollback(vb, to) => with(vb, &|state| state.roll_back(*to)),
            StoreCall::Compact(vb, verdicts) => with(vb, &|state| state.compact(*verdicts)),
            StoreCall::Trim(vb, trim) => with(vb, &|state| state.trim(*trim)),
            StoreCall::Remove(vbs) => after.vbs.retain(|vb, _| !vbs.contains(vb)),
            StoreCall::Manifest(text) => after.manifest = Some(text.clone()),
        }
        after
    }
}
