//! Streams read changes from the store that are no longer in memory.

use std::sync::Arc;

use bucket::{Backfill, BackfillNews, Backfilled, Flushed, ReadySet, WantedRows};
use model::{Seqno, SnapshotRange, VbId};
use storage::MemStore;

use crate::world::{Ear, Ops, ROOMY, options, warm};

/// Returns the number of documents of a backfill; `None` while it has not ended.
fn brought(backfill: &Backfill) -> Option<usize> {
    let mut documents = 0;
    loop {
        match backfill.take() {
            BackfillNews::Opened(_) => {}
            BackfillNews::Chunk(chunk) => documents += chunk.documents.len(),
            BackfillNews::Nothing => return None,
            BackfillNews::Done => return Some(documents),
            BackfillNews::Failed => panic!("a backfill failed"),
        }
    }
}

/// A connection that ends leaves all its backfills behind; the next backfill must get past them.
#[test]
fn cancelled_backfills_do_not_hide_later_ones() {
    let bucket = warm(options(4, ROOMY), MemStore::new(), 1);
    bucket.set(1, "a", b"1");
    bucket.set(1, "b", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let ready = Arc::new(ReadySet::new(Ear::new()));
    let whole = SnapshotRange {
        start: Seqno(1),
        end: Seqno(2),
    };
    let gone = bucket.backfill_buffer(&ready);
    let left: Vec<Backfill> = (0..2000)
        .map(|_| bucket.backfill(VbId(1), whole, WantedRows::Newest(None), &gone))
        .collect();
    let buffer = bucket.backfill_buffer(&ready);
    let ours: Vec<Backfill> = (0..100)
        .map(|_| bucket.backfill(VbId(1), whole, WantedRows::Newest(None), &buffer))
        .collect();
    drop(left);
    while bucket.backfill_step() == Backfilled::Chunk {}
    for backfill in &ours {
        assert_eq!(brought(backfill), Some(2));
    }
    for buffer in [&gone, &buffer] {
        assert_eq!((buffer.active(), buffer.pending()), (0, 0));
    }
}
