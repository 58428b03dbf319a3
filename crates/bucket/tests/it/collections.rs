//! Many collections: one row and one commit for those created together, and their later changes.

use std::sync::Arc;

use bucket::{
    Backfill, BackfillNews, Backfilled, Bucket, ChosenRows, Flushed, ReadySet, WantedRows,
};
use collections::{
    CollectionSettings, Manifest, ManifestError, OpenCollection, SystemEvent, WantedCollection,
    WantedScope, events_of,
};
use model::{CollectionId, Seqno, SnapshotRange, VbId};
use storage::KvStore;

use crate::world::{Ear, FaultyStore, Kept, Ops, ROOMY, disk, options, rows, warm};

/// Far in the future of the tests' clock.
const LATER_S: u64 = 1_700_000_000 + 3600;

/// Adds so many collections in the scope `many`, besides the default one.
fn with_many(now: &Manifest, count: usize) -> Result<Manifest, ManifestError> {
    let wanted = |name: String| WantedCollection {
        name: name.into(),
        max_ttl_s: None,
        history: None,
    };
    let names = (0..count).map(|index| format!("c{index}"));
    let scope = |name: &str, collections| WantedScope {
        name: name.into(),
        collections,
    };
    let scopes = [
        scope("_default", vec![wanted("_default".into())]),
        scope("many", names.map(wanted).collect()),
    ];
    now.with_scopes(&scopes, CollectionSettings::default())
}

fn have<S: KvStore>(bucket: &Bucket<S>, count: usize) {
    let changed = bucket.change_manifest(|now| with_many(now, count), |_| Vec::new());
    assert!(changed.unwrap().1);
}

fn flush<S: KvStore>(bucket: &Bucket<S>) {
    while bucket.any_dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
}

fn high<S: KvStore>(bucket: &Bucket<S>, vb: u16) -> Seqno {
    let high = bucket.with_vbucket(VbId(vb), |vbucket| vbucket.high_seqno());
    high.unwrap()
}

#[test]
fn manifest_takes_one_commit_and_one_row_of_each_vbucket() {
    let kept = Kept::default();
    let bucket = warm(options(64, ROOMY), FaultyStore::new(kept.clone()), 1);
    bucket.set(7, "before", b"1");
    flush(&bucket);
    let commits = bucket.store().commits();
    have(&bucket, 999);
    assert_eq!(high(&bucket, 0), Seqno(1000), "each event has its seqno");
    flush(&bucket);
    assert_eq!(bucket.store().commits() - commits, 1);
    assert_eq!(rows(&kept, 0).len(), 1);
    assert_eq!(rows(&kept, 7).len(), 2);
    assert_eq!(bucket.memory().used(), bucket.recount());
    // Some vBuckets have later documents; after an unclean stop all is there again.
    bucket.set(9, "after", b"2");
    flush(&bucket);
    let again = warm(options(64, ROOMY), kept, 50);
    assert_eq!(again.manifest(), bucket.manifest());
    for vb in [0, 7, 9] {
        assert_eq!(high(&again, vb), high(&bucket, vb));
        let begun = |collections: Option<Vec<OpenCollection>>| -> Vec<(u32, Seqno)> {
            let all = collections.unwrap_or_default().into_iter();
            all.map(|one| (one.counts.id.0, one.start_seqno)).collect()
        };
        let there = bucket.with_vbucket(VbId(vb), |vbucket| vbucket.collections());
        let found = again.with_vbucket(VbId(vb), |vbucket| vbucket.collections());
        let (there, found) = (begun(there), begun(found));
        assert!(there == found && found.len() == 1000, "in {vb}");
    }
    assert_eq!(again.get(9, "after").unwrap(), b"2");
    assert_eq!(again.memory().used(), again.recount());
}

/// The row of its creation stays, because it is shared with others: without the end event the
/// collection would be back.
#[test]
fn dropped_collection_of_a_group_stays_dropped_after_a_purge() {
    let dir = tempfile::tempdir().unwrap();
    {
        let bucket = warm(options(2, ROOMY), disk(dir.path()).0, 1);
        have(&bucket, 40);
        flush(&bucket);
        let without = |now: &Manifest| now.without_collection("many", "c3");
        bucket.change_manifest(without, |_| Vec::new()).unwrap();
        let other = |now: &Manifest| {
            now.with_collection("_default", "single", CollectionSettings::default())
        };
        bucket.change_manifest(other, |_| Vec::new()).unwrap();
        let without = |now: &Manifest| now.without_collection("_default", "single");
        bucket.change_manifest(without, |_| Vec::new()).unwrap();
        bucket.set(0, "last", b"1");
        flush(&bucket);
        assert_eq!(bucket.erase_step(), None);
        assert_eq!(rows(bucket.store(), 0).len(), 4);
        let ends = || bucket.with_vbucket(VbId(0), |vbucket| vbucket.purgeable_ends());
        assert_eq!(ends(), Some(1));
        let done = bucket.purge(VbId(0), LATER_S).unwrap();
        assert_eq!(
            (done.dropped, done.kept),
            (1, 3),
            "that of the single one goes"
        );
        assert_eq!(ends(), Some(0));
        bucket.store().close().unwrap();
    }
    let bucket = warm(options(2, ROOMY), disk(dir.path()).0, 50);
    let manifest = bucket.manifest();
    let many = manifest.scope_named("many").unwrap();
    let names = many.collections.iter().map(|one| &*one.name);
    assert!(names.clone().all(|name| name != "c3"));
    assert_eq!(names.count(), 39);
    let lengths = bucket.with_vbucket(VbId(0), |vbucket| {
        (vbucket.collection_count(), vbucket.scopes().len())
    });
    assert_eq!(lengths, Some((40, 2)));
}

fn events_read<S: KvStore>(bucket: &Bucket<S>, backfill: &Backfill) -> Vec<Seqno> {
    let mut seqnos = Vec::new();
    loop {
        match backfill.take() {
            BackfillNews::Opened(_) => {}
            BackfillNews::Chunk(chunk) => {
                let groups = chunk.documents.iter();
                for row in groups.filter(|row| SystemEvent::is_group(row.key())) {
                    let others = events_of(row).count() as u64 - 1;
                    let range = row.seqno().0 - others..=row.seqno().0;
                    seqnos.extend(range.map(Seqno));
                }
            }
            BackfillNews::Done => return seqnos,
            BackfillNews::Failed => panic!("it failed"),
            BackfillNews::Nothing => {
                assert_ne!(
                    bucket.backfill_step(),
                    Backfilled::Nothing,
                    "it is forgotten"
                );
            }
        }
    }
}

/// A backfill of a part of a group gets the whole row; the stream takes its part of it.
#[test]
fn backfill_within_a_group_has_its_row() {
    let bucket = warm(options(1, ROOMY), Kept::default(), 1);
    have(&bucket, 40);
    bucket.set(0, "last", b"1");
    flush(&bucket);
    let manifest = bucket.manifest();
    let last = manifest.collections().last().unwrap().1.id;
    assert_ne!(last, CollectionId::DEFAULT);
    let all: Vec<Seqno> = (1..=41).map(Seqno).collect();
    for (start, end) in [(1, 41), (5, 20), (41, 41), (1, 1), (7, u64::MAX)] {
        let range = SnapshotRange {
            start: Seqno(start),
            end: Seqno(end),
        };
        let chosen = ChosenRows {
            collections: vec![last],
            by_key: false,
            sparse: 0,
        };
        for wanted in [None, Some(chosen)] {
            let ready = Arc::new(ReadySet::new(Ear::new()));
            let buffer = bucket.backfill_buffer(&ready);
            let wanted = WantedRows::Newest(wanted);
            let backfill = bucket.backfill(VbId(0), range, wanted, &buffer);
            let found = events_read(&bucket, &backfill);
            assert_eq!(found, all, "{start} to {end}");
        }
    }
}
