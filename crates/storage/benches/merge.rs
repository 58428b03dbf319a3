//! What merging costs: runs that lie side by side become one.
//!
//! `merge/RxV` merges fifteen runs of R rows of V bytes each, as a store has them that replaces the
//! same documents all the time: every run has rows of 64 vBuckets and removes as many of earlier runs, so
//! four runs' worth of rows are left. The rate is of the rows that are read. Beside it is
//! told how much more memory was resident meanwhile than before: what making the stores left free
//! is used first.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "it waits for a thread of the store, copies stores and tells of memory"
)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use model::{Cas, Document, FailoverEntry, Meta, Seqno, VbId, VbRecord, VbState, VbUuid};
use storage::{DiskOptions, DiskStore, KvStore, VbBatch};

const RUNS: usize = 15;
const VBUCKETS: usize = 64;
/// Documents are replaced after so many runs.
const REPLACED_AFTER: usize = 4;

fn record(high: Seqno) -> VbRecord {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: high,
    };
    VbRecord::new(VbState::Active, first)
}

/// The `run`th run: in each vBucket `count` documents anew, and the end of those that they replace.
fn commit_run(store: &DiskStore, run: usize, count: usize, value: &[u8]) {
    let seqno = |run: usize, at: usize| Seqno((run * count + at + 1) as u64);
    let changes: Vec<(Document, Seqno)> = (0..count)
        .map(|at| {
            let meta = Meta {
                cas: Cas(seqno(run, at).0),
                seqno: seqno(run, at),
                rev: 1,
                ..Meta::default()
            };
            let key = format!("\0key{}-{at}", run % REPLACED_AFTER);
            let replaced = run.checked_sub(REPLACED_AFTER);
            let replaced = replaced.map_or(Seqno::ZERO, |run| seqno(run, at));
            (Document::from_parts(key.as_bytes(), value, &meta), replaced)
        })
        .collect();
    let record = record(seqno(run, count - 1));
    let changes = &changes.as_slice();
    let batches: Vec<_> = (0..VBUCKETS)
        .map(|vb| VbBatch {
            vb: VbId(vb as u16),
            record: &record,
            changes,
        })
        .collect();
    store.commit(&batches).expect("it fits");
}

/// Bytes of the process's own that are resident.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("room for it");
        }
    }
}

/// Opens a store so that it merges at once, and says how long that takes.
fn merge(path: &Path, most: &mut u64) -> Duration {
    let options = DiskOptions {
        quiet: Duration::ZERO,
        dead_bytes_min: 1,
        ..DiskOptions::default()
    };
    let (store, _) = DiskStore::open(path, options).expect("it was closed");
    let (began, before) = (Instant::now(), resident());
    while store.upkeep().merges == 0 {
        *most = (*most).max(resident().saturating_sub(before));
        std::thread::sleep(Duration::from_micros(200));
    }
    began.elapsed()
}

fn merges(c: &mut Criterion) {
    let mut group = c.benchmark_group("merge");
    group.sample_size(10);
    for (rows, bytes) in [(2_048, 256), (8_192, 256), (32_768, 256), (8_192, 4_096)] {
        let dir = tempfile::tempdir().expect("a directory");
        let made = dir.path().join("made");
        let options = DiskOptions {
            // Every commit finds the journal full.
            journal_bytes: 1,
            quiet: Duration::from_hours(1),
            ..DiskOptions::default()
        };
        let (store, _) = DiskStore::open(&made, options).expect("an empty directory opens");
        for run in 0..=RUNS {
            commit_run(&store, run, rows / VBUCKETS, &vec![7; bytes]);
        }
        store.close().expect("it stops");
        drop(store);
        let mut most = 0;
        group.throughput(Throughput::Elements((RUNS * rows) as u64));
        group.bench_function(format!("{rows}x{bytes}"), |b| {
            b.iter_custom(|times| {
                let mut took = Duration::ZERO;
                for _ in 0..times {
                    let path = dir.path().join("copy");
                    copy(&made, &path);
                    took += merge(&path, &mut most);
                    fs::remove_dir_all(&path).expect("it is ours");
                }
                took
            });
        });
        println!(
            "merge/{rows}x{bytes}: {} KiB more resident at most",
            most >> 10
        );
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = merges
}
criterion_main!(benches);
