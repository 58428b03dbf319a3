//! What the writer keeps in memory of each vBucket.

use std::collections::BTreeMap;

use model::{Seqno, VbId};

use crate::points::RestorePoints;
use crate::port::{Change, VbBatch};
use crate::record::StoredVb;

/// The last acknowledged state of a vBucket, without its record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memo {
    pub(crate) high_seqno: Seqno,
    pub(crate) purge_seqno: Seqno,
    /// Number of the last acknowledged commit.
    pub(crate) commit: u64,
    pub(crate) points: RestorePoints,
    /// Changes when the rows are not the continuation of earlier ones.
    pub(crate) epoch: u64,
    /// Rows of a commit that failed, and that are there all the same. Whoever made that commit
    /// makes it again, in the same or a newer version of each key: that replaces them.
    pub(crate) orphans: BTreeMap<Box<[u8]>, Seqno>,
}

impl Memo {
    /// The memo of a stored record.
    pub(crate) fn of(stored: &StoredVb, epoch: u64) -> Self {
        Self {
            high_seqno: stored.record.high_seqno,
            purge_seqno: stored.record.purge_seqno,
            commit: stored.commit,
            points: stored.points.clone(),
            epoch,
            orphans: BTreeMap::new(),
        }
    }

    /// The memo after a batch, and the rows that the batch makes superfluous.
    pub(crate) fn after(&self, batch: &VbBatch<'_>, commit: u64) -> (Self, Vec<Seqno>) {
        let mut next = self.clone();
        let mut gone = Vec::new();
        batch.changes.for_each(&mut |change| {
            let (stale, own) = match change {
                Change::Put {
                    document,
                    supersedes,
                } => {
                    let orphan = next.orphans.remove(document.key());
                    gone.extend(orphan.filter(|seqno| *seqno != document.seqno()));
                    (supersedes, document.seqno())
                }
                Change::Remove(seqno) => (seqno, Seqno::ZERO),
            };
            if stale != Seqno::ZERO && stale != own {
                gone.push(stale);
            }
        });
        for seqno in &gone {
            next.points.row_gone(*seqno);
        }
        let orphan_max = next.orphans.values().max().copied().unwrap_or_default();
        next.high_seqno = batch.record.high_seqno.max(orphan_max);
        next.purge_seqno = self.purge_seqno.max(batch.record.purge_seqno);
        next.commit = commit;
        if batch.record.snapshot.end == next.high_seqno {
            next.points.add(next.high_seqno);
        }
        (next, gone)
    }

    /// The record to write after [`Memo::after`].
    pub(crate) fn stored(&self, batch: &VbBatch<'_>) -> StoredVb {
        let mut record = batch.record.clone();
        record.high_seqno = self.high_seqno;
        record.purge_seqno = self.purge_seqno;
        record.snapshot.end = record.snapshot.end.max(self.high_seqno);
        StoredVb {
            record,
            commit: self.commit,
            points: self.points.clone(),
        }
    }
}

/// The memos of all vBuckets that have a record.
pub(crate) type Memos = BTreeMap<VbId, Memo>;
