//! Directories that a store must refuse, and its messages.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use storage::{DiskOptions, DiskStore, KvStore, OpenError, OpenErrorKind, SalvageError};

use crate::damage::{check, copy, files, named};
use crate::workload::{VBS, World, open, options, read};

const MANIFEST: &[u8] = b"{\"uid\":\"1\",\"scopes\":[]}";

fn refused(path: &Path) -> OpenError {
    let Err(error) = DiskStore::open(path, DiskOptions::default()) else {
        panic!("{} was opened", path.display());
    };
    let message = error.to_string();
    assert!(
        message.starts_with(&path.display().to_string()),
        "{message}"
    );
    assert!(!message.contains('\n'), "{message}");
    error
}

/// Returns names and contents of all files below a directory.
pub(crate) fn picture(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.insert(entry.path(), Vec::new());
            found.extend(picture(&entry.path()));
        } else {
            let meta = entry.metadata().unwrap();
            // A file that is only a hole.
            let content = match meta.blocks() {
                0 => meta.len().to_be_bytes().to_vec(),
                _ => fs::read(entry.path()).unwrap(),
            };
            found.insert(entry.path(), content);
        }
    }
    found
}

fn refused_untouched(path: &Path) -> OpenError {
    let before = picture(path);
    let error = refused(path);
    let after = picture(path);
    for (name, bytes) in before {
        let now = after.get(&name);
        assert!(now == Some(&bytes), "{} was changed", name.display());
    }
    error
}

fn filled(path: &Path) -> World {
    let store = open(path);
    let mut world = World::default();
    world.commit(&store).unwrap();
    world.commit(&store).unwrap();
    store.close().unwrap();
    world
}

#[test]
fn store_reopens_after_clean_and_unclean_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made/with/parents");
    let (store, opened) = DiskStore::open(&path, options()).unwrap();
    assert!(opened.fresh && opened.clean);
    let mut world = World::default();
    world.commit(&store).unwrap();
    store.close().unwrap();
    drop(store);
    let (store, opened) = DiskStore::open(&path, options()).unwrap();
    assert!(!opened.fresh && opened.clean);
    world.commit(&store).unwrap();
    drop(store);
    let (store, opened) = DiskStore::open(&path, options()).unwrap();
    assert!(!opened.fresh && !opened.clean, "it was dropped, not closed");
    for (vb, loaded) in VBS.iter().zip(store.load().unwrap()) {
        assert_eq!(loaded.0, *vb);
        assert_eq!(loaded.1, crate::workload::record(world.vbs[vb].high));
        assert!(read(&store, *vb).unwrap() == world.vbs[vb]);
    }
    let usage = store.disk_usage().unwrap();
    assert!(
        usage.file_bytes > 4_000 && usage.file_bytes < 8 << 20,
        "{usage:?}"
    );
}

#[test]
fn directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert_eq!(refused(dir.path()).kind, OpenErrorKind::InUse);
    store.close().unwrap();
    drop(store);
    open(dir.path());
}

/// Changes the file's header to version 2.
fn of_a_later_version(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    bytes[8..12].copy_from_slice(&2_u32.to_be_bytes());
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_be_bytes());
    fs::write(file, bytes).unwrap();
}

#[test]
fn file_of_a_later_version_is_refused() {
    for begin in ["MANIFEST", "log-"] {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        let file = named(dir.path(), begin).remove(0);
        of_a_later_version(&file);
        let error = refused_untouched(dir.path());
        assert_eq!(error.kind, OpenErrorKind::NewerFormat, "{error}");
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let message = error.to_string();
        assert!(
            message.contains(&format!("{name}: its version is 2")),
            "{message}"
        );
        let checked = storage::check(dir.path(), None, &mut |_| {});
        assert_eq!(checked.unwrap_err().kind, OpenErrorKind::NewerFormat);
        let salvaged = storage::salvage(dir.path(), &dir.path().join("new"), None);
        assert!(matches!(salvaged, Err(SalvageError::Refused(_))));
    }
}

#[test]
fn store_older_than_the_first_version_is_refused_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("FORMAT"), "settee storage 14\n").unwrap();
    fs::write(dir.path().join("journal-1"), "rows").unwrap();
    let error = refused_untouched(dir.path());
    assert_eq!(error.kind, OpenErrorKind::OlderFormat);
    assert!(error.to_string().contains("settee replicate"), "{error}");
    let checked = storage::check(dir.path(), None, &mut |_| {});
    assert_eq!(checked.unwrap_err().kind, OpenErrorKind::OlderFormat);
    let salvaged = storage::salvage(dir.path(), &dir.path().join("new"), None);
    assert!(matches!(salvaged, Err(SalvageError::Refused(_))));
}

#[test]
fn foreign_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    let error = refused_untouched(dir.path());
    assert_eq!(error.kind, OpenErrorKind::Foreign);
    assert!(error.to_string().contains("letter.txt"), "{error}");
    assert_eq!(
        storage::check(dir.path(), None, &mut |_| {})
            .unwrap_err()
            .kind,
        OpenErrorKind::Foreign
    );
}

#[test]
fn path_of_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "text").unwrap();
    assert_eq!(refused(&path).kind, OpenErrorKind::Unreadable);
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

/// Root may read everything, so as root a child process of another user does this.
#[test]
fn an_unreadable_directory_is_refused() {
    const CHILD: &str = "SETTEE_STORAGE_UNREADABLE_CHILD";
    if let Some(path) = std::env::var_os(CHILD) {
        assert_eq!(refused(Path::new(&path)).kind, OpenErrorKind::Unreadable);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("secret");
    filled(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(&path).is_err() {
        assert_eq!(refused(&path).kind, OpenErrorKind::Unreadable);
    } else {
        let binary = dir.path().join("test-binary");
        // A child process copies it: other tests may start processes meanwhile, which would inherit
        // a descriptor open for writing, and a file open for writing cannot be executed.
        let copy = Command::new("cp")
            .arg(std::env::current_exe().unwrap())
            .arg(&binary)
            .status();
        assert!(copy.unwrap().success());
        let mut command = Command::new(&binary);
        command.args(["directory::an_unreadable_directory_is_refused", "--exact"]);
        let output = command
            .env(CHILD, &path)
            .current_dir("/")
            .uid(65_534)
            .gid(65_534)
            .output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn unfinished_creation_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["log-00000001", "TAIL", "MANIFEST.new"] {
        fs::write(dir.path().join(name), "half").unwrap();
    }
    fs::write(dir.path().join("LOCK"), "").unwrap();
    let (store, opened) = DiskStore::open(dir.path(), options()).unwrap();
    assert!(opened.fresh);
    assert!(store.load().unwrap().is_empty());
    drop(store);
    assert!(!dir.path().join("MANIFEST.new").exists());
    assert_eq!(check(dir.path()).damaged, []);
}

#[test]
fn store_without_one_of_its_files_is_complete_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let store = open(&whole);
    let mut world = World::default();
    for _ in 0..40 {
        world.commit(&store).unwrap();
    }
    store.set_manifest(MANIFEST).unwrap();
    store.close().unwrap();
    let mut all = Vec::new();
    files(&whole, &mut all);
    assert!(
        all.iter()
            .any(|file| file.display().to_string().contains("/run-"))
    );
    let (mut refusals, mut served) = (Vec::new(), 0);
    for (number, file) in all.into_iter().enumerate() {
        let name = file.strip_prefix(&whole).unwrap();
        let path = dir.path().join(number.to_string());
        copy(&whole, &path);
        fs::remove_file(path.join(name)).unwrap();
        match DiskStore::open(&path, options()) {
            Ok((store, opened)) => {
                assert!(!opened.fresh, "{name:?}");
                assert_eq!(store.manifest().unwrap().as_deref(), Some(MANIFEST));
                for vb in VBS {
                    assert!(read(&store, vb).unwrap() == world.vbs[&vb], "{name:?}");
                }
                served += 1;
            }
            Err(error) => {
                // The other files are still readable, once this file is there again.
                fs::copy(&file, path.join(name)).unwrap();
                let store = open(&path);
                for vb in VBS {
                    assert!(read(&store, vb).unwrap() == world.vbs[&vb], "{error}");
                }
                refusals.push(name.to_owned());
            }
        }
    }
    assert!(served > 0);
    for needed in ["MANIFEST", "TAIL", "run-", "log-"] {
        let mut names = refusals.iter().map(|name| name.display().to_string());
        assert!(
            names.any(|name| name.starts_with(needed)),
            "{needed}: {refusals:?}"
        );
    }
}
