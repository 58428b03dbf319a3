//! Costs of commits, scans and opening, with real syncs.
//!
//! `commit/N` replaces N documents of 256 bytes in one vBucket. `commit/1024-vbuckets` writes one
//! document to each of 1,024 vBuckets with one sync. `KVStoreBench/Scan/100000` walks over that
//! many small documents with all checks, from a run and from the log. `fetch/N` reads a document of
//! N bytes, in random order, from a run, and long values from a log. `open/empty` creates a store
//! in an empty directory. With keys in `SETTEE_ENCRYPTION_KEYS` all data is encrypted.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use model::{Cas, Document, FailoverEntry, Meta, Seqno, VbId, VbRecord, VbState, VbUuid};
use storage::{DiskOptions, DiskStore, DocumentRequest, EncryptionKeys, KvStore, VbBatch};

fn open(path: &Path) -> DiskStore {
    open_with(path, DiskOptions::default())
}

fn open_with(path: &Path, options: DiskOptions) -> DiskStore {
    let keys = std::env::var("SETTEE_ENCRYPTION_KEYS").ok();
    let keys = keys.map(|text| EncryptionKeys::parse(&text, || 1).expect("they are keys"));
    let opened = DiskStore::open_with_keys(path, options, keys.map(Arc::new).as_ref());
    opened.expect("an empty directory opens").0
}

fn record(high: u64) -> VbRecord {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno(high),
    };
    VbRecord::new(VbState::Active, first)
}

/// Returns `count` documents, which replace those of the previous round.
fn round(count: u64, number: u64, value: &[u8]) -> Vec<(Document, Seqno)> {
    let changes = (0..count).map(|at| {
        let seqno = number * count + at + 1;
        let meta = Meta {
            cas: Cas(seqno),
            seqno: Seqno(seqno),
            rev: 1,
            ..Meta::default()
        };
        let document = Document::from_parts(format!("\0key{at}").as_bytes(), value, &meta);
        (document, Seqno(seqno.saturating_sub(count)))
    });
    changes.collect()
}

fn commits(c: &mut Criterion) {
    let mut group = c.benchmark_group("commit");
    group.sample_size(10);
    for count in [1, 100, 10_000] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path());
        let mut number = 0;
        group.throughput(Throughput::Elements(count));
        group.bench_function(count.to_string(), |b| {
            b.iter_batched(
                || {
                    number += 1;
                    (record(number * count), round(count, number - 1, &[7; 256]))
                },
                |(record, changes)| {
                    let changes = &changes.as_slice();
                    store.commit(&[VbBatch {
                        vb: VbId(0),
                        record: &record,
                        changes,
                    }])
                },
                BatchSize::PerIteration,
            );
        });
    }
    many_vbuckets(&mut group);
}

fn many_vbuckets(group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(dir.path());
    let mut number = 0;
    group.throughput(Throughput::Elements(1024));
    group.bench_function("1024-vbuckets", |b| {
        b.iter_batched(
            || {
                number += 1;
                (record(number), round(1, number - 1, &[7; 256]))
            },
            |(record, changes)| {
                let changes = &changes.as_slice();
                let batches: Vec<_> = (0..1024)
                    .map(|vb| VbBatch {
                        vb: VbId(vb),
                        record: &record,
                        changes,
                    })
                    .collect();
                store.commit(&batches)
            },
            BatchSize::PerIteration,
        );
    });
}

fn scans(c: &mut Criterion) {
    let mut group = c.benchmark_group("KVStoreBench");
    group
        .sample_size(10)
        .throughput(Throughput::Elements(100_000));
    for (name, log_bytes) in [("Scan", 1), ("ScanLog", u64::MAX)] {
        let dir = tempfile::tempdir().expect("a directory");
        let options = DiskOptions {
            log_bytes,
            ..DiskOptions::default()
        };
        let store = open_with(dir.path(), options);
        let changes = round(100_000, 0, b"value");
        let batch = VbBatch {
            vb: VbId(0),
            record: &record(100_000),
            changes: &changes.as_slice(),
        };
        store.commit(&[batch]).expect("it fits");
        // The next commit finds a full log.
        let changes: &[(Document, Seqno)] = &[];
        let batch = VbBatch {
            vb: VbId(1),
            record: &record(1),
            changes: &changes,
        };
        store.commit(&[batch]).expect("it fits");
        group.bench_function(format!("{name}/100000"), |b| {
            b.iter(|| {
                let snapshot = store.snapshot(VbId(0)).expect("it can be read");
                let rows = snapshot.by_seqno(Seqno::ZERO);
                let bytes = rows.map(|row| black_box(row.expect("it can be read").value().len()));
                assert_eq!(bytes.sum::<usize>(), 500_000);
                assert_eq!(snapshot.high_seqno(), Seqno(100_000));
            });
        });
    }
}

fn fetches(c: &mut Criterion) {
    const DOCUMENTS: u64 = 50_000;
    let mut group = c.benchmark_group("fetch");
    group.sample_size(10);
    for bytes in [256, 4096] {
        let dir = tempfile::tempdir().expect("a directory");
        let options = DiskOptions {
            log_bytes: 1,
            ..DiskOptions::default()
        };
        let store = open_with(dir.path(), options);
        let changes = round(DOCUMENTS, 0, &vec![7; bytes]);
        let rows = changes.as_slice();
        let none: &[(Document, Seqno)] = &[];
        // The second commit finds a full log, the third waits until that is a run.
        for changes in [&rows, &none, &none] {
            let batch = VbBatch {
                vb: VbId(0),
                record: &record(DOCUMENTS),
                changes,
            };
            store.commit(&[batch]).expect("it fits");
        }
        let mut at = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function(bytes.to_string(), |b| {
            b.iter(|| {
                at = (at + 7_919) % DOCUMENTS;
                let key = format!("\0key{at}");
                let want = DocumentRequest {
                    key: key.as_bytes(),
                    seqno: None,
                };
                let found = store.fetch(VbId(0), &[want]).expect("it is whole");
                assert!(found[0].is_some());
            });
        });
    }
}

fn opening(c: &mut Criterion) {
    let mut group = c.benchmark_group("open");
    group.sample_size(10);
    group.bench_function("empty", |b| {
        b.iter_batched(
            || tempfile::tempdir().expect("a directory"),
            |dir| {
                let store = open(dir.path());
                (store, dir)
            },
            BatchSize::PerIteration,
        );
    });
}

criterion_group! {
    name = benches;
    // Short enough for a run of all benchmarks of the workspace.
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = opening, commits, scans, fetches
}
criterion_main!(benches);
