//! Salvage: a new store gets exactly the readable data of a damaged one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use model::{Document, Seqno, VbId};
use storage::{
    Damage, DiskOptions, DiskStore, Keys, KvStore, OpenErrorKind, SalvageError, Salvaged, VbBatch,
    salvage,
};

use crate::damage::{check as check_of, copy, largest_run, named};
use crate::directory::picture;
use crate::workload::{Random, VBS, World, document, open, options, read, record};

type History = BTreeMap<(VbId, u64), (String, Vec<u8>)>;

/// Creates a store with runs and logs that stopped uncleanly, with all versions of its rows.
fn prepare(path: &Path) -> (World, History) {
    let store = open(path);
    let mut world = World::default();
    let mut history = History::new();
    while largest_run(path).is_none() || world.commits % 7 != 0 {
        world.commit(&store).unwrap();
        for (vb, contents) in &world.vbs {
            let rows = contents.rows.iter();
            history.extend(rows.map(|(seqno, row)| ((*vb, *seqno), row.clone())));
        }
        assert!(world.commits < 3_000, "no run was ever written");
    }
    (world, history)
}

fn salvaged(from: &Path, to: &Path) -> (Salvaged, DiskStore) {
    let report = salvage(from, to, None).unwrap();
    let (store, opened) = DiskStore::open(to, options()).unwrap();
    assert!(!opened.clean, "histories begin anew");
    (report, store)
}

/// Checks that only written rows exist. Returns the number of missing rows of the last state.
fn check(store: &DiskStore, world: &World, history: &History) -> usize {
    let mut missing = 0;
    for vb in VBS {
        let found = read(store, vb).unwrap();
        for (seqno, row) in &found.rows {
            assert_eq!(history.get(&(vb, *seqno)), Some(row), "{vb} {seqno}");
        }
        let wanted = world.vbs[&vb].rows.keys();
        missing += wanted
            .filter(|seqno| !found.rows.contains_key(seqno))
            .count();
    }
    missing
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn whole_store_is_copied_completely_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let (world, _) = prepare(&old);
    let before = picture(&old);
    let (report, store) = salvaged(&old, &new);
    assert!(report.is_whole(), "{report:?}");
    assert!(picture(&old) == before);
    assert_eq!(report.vbuckets, VBS.len() as u64);
    assert_eq!(report.last, VBS.last().copied());
    for vb in VBS {
        assert!(read(&store, vb).unwrap() == world.vbs[&vb], "{vb}");
    }
    drop(store);
    assert!(matches!(
        salvage(&old, &new, None),
        Err(SalvageError::Occupied(_))
    ));
    let _running = open(&old);
    let other = dir.path().join("other");
    assert!(matches!(
        salvage(&old, &other, None),
        Err(SalvageError::Refused(error)) if error.kind == OpenErrorKind::InUse
    ));
}

#[test]
fn damaged_data_is_skipped_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let origin = dir.path().join("origin");
    let (world, history) = prepare(&origin);
    let run = largest_run(&origin).unwrap();
    let bytes = fs::read(&run).unwrap();
    let mut random = Random(11);
    let (mut lost, mut refused) = (0, 0);
    for round in 0..16 {
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        copy(&origin, &old);
        // Anywhere, and in every second round in the end of the file, which opening needs.
        let end = bytes.len() as u64;
        let at = match round % 2 {
            0 => random.next(end),
            _ => end - 1 - random.next(1_000),
        };
        flip(&old.join(run.strip_prefix(&origin).unwrap()), at as usize);
        let (report, store) = salvaged(&old, &new);
        let missing = check(&store, &world, &history);
        assert!(!report.is_whole(), "byte {at}: {report:?}");
        assert!(missing < 200, "one block is missing, not {missing} rows");
        lost += usize::from(missing > 0);
        drop(store);
        refused += usize::from(DiskStore::open(&old, options()).is_err());
        fs::remove_dir_all(old).unwrap();
        fs::remove_dir_all(new).unwrap();
    }
    assert!(lost > 0 && refused > 2, "harm was done: {lost}, {refused}");
}

#[test]
fn all_rows_are_copied_without_a_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let (world, history) = prepare(&old);
    let manifest = fs::read(old.join("MANIFEST")).unwrap();
    let mut cases: Vec<Option<Vec<u8>>> = vec![None, Some(Vec::new())];
    let mut random = Random(4);
    for _ in 0..6 {
        let mut damaged = manifest.clone();
        damaged[random.next(manifest.len() as u64) as usize] ^= 1 << random.next(8);
        cases.push(Some(damaged));
    }
    for (number, content) in cases.into_iter().enumerate() {
        let path = old.join("MANIFEST");
        match content {
            None => fs::remove_file(path).unwrap(),
            Some(content) => fs::write(path, content).unwrap(),
        }
        let (report, store) = salvaged(&old, &dir.path().join(number.to_string()));
        assert_eq!(check(&store, &world, &history), 0, "{number}: {report:?}");
        assert!(report.damaged[0].to_string().contains("MANIFEST"));
    }
}

#[test]
fn groups_after_damage_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let store = open(&old);
    for number in 1..=3 {
        let key = format!("k{number}");
        put(
            &store,
            VbId(1),
            number,
            &[(document(number, &key, b"value"), Seqno::ZERO)],
        );
    }
    drop(store);
    let log = &named(&old, "log-")[0];
    let bytes = fs::read(log).unwrap();
    let at = bytes.windows(2).position(|two| two == b"k2").unwrap();
    flip(log, at);
    assert!(DiskStore::open(&old, options()).is_err());
    let (report, store) = salvaged(&old, &new);
    assert_eq!((report.rows, report.commits_lost), (2, 1), "{report:?}");
    let found = read(&store, VbId(1)).unwrap();
    assert_eq!(found.rows.into_keys().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn manifest_is_copied_or_reported_as_lost() {
    const TEXT: &[u8] = b"{\"uid\":\"1\"}";
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let (store, mut high) = (open(&old), 0);
    put(&store, VbId(1), 1, &[(document(1, "a", b"1"), Seqno::ZERO)]);
    store.set_manifest(TEXT).unwrap();
    store.close().unwrap();
    drop(store);
    let (report, store) = salvaged(&old, &dir.path().join("in a log"));
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(store.manifest().unwrap().as_deref(), Some(TEXT));
    // Then the log is not kept for its values.
    let in_runs = DiskOptions {
        apart_bytes_min: u32::MAX,
        ..options()
    };
    push_into_runs(&DiskStore::open(&old, in_runs).unwrap().0, &mut high);
    let (report, store) = salvaged(&old, &dir.path().join("in the manifest"));
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(store.manifest().unwrap().as_deref(), Some(TEXT));
    fs::remove_file(old.join("MANIFEST")).unwrap();
    let (report, store) = salvaged(&old, &dir.path().join("lost"));
    assert!(report.manifest_lost && !report.is_whole(), "{report:?}");
    assert_eq!(store.manifest().unwrap(), None);
    assert_eq!(read(&store, VbId(1)).unwrap().rows.len(), 1);
}

#[test]
fn value_stored_apart_is_copied_and_a_damaged_one_reported() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let (store, vb, mut high) = (open(&old), VbId(1), 0);
    let value = [7; 400];
    let two = [
        (document(1, "\0a", &value), Seqno::ZERO),
        (document(2, "\0b", &value), Seqno::ZERO),
    ];
    put(&store, vb, 2, &two);
    push_into_runs(&store, &mut high);
    drop(store);
    let (report, store) = salvaged(&old, &dir.path().join("whole"));
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(read(&store, vb).unwrap().rows[&2].1, value);
    let mut files = named(&old, "log-");
    files.extend(named(&old, "values-"));
    let place = files.into_iter().find_map(|path| {
        let bytes = fs::read(&path).unwrap();
        let at = bytes
            .windows(value.len())
            .position(|window| window == value);
        Some((path, at?))
    });
    let (file, at) = place.expect("it lies apart");
    flip(&file, at + 100);
    let (report, store) = salvaged(&old, &dir.path().join("damaged"));
    assert_eq!(report.rows_damaged, 1, "{report:?}");
    let of_row = |damage: &&Damage| damage.keys == Keys::One(b"\0a".to_vec());
    let told = report.damaged.iter().find(of_row).expect("it is told");
    assert_eq!((&told.file, told.vb, told.rows), (&file, Some(vb), Some(1)));
    assert_eq!(read(&store, vb).unwrap().rows.len(), 1);
}

/// Writes enough into another vBucket to move earlier rows into runs: each of these commits fills a
/// log, and a log of twice its size waits until the previous one is in runs.
fn push_into_runs(store: &DiskStore, high: &mut u64) {
    for _ in 0..5 {
        let rows: Vec<_> = (*high + 1..=*high + 200)
            .map(|seqno| {
                (
                    document(seqno, &format!("k{seqno}"), &[1; 1000]),
                    Seqno::ZERO,
                )
            })
            .collect();
        *high += 200;
        put(store, VbId(9), *high, &rows);
    }
}

fn put(store: &DiskStore, vb: VbId, high: u64, rows: &[(Document, Seqno)]) {
    let (record, changes) = (&record(high), &rows);
    store
        .commit(&[VbBatch {
            vb,
            record,
            changes,
        }])
        .unwrap();
}

/// Returns the keys of a vBucket, by seqno.
fn keys(store: &DiskStore, vb: VbId) -> Vec<(u64, String)> {
    let rows = read(store, vb).unwrap().rows.into_iter();
    rows.map(|(seqno, (key, _))| (seqno, key)).collect()
}

#[test]
fn row_written_again_after_a_rollback_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let (store, vb, mut high) = (open(&old), VbId(1), 0);
    put(&store, vb, 1, &[(document(1, "a", b"1"), Seqno::ZERO)]);
    let two = [
        (document(2, "b", b"2"), Seqno::ZERO),
        (document(3, "c", b"3"), Seqno::ZERO),
    ];
    put(&store, vb, 3, &two);
    push_into_runs(&store, &mut high);
    assert_eq!(store.rollback(vb, Seqno(1)).unwrap().high_seqno, Seqno(1));
    push_into_runs(&store, &mut high);
    put(&store, vb, 2, &[(document(2, "d", b"4"), Seqno::ZERO)]);
    push_into_runs(&store, &mut high);
    drop(store);
    let (report, store) = salvaged(&old, &new);
    assert!(report.is_whole(), "{report:?}");
    let wanted = [(1, "a".to_owned()), (2, "d".to_owned())];
    assert_eq!(
        keys(&store, vb),
        wanted,
        "what was not written anew stays away"
    );
    assert_eq!(read(&store, VbId(9)).unwrap().rows.len() as u64, high);
}

#[test]
fn vbucket_removed_earlier_stays_removed_without_a_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let (store, mut high) = (open(&old), 0);
    for vb in [VbId(1), VbId(2)] {
        put(&store, vb, 1, &[(document(1, "a", b"1"), Seqno::ZERO)]);
    }
    push_into_runs(&store, &mut high);
    store.remove(&[VbId(1), VbId(2)]).unwrap();
    put(&store, VbId(2), 1, &[(document(1, "b", b"1"), Seqno::ZERO)]);
    drop(store);
    fs::remove_file(old.join("MANIFEST")).unwrap();
    let (report, store) = salvaged(&old, &new);
    assert_eq!(keys(&store, VbId(1)), [], "{report:?}");
    assert_eq!(keys(&store, VbId(2)), [(1, "b".to_owned())]);
}

#[test]
fn check_reports_a_damaged_block_with_vbucket_and_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (store, vb, mut high) = (open(dir.path()), VbId(4), 0);
    let rows: Vec<_> = (1..=1_000)
        .map(|seqno| {
            (
                document(seqno, &format!("\0key{seqno:04}"), &[3; 90]),
                Seqno::ZERO,
            )
        })
        .collect();
    put(&store, vb, 1_000, &rows);
    push_into_runs(&store, &mut high);
    store.close().unwrap();
    drop(store);
    let whole = check_of(dir.path());
    assert_eq!(whole.damaged, []);
    assert_eq!(whole.vbuckets, 2);
    assert!(whole.rows >= 1_000 && whole.values >= 200, "{whole:?}");
    let found = named(dir.path(), "run-")
        .into_iter()
        .find_map(|path: PathBuf| {
            let bytes = fs::read(&path).unwrap();
            let at = bytes.windows(7).position(|window| window == b"key0500")?;
            Some((path, at))
        });
    let (run, at) = found.expect("it is in a run");
    flip(&run, at);
    let checked = check_of(dir.path());
    let [damage] = &checked.damaged[..] else {
        panic!("{checked:?}");
    };
    assert_eq!((&damage.file, damage.vb), (&run, Some(vb)));
    let lost = damage.rows.unwrap();
    assert!((100..200).contains(&lost), "{damage}");
    let Keys::Between(Some(from), Some(to)) = &damage.keys else {
        panic!("{damage}");
    };
    assert!(
        &from[..] < b"\0key0500" && &to[..] > b"\0key0500",
        "{damage}"
    );
    let to = dir.path().join("salvaged");
    assert_eq!(
        salvage(dir.path(), &to, None).unwrap().rows,
        1_000 + high - lost
    );
}
