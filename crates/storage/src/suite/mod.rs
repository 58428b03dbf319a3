//! Expectations of every store: one suite that runs against each of them.

mod by_key;
mod history;
mod rollback;

use model::{
    Cas, Datatype, Document, FailoverEntry, FailoverLog, Kind, Meta, Seqno, SnapshotRange,
    VbCounts, VbId, VbRecord, VbState, VbUuid,
};

use crate::{
    Change, Changes, CommitInfo, DocumentRequest, ErrorKind, Keep, KvStore, Snapshot, StoreError,
    VbBatch,
};

/// Returns a live document.
pub(crate) fn document(seqno: u64, key: &str, value: &str) -> Document {
    let meta = Meta {
        cas: Cas(seqno << 16 | 1),
        seqno: Seqno(seqno),
        rev: seqno,
        flags: 0x0200_0006,
        expiry: 7,
        datatype: Datatype::JSON,
        kind: Kind::Mutation,
        ..Meta::default()
    };
    Document::from_parts(format!("\0{key}").as_bytes(), value.as_bytes(), &meta)
}

/// Returns a tombstone.
pub(crate) fn tombstone(seqno: u64, key: &str) -> Document {
    let meta = Meta {
        kind: Kind::Deletion,
        ..document(seqno, key, "").meta()
    };
    Document::from_parts(format!("\0{key}").as_bytes(), b"", &meta)
}

/// Returns a record at the end of a whole snapshot.
pub(crate) fn record(high: u64) -> VbRecord {
    let first = FailoverEntry {
        uuid: VbUuid(77),
        seqno: Seqno::ZERO,
    };
    VbRecord {
        high_seqno: Seqno(high),
        snapshot: SnapshotRange {
            start: Seqno(high),
            end: Seqno(high),
        },
        high_prepared: Seqno(high.saturating_sub(2)),
        high_completed: Seqno(high.saturating_sub(3)),
        max_cas: Cas(high << 16 | 2),
        max_deleted_rev: 5,
        topology: r#"[["n1",null]]"#.to_owned(),
        term: 9,
        counts: Some(Box::new(VbCounts {
            items: 3,
            default_high: Seqno(high),
            ..VbCounts::default()
        })),
        ..VbRecord::new(VbState::Active, first)
    }
}

/// Commits documents; the record ends at the last of them.
pub(crate) fn try_put(
    store: &dyn KvStore,
    vb: VbId,
    changes: &[(Document, Seqno)],
) -> Result<CommitInfo, StoreError> {
    let record = record(changes.last().expect("a change").0.seqno().0);
    store.commit(&[VbBatch {
        vb,
        record: &record,
        changes: &changes,
    }])
}

/// Commits documents; must succeed.
pub(crate) fn put(store: &dyn KvStore, vb: VbId, changes: &[(Document, Seqno)]) -> CommitInfo {
    try_put(store, vb, changes).expect("the commit succeeds")
}

/// Key, value and metadata of a document.
pub(crate) type Parts = (Vec<u8>, Vec<u8>, Meta);

/// Returns the parts in which two equal documents agree.
pub(crate) fn parts(document: &Document) -> Parts {
    (
        document.key().to_vec(),
        document.value().to_vec(),
        document.meta(),
    )
}

/// Returns the rows of a vBucket from a seqno on.
pub(crate) fn scan(store: &dyn KvStore, vb: VbId, from: u64) -> Vec<Parts> {
    let snapshot = view(store, vb);
    let rows = snapshot.by_seqno(Seqno(from));
    rows.map(|row| parts(&row.expect("it can be read")))
        .collect()
}

pub(crate) fn view(store: &dyn KvStore, vb: VbId) -> Box<dyn Snapshot> {
    store.snapshot(vb).expect("it can be read")
}

fn expect_rows(store: &dyn KvStore, vb: VbId, expected: &[Document]) {
    let expected: Vec<_> = expected.iter().map(parts).collect();
    assert_eq!(scan(store, vb, 0), expected);
}

struct Removals<'a>(&'a [(&'a [u8], u64)]);

impl Changes for Removals<'_> {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        self.0.iter().for_each(|(key, seqno)| {
            f(Change::Remove {
                key,
                prepared: false,
                seqno: Seqno(*seqno),
            });
        });
    }
}

const A: VbId = VbId(0);
const B: VbId = VbId(1023);

/// Runs the suite; `open` opens a store with the content that an earlier store of the same case left.
pub(crate) fn run<S: KvStore>(open: &mut dyn FnMut(&str) -> S) {
    a_new_store_is_empty(&open("empty"));
    rows_come_back_in_seqno_order(&open("order"));
    an_overwrite_replaces_the_row(&open("overwrite"));
    a_removal_leaves_nothing(&open("removal"));
    records_come_back(&open("record"));
    one_commit_takes_many_vbuckets(&open("many"));
    fetching_finds_with_and_without_a_seqno(&open("fetch"));
    a_snapshot_does_not_move(&open("snapshot"));
    by_key::rows_are_found_by_key(&open("by-key"));
    by_key::events_are_beside_documents(&open("beside"));
    removing_one_vbucket_leaves_the_others(&open("remove"));
    rollback::run(open);
    compaction_drops_tombstones(&open("compact"));
    many_are_removed_at_once(&open("removed"));
    large_batches_are_whole(&open("large"));
    history::run(open);
    the_later_of_two_batches_wins(&open("twice"));
    a_closed_store_answers_closed(&open("close"));
}

fn a_new_store_is_empty(store: &dyn KvStore) {
    assert!(store.load().unwrap().is_empty());
    assert_eq!(scan(store, A, 0), []);
    assert!(store.snapshot(A).unwrap().record().is_none());
    let wants = [
        DocumentRequest {
            key: b"\0k",
            seqno: Some(Seqno(1)),
        },
        DocumentRequest {
            key: b"\0k",
            seqno: None,
        },
    ];
    assert!(store.fetch(A, &wants).unwrap().iter().all(Option::is_none));
    store.remove(&[A]).unwrap();
    assert_eq!(
        store.rollback(A, Seqno(1)).unwrap_err().kind,
        ErrorKind::Corrupt
    );
    store.commit(&[]).unwrap();
}

fn rows_come_back_in_seqno_order(store: &dyn KvStore) {
    let documents: Vec<_> = [(1, "z"), (2, "m"), (300, "a"), (70_000, "k")]
        .map(|(seqno, key)| document(seqno, key, &format!("{{\"of\":\"{key}\"}}")))
        .into();
    let mut changes: Vec<_> = documents.iter().map(|d| (d.clone(), Seqno::ZERO)).collect();
    changes.swap(0, 2);
    let info = put(store, A, &changes);
    assert_eq!(info.rows, 4);
    assert!(info.bytes > 0);
    expect_rows(store, A, &documents);
    assert_eq!(scan(store, A, 2).len(), 3);
    assert_eq!(scan(store, A, 3).len(), 2);
    assert_eq!(scan(store, A, 70_001), []);
    let view = view(store, A);
    let ends = (view.high_seqno(), view.purge_seqno());
    assert_eq!(ends, (Seqno(70_000), Seqno::ZERO));
}

fn an_overwrite_replaces_the_row(store: &dyn KvStore) {
    put(
        store,
        A,
        &[
            (document(1, "k", "old"), Seqno(0)),
            (document(2, "l", "l"), Seqno(0)),
        ],
    );
    let newer = document(3, "k", "new");
    put(store, A, &[(newer.clone(), Seqno(1))]);
    expect_rows(store, A, &[document(2, "l", "l"), newer]);
    let deleted = tombstone(4, "k");
    put(store, A, &[(deleted.clone(), Seqno(3))]);
    expect_rows(store, A, &[document(2, "l", "l"), deleted]);
}

fn a_removal_leaves_nothing(store: &dyn KvStore) {
    put(
        store,
        A,
        &[
            (document(1, "k", "v"), Seqno(0)),
            (document(2, "l", "l"), Seqno(0)),
        ],
    );
    let record = record(2);
    store
        .commit(&[VbBatch {
            vb: A,
            record: &record,
            changes: &Removals(&[(b"\0k", 1), (b"\0l", 1)]),
        }])
        .unwrap();
    expect_rows(store, A, &[document(2, "l", "l")]);
}

fn records_come_back(store: &dyn KvStore) {
    let mut log = FailoverLog::new(FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno(0),
    });
    log.begin(FailoverEntry {
        uuid: VbUuid(0xffff_ffff_ffff),
        seqno: Seqno(5),
    });
    let full = VbRecord {
        state: VbState::Replica,
        purge_seqno: Seqno(3),
        snapshot: SnapshotRange {
            start: Seqno(4),
            end: Seqno(12),
        },
        failover_log: log,
        ..record(9)
    };
    let none: &[(Document, Seqno)] = &[];
    store
        .commit(&[VbBatch {
            vb: B,
            record: &full,
            changes: &none,
        }])
        .unwrap();
    let bare = VbRecord {
        state: VbState::Dead,
        topology: String::new(),
        ..record(0)
    };
    store
        .commit(&[VbBatch {
            vb: A,
            record: &bare,
            changes: &none,
        }])
        .unwrap();
    let loaded = store.load().unwrap();
    assert_eq!(loaded, [(A, bare), (B, full.clone())].into());
    assert_eq!(store.snapshot(B).unwrap().record(), Some(&full));

    let older = VbRecord {
        purge_seqno: Seqno(1),
        ..full.clone()
    };
    store
        .commit(&[VbBatch {
            vb: B,
            record: &older,
            changes: &none,
        }])
        .unwrap();
    assert_eq!(
        store.load().unwrap()[&B].purge_seqno,
        Seqno(3),
        "it never goes back"
    );
}

fn one_commit_takes_many_vbuckets(store: &dyn KvStore) {
    let records: Vec<_> = (0..64).map(|vb| record(vb + 1)).collect();
    let changes: Vec<_> = (0..64)
        .map(|vb| [(document(vb + 1, &format!("k{vb}"), "v"), Seqno::ZERO)])
        .collect();
    let slices: Vec<&[(Document, Seqno)]> = changes.iter().map(|one| &one[..]).collect();
    let batches: Vec<_> = (0..64u16)
        .map(|vb| VbBatch {
            vb: VbId(vb * 16),
            record: &records[usize::from(vb)],
            changes: &slices[usize::from(vb)],
        })
        .collect();
    assert_eq!(store.commit(&batches).unwrap().rows, 64);
    assert_eq!(store.load().unwrap().len(), 64);
    for vb in 0..64u16 {
        expect_rows(
            store,
            VbId(vb * 16),
            &[changes[usize::from(vb)][0].0.clone()],
        );
    }
}

fn fetching_finds_with_and_without_a_seqno(store: &dyn KvStore) {
    put(
        store,
        A,
        &[
            (document(1, "a", "1"), Seqno(0)),
            (tombstone(2, "b"), Seqno(0)),
        ],
    );
    put(store, B, &[(document(1, "x", "1"), Seqno(0))]);
    let wants = [
        DocumentRequest {
            key: b"\0b",
            seqno: Some(Seqno(2)),
        },
        DocumentRequest {
            key: b"\0a",
            seqno: Some(Seqno(9)),
        },
        DocumentRequest {
            key: b"\0a",
            seqno: None,
        },
        DocumentRequest {
            key: b"\0x",
            seqno: None,
        },
    ];
    let found = store.fetch(A, &wants).unwrap();
    let found: Vec<_> = found.iter().map(|one| one.as_ref().map(parts)).collect();
    assert_eq!(
        found,
        [
            Some(parts(&tombstone(2, "b"))),
            None,
            Some(parts(&document(1, "a", "1"))),
            None
        ]
    );
}

fn a_snapshot_does_not_move(store: &dyn KvStore) {
    put(
        store,
        A,
        &[
            (document(1, "a", "1"), Seqno(0)),
            (document(2, "b", "1"), Seqno(0)),
        ],
    );
    let snapshot = store.snapshot(A).unwrap();
    put(store, A, &[(document(3, "a", "2"), Seqno(1))]);
    store.compact(A, &mut |_, _| Keep::Drop).unwrap();
    assert_eq!(snapshot.high_seqno(), Seqno(2));
    let all: Vec<_> = snapshot
        .by_seqno(Seqno(0))
        .map(|one| parts(&one.unwrap()))
        .collect();
    assert_eq!(
        all,
        [parts(&document(1, "a", "1")), parts(&document(2, "b", "1"))]
    );
    assert_eq!(snapshot.by_seqno(Seqno(2)).count(), 1, "resumed");
    drop(snapshot);
    expect_rows(store, A, &[document(3, "a", "2")]);
}

fn removing_one_vbucket_leaves_the_others(store: &dyn KvStore) {
    for vb in [A, VbId(1), B] {
        put(
            store,
            vb,
            &[
                (document(1, "a", "1"), Seqno(0)),
                (document(2, "b", "1"), Seqno(0)),
            ],
        );
    }
    store.remove(&[VbId(1)]).unwrap();
    assert!(store.load().unwrap().into_keys().eq([A, B]));
    assert_eq!(scan(store, VbId(1), 0), []);
    assert_eq!(scan(store, A, 0).len(), 2);
    assert_eq!(scan(store, B, 0).len(), 2);
    let again = document(1, "again", "1");
    put(store, VbId(1), &[(again.clone(), Seqno(0))]);
    expect_rows(store, VbId(1), &[again]);
}

fn compaction_drops_tombstones(store: &dyn KvStore) {
    let live = document(2, "b", "1");
    let (young, last) = (tombstone(4, "d"), tombstone(5, "e"));
    let mut changes: Vec<_> = [
        tombstone(1, "a"),
        live.clone(),
        tombstone(3, "c"),
        young.clone(),
        last.clone(),
    ]
    .map(|document| (document, Seqno::ZERO))
    .into();
    put(store, A, &changes);
    let mut keep = |meta: &Meta, key: &[u8]| {
        let drop = meta.kind.is_tombstone() && key != b"\0d";
        if drop { Keep::Drop } else { Keep::Keep }
    };
    let done = store.compact(A, &mut keep).unwrap();
    assert_eq!(
        (done.kept, done.dropped, done.purge_seqno),
        (3, 2, Seqno(3))
    );
    expect_rows(store, A, &[live, young, last]);
    assert_eq!(view(store, A).purge_seqno(), Seqno(3));
    changes.clear();
    changes.push((document(6, "f", "1"), Seqno::ZERO));
    put(store, A, &changes);
    assert_eq!(
        view(store, A).purge_seqno(),
        Seqno(3),
        "a commit does not undo it"
    );
    assert_eq!(store.rollback(A, Seqno(5)).unwrap().high_seqno, Seqno::ZERO);
}

fn many_are_removed_at_once(store: &dyn KvStore) {
    for vb in 0..5 {
        put(store, VbId(vb), &[(document(1, "a", "1"), Seqno::ZERO)]);
    }
    store.remove(&[0, 2, 9, 4].map(VbId)).unwrap();
    let left = store.load().unwrap();
    assert!(left.into_keys().eq([1, 3].map(VbId)));
    assert_eq!(scan(store, VbId(2), 0), []);
    expect_rows(store, VbId(3), &[document(1, "a", "1")]);
}

fn large_batches_are_whole(store: &dyn KvStore) {
    let count = 2_500;
    let first: Vec<_> = (1..=count)
        .map(|n| (document(n, &format!("k{n}"), "1"), Seqno::ZERO))
        .collect();
    assert_eq!(put(store, A, &first).rows, 2_500);
    let second: Vec<_> = (1..=count)
        .map(|n| (document(n + count, &format!("k{n}"), "2"), Seqno(n)))
        .collect();
    put(store, A, &second);
    let all: Vec<_> = second
        .iter()
        .map(|(document, _)| document.clone())
        .collect();
    expect_rows(store, A, &all);
    store.remove(&[A]).unwrap();
    assert_eq!(scan(store, A, 0), []);
}

fn the_later_of_two_batches_wins(store: &dyn KvStore) {
    let first = [(document(1, "a", "1"), Seqno::ZERO)];
    let second = [
        (document(2, "b", "1"), Seqno::ZERO),
        (document(3, "a", "2"), Seqno(1)),
        (document(4, "c", "1"), Seqno::ZERO),
    ];
    let (one, two) = (&first.as_slice(), &second.as_slice());
    let batches = [
        VbBatch {
            vb: A,
            record: &record(1),
            changes: one,
        },
        VbBatch {
            vb: A,
            record: &record(4),
            changes: two,
        },
    ];
    store.commit(&batches).unwrap();
    expect_rows(store, A, &second.map(|(document, _)| document));
    assert_eq!(store.load().unwrap()[&A], record(4));
}

fn a_closed_store_answers_closed(store: &dyn KvStore) {
    put(store, A, &[(document(1, "a", "1"), Seqno(0))]);
    store.close().unwrap();
    store.close().unwrap();
    let one = [(document(2, "a", "1"), Seqno(1))];
    assert_eq!(try_put(store, A, &one).unwrap_err().kind, ErrorKind::Closed);
    assert_eq!(store.load().unwrap_err().kind, ErrorKind::Closed);
    assert_eq!(store.fetch(A, &[]).unwrap_err().kind, ErrorKind::Closed);
    assert_eq!(store.remove(&[A]).unwrap_err().kind, ErrorKind::Closed);
    assert_eq!(store.disk_usage().unwrap_err().kind, ErrorKind::Closed);
}
