//! Damaged files: a store never returns wrong data.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use model::Seqno;
use storage::{
    Checked, DiskOptions, DiskStore, DocumentRequest, ErrorKind, KvStore as _, OpenErrorKind,
    VbBatch, salvage,
};

use crate::directory::picture;
use crate::workload::{Random, VBS, World, document, open, options, read, record};

const COMMITS: u64 = 40;

/// Creates a store that stopped uncleanly after [`COMMITS`] commits, all of them in its log.
fn prepare(path: &Path) -> World {
    let options = DiskOptions {
        log_bytes: 4 << 20,
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

/// Returns the files of a store whose names have this prefix, sorted.
pub(crate) fn named(path: &Path, begin: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(path, &mut found);
    found.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(begin)
    });
    found
}

/// Returns the only log.
fn log(path: &Path) -> PathBuf {
    let mut found = named(path, "log-");
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

/// Returns the result of a check.
pub(crate) fn check(path: &Path) -> Checked {
    storage::check(path, None, &mut |_| {}).unwrap()
}

/// Opens a damaged store: it is complete, or it is refused without changes, with the name of a
/// file, as in a check. Returns whether it is refused.
fn is_refused(path: &Path, world: &World, what: &str) -> bool {
    let before = picture(path);
    let checked = check(path);
    let (store, _) = match DiskStore::open(path, options()) {
        Ok(opened) => opened,
        Err(error) => {
            assert_eq!(error.kind, OpenErrorKind::Damaged, "{what}: {error}");
            assert!(error.to_string().contains("log-0"), "{what}: {error}");
            assert!(picture(path) == before, "{what}");
            let mut damaged = checked.damaged.iter();
            let of_log = damaged.any(|one| one.to_string().contains("log-0"));
            assert!(of_log, "{what}: {checked:?}");
            return true;
        }
    };
    for vb in VBS {
        assert!(read(&store, vb).unwrap() == world.vbs[&vb], "{what}: {vb}");
    }
    assert_eq!(checked.damaged, [], "{what}");
    false
}

#[test]
fn torn_log_is_refused_if_acknowledged_commits_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let origin = dir.path().join("origin");
    let world = prepare(&origin);
    let log = log(&origin);
    let bytes = fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut refused = 0;
    let mut try_with = |what: String, damage: &dyn Fn(&mut Vec<u8>)| {
        let path = dir.path().join("copy");
        copy(&origin, &path);
        let mut bytes = bytes.clone();
        damage(&mut bytes);
        fs::write(path.join(log.file_name().unwrap()), bytes).unwrap();
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
    // Everything there was acknowledged.
    assert!(refused > 40, "the damage did some harm ({refused})");
}

#[test]
fn flipped_bit_in_a_run_is_an_error_and_never_wrong_data() {
    let dir = tempfile::tempdir().unwrap();
    let origin = dir.path().join("origin");
    let store = open(&origin);
    let mut world = World::default();
    while largest_run(&origin).is_none() {
        world.commit(&store).unwrap();
        assert!(world.commits < 3_000, "no run was ever written");
    }
    drop(store);
    let run = largest_run(&origin).unwrap();
    let bytes = fs::read(&run).unwrap();
    let mut random = Random(5);
    let mut detected = 0;
    for _ in 0..24 {
        let path = dir.path().join("copy");
        copy(&origin, &path);
        let at = random.next(bytes.len() as u64) as usize;
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << random.next(8);
        fs::write(path.join(run.strip_prefix(&origin).unwrap()), damaged).unwrap();
        let checked = check(&path);
        assert_eq!(checked.damaged.len(), 1, "byte {at}: {checked:?}");
        detected += usize::from(!reads_right_or_fails(&path, &world, at));
        fs::remove_dir_all(path).unwrap();
    }
    assert!(detected > 5, "flips in the data are detected ({detected})");
}

/// Returns the largest run, unless it is short or being removed.
pub(crate) fn largest_run(path: &Path) -> Option<PathBuf> {
    let mut runs = if path.is_dir() {
        named(path, "run-")
    } else {
        Vec::new()
    };
    let length = |path: &PathBuf| path.metadata().map_or(0, |meta| meta.len());
    runs.retain(|path| length(path) > 50_000);
    runs.into_iter().max_by_key(length)
}

/// The damaged run stays unchanged during merges of others; no other data is lost with it.
#[test]
fn merges_continue_beside_a_damaged_run() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut world = World::default();
    while largest_run(dir.path()).is_none() {
        world.commit(&store).unwrap();
        assert!(world.commits < 3_000, "no run was ever written");
    }
    drop(store);
    let run = largest_run(dir.path()).unwrap();
    let mut damaged = fs::read(&run).unwrap();
    damaged[10_000] ^= 1;
    fs::write(&run, &damaged).unwrap();

    let store = open(dir.path());
    let is_damaged = |store: &DiskStore, vb| match read(store, vb) {
        Ok(found) => {
            assert!(found == world.vbs[&vb], "{vb} is wrong");
            false
        }
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
            true
        }
    };
    let hurt: Vec<_> = VBS
        .into_iter()
        .filter(|vb| is_damaged(&store, *vb))
        .collect();
    assert_eq!(hurt.len(), 1, "one block is of one vBucket");
    while store.upkeep().merges < 4 {
        world.commit(&store).unwrap();
        assert!(world.commits < 10_000, "nothing was merged");
    }
    let check = |store: &DiskStore| {
        for vb in VBS {
            let rows = &world.vbs[&vb].rows;
            match read(store, vb) {
                Ok(found) => assert!(found == world.vbs[&vb], "{vb} is wrong"),
                Err(error) => assert_eq!((error.kind, vb), (ErrorKind::Corrupt, hurt[0])),
            }
            let (_, (key, value)) = rows.last_key_value().unwrap();
            let want = DocumentRequest {
                key: key.as_bytes(),
                seqno: None,
            };
            let found = store.fetch(vb, &[want]).unwrap();
            assert_eq!(found[0].as_ref().unwrap().value(), value, "{vb}, {key}");
        }
    };
    check(&store);
    assert!(fs::read(&run).unwrap() == damaged, "the run stays");
    drop(store);
    check(&open(dir.path()));
}

/// Whether all data was read and right; `false` if damage was reported.
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

/// A store without runs: all data is lost with the log, and only the tail is left.
#[test]
fn lost_log_is_refused_and_salvage_reports_it() {
    let dir = tempfile::tempdir().unwrap();
    let (origin, path) = (dir.path().join("origin"), dir.path().join("copy"));
    let world = prepare(&origin);
    let whole = fs::read(log(&origin)).unwrap();
    let zeros = vec![0; whole.len()];
    for content in [Some(&b""[..]), Some(&zeros), None] {
        copy(&origin, &path);
        let log = log(&path);
        match content {
            Some(content) => fs::write(&log, content).unwrap(),
            None => fs::remove_file(&log).unwrap(),
        }
        for _ in 0..2 {
            assert!(is_refused(&path, &world, "lost"));
        }
        let to = dir.path().join("salvaged");
        let report = salvage(&path, &to, None).unwrap();
        assert_eq!((report.rows, report.commits_lost), (0, COMMITS));
        fs::remove_dir_all(&to).unwrap();
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn new_store_without_its_manifest_is_not_created_again() {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path());
    fs::remove_file(dir.path().join("MANIFEST")).unwrap();
    // As after a stop between two steps of the creation.
    fs::write(dir.path().join("MANIFEST.new"), "half").unwrap();
    let before = picture(dir.path());
    let error = DiskStore::open(dir.path(), options()).err().unwrap();
    assert!(error.to_string().contains("MANIFEST is missing"), "{error}");
    assert!(picture(dir.path()) == before);
}

/// Returns options with which each commit has a log of its own.
fn short_logs() -> DiskOptions {
    DiskOptions {
        log_bytes: 100,
        ..options()
    }
}

fn commit(store: &DiskStore, seqnos: std::ops::RangeInclusive<u64>) {
    let changes: Vec<_> = seqnos
        .map(|seqno| {
            (
                document(seqno, &format!("key{seqno}"), &vec![1; 60_000]),
                Seqno::ZERO,
            )
        })
        .collect();
    let record = record(changes.len() as u64);
    let batch = VbBatch {
        vb: VBS[0],
        record: &record,
        changes: &changes.as_slice(),
    };
    store.commit(&[batch]).unwrap();
}

/// Makes a store with a commit in each of two logs; returns the path of a copy that has the files `later` of the second
/// commit, and all others as they were before it.
fn copy_of_two_logs(dir: &Path, later: &[&str]) -> PathBuf {
    for attempt in 0.. {
        let origin = dir.join(format!("origin{attempt}"));
        let path = dir.join(format!("copy{attempt}"));
        let store = DiskStore::open(&origin, short_logs()).unwrap().0;
        commit(&store, 1..=1);
        copy(&origin, &path);
        commit(&store, 2..=2);
        for name in later {
            fs::copy(origin.join(name), path.join(name)).unwrap();
        }
        // Otherwise the first log has become a run meanwhile, which the copied files may count on.
        let manifest = |of: &Path| fs::read(of.join("MANIFEST")).unwrap();
        if manifest(&origin) == manifest(&path) {
            return path;
        }
    }
    unreachable!("there is always another attempt")
}

/// Makes a store with a commit in each of two logs, damages the log `harmed`, and returns its path and the refusal. Of
/// the second commit the store has the files `later`.
fn refusal_of_two_logs(dir: &Path, harmed: &str, later: &[&str]) -> (PathBuf, String) {
    let path = copy_of_two_logs(dir, later);
    let log = path.join(harmed);
    let mut bytes = fs::read(&log).unwrap();
    bytes[30_000] ^= 1;
    fs::write(&log, bytes).unwrap();
    let error = DiskStore::open(&path, short_logs()).err().unwrap();
    (path, error.to_string())
}

/// The commits that follow are in the next log, and that one is whole.
#[test]
fn damaged_last_commit_of_a_log_is_reported_of_this_log() {
    let dir = tempfile::tempdir().unwrap();
    let harmed = "log-00000001";
    let (path, error) = refusal_of_two_logs(dir.path(), harmed, &["log-00000002"]);
    let reason = "log-00000001 is damaged at byte 64, and commits follow it";
    assert!(error.contains(reason), "{error}");
    let damaged = check(&path).damaged;
    let names: Vec<_> = damaged.iter().map(|one| one.file.file_name()).collect();
    assert_eq!(names, [Some(harmed.as_ref())], "{damaged:?}");
}

/// It looks as if nothing was written into this log yet.
#[test]
fn damaged_first_commit_of_the_last_log_is_reported_of_both_logs() {
    let dir = tempfile::tempdir().unwrap();
    let later = ["log-00000002", "TAIL"];
    let (path, error) = refusal_of_two_logs(dir.path(), "log-00000002", &later);
    let reason = "commits up to 2 were acknowledged, and 1 is the last one that is there; \
                  the next one was in this file or in log-00000002";
    assert!(
        error.contains(&format!("log-00000001: {reason}")),
        "{error}"
    );
    let damaged = check(&path).damaged;
    let found = damaged.iter().map(|one| (&one.file, &*one.reason));
    assert!(
        found.eq([(&path.join("log-00000001"), reason)]),
        "{damaged:?}"
    );
    // As where the log is not there at all.
    fs::remove_file(path.join("log-00000002")).unwrap();
    let refused = DiskStore::open(&path, short_logs()).err().unwrap();
    assert!(refused.to_string().contains(reason), "{refused}");
}

/// A power failure may leave some chunks of a group that was not durable, also in a new log.
#[test]
fn part_of_the_first_group_of_a_log_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (origin, path) = (dir.path().join("origin"), dir.path().join("copy"));
    let store = DiskStore::open(&origin, short_logs()).unwrap().0;
    commit(&store, 1..=1);
    copy(&origin, &path);
    commit(&store, 2..=4);
    drop(store);
    let next = fs::read(origin.join("log-00000002")).unwrap();
    for part in [100_000, 150_000, 185_000] {
        fs::write(path.join("log-00000002"), &next[..part.min(next.len() - 1)]).unwrap();
        let store = DiskStore::open(&path, short_logs()).unwrap().0;
        assert_eq!(read(&store, VBS[0]).unwrap().rows.len(), 1, "{part} bytes");
    }
}
