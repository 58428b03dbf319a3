//! Damaged files: whatever happens to them, wrong data is never returned.

use std::fs;
use std::path::{Path, PathBuf};

use storage::{DiskOptions, DiskStore, ErrorKind, OpenErrorKind, VbNotice};

use crate::workload::{Contents, Random, VBS, World, open, options, read};

const COMMITS: u64 = 40;

/// A store that stopped uncleanly after [`COMMITS`] commits, all of them in its journal.
fn prepare(path: &Path) -> World {
    let options = DiskOptions {
        journal_bytes: 4 << 20,
        ..options()
    };
    let store = DiskStore::open(path, options).unwrap().0;
    let mut world = World::default();
    for _ in 0..COMMITS {
        world.commit(&store).unwrap();
    }
    world
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// The one journal.
fn journal(path: &Path) -> PathBuf {
    let mut found = Vec::new();
    files(path, &mut found);
    found.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("journal-")
    });
    assert_eq!(found.len(), 1);
    found.remove(0)
}

pub(crate) fn files(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
}

/// Every state that a vBucket went through.
fn history() -> Vec<World> {
    let mut world = World::default();
    let mut states = vec![world.clone()];
    for _ in 0..COMMITS {
        world.advance();
        states.push(world.clone());
    }
    states
}

/// Opens what was damaged; every vBucket must be in some state of its history, and when that is
/// not the last one, a notice must say so. Tells how many vBuckets lost something.
fn check_prefix(path: &Path, states: &[World], what: &str) -> Option<usize> {
    let (store, opened) = match DiskStore::open(path, options()) {
        Ok(opened) => opened,
        Err(error) => {
            assert_eq!(error.kind, OpenErrorKind::Damaged, "{what}: {error}");
            assert!(error.to_string().starts_with(&path.display().to_string()));
            return None;
        }
    };
    let mut lost = 0;
    for vb in VBS {
        let found = read(&store, vb).unwrap();
        let state = states
            .iter()
            .position(|state| state.vbs.get(&vb).cloned().unwrap_or_default() == found)
            .unwrap_or_else(|| panic!("{what}: {vb} is in no state that it ever had"));
        let notice = opened.notices.iter().any(
            |VbNotice::LostTail {
                 vb: of, found: at, ..
             }| *of == vb && at.0 == found.high,
        );
        assert_eq!(notice, state < states.len() - 1, "{what}: {vb} at {state}");
        lost += usize::from(notice);
    }
    Some(lost)
}

#[test]
fn a_torn_journal_gives_a_prefix_and_a_notice() {
    let dir = tempfile::tempdir().unwrap();
    let origin = dir.path().join("origin");
    prepare(&origin);
    let states = history();
    let journal = journal(&origin);
    let bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut noticed = 0;
    let mut try_with = |what: String, damage: &dyn Fn(&mut Vec<u8>)| {
        let path = dir.path().join("copy");
        copy(&origin, &path);
        let mut bytes = bytes.clone();
        damage(&mut bytes);
        fs::write(path.join(journal.file_name().unwrap()), bytes).unwrap();
        noticed += check_prefix(&path, &states, &what).unwrap_or(0);
        fs::remove_dir_all(path).unwrap();
    };
    for cut in [1, 7, 100, 4096, 50_000] {
        try_with(format!("cut by {cut}"), &|bytes| bytes.truncate(end - cut));
    }
    for (at, length) in [
        (end - 4096, 4096),
        (end - 65_536, 65_536),
        (end / 2, 4096),
        (0, 4096),
    ] {
        try_with(format!("zeroed {length} at {at}"), &|bytes| {
            bytes[at..at + length].fill(0);
        });
    }
    let mut random = Random(3);
    for _ in 0..40 {
        let (at, bit) = (random.next(end as u64) as usize, random.next(8));
        try_with(format!("bit {bit} of byte {at}"), &|bytes| {
            bytes[at] ^= 1 << bit;
        });
    }
    assert!(noticed > 5, "the damage did some harm ({noticed})");
}

#[test]
fn a_flipped_bit_in_a_table_is_an_error_and_never_wrong_data() {
    let dir = tempfile::tempdir().unwrap();
    let origin = dir.path().join("origin");
    let store = open(&origin);
    let mut world = World::default();
    while !has_large_table(&origin) {
        world.commit(&store).unwrap();
        assert!(world.commits < 3_000, "no table was ever written");
    }
    drop(store);
    let mut tables = Vec::new();
    files(&origin.join("db/keyspaces/1/tables"), &mut tables);
    let table = tables
        .iter()
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap();
    let bytes = fs::read(table).unwrap();
    let mut random = Random(5);
    let mut detected = 0;
    for _ in 0..24 {
        let path = dir.path().join("copy");
        copy(&origin, &path);
        let at = random.next(bytes.len() as u64) as usize;
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << random.next(8);
        fs::write(path.join(table.strip_prefix(&origin).unwrap()), damaged).unwrap();
        detected += usize::from(!reads_right_or_fails(&path, &world, at));
        fs::remove_dir_all(path).unwrap();
    }
    assert!(detected > 5, "flips in the data are detected ({detected})");
}

pub(crate) fn has_large_table(path: &Path) -> bool {
    let mut tables = Vec::new();
    let folder = path.join("db/keyspaces/1/tables");
    if folder.is_dir() {
        files(&folder, &mut tables);
    }
    tables
        .iter()
        .any(|path| path.metadata().is_ok_and(|meta| meta.len() > 100_000))
}

/// Whether everything was read, and right; `false` when something said that it is damaged.
fn reads_right_or_fails(path: &Path, world: &World, at: usize) -> bool {
    let (store, opened) = match DiskStore::open(path, options()) {
        Ok(opened) => opened,
        Err(error) => {
            assert_eq!(error.kind, OpenErrorKind::Damaged, "byte {at}: {error}");
            return false;
        }
    };
    assert_eq!(opened.notices, []);
    let mut right = true;
    for vb in VBS {
        match read(&store, vb) {
            Ok(found) => assert!(found == world.vbs[&vb], "byte {at}: {vb} is wrong"),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
                right = false;
            }
        }
    }
    right
}

#[test]
fn a_lost_journal_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let world = prepare(dir.path());
    fs::write(journal(dir.path()), "").unwrap();
    let (store, opened) = DiskStore::open(dir.path(), options()).unwrap();
    assert_eq!(opened.notices.len(), VBS.len());
    for vb in VBS {
        let found = read(&store, vb).unwrap();
        let expected = model::Seqno(world.vbs[&vb].high);
        assert!(found == Contents::default() || found.high < expected.0);
        let notice = VbNotice::LostTail {
            vb,
            expected,
            found: model::Seqno(found.high),
        };
        assert!(opened.notices.contains(&notice));
    }
}
