//! The summary of events: a restart with it has what one without it has.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bucket::{Bucket, Counters, Flushed};
use collections::{CollectionSettings, Manifest, OpenCollection};
use model::{ManifestUid, ScopeId, Seqno, VbId, VbState, VbUuid};
use storage::DiskStore;

use crate::world::{Ops, ROOMY, disk, options, rows, running, warm};

const VBUCKETS: u16 = 8;

/// Far in the future of the tests' clock.
const LATER_S: u64 = 1_700_000_000 + 3600;

/// Name of the file.
const EVENTS: &str = "EVENTS";

type Disk = Arc<Bucket<DiskStore>>;

fn change(bucket: &Disk, edit: impl FnOnce(&Manifest) -> Manifest) {
    let changed = bucket.change_manifest(|now| Ok(edit(now)), |_| Vec::new());
    assert!(changed.unwrap().1);
}

fn create(bucket: &Disk, name: &str) {
    let settings = CollectionSettings::default();
    change(bucket, |now| {
        now.with_collection("_default", name, settings).unwrap()
    });
}

fn drop_one(bucket: &Disk, name: &str) {
    change(bucket, |now| {
        now.without_collection("_default", name).unwrap()
    });
}

fn flush(bucket: &Disk) {
    while bucket.any_dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
}

/// Opens the store of a directory, which runs until it is dropped, as after a kill.
fn open(path: &Path) -> Disk {
    warm(options(VBUCKETS, ROOMY), disk(path).0, 50)
}

fn summarized(bucket: &Disk) -> u64 {
    Counters::read(&bucket.warmup().summarized)
}

/// Collections that were created together and one by one, changed and dropped, with documents in
/// between; then a clean stop.
fn filled(path: &Path) {
    let (bucket, workers) = running(options(VBUCKETS, ROOMY), disk(path).0, 1);
    change(&bucket, |now| {
        let mut next = now.with_scope("many").unwrap();
        for index in 0..20 {
            let (name, settings) = (format!("m{index}"), CollectionSettings::default());
            next = next.with_collection("many", &name, settings).unwrap();
        }
        // As one change.
        let scopes = next.scopes().to_vec();
        Manifest::new(ManifestUid(now.uid().0 + 1), scopes).unwrap()
    });
    for index in 0..12_u16 {
        create(&bucket, &format!("c{index}"));
        bucket.set(index % VBUCKETS, &format!("k{index}"), b"1");
    }
    change(&bucket, |now| {
        let limited = |settings: &mut CollectionSettings| settings.max_ttl_s = Some(60);
        now.with_settings("_default", "c5", limited).unwrap()
    });
    drop_one(&bucket, "c7");
    change(&bucket, |now| now.without_collection("many", "m3").unwrap());
    workers.stop().unwrap();
}

/// Copies the files of a store.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "a damaged file")]
fn replace(file: &Path, bytes: &[u8]) {
    fs::write(file, bytes).unwrap();
}

/// Collections of a vBucket as seen from outside.
type Seen = (
    Seqno,
    ManifestUid,
    u32,
    Vec<ScopeId>,
    Vec<OpenCollection>,
    bool,
);

fn seen(bucket: &Disk, vb: u16) -> Option<Seen> {
    bucket.with_vbucket(VbId(vb), |vbucket| {
        (
            vbucket.high_seqno(),
            vbucket.manifest_uid(),
            vbucket.purgeable_ends(),
            vbucket.scopes(),
            vbucket.collections(),
            vbucket.holds_only_collections(),
        )
    })
}

/// Opens the store, and one without its summary: both must be the same, also after further changes.
/// Returns the number of vBuckets for which the summary was used.
fn check(path: &Path) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let (with, without) = (dir.path().join("with"), dir.path().join("without"));
    copy(path, &with);
    copy(path, &without);
    fs::remove_file(without.join(EVENTS)).unwrap();
    let (with, without) = (open(&with), open(&without));
    assert_eq!(summarized(&without), 0);
    assert_eq!(with.manifest(), without.manifest());
    for vb in 0..VBUCKETS {
        assert_eq!(seen(&with, vb), seen(&without, vb), "in {vb}");
    }
    for bucket in [&with, &without] {
        create(bucket, "later");
        bucket.set(3, "later", b"1");
        drop_one(bucket, "c5");
        drop_one(bucket, "c0");
        change(bucket, |now| now.without_collection("many", "m5").unwrap());
        flush(bucket);
        while bucket.erase_step().is_some() {}
        assert_eq!(bucket.memory().used(), bucket.recount());
    }
    for vb in 0..VBUCKETS {
        assert_eq!(seen(&with, vb), seen(&without, vb), "in {vb} later");
        let keys = |bucket: &Disk| -> Vec<_> {
            let rows = rows(bucket.store(), vb).into_iter();
            rows.map(|row| (row.seqno(), row.key().to_vec(), row.flags(), row.kind()))
                .collect()
        };
        assert_eq!(keys(&with), keys(&without), "in {vb}");
    }
    summarized(&with)
}

#[test]
fn restart_with_the_summary_has_the_same_collections() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    assert_eq!(check(dir.path()), 8);
}

#[test]
fn events_after_the_summary_are_read() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let bucket = open(dir.path());
    drop_one(&bucket, "c2");
    bucket.set(1, "between", b"1");
    create(&bucket, "new");
    flush(&bucket);
    drop(bucket);
    assert_eq!(check(dir.path()), 8);
}

#[test]
fn vbucket_that_was_made_anew_has_its_own_events() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let bucket = open(dir.path());
    assert!(bucket.delete_vbucket(VbId(2)).unwrap());
    bucket
        .set_vbucket(VbId(2), VbState::Active, None, VbUuid(77))
        .unwrap();
    for index in 0..100 {
        bucket.set(2, &format!("k{index}"), b"1");
    }
    flush(&bucket);
    drop(bucket);
    assert_eq!(check(dir.path()), 7);
}

#[test]
fn summary_is_not_used_after_a_rollback() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let bucket = open(dir.path());
    bucket.roll_back(VbId(4), Seqno(3)).unwrap();
    drop(bucket);
    assert_eq!(check(dir.path()), 7);
}

#[test]
fn summary_is_not_used_after_an_end_was_purged() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let bucket = open(dir.path());
    drop_one(&bucket, "c3");
    bucket.set(6, "last", b"1");
    flush(&bucket);
    while bucket.erase_step().is_some() {}
    assert_eq!(bucket.purge(VbId(6), LATER_S).unwrap().dropped, 2);
    flush(&bucket);
    drop(bucket);
    assert_eq!(check(dir.path()), 7);
}

#[test]
fn damaged_summary_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let file = dir.path().join(EVENTS);
    let whole = fs::read(&file).unwrap();
    for at in [3, 40, 70, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        replace(&file, &bytes);
        assert_eq!(check(dir.path()), 0, "byte {at}");
    }
    for length in [0, 63, 64, 74, whole.len() - 1] {
        replace(&file, &whole[..length]);
        assert_eq!(check(dir.path()), 0, "{length} bytes");
    }
}

#[test]
fn summary_of_a_later_state_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (now, before) = (dir.path().join("now"), dir.path().join("before"));
    filled(&now);
    copy(&now, &before);
    let (bucket, workers) = running(options(VBUCKETS, ROOMY), disk(&now).0, 50);
    create(&bucket, "lost");
    workers.stop().unwrap();
    drop((bucket, workers));
    fs::copy(now.join(EVENTS), before.join(EVENTS)).unwrap();
    assert_eq!(check(&before), 0);
    drop(open(&before));
    assert!(!before.join(EVENTS).exists());
}
