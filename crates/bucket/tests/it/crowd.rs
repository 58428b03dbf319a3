//! Writers, readers and all workers at once, in little memory.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bucket::Bucket;
use model::VbId;
use storage::{DiskStore, KvStore};

use crate::world::{Ear, Ops, PATIENCE, disk, options, read_through, running};

const VBUCKETS: u16 = 16;
const KEYS: u32 = 2_000;
const OPS: u32 = 15_000;

/// Returns the next pseudo-random number of a run.
fn next(state: &mut u64) -> u32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

fn value(writer: u32, version: u32) -> Vec<u8> {
    let mut value = format!("{writer}:{version}:").into_bytes();
    value.resize(200 + (version % 7) as usize * 200, b'.');
    value
}

/// The newest version of each key of one writer; `None` if it is deleted or never written.
type Truth = Vec<Option<u32>>;

fn vb_of(key: u32) -> u16 {
    (key % u32::from(VBUCKETS)) as u16
}

/// Writes, deletes and reads its own keys; every read must return the last written version.
fn write_and_read<S: KvStore>(bucket: &Bucket<S>, writer: u32) -> Truth {
    let mut truth: Truth = vec![None; KEYS as usize];
    let mut state = u64::from(writer) + 1;
    let ear = Ear::new();
    for version in 0..OPS {
        let key = next(&mut state) % KEYS;
        let (vb, name) = (vb_of(key), format!("w{writer}k{key}"));
        let known = &mut truth[key as usize];
        match next(&mut state) % 10 {
            0..5 => {
                let mut refused = 0;
                while bucket.try_set(vb, &name, &value(writer, version)).is_err() {
                    refused += 1;
                    assert!(refused < PATIENCE.as_millis(), "memory is never relieved");
                    ear.listen_for(Duration::from_millis(1));
                }
                *known = Some(version);
            }
            5 if known.is_some() => {
                bucket.try_delete(vb, &name).unwrap();
                *known = None;
            }
            6 if version % 50 == 0 => {
                let waiting = Ear::new();
                let high = bucket.with_vbucket(VbId(vb), |vbucket| vbucket.high_seqno());
                bucket.await_persisted(VbId(vb), high.unwrap(), waiting.clone());
                waiting.listen();
                assert!(bucket.persisted(vb) >= high.unwrap());
            }
            _ => {
                let found = read_through(bucket, vb, &name);
                let expected = known.map(|version| value(writer, version));
                assert_eq!(found, expected, "{name} at {version}");
            }
        }
    }
    truth
}

fn check<S: KvStore>(bucket: &Bucket<S>, truths: &[Truth]) {
    for (writer, truth) in truths.iter().enumerate() {
        for (key, version) in truth.iter().enumerate() {
            let found = read_through(bucket, vb_of(key as u32), &format!("w{writer}k{key}"));
            let expected = version.map(|version| value(writer as u32, version));
            assert_eq!(found, expected, "writer {writer}, key {key}");
        }
    }
}

/// Runs both writers at once; fails if they do not finish.
fn run_writers(bucket: &Arc<Bucket<DiskStore>>) -> Vec<Truth> {
    let (done, answers) = mpsc::channel();
    for writer in 0..2 {
        let (bucket, done) = (Arc::clone(bucket), done.clone());
        let work = move || {
            let truth = write_and_read(&bucket, writer);
            done.send((writer, truth)).unwrap();
        };
        std::thread::Builder::new().spawn(work).unwrap();
    }
    drop(done);
    let mut truths = vec![Truth::new(); 2];
    for _ in 0..2 {
        let (writer, truth) = answers.recv_timeout(PATIENCE * 2).unwrap();
        truths[writer as usize] = truth;
    }
    truths
}

#[test]
fn reads_and_a_restart_return_the_newest_values() {
    let dir = tempfile::tempdir().unwrap();
    let small = || options(VBUCKETS, 2 << 20);
    let (bucket, workers) = running(small(), disk(dir.path()).0, 1);
    let truths = run_writers(&bucket);
    let counters = bucket.counters();
    assert!(
        bucket::Counters::read(&counters.evicted) > 0,
        "memory was short"
    );
    assert!(bucket::Counters::read(&counters.fetched) > 0);
    assert_eq!(bucket::Counters::read(&counters.fetch_failed), 0);
    check(&bucket, &truths);
    workers.stop().unwrap();
    assert!(!bucket.any_dirty());
    assert_eq!(bucket.persistence_waiters(), 0);
    assert_eq!(bucket.memory().used(), bucket.recount());
    drop((bucket, workers));

    let (store, clean) = disk(dir.path());
    assert!(clean);
    let (bucket, workers) = running(small(), store, 50);
    check(&bucket, &truths);
    workers.stop().unwrap();
    assert_eq!(bucket.memory().used(), bucket.recount());
}
