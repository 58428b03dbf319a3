//! One damaged place in one file of a store at rest: everything is there, or something is told, and
//! nothing is cleared away before a refusal.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use model::VbId;
use storage::{DiskOptions, DiskStore, ErrorKind, KvStore, OpenErrorKind, salvage};

use crate::damage::{copy, files};
use crate::directory::picture;
use crate::workload::{Random, VBS, World, options, read};

/// Damages that each test draws.
const DRAWS: u64 = 60;

/// Small journals, so that few commits make many runs, and a merge of them.
fn small_journals() -> DiskOptions {
    DiskOptions {
        journal_bytes: 24 << 10,
        ..options()
    }
}

/// What every row ever was.
type History = BTreeMap<(VbId, u64), (String, Vec<u8>)>;

/// A store that was opened and written several times: runs, merged tables, rows that lie apart, journals that are
/// kept, a manifest. The last stop is a clean one, or none.
fn lived_in(path: &Path, clean: bool) -> (World, History) {
    let (mut world, mut history) = (World::default(), History::new());
    for life in 0..3 {
        let store = DiskStore::open(path, small_journals()).unwrap().0;
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

/// Changes a file, as `random` says; tells how.
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

/// What opening a damaged store came to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// With these words.
    Refused(String),
    /// Everything could be read.
    Whole,
    /// Reading something answered that it is damaged.
    Told,
}

/// Opens a store; everything must be there, or something must be told.
fn judge(path: &Path, world: &World, what: &str) -> Outcome {
    let before = picture(path);
    let store = match DiskStore::open(path, small_journals()) {
        Ok((store, _)) => store,
        Err(error) => {
            let kinds = [OpenErrorKind::Damaged, OpenErrorKind::Foreign];
            assert!(kinds.contains(&error.kind), "{what}: {error}");
            unchanged(path, &before, what);
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
    outcome
}

/// The words with which a store is refused.
fn refused(path: &Path, world: &World, what: &str) -> String {
    match judge(path, world, what) {
        Outcome::Refused(words) => words,
        other => panic!("{what}: {other:?}"),
    }
}

/// All files that were there are there, with what was in them.
fn unchanged(path: &Path, before: &BTreeMap<PathBuf, Vec<u8>>, what: &str) {
    let after = picture(path);
    for (name, bytes) in before {
        let now = after.get(name);
        assert!(now == Some(bytes), "{what}: {} was changed", name.display());
    }
}

/// Salvages a store; nothing that was never written comes back, and what is missing is told.
fn check_salvage(from: &Path, to: &Path, (world, history): &(World, History), what: &str) {
    let report = salvage(from, to).unwrap();
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
fn one_damaged_place_after_a_clean_stop_is_told() {
    damaged_anywhere(true, 17);
}

#[test]
fn one_damaged_place_after_a_kill_is_told() {
    damaged_anywhere(false, 18);
}

/// The list of tables that counts, as `current` names it.
fn number(rows: &Path) -> u64 {
    let current = fs::read(rows.join("current")).unwrap();
    u64::from_le_bytes(current[..8].try_into().unwrap())
}

#[test]
fn any_other_byte_in_the_name_of_the_list_of_tables_is_refused_and_all_can_be_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let origin = dir.path().join("origin");
    let known = lived_in(&origin, true);
    for keyspace in ["0", "1"] {
        let current = origin.join("db/keyspaces").join(keyspace).join("current");
        let whole = fs::read(&current).unwrap();
        for at in (0..whole.len()).filter(|at| whole[*at] != 1) {
            let mut damaged = whole.clone();
            damaged[at] = 1;
            fs::write(&current, damaged).unwrap();
            let what = format!("byte {at} of keyspace {keyspace}");
            let words = refused(&origin, &known.0, &what);
            assert!(words.contains(&*current.to_string_lossy()), "{words}");
            assert!(words.contains("settee salvage"), "{words}");
            fs::write(&current, &whole).unwrap();
        }
    }
    let current = origin.join("db/keyspaces/1/current");
    let whole = fs::read(&current).unwrap();
    fs::write(&current, [&[1, 0], &whole[2..]].concat()).unwrap();
    let to = dir.path().join("salvaged");
    let report = salvage(&origin, &to).unwrap();
    assert_eq!(report.damaged, [(current, 1)]);
    assert_eq!(
        (report.behind.len(), report.rows_damaged),
        (0, 0),
        "{report:?}"
    );
    let (store, _) = DiskStore::open(&to, options()).unwrap();
    for vb in VBS {
        assert!(read(&store, vb).unwrap() == known.0.vbs[&vb], "{vb}");
    }
}

/// Lists that were replaced come back, as a device may lose a rename: alone, with later lists beside them, and with
/// these and their tables as the only ones that have what was removed elsewhere.
#[test]
fn an_older_list_of_tables_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (origin, path) = (dir.path().join("origin"), dir.path().join("copy"));
    let rows = origin.join("db/keyspaces/1");
    let store = DiskStore::open(&origin, small_journals()).unwrap().0;
    let (mut world, mut older) = (World::default(), BTreeMap::new());
    for _ in 0..80 {
        world.commit(&store).unwrap();
        let before = fs::read(rows.join("current")).unwrap();
        let list = fs::read(rows.join(format!("v{}", number(&rows))));
        if let Ok(list) = list {
            older.insert(number(&rows), (before, list));
        }
    }
    store.close().unwrap();
    let last = number(&rows);
    older.retain(|number, _| *number < last);
    let mut refused = 0;
    for (number, (current, list)) in older.into_iter().rev().take(20) {
        for later_too in [true, false] {
            copy(&origin, &path);
            let rows = path.join("db/keyspaces/1");
            fs::write(rows.join("current"), &current).unwrap();
            fs::write(rows.join(format!("v{number}")), &list).unwrap();
            if !later_too {
                fs::remove_file(rows.join(format!("v{last}"))).unwrap();
            }
            let what = format!("list {number} of {last}, later lists: {later_too}");
            if let Outcome::Refused(reason) = judge(&path, &world, &what) {
                assert!(reason.contains("keyspaces/1/current"), "{what}: {reason}");
                refused += 1;
            }
            fs::remove_dir_all(&path).unwrap();
        }
    }
    assert!(refused > 4, "{refused}");
}

/// A stop between the writing of a list and its naming: the tables that it has beyond the other's do not
/// count yet, and what is in them is in the journals.
#[test]
fn a_list_that_was_not_named_yet_is_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (dir.path().join("before"), dir.path().join("after"));
    let all_in_a_journal = DiskOptions {
        journal_bytes: 8 << 20,
        ..options()
    };
    let mut world = World::default();
    let store = DiskStore::open(&before, all_in_a_journal).unwrap().0;
    for _ in 0..20 {
        world.commit(&store).unwrap();
    }
    store.close().unwrap();
    copy(&before, &after);
    let store = DiskStore::open(&after, small_journals()).unwrap().0;
    world.clone().commit(&store).unwrap();
    store.close().unwrap();
    let rows = |path: &Path| path.join("db/keyspaces/1");
    let next = number(&rows(&before)) + 1;
    assert_eq!(number(&rows(&after)), next, "one journal became tables");
    let list = format!("v{next}");
    fs::copy(rows(&after).join(&list), rows(&before).join(&list)).unwrap();
    for folder in ["tables", "blobs"] {
        let (from, to) = (rows(&after).join(folder), rows(&before).join(folder));
        copy(&from, &to);
    }
    // With a lost journal these tables are all that is left of it.
    let alone = dir.path().join("alone");
    copy(&before, &alone);
    fs::remove_file(alone.join("journal-1")).unwrap();
    refused(&alone, &world, "a journal is lost");
    fs::write(alone.join("journal-1"), "").unwrap();
    refused(&alone, &world, "a journal is empty");
    assert_eq!(judge(&before, &world, "a list too many"), Outcome::Whole);
    assert!(!rows(&before).join(&list).exists());
}
