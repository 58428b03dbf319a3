//! A directory of each released version of the format: this release reads all of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{Cas, Datatype, Document, DurabilityLevel, Kind, Meta, Seqno, VbId};
use storage::{
    Change, Changes, DiskOptions, DiskStore, EncryptionKeys, KvStore, OpenedStore, VbBatch,
};

use crate::damage::{copy, named};
use crate::encryption::{keys, line};
use crate::workload::{document, record};

const TEXT: &[u8] = b"{\"uid\":\"1\",\"scopes\":[]}";

fn formats() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

/// Options for a directory of a few KiB with all kinds of files.
fn tiny() -> DiskOptions {
    DiskOptions {
        log_bytes: 2 << 10,
        free_bytes_min: 0,
        apart_bytes_min: 100,
        runs_max: 3,
        ..DiskOptions::default()
    }
}

/// Name of the encrypted directory.
const ENCRYPTED: &str = "v1-encrypted";

/// Returns the keys of a directory, by its name.
fn keys_of(path: &Path) -> Option<Arc<EncryptionKeys>> {
    path.ends_with(ENCRYPTED).then(|| keys(&[line("k1", 1)]))
}

fn open(path: &Path) -> (DiskStore, OpenedStore) {
    DiskStore::open_with_keys(path, tiny(), keys_of(path).as_ref()).unwrap()
}

/// Returns a value that is stored apart from its row.
fn long(seqno: u64) -> Vec<u8> {
    vec![seqno as u8; 200]
}

/// Returns a document of any kind: a prepare, an abort, a tombstone.
fn other(seqno: u64, key: &str, value: &[u8], meta: Meta) -> Document {
    let meta = Meta {
        cas: Cas(seqno << 16),
        seqno: Seqno(seqno),
        rev: 2,
        flags: 0x0200_0006,
        expiry: 1_700_000_000,
        ..meta
    };
    Document::from_parts(key.as_bytes(), value, &meta)
}

/// Returns the final documents of vBucket 1.
fn documents() -> Vec<Document> {
    let json = Meta {
        datatype: Datatype(1),
        ..Meta::default()
    };
    let tombstone = Meta {
        kind: Kind::Deletion,
        ..Meta::default()
    };
    let prepare = Meta {
        kind: Kind::Prepare,
        level: Some(DurabilityLevel::Majority),
        ..Meta::default()
    };
    let abort = Meta {
        kind: Kind::Abort,
        prepare_seqno: Seqno(20),
        ..Meta::default()
    };
    vec![
        other(31, "\0json", b"{\"seats\":1}", json),
        other(32, "\0gone", b"", tombstone),
        other(33, "\0waits", b"new", prepare),
        other(34, "\0gave-up", b"", abort),
        document(35, "\0long", &long(35)),
        document(36, "\x08in a collection", b"v"),
    ]
}

/// A document that is also kept in the history.
pub(crate) struct Version(pub(crate) Document);

impl Changes for Version {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        let document = &self.0;
        f(Change::Keep { document, at_s: 7 });
        let supersedes = Seqno::ZERO;
        f(Change::Put {
            document,
            supersedes,
        });
    }
}

fn put(store: &DiskStore, vb: VbId, high: u64, changes: &dyn Changes) {
    let record = &record(high);
    store
        .commit(&[VbBatch {
            vb,
            record,
            changes,
        }])
        .unwrap();
}

/// Creates a store of the present version: flushed and merged rows, rows in a log only, values in
/// logs and in a file of their own, a history, a rollback, a removed vBucket.
fn make(path: &Path) {
    let store = open(path).0;
    let (vb, one_by_one) = (VbId(1), |seqno: u64| {
        [(
            document(seqno, &format!("\0old{}", seqno % 3), &long(seqno)),
            Seqno(seqno.saturating_sub(3)),
        )]
    });
    store.set_manifest(TEXT).unwrap();
    put(
        &store,
        VbId(9),
        1,
        &&[(document(1, "\0removed", b"v"), Seqno::ZERO)][..],
    );
    for seqno in 1..=30 {
        put(&store, vb, seqno, &&one_by_one(seqno)[..]);
    }
    store.remove(&[VbId(9)]).unwrap();
    let last: Vec<_> = documents()
        .into_iter()
        .map(|one| (one, Seqno::ZERO))
        .collect();
    put(&store, vb, 36, &&last[..]);
    put(&store, VbId(2), 1, &Version(document(1, "\0kept", b"1")));
    put(
        &store,
        VbId(2),
        2,
        &&[(document(2, "\0too much", b"2"), Seqno::ZERO)][..],
    );
    assert_eq!(
        store.rollback(VbId(2), Seqno(1)).unwrap().high_seqno,
        Seqno(1)
    );
    store.close().unwrap();
}

/// Writes the directory of the present version. Run once by hand:
/// `cargo test -p storage --test it -- --ignored make_the_directory`.
#[test]
#[ignore = "it writes what the other test reads"]
fn make_the_directory_of_this_version() {
    for name in ["v1", ENCRYPTED] {
        let path = formats().join(name);
        if path.exists() {
            fs::remove_dir_all(&path).unwrap();
        }
        make(&path);
        for begin in ["log-", "run-", "values-", "MANIFEST", "TAIL"] {
            assert!(!named(&path, begin).is_empty(), "no {begin}: make it again");
        }
    }
}

#[test]
fn each_released_version_is_readable() {
    for entry in fs::read_dir(formats()).unwrap() {
        let from = entry.unwrap().path();
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(from.file_name().unwrap());
        copy(&from, &path);
        let checked = storage::check(&path, keys_of(&path).as_ref(), &mut |_| {}).unwrap();
        assert_eq!((&checked.damaged[..], checked.vbuckets), (&[][..], 2));
        for _ in 0..2 {
            read(&path);
        }
    }
}

fn read(path: &Path) {
    let (store, opened) = open(path);
    assert!(opened.clean && !opened.fresh);
    assert_eq!(store.manifest().unwrap().as_deref(), Some(TEXT));
    assert!(store.load().unwrap().into_keys().eq([VbId(1), VbId(2)]));

    let snapshot = store.snapshot(VbId(1)).unwrap();
    assert_eq!(snapshot.record(), Some(&record(36)));
    let found = snapshot.by_seqno(Seqno::ZERO).map(Result::unwrap);
    let found: BTreeMap<u64, Document> = found.map(|one| (one.seqno().0, one)).collect();
    let seqnos: Vec<u64> = found.keys().copied().collect();
    assert_eq!(seqnos, (28..=36).collect::<Vec<_>>());
    let old = (28..=30).map(|seqno| document(seqno, &format!("\0old{}", seqno % 3), &long(seqno)));
    for wanted in old.chain(documents()) {
        let one = &found[&wanted.seqno().0];
        assert_eq!((one.key(), one.value()), (wanted.key(), wanted.value()));
        assert_eq!(one.meta(), wanted.meta());
    }

    let snapshot = store.snapshot(VbId(2)).unwrap();
    assert_eq!(snapshot.high_seqno(), Seqno(1));
    assert_eq!(snapshot.history_from().unwrap(), Some(Seqno(1)));
    let found = snapshot.by_seqno(Seqno::ZERO).map(Result::unwrap);
    let keys: Vec<Vec<u8>> = found.map(|one| one.key().to_vec()).collect();
    assert_eq!(keys, [b"\0kept".to_vec()]);
    store.close().unwrap();
}
