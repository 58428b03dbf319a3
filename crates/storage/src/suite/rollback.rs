//! Expectations of the rollback of every store.

use model::{Document, Seqno, SnapshotRange, VbRecord};

use super::{A, B, document, expect_rows, put, record, scan, view};
use crate::{KvStore, VbBatch};

fn goes_to_the_last_exact_state(store: &dyn KvStore) {
    let (a, b) = (document(1, "a", "1"), document(2, "b", "1"));
    put(store, A, &[(a.clone(), Seqno(0)), (b.clone(), Seqno(0))]);
    put(
        store,
        A,
        &[
            (document(3, "c", "1"), Seqno(0)),
            (document(4, "d", "1"), Seqno(0)),
        ],
    );
    put(store, A, &[(document(5, "d", "2"), Seqno(4))]);
    assert_eq!(
        store.rollback(A, Seqno(9)).unwrap(),
        record(5),
        "nothing to do"
    );
    let point = |to| store.rollback_point(A, Seqno(to)).unwrap();
    assert_eq!([9, 4, 1].map(point), [5, 2, 0].map(Seqno));
    let back = store.rollback(A, Seqno(4)).unwrap();
    let range = SnapshotRange {
        start: Seqno(2),
        end: Seqno(2),
    };
    let expected = VbRecord {
        high_seqno: Seqno(2),
        high_prepared: Seqno(2),
        snapshot: range,
        counts: None,
        ..record(5)
    };
    assert_eq!(
        back, expected,
        "at 4 the first version of d is gone, at 2 nothing is"
    );
    assert_eq!(store.load().unwrap()[&A], expected);
    expect_rows(store, A, &[a.clone(), b.clone()]);
    let other = document(3, "other", "1");
    put(store, A, &[(other.clone(), Seqno(0))]);
    expect_rows(store, A, &[a, b, other]);
}

fn takes_the_purge_seqno_back(store: &dyn KvStore) {
    put(store, A, &[(document(2, "a", "1"), Seqno(0))]);
    let changes: &[(Document, Seqno)] = &[(document(5, "b", "1"), Seqno(0))];
    let told = VbRecord {
        purge_seqno: Seqno(4),
        ..record(5)
    };
    store
        .commit(&[VbBatch {
            vb: A,
            record: &told,
            changes: &changes,
        }])
        .unwrap();
    let back = store.rollback(A, Seqno(3)).unwrap();
    assert_eq!((back.high_seqno, back.purge_seqno), (Seqno(2), Seqno(2)));
    assert_eq!(store.load().unwrap()[&A].purge_seqno, Seqno(2));
    assert_eq!(view(store, A).purge_seqno(), Seqno(2));
}

fn over_an_overwrite_goes_to_zero(store: &dyn KvStore) {
    put(store, A, &[(document(1, "a", "1"), Seqno(0))]);
    put(store, B, &[(document(1, "a", "1"), Seqno(0))]);
    put(
        store,
        A,
        &[
            (document(2, "a", "2"), Seqno(1)),
            (document(3, "b", "2"), Seqno(0)),
        ],
    );
    assert_eq!(store.rollback_point(A, Seqno(2)).unwrap(), Seqno::ZERO);
    let back = store.rollback(A, Seqno(2)).unwrap();
    assert_eq!(back.high_seqno, Seqno::ZERO);
    assert_eq!(scan(store, A, 0), []);
    assert_eq!(scan(store, B, 0).len(), 1);
    assert_eq!(
        store.load().unwrap().len(),
        2,
        "the empty vBucket is still there"
    );
}

pub(super) fn run<S: KvStore>(open: &mut dyn FnMut(&str) -> S) {
    goes_to_the_last_exact_state(&open("rollback"));
    takes_the_purge_seqno_back(&open("rollback-purged"));
    over_an_overwrite_goes_to_zero(&open("rollback-zero"));
}
