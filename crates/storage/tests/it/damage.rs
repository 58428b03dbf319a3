//! Damaged files: whatever happens to them, wrong data is never returned.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use model::Seqno;
use storage::{DiskOptions, DiskStore, ErrorKind, OpenErrorKind, salvage};

use crate::directory::picture;
use crate::workload::{Random, VBS, World, open, options, read};

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
        } else if entry.metadata().unwrap().blocks() == 0 {
            let length = entry.metadata().unwrap().len();
            fs::File::create(&target).unwrap().set_len(length).unwrap();
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

/// Opens what was damaged: everything is there, or it is refused, untouched, and says so of a file. Tells whether.
fn is_refused(path: &Path, world: &World, what: &str) -> bool {
    let before = picture(path);
    let (store, _) = match DiskStore::open(path, options()) {
        Ok(opened) => opened,
        Err(error) => {
            assert_eq!(error.kind, OpenErrorKind::Damaged, "{what}: {error}");
            assert!(error.to_string().contains("journal-1"), "{what}: {error}");
            assert!(picture(path) == before, "{what}");
            return true;
        }
    };
    for vb in VBS {
        assert!(read(&store, vb).unwrap() == world.vbs[&vb], "{what}: {vb}");
    }
    false
}

#[test]
fn a_torn_journal_is_refused_when_what_it_lost_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let origin = dir.path().join("origin");
    let world = prepare(&origin);
    let journal = journal(&origin);
    let bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut refused = 0;
    let mut try_with = |what: String, damage: &dyn Fn(&mut Vec<u8>)| {
        let path = dir.path().join("copy");
        copy(&origin, &path);
        let mut bytes = bytes.clone();
        damage(&mut bytes);
        fs::write(path.join(journal.file_name().unwrap()), bytes).unwrap();
        refused += usize::from(is_refused(&path, &world, &what));
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
    // Whatever is torn there, all of it was acknowledged.
    assert!(refused > 40, "the damage did some harm ({refused})");
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
    let (store, _) = match DiskStore::open(path, options()) {
        Ok(opened) => opened,
        Err(error) => {
            assert_eq!(error.kind, OpenErrorKind::Damaged, "byte {at}: {error}");
            return false;
        }
    };
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

/// A store whose tables have nothing yet: the records are lost with the journal, and only the tails are left.
#[test]
fn a_lost_journal_is_refused_and_salvage_tells_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (origin, path) = (dir.path().join("origin"), dir.path().join("copy"));
    let world = prepare(&origin);
    let whole = fs::read(journal(&origin)).unwrap();
    let zeros = vec![0; whole.len()];
    for content in [Some(&b""[..]), Some(&zeros), None] {
        copy(&origin, &path);
        let journal = journal(&path);
        match content {
            Some(content) => fs::write(&journal, content).unwrap(),
            None => fs::remove_file(&journal).unwrap(),
        }
        for _ in 0..2 {
            assert!(is_refused(&path, &world, "lost"));
        }
        let to = dir.path().join("salvaged");
        let report = salvage(&path, &to).unwrap();
        let behind = VBS.map(|vb| (vb, Seqno(world.vbs[&vb].high), Seqno::ZERO));
        assert_eq!(report.behind, behind);
        fs::remove_dir_all(&to).unwrap();
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_store_that_lost_its_format_while_it_was_young_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path());
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    // As a power cut may bring it back, which means nothing beside FORMAT.
    fs::write(dir.path().join("CREATING"), "").unwrap();
    let before = picture(dir.path());
    let error = DiskStore::open(dir.path(), options()).err().unwrap();
    assert!(error.to_string().contains("FORMAT is missing"), "{error}");
    assert!(picture(dir.path()) == before);
}
