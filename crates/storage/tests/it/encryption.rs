//! Encryption at rest: no plain text on disk, no opening without the key, rotation of keys, and
//! detection of moved or changed data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::{Seqno, VbId, VbRecord};
use storage::{
    Damage, DiskOptions, DiskStore, DocumentRequest, EncryptionKeys, ErrorKind, Keep, KvStore,
    OpenError, OpenErrorKind, SalvageError, VbBatch,
};

use crate::directory::picture;
use crate::formats::Version;
use crate::workload::{VBS, World, document, options, read, record};

/// Returns the line of a key of 32 equal bytes.
pub(crate) fn line(id: &str, byte: u8) -> String {
    EncryptionKeys::line(id, &[byte; 32]).unwrap()
}

pub(crate) fn keys(lines: &[String]) -> Arc<EncryptionKeys> {
    static NEXT: AtomicU64 = AtomicU64::new(0x5e77_ee00);
    let random = || {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    Arc::new(EncryptionKeys::parse(&lines.join("\n"), random).unwrap())
}

/// Options without merges: dead rows stay until a compaction.
fn unmerged() -> DiskOptions {
    DiskOptions {
        runs_max: 1_000,
        dead_bytes_min: u64::MAX,
        ..options()
    }
}

fn open_with(path: &Path, keys: Option<&Arc<EncryptionKeys>>) -> Result<DiskStore, OpenError> {
    DiskStore::open_with_keys(path, unmerged(), keys).map(|(store, _)| store)
}

fn open(path: &Path, lines: &[String]) -> DiskStore {
    open_with(path, Some(&keys(lines))).unwrap()
}

fn refusal(path: &Path, lines: &[String]) -> (OpenErrorKind, String) {
    let keys = (!lines.is_empty()).then(|| keys(lines));
    let error = open_with(path, keys.as_ref()).map(drop).unwrap_err();
    (error.kind, error.to_string())
}

fn damaged(path: &Path, lines: &[String]) -> Vec<Damage> {
    storage::check(path, Some(&keys(lines)), &mut |_| {})
        .unwrap()
        .damaged
}

/// Returns the bytes by key ID; `plain` for those without a key.
fn status(path: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for file in storage::encryption(path).unwrap() {
        let key = file.key.unwrap_or_else(|| "plain".to_owned());
        *found.entry(key).or_default() += file.bytes;
    }
    found
}

/// Waits until all files have one key.
fn wait_for_key(path: &Path, id: &str) {
    let began = Instant::now();
    while !status(path).into_keys().eq([id.to_owned()]) {
        assert!(
            began.elapsed() < Duration::from_mins(1),
            "{:?}",
            status(path)
        );
        std::thread::yield_now();
    }
}

fn assert_holds(store: &DiskStore, world: &World) {
    for vb in VBS {
        assert_eq!(read(store, vb).unwrap(), world.vbs[&vb]);
    }
}

const WORDS: [&str; 5] = [
    "ThisIsAKey",
    "ThisIsAValue",
    "ThisIsLong",
    "ThisIsText",
    "ThisIsANode",
];

fn put_marked(store: &DiskStore, seqnos: std::ops::Range<u64>) {
    for seqno in seqnos {
        let long = "ThisIsLong".repeat(60);
        let value = if seqno % 3 == 0 {
            &long
        } else {
            "ThisIsAValue"
        };
        let changes = Version(document(
            seqno,
            &format!("\0ThisIsAKey{seqno}"),
            value.as_bytes(),
        ));
        let record = VbRecord {
            topology: r#"[["ThisIsANode"]]"#.to_owned(),
            ..record(seqno)
        };
        let batch = VbBatch {
            vb: VbId(7),
            record: &record,
            changes: &changes,
        };
        store.commit(&[batch]).unwrap();
    }
    store.set_manifest(b"{\"ThisIsText\":1}").unwrap();
}

/// Returns the words that occur in any file.
fn words_in(path: &Path) -> Vec<&'static str> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        // A merge may have removed it meanwhile.
        let Ok(bytes) = fs::read(entry.unwrap().path()) else {
            continue;
        };
        for word in WORDS {
            if bytes
                .windows(word.len())
                .any(|part| part == word.as_bytes())
            {
                found.push(word);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn no_plain_text_is_on_disk() {
    let place = tempfile::tempdir().unwrap();
    let (plain, sealed) = (place.path().join("plain"), place.path().join("sealed"));
    let lines = [line("k1", 1)];
    // The search finds the words in plain files.
    let store = DiskStore::open(&plain, options()).unwrap().0;
    put_marked(&store, 1..50);
    assert_eq!(words_in(&plain).len(), WORDS.len());
    drop(store);
    let mut seqnos = 1..300;
    for _ in 0..4 {
        let (store, _) =
            DiskStore::open_with_keys(&sealed, options(), Some(&keys(&lines))).unwrap();
        put_marked(&store, seqnos.clone());
        assert_eq!(words_in(&sealed), [""; 0]);
        store
            .compact(VbId(7), &mut |meta, _| match meta.seqno.0 % 2 {
                0 => Keep::Keep,
                _ => Keep::Erase,
            })
            .unwrap();
        assert_eq!(words_in(&sealed), [""; 0]);
        store.close().unwrap();
        drop(store);
        assert_eq!(words_in(&sealed), [""; 0]);
        seqnos = seqnos.end..seqnos.end + 300;
    }
    let kinds = |letters: &str| {
        let files = storage::encryption(&sealed).unwrap();
        files.into_iter().any(|file| file.name.starts_with(letters))
    };
    assert!(["log-", "run-", "MANIFEST"].into_iter().all(kinds));
    assert!(status(&sealed).into_keys().eq(["k1".to_owned()]));
}

#[test]
fn a_directory_of_others_has_no_encryption() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("notes.txt"), "none of ours").unwrap();
    let error = storage::encryption(place.path()).unwrap_err();
    assert_eq!(error.kind, OpenErrorKind::Foreign);
}

#[test]
fn nothing_opens_or_changes_without_the_key() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store");
    let (one, two) = (line("k1", 1), line("k2", 2));
    let store = open(&path, std::slice::from_ref(&one));
    let mut world = World::default();
    for _ in 0..30 {
        world.commit(&store).unwrap();
    }
    drop(store);
    let before = picture(&path);
    let (kind, text) = refusal(&path, &[]);
    assert_eq!(kind, OpenErrorKind::Key);
    let words = "cannot be decrypted: MANIFEST: it is encrypted with key k1, which is not given";
    assert!(text.ends_with(words), "{text}");
    assert_eq!(refusal(&path, std::slice::from_ref(&two)), (kind, text));
    let (kind, text) = refusal(&path, &[two.clone(), line("k1", 3)]);
    assert_eq!(kind, OpenErrorKind::Key);
    let words = "MANIFEST: key k1 is not the one that it was encrypted with";
    assert!(text.ends_with(words), "{text}");
    let unread = storage::check(&path, None, &mut |_| {});
    assert_eq!(unread.unwrap_err().kind, OpenErrorKind::Key);
    let to = place.path().join("new");
    let salvaged = storage::salvage(&path, &to, None);
    assert!(
        matches!(salvaged, Err(SalvageError::Refused(error)) if error.kind == OpenErrorKind::Key)
    );
    assert_eq!(picture(&path), before);
    assert!(!to.exists());

    let both = [two, one];
    assert_eq!(damaged(&path, &both), []);
    let salvaged = storage::salvage(&path, &to, Some(&keys(&both))).unwrap();
    assert!(salvaged.is_whole());
    assert!(status(&to).into_keys().eq(["k2".to_owned()]));
    assert_holds(&open(&to, &both), &world);
    assert_holds(&open(&path, &both), &world);
}

#[test]
fn new_keys_are_applied_by_compaction() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store");
    let (one, two) = (line("k1", 1), line("k2", 2));
    let mut world = World::default();
    let mut live = |store: &DiskStore| {
        for _ in 0..30 {
            world.commit(store).unwrap();
        }
        store.set_manifest(b"{}").unwrap();
        assert_holds(store, &world);
        world.clone()
    };
    live(&DiskStore::open(&path, unmerged()).unwrap().0);
    assert!(status(&path).into_keys().eq(["plain".to_owned()]));

    // Plain data is readable, and new data is encrypted.
    let store = open(&path, std::slice::from_ref(&one));
    live(&store);
    let mixed = status(&path);
    assert!(
        mixed.contains_key("plain") && mixed.contains_key("k1"),
        "{mixed:?}"
    );
    drop(store);
    assert_eq!(refusal(&path, &[]).0, OpenErrorKind::Key);

    let store = open(&path, &[two.clone(), one.clone()]);
    let world = live(&store);
    assert!(status(&path).contains_key("plain"), "{:?}", status(&path));
    drop(store);
    assert_eq!(
        refusal(&path, std::slice::from_ref(&two)).0,
        OpenErrorKind::Key
    );
    assert_eq!(damaged(&path, &[one.clone(), two.clone()]), []);

    let store = open(&path, &[two.clone(), one]);
    store.compact(VBS[0], &mut |_, _| Keep::Keep).unwrap();
    wait_for_key(&path, "k2");
    assert_holds(&store, &world);
    drop(store);
    assert_eq!(damaged(&path, std::slice::from_ref(&two)), []);
    let store = open(&path, &[two]);
    assert_holds(&store, &world);
    let text = store.manifest().unwrap();
    assert_eq!(text.as_deref(), Some(&b"{}"[..]));
}

/// Returns the begin and the end of each block of a run.
fn blocks(run: &[u8]) -> Vec<(usize, usize)> {
    let ends =
        (64..run.len().saturating_sub(4)).filter(|at| at % 8 == 2 && run[*at..].starts_with(b"SB"));
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    for at in ends {
        let length = u32::from_be_bytes(run[at - 14..at - 10].try_into().unwrap());
        let from = (at + 6).checked_sub(length as usize);
        // Encrypted bytes may look like the end of a block.
        let follows = |from: &usize| blocks.last().is_none_or(|(_, end)| from == end);
        if let Some(from) = from.filter(|from| length > 20 && follows(from)) {
            blocks.push((from, at + 6));
        }
    }
    blocks
}

/// Adds a valid checksum for run `number` to a block.
fn seal_plainly(run: &mut [u8], number: u64, (from, to): (usize, usize)) {
    let covered = [
        &number.to_be_bytes()[..],
        &(from as u64).to_be_bytes(),
        &run[from..to - 4],
    ];
    let crc = crc32fast::hash(&covered.concat());
    run[to - 4..to].copy_from_slice(&crc.to_be_bytes());
}

const RUN_VB: VbId = VbId(7);
const RUN_KEYS: std::ops::Range<u64> = 1..2_000;

/// Creates a store with a run of [`RUN_VB`]. Returns the run's path.
fn make_run(path: &Path, lines: &[String]) -> PathBuf {
    let store = open(path, lines);
    let row = |seqno| {
        let document = document(seqno, &format!("\0key{seqno:08}"), &[7; 150]);
        (document, Seqno::ZERO)
    };
    let changes: Vec<_> = RUN_KEYS.map(row).collect();
    let batch = VbBatch {
        vb: RUN_VB,
        record: &record(1_999),
        changes: &changes.as_slice(),
    };
    store.commit(&[batch]).unwrap();
    // Another log is begun, and this one becomes a run.
    store.set_manifest(b"{}").unwrap();
    store.set_manifest(b"{}").unwrap();
    let run = path.join("run-00000001");
    let began = Instant::now();
    while !run.exists() {
        assert!(began.elapsed() < Duration::from_mins(1));
        std::thread::yield_now();
    }
    store.close().unwrap();
    run
}

/// Reads all keys of that run, one by one. Returns the number found, and the kinds of errors of the others.
fn fetch_run(path: &Path, lines: &[String]) -> (usize, Vec<ErrorKind>) {
    let store = open(path, lines);
    let fetched = RUN_KEYS.map(|seqno| {
        let key = format!("\0key{seqno:08}");
        let want = DocumentRequest {
            key: key.as_bytes(),
            seqno: None,
        };
        store.fetch(RUN_VB, &[want])
    });
    let (right, wrong): (Vec<_>, Vec<_>) = fetched.partition(Result::is_ok);
    let right = right
        .into_iter()
        .filter(|found| matches!(found.as_deref(), Ok([Some(_)])));
    let wrong = wrong.into_iter().map(|error| error.unwrap_err().kind);
    (right.count(), wrong.collect())
}

#[test]
fn moved_or_changed_data_with_a_valid_checksum_is_detected() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store");
    let lines = [line("k1", 1)];
    let run = make_run(&path, &lines);
    let whole = fs::read(&run).unwrap();
    let found = blocks(&whole);
    let (a, b) = (found[2], found[5]);
    assert!(found.len() > 8 && a.1 - a.0 == b.1 - b.0, "{found:?}");
    let swapped = {
        let mut bytes = whole.clone();
        bytes[a.0..a.1].copy_from_slice(&whole[b.0..b.1]);
        bytes[b.0..b.1].copy_from_slice(&whole[a.0..a.1]);
        bytes
    };
    let altered = {
        let mut bytes = whole.clone();
        bytes[a.0 + 100] ^= 1;
        bytes
    };
    for mut bytes in [swapped, altered] {
        seal_plainly(&mut bytes, 1, a);
        seal_plainly(&mut bytes, 1, b);
        fs::write(&run, &bytes).unwrap();
        let damaged = damaged(&path, &lines);
        assert!(!damaged.is_empty() && damaged.iter().all(|one| one.vb == Some(RUN_VB)));
        let (right, wrong) = fetch_run(&path, &lines);
        assert!(right > 1_500 && right + wrong.len() == 1_999 && !wrong.is_empty());
        assert!(wrong.into_iter().all(|kind| kind == ErrorKind::Corrupt));
    }
}

#[test]
fn damaged_checksum_is_reported_by_a_check_and_harms_no_read() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("store");
    let lines = [line("k1", 1)];
    let run = make_run(&path, &lines);
    let mut bytes = fs::read(&run).unwrap();
    let (_, end) = blocks(&bytes)[2];
    bytes[end - 1] ^= 1;
    fs::write(&run, &bytes).unwrap();
    let damaged = damaged(&path, &lines);
    assert!(!damaged.is_empty() && damaged.iter().all(|one| one.vb == Some(RUN_VB)));
    assert_eq!(fetch_run(&path, &lines), (1_999, Vec::new()));
}

#[test]
fn summary_is_encrypted_and_goes_with_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let first = [line("k1", 1)];
    let both = [line("k2", 2), first[0].clone()];
    let file = dir.path().join("EVENTS");
    let store = open(dir.path(), &first);
    assert_eq!(store.summary(), None);
    store.set_summary(b"ThisIsText").unwrap();
    assert!(status(dir.path()).into_keys().eq(["k1".to_owned()]));
    let bytes = fs::read(&file).unwrap();
    assert!(!bytes.windows(10).any(|some| some == b"ThisIsText"));
    drop(store);
    let store = open(dir.path(), &first);
    assert_eq!(store.summary().as_deref(), Some(&b"ThisIsText"[..]));
    drop(store);
    let store = open(dir.path(), &both);
    assert_eq!(store.summary(), None);
    assert!(!file.exists());
}
