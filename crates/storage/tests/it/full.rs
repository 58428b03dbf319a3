//! A file system that becomes full, and has space again.
//!
//! It is a small tmpfs in a mount namespace of its own: as root by `unshare -m`, otherwise by
//! `unshare -rm`. If neither is allowed, the size of files is limited instead (`RLIMIT_FSIZE`).
//! Then the test shows only the refusal and the survival of acknowledged commits, not the recovery,
//! and prints that.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use model::{Seqno, VbId};
use storage::{DiskOptions, DiskStore, ErrorKind, KvStore, StoreError, VbBatch};

use crate::workload::{document, options, read, record};

const CHILD: &str = "SETTEE_STORAGE_FULL_CHILD";
const VB: VbId = VbId(5);
const MIB: u64 = 1 << 20;

/// Fills the file system up to `leave_bytes`.
fn fill(path: &Path, leave_bytes: u64) {
    let mut file = File::create(path).unwrap();
    let chunk = vec![1; MIB as usize];
    while file.write_all(&chunk).is_ok() {}
    let length = file.metadata().unwrap().len();
    file.set_len(
        length
            .checked_sub(leave_bytes)
            .expect("there was more space"),
    )
    .unwrap();
}

/// Takes space that became free beyond `leave_bytes`: merges beside the commits free space, and if
/// they are faster the disk would never be full.
fn crowd(path: &Path, leave_bytes: u64) {
    let free = fs4::available_space(path).unwrap();
    let mut file = File::options().append(true).open(path).unwrap();
    let taken = vec![1; usize::try_from(free.saturating_sub(leave_bytes)).unwrap()];
    // Less may be free meanwhile: then the disk is full, as intended.
    let _full = file.write_all(&taken);
}

/// Writer of large documents to one vBucket, each key repeatedly.
struct Client {
    acknowledged: Vec<u64>,
    high: u64,
}

impl Client {
    const KEYS: usize = 20;

    fn new() -> Self {
        Self {
            acknowledged: vec![0; Self::KEYS],
            high: 0,
        }
    }

    fn value(seqno: u64) -> Vec<u8> {
        vec![seqno as u8; 100_000]
    }

    /// Writes every key again; a failed commit is retried later, with new versions.
    fn commit(&mut self, store: &DiskStore) -> Result<(), StoreError> {
        let mut seqnos = Vec::new();
        let mut changes = Vec::new();
        for (number, old) in self.acknowledged.iter().enumerate() {
            self.high += 1;
            seqnos.push(self.high);
            let document = document(self.high, &format!("key{number}"), &Self::value(self.high));
            changes.push((document, Seqno(*old)));
        }
        let record = record(self.high);
        store.commit(&[VbBatch {
            vb: VB,
            record: &record,
            changes: &changes.as_slice(),
        }])?;
        self.acknowledged = seqnos;
        Ok(())
    }

    /// Checks that every key exists once, in its last acknowledged version or a later one.
    fn check(&self, store: &DiskStore) {
        let found = read(store, VB).unwrap();
        for (number, seqno) in self
            .acknowledged
            .iter()
            .enumerate()
            .filter(|(_, seqno)| **seqno > 0)
        {
            let at = found.keys[&format!("key{number}")];
            assert!(at >= *seqno, "key{number} went back");
            assert_eq!(found.rows[&at].1, Self::value(at));
        }
        let stored = self.acknowledged.iter().filter(|seqno| **seqno > 0).count();
        assert!(found.keys.len() >= stored);
    }

    fn commit_until_full(&mut self, store: &DiskStore, ballast: Option<&Path>) -> StoreError {
        for round in 0..200 {
            if let Some(ballast) = ballast {
                crowd(ballast, (10 * MIB).saturating_sub(round * MIB / 4));
            }
            if let Err(error) = self.commit(store) {
                return error;
            }
            self.check(store);
        }
        panic!("200 commits of 2 MB fit");
    }
}

/// Fills the file system at `path` three times and frees it again; values are stored apart, or in runs.
fn recover_unattended(path: &Path, apart_bytes_min: u32) {
    let options = DiskOptions {
        apart_bytes_min,
        ..options()
    };
    let ballast = path.join("ballast");
    let store_path = path.join("store");
    let (store, _) = DiskStore::open(&store_path, options).unwrap();
    let mut client = Client::new();
    for _ in 0..3 {
        fill(&ballast, 10 * MIB);
        let error = client.commit_until_full(&store, Some(&ballast));
        assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
        // The space of an unfinished run may be free again.
        if let Err(error) = client.commit(&store) {
            assert_eq!(error.kind, ErrorKind::NoSpace, "still: {error}");
        }
        client.check(&store);

        fs::remove_file(&ballast).unwrap();
        client.commit(&store).expect("there is space again");
        client.check(&store);
        let found = read(&store, VB).unwrap();
        assert_eq!(found.keys.len(), Client::KEYS);
        let versions: Vec<_> = (0..Client::KEYS)
            .map(|n| found.keys[&format!("key{n}")])
            .collect();
        assert_eq!(
            versions, client.acknowledged,
            "no row of a failed commit is left over"
        );
    }
    store.close().unwrap();
    drop(store);
    refuse_in_time(path, &client);
    let (store, opened) = DiskStore::open(&store_path, options).unwrap();
    assert!(opened.clean);
    client.check(&store);
    drop(store);
    fs::remove_dir_all(store_path).unwrap();
}

/// With a reserve, a commit is refused before any write fails, and the store need not be reopened.
fn refuse_in_time(path: &Path, client: &Client) {
    let options = DiskOptions {
        free_bytes_min: 30 << 20,
        ..DiskOptions::default()
    };
    let (store, _) = DiskStore::open(&path.join("store"), options).unwrap();
    fill(&path.join("ballast"), 20 * MIB);
    let held = store.snapshot(VB).unwrap();
    let mut other = Client {
        acknowledged: client.acknowledged.clone(),
        high: client.high,
    };
    let error = other.commit(&store).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert!(error.to_string().contains("bytes are free"), "{error}");
    fs::remove_file(path.join("ballast")).unwrap();
    assert_eq!(
        held.high_seqno(),
        Seqno(client.high),
        "a snapshot does not stand in the way"
    );
    let none: &[(model::Document, Seqno)] = &[];
    let record = record(client.high);
    store
        .commit(&[VbBatch {
            vb: VB,
            record: &record,
            changes: &none,
        }])
        .unwrap();
    store.close().unwrap();
}

/// With a limited file size, some commit fails, and nothing is lost.
fn fail_and_lose_nothing(path: &Path) {
    let (store, _) = DiskStore::open(&path.join("store"), options()).unwrap();
    let mut client = Client::new();
    let error = client.commit_until_full(&store, None);
    assert!(
        matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Poisoned),
        "{error}"
    );
    client.check(&store);
}

fn child(script: &str, namespace: &[&str], dir: &Path) -> Output {
    let mut words: Vec<&str> = namespace.to_vec();
    words.extend(["sh", "-c", script]);
    Command::new(words[0])
        .args(&words[1..])
        .env("DIR", dir)
        .env("BINARY", std::env::current_exe().unwrap())
        .output()
        .unwrap()
}

#[test]
fn writes_go_on_when_there_is_space_again() {
    let kind = std::env::var(CHILD);
    match kind.as_deref() {
        Ok("tmpfs") => {
            let path = std::env::var_os("DIR").unwrap();
            recover_unattended(Path::new(&path), u32::MAX);
            return recover_unattended(Path::new(&path), 1);
        }
        Ok(_) => return fail_and_lose_nothing(Path::new(&std::env::var_os("DIR").unwrap())),
        Err(_) => {}
    }
    let run = format!(
        "export {CHILD}; exec \"$BINARY\" full::writes_go_on_when_there_is_space_again --exact \
         --nocapture"
    );
    let mount = "mount -t tmpfs -o size=200m tmpfs \"$DIR\" || exit 99";
    let namespaces: [&[&str]; 2] = [&["unshare", "-m"], &["unshare", "-rm"]];
    let dir = tempfile::tempdir().unwrap();
    let mut output = None;
    for namespace in namespaces {
        let probe = child(mount, namespace, dir.path());
        if probe.status.success() {
            let script = format!("{mount}; {CHILD}=tmpfs; {run}");
            output = Some(child(&script, namespace, dir.path()));
            break;
        }
    }
    let output = output.unwrap_or_else(|| {
        eprintln!("no tmpfs can be mounted here: only a limit on file sizes is tried");
        let script = format!("trap '' XFSZ; {CHILD}=limit; {run}");
        child(&script, &["prlimit", "--fsize=67200000"], dir.path())
    });
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{errors}"
    );
}
