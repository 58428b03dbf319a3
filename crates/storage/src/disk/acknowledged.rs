//! What the writer keeps in memory of each vBucket.

use std::collections::BTreeMap;

use model::{Kind, Seqno};

use crate::points::RestorePoints;
use crate::port::{Change, VbBatch};
use crate::record::{StoredVb, VbValue};

use super::per_vb::PerVb;

/// What has one row at most: a key, once as a committed document and once as a prepared one.
pub(crate) type Name = (bool, Box<[u8]>);

/// The name of a row.
pub(crate) fn name(kind: Kind, key: &[u8]) -> Name {
    (kind.is_prepared(), key.into())
}

/// The last acknowledged state of a vBucket, without its record.
#[derive(Clone, Debug, Default)]
pub(crate) struct AcknowledgedVb {
    pub(crate) high_seqno: Seqno,
    pub(crate) purge_seqno: Seqno,
    /// Number of the last acknowledged commit.
    pub(crate) commit: u64,
    pub(crate) points: RestorePoints,
    /// Changes when the rows are not the continuation of earlier ones.
    pub(crate) epoch: u64,
    /// Rows of a commit that failed, and that are there all the same. The caller
    /// makes that commit again, in the same or a newer version of each key: that replaces them.
    pub(crate) orphans: BTreeMap<Name, Seqno>,
}

impl AcknowledgedVb {
    /// The state that a stored record tells.
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

    /// Hands every row that a change makes superfluous to `gone`, before it is written: what a
    /// failed commit left under the change's own seqno is among it, too.
    pub(crate) fn replaced<E>(
        &mut self,
        change: Change<'_>,
        gone: &mut dyn FnMut(Seqno) -> Result<(), E>,
    ) -> Result<(), E> {
        let (stale, own) = match change {
            Change::Put {
                document,
                supersedes,
            } => {
                let own = document.seqno();
                if !self.orphans.is_empty()
                    && let Some(orphan) =
                        self.orphans.remove(&name(document.kind(), document.key()))
                {
                    self.points.row_gone(orphan);
                    gone(orphan)?;
                }
                (supersedes, own)
            }
            Change::Remove(seqno) => (seqno, Seqno::ZERO),
            Change::Keep { .. } => return Ok(()),
        };
        if stale != Seqno::ZERO && stale != own {
            self.points.row_gone(stale);
            gone(stale)?;
        }
        Ok(())
    }

    /// Ends a batch, of which all changes were looked at.
    pub(crate) fn end(&mut self, batch: &VbBatch<'_>) {
        let orphan_max = self.orphans.values().max().copied().unwrap_or_default();
        self.high_seqno = batch.record.high_seqno.max(orphan_max);
        self.purge_seqno = self.purge_seqno.max(batch.record.purge_seqno);
        if batch.record.snapshot.end == self.high_seqno {
            self.points.add(self.high_seqno);
        }
    }

    /// The record to write after [`AcknowledgedVb::end`].
    pub(crate) fn value<'a>(&'a self, batch: &VbBatch<'a>) -> VbValue<'a> {
        let mut snapshot = batch.record.snapshot;
        snapshot.end = snapshot.end.max(self.high_seqno);
        VbValue {
            record: batch.record,
            high_seqno: self.high_seqno,
            purge_seqno: self.purge_seqno,
            snapshot,
            commit: self.commit,
            points: &self.points,
        }
    }
}

/// The states of all vBuckets that have a record.
pub(crate) type AcknowledgedVbs = PerVb<AcknowledgedVb>;
