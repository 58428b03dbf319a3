//! Expectations of the history of every store.

use model::{Document, Seqno};

use super::{A, B, document, expect_rows, put, record, tombstone};
use crate::{Change, Changes, HistoryKept, HistoryLimits, KvStore, VbBatch};

/// Versions to keep, each replacing the earlier row of the same key.
struct Versions<'a>(&'a [(Document, Seqno, u32)]);

impl Changes for Versions<'_> {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        for (document, supersedes, at_s) in self.0 {
            let at_s = *at_s;
            f(Change::Keep { document, at_s });
            let later = |other: &(Document, Seqno, u32)| {
                other.0.seqno() > document.seqno() && other.0.key() == document.key()
            };
            if self.0.iter().any(later) {
                if *supersedes != Seqno::ZERO {
                    f(Change::Remove {
                        key: document.key(),
                        prepared: false,
                        seqno: *supersedes,
                    });
                }
            } else {
                let supersedes = *supersedes;
                f(Change::Put {
                    document,
                    supersedes,
                });
            }
        }
    }
}

fn keep(store: &dyn KvStore, vb: model::VbId, versions: &[(Document, Seqno, u32)]) {
    let record = record(versions.last().expect("a change").0.seqno().0);
    let changes = &Versions(versions);
    let batch = VbBatch {
        vb,
        record: &record,
        changes,
    };
    store.commit(&[batch]).expect("the commit succeeds");
}

/// Returns the seqnos with the history from one on, and the begin of the history.
fn seen(store: &dyn KvStore, vb: model::VbId, from: u64) -> (Vec<u64>, Option<u64>) {
    let snapshot = store.snapshot(vb).expect("a snapshot");
    let rows = snapshot.with_history(Seqno(from));
    let rows = rows.map(|row| row.expect("a row").seqno().0).collect();
    let begin = snapshot.history_from().expect("it can be read");
    (rows, begin.map(|seqno| seqno.0))
}

const ALL: HistoryLimits = HistoryLimits {
    bytes: u64::MAX,
    before_s: 0,
};

/// Fills two vBuckets: A has a history of `a` from 2 on, and `b` without it; B has the same keys.
fn fill(store: &dyn KvStore) {
    for vb in [A, B] {
        put(store, vb, &[(document(1, "b", "old"), Seqno::ZERO)]);
        let versions = [
            (document(2, "a", "1"), Seqno::ZERO, 100),
            (document(3, "a", "2"), Seqno(2), 100),
        ];
        keep(store, vb, &versions);
        put(store, vb, &[(document(4, "b", "new"), Seqno(1))]);
        keep(store, vb, &[(tombstone(5, "a"), Seqno(3), 110)]);
        keep(store, vb, &[(document(6, "a", "3"), Seqno(5), 120)]);
    }
}

fn versions_stay_beside_the_rows(store: &dyn KvStore) {
    fill(store);
    for vb in [A, B] {
        expect_rows(store, vb, &[document(4, "b", "new"), document(6, "a", "3")]);
        assert_eq!(seen(store, vb, 0), (vec![2, 3, 4, 5, 6], Some(2)));
        assert_eq!(seen(store, vb, 3), (vec![3, 4, 5, 6], Some(2)));
    }
    let snapshot = store.snapshot(A).expect("a snapshot");
    let found: Vec<_> = snapshot
        .with_history(Seqno(2))
        .map(|row| super::parts(&row.expect("a row")))
        .collect();
    let expected = [
        document(2, "a", "1"),
        document(3, "a", "2"),
        document(4, "b", "new"),
        tombstone(5, "a"),
        document(6, "a", "3"),
    ];
    assert_eq!(found, expected.each_ref().map(super::parts));
    // The same commit again, as after a failure with an unknown result.
    keep(store, A, &[(document(6, "a", "3"), Seqno::ZERO, 121)]);
    assert_eq!(seen(store, A, 5), (vec![5, 6], Some(2)));
    drop(snapshot);
    store.remove(&[A]).expect("it goes");
    assert_eq!(seen(store, A, 0), (vec![], None));
    put(store, A, &[(document(1, "a", "1"), Seqno::ZERO)]);
    assert_eq!(seen(store, A, 0), (vec![1], None));
    assert_eq!(seen(store, B, 0).1, Some(2));
}

fn the_oldest_part_of_a_history_goes(store: &dyn KvStore) {
    fill(store);
    let trim = |limits| {
        let kept = store.trim_history(A, limits, &mut |_, _| false);
        kept.expect("it can be trimmed")
    };
    let all = trim(ALL);
    assert_eq!((all.from, all.rows, all.dropped), (Some(Seqno(2)), 4, 0));
    let held = store.snapshot(A).expect("a snapshot");
    let by_age = HistoryLimits {
        before_s: 110,
        ..ALL
    };
    let kept = trim(by_age);
    assert_eq!((kept.from, kept.rows, kept.dropped), (Some(Seqno(5)), 2, 2));
    assert_eq!(seen(store, A, 0), (vec![4, 5, 6], Some(5)));
    assert_eq!(
        held.with_history(Seqno(0)).count(),
        5,
        "a view does not move"
    );
    drop(held);
    let by_bytes = HistoryLimits {
        bytes: kept.bytes - 1,
        ..ALL
    };
    assert_eq!(trim(by_bytes).from, Some(Seqno(6)));
    assert_eq!(seen(store, A, 0), (vec![4, 6], Some(6)));
    assert_eq!(trim(HistoryLimits::NOTHING).rows, 0);
    assert_eq!(seen(store, A, 0), (vec![4, 6], None));
    assert_eq!(trim(ALL), HistoryKept::default());
    expect_rows(store, A, &[document(4, "b", "new"), document(6, "a", "3")]);
    // Dead rows are dropped at any position.
    let dead = store.trim_history(B, ALL, &mut |meta, key| {
        key == b"\0a" && meta.kind.is_tombstone()
    });
    let dead = dead.expect("it can be trimmed");
    assert_eq!((dead.from, dead.rows, dead.dropped), (Some(Seqno(2)), 3, 1));
    assert_eq!(seen(store, B, 0), (vec![2, 3, 4, 6], Some(2)));
}

fn a_rollback_takes_the_history_back(store: &dyn KvStore) {
    keep(store, A, &[(document(1, "a", "1"), Seqno::ZERO, 100)]);
    keep(store, A, &[(document(2, "b", "1"), Seqno::ZERO, 100)]);
    keep(store, A, &[(document(3, "c", "1"), Seqno::ZERO, 100)]);
    assert_eq!(
        store
            .rollback(A, Seqno(2))
            .expect("it goes back")
            .high_seqno,
        Seqno(2)
    );
    assert_eq!(seen(store, A, 0), (vec![1, 2], Some(1)));
    keep(store, A, &[(document(3, "a", "2"), Seqno(1), 100)]);
    assert_eq!(seen(store, A, 0), (vec![1, 2, 3], Some(1)));
    // The row of 1 is gone, so only the empty state is exact.
    assert_eq!(
        store
            .rollback(A, Seqno(2))
            .expect("it goes back")
            .high_seqno,
        Seqno(0)
    );
    assert_eq!(seen(store, A, 0), (vec![], None));
}

/// Runs everything; see [`super::run`].
pub(super) fn run<S: KvStore>(open: &mut dyn FnMut(&str) -> S) {
    versions_stay_beside_the_rows(&open("history"));
    the_oldest_part_of_a_history_goes(&open("history-trim"));
    a_rollback_takes_the_history_back(&open("history-rollback"));
}
