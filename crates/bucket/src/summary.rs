//! The summary of events: collections of all vBuckets, which the store keeps so that warmup need not read their events.
//!
//! It is written when the bucket stops, and in the background after collections changed and after
//! merges. A part of it is used only if the store's vBucket is one to which it applies.

use collections::{EventsSummary, SummaryWriter, SystemEvent, VbSummary};
use model::{Seqno, VbId};
use parking_lot::Mutex;
use storage::{KvStore, Snapshot, StoreError};

use crate::Bucket;
use crate::holds::Hold;

/// The summary during warmup.
#[derive(Debug, Default)]
pub(crate) struct StoredSummary {
    summary: EventsSummary,
    /// Of each table, whether it is used: known once events of one of its vBuckets were read.
    tables: Vec<Mutex<Option<bool>>>,
}

impl<S: KvStore> Bucket<S> {
    /// Reads the summary of the store, and learns the dropped numbers.
    pub(crate) fn stored_summary(&self) -> StoredSummary {
        let text = self.store.summary();
        let summary = text.and_then(|text| EventsSummary::parse(&text));
        let summary = summary.unwrap_or_default();
        self.collections
            .learn_dropped(&summary.dropped, &summary.dropped_scopes);
        StoredSummary {
            tables: (0..summary.tables).map(|_| Mutex::default()).collect(),
            summary,
        }
    }

    /// Returns the part of a vBucket, if it applies. The names are learned from the events of the
    /// first vBucket with each table: all others with this table wait for that.
    ///
    /// # Errors
    /// Those of reading the events.
    pub(crate) fn summary_of<'s>(
        &self,
        vb: VbId,
        snapshot: &dyn Snapshot,
        stored: &'s StoredSummary,
    ) -> Result<Option<&'s VbSummary>, StoreError> {
        let found = stored.summary.of(vb).filter(|found| {
            // Ends of collections above its seqno must not be purged.
            found.at.epoch == self.store.epoch(vb)
                && found.at.seqno <= snapshot.high_seqno()
                && found.at.seqno >= snapshot.purge_seqno()
        });
        let Some((found, table)) = found.and_then(|it| Some((it, stored.tables.get(it.table)?)))
        else {
            return Ok(None);
        };
        let mut used = table.lock();
        if used.is_none() {
            for row in snapshot.beside_documents(Seqno::ZERO)? {
                if SystemEvent::is_key(row.key()) {
                    self.learn_event(&row);
                }
            }
            // A manifest that was lost is made of the events, and its number may be lower.
            let known = self.leases().is_some() || self.manifest_uid() >= found.collections.uid();
            *used = Some(known);
        }
        Ok((*used == Some(true)).then_some(found))
    }

    /// Writes the summary. Returns `false` if it must be written again, because not everything is
    /// in the store yet or the store failed.
    pub(crate) fn write_summary(&self) -> bool {
        let mut writer = SummaryWriter::default();
        let mut complete = true;
        for id in (0..self.vbuckets()).map(VbId) {
            let done = self.with_vbucket_for(Hold::Collections, id, |vbucket| {
                vbucket.summarize(self.store.epoch(id), &mut writer)
            });
            complete &= done != Some(false);
        }
        if writer.is_empty() {
            return complete;
        }
        let text = self.collections.finish_summary(writer);
        if let Err(error) = self.store.set_summary(&text) {
            tracing::debug!(bucket = self.name(), %error, "no summary of events");
            return false;
        }
        complete
    }
}
