//! Expectations of looks by key.

use std::ops::{Bound, ControlFlow};

use model::{Document, Kind, Meta, Seqno, VbId};

use super::{document, put, tombstone};
use crate::port::{ScannedRow, Snapshot};
use crate::{KeyQuery, KeyRange, KeyRow, KvStore, MemStore};

fn named(range: &KeyRange, keys_only: bool, bytes_max: usize) -> KeyQuery<'_> {
    KeyQuery {
        range,
        keys_only,
        bytes_max,
        wants: &|_, _| true,
    }
}

fn key_of(row: &KeyRow) -> String {
    let key = match row {
        KeyRow::Key(key) => key,
        KeyRow::Whole(document) => document.key(),
    };
    String::from_utf8(key[1..].to_vec()).unwrap()
}

/// Returns all keys, in several looks, and the number of looks.
fn in_looks(snapshot: &dyn Snapshot, keys_only: bool, bytes_max: usize) -> (Vec<String>, u32) {
    let (mut range, mut keys, mut looks) = (KeyRange::default(), Vec::new(), 0);
    loop {
        let found = named(&range, keys_only, bytes_max).look(snapshot).unwrap();
        keys.extend(found.rows.iter().map(key_of));
        looks += 1;
        match found.rest {
            Some(rest) => range.from = rest,
            None => return (keys, looks),
        }
    }
}

/// Checks that a look at the newest of 300 rows returns these, in the order of keys.
fn newest_rows_are_found(snapshot: &dyn Snapshot) {
    for wanted in [0, 1, 10, 100, 299, 300, u64::MAX] {
        let lowest = snapshot.newest(wanted);
        let mut found = Vec::new();
        let take = &mut |row: ScannedRow<'_>| {
            found.push((row.key.to_vec(), row.meta.seqno));
            Ok(ControlFlow::Continue(()))
        };
        let range = KeyRange::default();
        snapshot.look(lowest, &range, take).unwrap();
        assert!(found.is_sorted());
        let mut seqnos: Vec<Seqno> = found.iter().map(|(_, seqno)| *seqno).collect();
        seqnos.sort();
        assert!(
            seqnos
                .iter()
                .copied()
                .eq((lowest.0.max(1)..=300).map(Seqno))
        );
        let many = seqnos.len() as u64;
        assert!(
            many >= wanted.min(300) && many <= wanted.max(300 / 8),
            "{many}"
        );
    }
}

pub(super) fn rows_are_found_by_key(store: &dyn KvStore) {
    let vb = VbId(3);
    let mut rows = Vec::new();
    for seqno in 1..=300_u64 {
        let key = format!("{:03}", seqno * 7 % 300);
        let row = if seqno % 10 == 0 {
            tombstone(seqno, &key)
        } else {
            document(seqno, &key, &"v".repeat(seqno as usize))
        };
        rows.push((row, Seqno::ZERO));
    }
    put(store, vb, &rows);
    let snapshot = store.snapshot_by_key(vb).unwrap();
    let mut expected: Vec<String> = rows
        .iter()
        .filter(|(row, _)| row.kind() == Kind::Mutation)
        .map(|(row, _)| String::from_utf8(row.key()[1..].to_vec()).unwrap())
        .collect();
    expected.sort();
    // Later changes are not visible.
    put(store, vb, &[(tombstone(301, "007"), Seqno(1))]);
    for keys_only in [true, false] {
        assert_eq!(
            in_looks(&*snapshot, keys_only, 1 << 20),
            (expected.clone(), 1)
        );
        let (keys, looks) = in_looks(&*snapshot, keys_only, 4_000);
        assert_eq!(keys, expected);
        assert!((5..60).contains(&looks), "{looks}");
        assert_eq!(in_looks(&*snapshot, keys_only, 0).0, expected, "one by one");
    }
    newest_rows_are_found(&*snapshot);
    let range = KeyRange::new(Bound::Excluded(b"\x00100"), Bound::Included(b"\x00200"));
    let found = named(&range, false, 1 << 20).look(&*snapshot).unwrap();
    let inside = |key: &&String| key.as_str() > "100" && key.as_str() <= "200";
    let expected: Vec<String> = expected.iter().filter(inside).cloned().collect();
    let keys: Vec<String> = found.rows.iter().map(key_of).collect();
    assert_eq!(keys, expected);
    let all_whole = |row: &KeyRow| matches!(row, KeyRow::Whole(_));
    assert!(found.rows.iter().all(all_whole) && found.rest.is_none());
}

/// Events of collections lie between the keys of the default collection and those of others.
pub(super) fn events_are_beside_documents(store: &dyn KvStore) {
    let vb = VbId(4);
    let keys: [&[u8]; 4] = [b"\0a", b"\x01\0event", b"\x01\x03other", b"\x08b"];
    let like = document(1, "", "");
    let rows = keys.into_iter().zip(1..).map(|(key, seqno)| {
        let meta = Meta {
            seqno: Seqno(seqno),
            ..like.meta()
        };
        (Document::from_parts(key, b"{}", &meta), Seqno::ZERO)
    });
    put(store, vb, &rows.collect::<Vec<_>>());
    let snapshot = store.snapshot(vb).unwrap();
    let looked = |from: &[u8], to: Bound<&[u8]>| {
        let range = KeyRange::new(Bound::Included(from), to);
        let found = named(&range, true, 1 << 20).look(&*snapshot).unwrap();
        found.rows.iter().map(key_of).collect::<String>()
    };
    assert_eq!(looked(b"", Bound::Unbounded), "ab");
    assert_eq!(looked(b"\x01\0event", Bound::Unbounded), "b");
    assert_eq!(looked(b"", Bound::Excluded(b"\x01\x03other")), "a");
    assert_eq!(looked(b"\x01\0", Bound::Included(b"\x01\x03other")), "");
    assert_eq!(looked(b"\x08", Bound::Included(b"\x08b")), "b");
    let beside = snapshot.beside_documents(Seqno::ZERO).unwrap();
    assert!(beside.iter().map(Document::key).eq([keys[1], keys[2]]));
}

/// Stores that keep old versions return only the newest one.
#[test]
fn only_the_newest_version_is_found() {
    let store = MemStore::new();
    let rows = [
        (document(1, "a", "old"), Seqno::ZERO),
        (document(2, "b", "old"), Seqno::ZERO),
        (document(3, "c", "old"), Seqno::ZERO),
        (tombstone(4, "b"), Seqno::ZERO),
        (document(5, "a", "new"), Seqno::ZERO),
    ];
    put(&store, VbId(0), &rows);
    let snapshot = store.snapshot(VbId(0)).unwrap();
    for bytes_max in [0, 1 << 20] {
        assert_eq!(in_looks(&*snapshot, false, bytes_max).0, ["a", "c"]);
    }
    let range = KeyRange::default();
    let found = named(&range, false, 1 << 20).look(&*snapshot).unwrap();
    let KeyRow::Whole(first) = &found.rows[0] else {
        panic!("all fits");
    };
    assert_eq!(first.value(), b"new");
}
