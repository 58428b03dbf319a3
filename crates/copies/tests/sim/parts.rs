//! Commits that are full: the rest of a vBucket's changes waits for a later one.

use std::sync::atomic::Ordering;

use engine::{FlushBatch, FlushBudget, FlushItem, SpareBuffers};
use model::VbId;
use storage::{Change, Changes, KvStore as _, VbBatch};

use crate::buckets::{SimBucket, VBUCKETS};
use crate::bugs::Bug;
use crate::rng::Rng;

/// Greatest number of changes in a part.
const CHANGES_MAX: u64 = 6;

struct PartRows<'a>(&'a FlushBatch);

impl Changes for PartRows<'_> {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        self.0.for_each(&mut |item| match item {
            FlushItem::Put {
                document,
                supersedes,
            } => f(Change::Put {
                document,
                supersedes,
            }),
            FlushItem::Remove {
                of,
                prepared,
                seqno,
            } => f(Change::Remove {
                key: of.key(),
                prepared,
                seqno,
            }),
            FlushItem::Keep(_) => unreachable!("no bucket has a history"),
        });
    }
}

impl SimBucket {
    /// Writes some of the changes of each vBucket to disk. The marks stay: a later flush writes the rest.
    pub(crate) fn flush_parts(&self, rng: &mut Rng) {
        let bucket = &self.copies.bucket;
        let faults = &bucket.store().faults;
        // After a failed commit the store may have a vBucket that the bucket has not.
        if faults.failed.load(Ordering::SeqCst) || faults.fails() {
            return;
        }
        let mut spare = SpareBuffers::default();
        for vb in (0..VBUCKETS).map(VbId) {
            let budget = FlushBudget {
                items: rng.range(1, CHANGES_MAX + 1) as usize,
                bytes: usize::MAX,
            };
            spare.refill();
            let begun = bucket.with_vbucket(vb, |vbucket| vbucket.begin_flush(budget, &mut spare));
            let Some(batch) = begun.flatten() else {
                continue;
            };
            let all = bucket.with_vbucket(vb, |vbucket| vbucket.record());
            let all = all.filter(|_| self.bug == Some(Bug::PartRecordedAsAll));
            let record = all.unwrap_or_else(|| batch.record.clone());
            let committed = bucket.store().commit(&[VbBatch {
                vb,
                record: &record,
                changes: &PartRows(&batch),
            }]);
            committed.expect("a disk with space");
            let garbage = bucket.with_vbucket(vb, |vbucket| vbucket.finish_flush(batch.done(true)));
            drop(garbage);
        }
    }
}
