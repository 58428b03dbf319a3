//! One damage in one file of a store at rest: the content is complete, or the damage is reported; a
//! refused store is not changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use model::VbId;
use storage::{DiskOptions, DiskStore, ErrorKind, KvStore, OpenErrorKind, salvage};

use crate::damage::{check, copy, files};
use crate::directory::picture;
use crate::workload::{Random, VBS, World, options, read};

/// Number of damages in each test.
const DRAWS: u64 = 60;

/// Small logs, so that few commits make many runs, and merges of them.
fn small_logs() -> DiskOptions {
    DiskOptions {
        log_bytes: 24 << 10,
        ..options()
    }
}

/// All versions of all rows.
type History = BTreeMap<(VbId, u64), (String, Vec<u8>)>;

/// Creates a store that was opened and written several times: runs, merged runs, values stored
/// apart, logs with values, a text. The last stop is clean or not.
fn lived_in(path: &Path, clean: bool) -> (World, History) {
    let (mut world, mut history) = (World::default(), History::new());
    for life in 0..3 {
        let store = DiskStore::open(path, small_logs()).unwrap().0;
        store.set_manifest(b"{\"uid\":\"1\"}").unwrap();
        for _ in 0..40 {
            world.commit(&store).unwrap();
            for (vb, contents) in &world.vbs {
                let rows = contents.rows.iter();
                history.extend(rows.map(|(seqno, row)| ((*vb, *seqno), row.clone())));
            }
        }
        if clean || life < 2 {
            store.close().unwrap();
        }
    }
    (world, history)
}

/// Changes a file at random. Returns a description.
fn harm(path: &Path, random: &mut Random) -> String {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let at = random.next(size.max(1));
    let mut byte = [0];
    let known = file.read_at(&mut byte, at).unwrap();
    match random.next(8) {
        0 => {
            fs::remove_file(path).unwrap();
            "removed".into()
        }
        1 => {
            file.set_len(0).unwrap();
            "emptied".into()
        }
        2 => {
            file.set_len(at).unwrap();
            format!("cut at {at}")
        }
        3 => {
            let length = (size - at).min(4096);
            file.write_all_at(&vec![0; length as usize], at).unwrap();
            format!("{length} bytes zeroed at {at}")
        }
        4 => {
            file.set_len(0).unwrap();
            file.set_len(size).unwrap();
            "zeroed".into()
        }
        5 if known > 0 => {
            file.write_all_at(&[1], at).unwrap();
            format!("byte {at} became 1")
        }
        _ if known > 0 => {
            byte[0] ^= 1 << random.next(8);
            file.write_all_at(&byte, at).unwrap();
            format!("bit of byte {at} flipped")
        }
        _ => "left as it is".into(),
    }
}

/// Result of opening a damaged store.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The opening was refused with this message.
    Refused(String),
    /// Everything was readable.
    Whole,
    /// A read reported damage.
    Told,
}

/// Opens a store: the content must be complete, or damage reported, by a check as well.
fn judge(path: &Path, world: &World, what: &str) -> Outcome {
    let before = picture(path);
    let checked = storage::check(path, None, &mut |_| {});
    unchanged(path, &before, what);
    let told = checked.map_or(1, |checked| checked.damaged.len());
    let store = match DiskStore::open(path, small_logs()) {
        Ok((store, _)) => store,
        Err(error) => {
            let kinds = [OpenErrorKind::Damaged, OpenErrorKind::Foreign];
            assert!(kinds.contains(&error.kind), "{what}: {error}");
            unchanged(path, &before, what);
            assert!(told > 0, "{what}: a check finds nothing");
            return Outcome::Refused(error.to_string());
        }
    };
    let mut outcome = Outcome::Whole;
    for vb in VBS {
        match read(&store, vb) {
            Ok(found) => assert!(found == world.vbs[&vb], "{what}: {vb} is not as it was"),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Corrupt, "{what}: {error}");
                outcome = Outcome::Told;
            }
        }
    }
    assert!(
        outcome == Outcome::Whole || told > 0,
        "{what}: a check finds nothing"
    );
    outcome
}

/// Checks that all files exist with the same content.
fn unchanged(path: &Path, before: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
    let after = picture(path);
    for (name, bytes) in before {
        let now = after.get(name);
        assert!(now == Some(bytes), "{what}: {} was changed", name.display());
    }
}

/// Salvages a store: only written rows are copied, and missing ones are reported.
fn check_salvage(from: &Path, to: &Path, (world, history): &(World, History), what: &str) {
    let report = salvage(from, to, None).unwrap();
    let (store, _) = DiskStore::open(to, options()).unwrap();
    let mut missing = 0;
    for vb in VBS {
        let found = read(&store, vb).unwrap();
        for (seqno, row) in &found.rows {
            assert_eq!(
                history.get(&(vb, *seqno)),
                Some(row),
                "{what}: {vb} {seqno}"
            );
        }
        let wanted = world.vbs[&vb].rows.keys();
        missing += wanted
            .filter(|seqno| !found.rows.contains_key(seqno))
            .count();
    }
    assert!(missing == 0 || !report.is_whole(), "{what}: {missing} rows");
}

fn damaged_anywhere(clean: bool, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let origin = dir.path().join("origin");
    let known = lived_in(&origin, clean);
    let mut all = Vec::new();
    files(&origin, &mut all);
    let mut random = Random(seed);
    let (mut refusals, mut others) = (0, 0);
    for draw in 0..DRAWS {
        let (path, to) = (dir.path().join("copy"), dir.path().join("salvaged"));
        copy(&origin, &path);
        let name = all[random.next(all.len() as u64) as usize]
            .strip_prefix(&origin)
            .unwrap();
        let how = harm(&path.join(name), &mut random);
        let what = format!("draw {draw}: {} {how}", name.display());
        let outcome = judge(&path, &known.0, &what);
        match outcome {
            Outcome::Refused(words) => {
                assert!(words.contains(&*name.to_string_lossy()), "{what}: {words}");
                refusals += 1;
                if draw % 3 == 0 {
                    check_salvage(&path, &to, &known, &what);
                    fs::remove_dir_all(&to).unwrap();
                }
            }
            Outcome::Told | Outcome::Whole => others += 1,
        }
        fs::remove_dir_all(&path).unwrap();
    }
    assert!(refusals > 20 && others > 5, "{refusals} {others}");
}

#[test]
fn damage_after_a_clean_stop_is_reported() {
    damaged_anywhere(true, 17);
}

#[test]
fn damage_after_a_kill_is_reported() {
    damaged_anywhere(false, 18);
}

/// Replaced manifests come back, as after a lost rename.
#[test]
fn older_manifest_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let (origin, path) = (dir.path().join("origin"), dir.path().join("copy"));
    let store = DiskStore::open(&origin, small_logs()).unwrap().0;
    let (mut world, mut older) = (World::default(), Vec::new());
    for _ in 0..80 {
        world.commit(&store).unwrap();
        let now = fs::read(origin.join("MANIFEST")).unwrap();
        if older.last() != Some(&now) {
            older.push(now);
        }
    }
    store.close().unwrap();
    drop(store);
    let last = fs::read(origin.join("MANIFEST")).unwrap();
    older.retain(|one| *one != last);
    assert!(older.len() > 4, "{}", older.len());
    let (mut refused, count) = (0, older.len());
    for (number, manifest) in older.into_iter().enumerate() {
        copy(&origin, &path);
        fs::write(path.join("MANIFEST"), &manifest).unwrap();
        let what = format!("manifest {number}");
        if let Outcome::Refused(_) = judge(&path, &world, &what) {
            refused += 1;
            let to = dir.path().join("salvaged");
            salvage(&path, &to, None).unwrap();
            let (store, _) = DiskStore::open(&to, options()).unwrap();
            for vb in VBS {
                assert!(read(&store, vb).unwrap() == world.vbs[&vb], "{what}: {vb}");
            }
            drop(store);
            fs::remove_dir_all(&to).unwrap();
        }
        fs::remove_dir_all(&path).unwrap();
    }
    assert!(refused > 4, "{refused} of {count}");
}

/// Flips a bit at many places of each file: a check reports it, or the place is unused.
#[test]
fn check_detects_each_flipped_bit() {
    let dir = tempfile::tempdir().unwrap();
    let (origin, path) = (dir.path().join("origin"), dir.path().join("copy"));
    let (world, _) = lived_in(&origin, true);
    assert_eq!(check(&origin).damaged, []);
    copy(&origin, &path);
    let mut all = Vec::new();
    files(&path, &mut all);
    let mut random = Random(23);
    let (mut noticed, mut harmless) = (0, 0);
    for file in all.iter().filter(|file| !file.ends_with("LOCK")) {
        let bytes = fs::read(file).unwrap();
        let whole = File::options().write(true).open(file).unwrap();
        let mut at = 0;
        while at < bytes.len() {
            let flipped = bytes[at] ^ 1 << random.next(8);
            whole.write_all_at(&[flipped], at as u64).unwrap();
            let what = format!("byte {at} of {}", file.display());
            if check(&path).damaged.is_empty() {
                // The place is after the last commit, between values, or in a value that was replaced.
                let other = dir.path().join("other");
                copy(&path, &other);
                assert_eq!(judge(&other, &world, &what), Outcome::Whole, "{what}");
                fs::remove_dir_all(&other).unwrap();
                harmless += 1;
            } else {
                noticed += 1;
            }
            whole.write_all_at(&bytes[at..=at], at as u64).unwrap();
            // All places at the begin and at the end, and some of the rest.
            let edge = at < 70 || at + 40 > bytes.len();
            at += if edge {
                3
            } else {
                1 + random.next(2_000) as usize
            };
        }
    }
    assert!(
        noticed > 2 * harmless && noticed > 300,
        "{noticed} {harmless}"
    );
}
