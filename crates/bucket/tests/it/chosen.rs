//! Backfills of the rows of few collections: complete and nothing else, during concurrent writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bucket::{
    Backfill, BackfillNews, Backfilled, Bucket, ChosenRows, Flushed, ReadySet, WantedRows,
};
use collections::CollectionSettings;
use engine::{Outcome, StoreMode, Write};
use model::{Cas, CollectionId, Document, Draft, Meta, Seqno, SnapshotRange, VbId, split_key};
use storage::KvStore;

use crate::world::{Ear, Kept, Ops, ROOMY, options, warm};

const VB: VbId = VbId(0);
/// The first created collection.
const MADE: CollectionId = CollectionId(8);

/// Expected documents: seqno by stored key.
type Model = BTreeMap<Vec<u8>, Seqno>;

fn key(collection: u32, number: usize) -> Vec<u8> {
    let mut key = vec![collection as u8];
    key.extend_from_slice(format!("key-{number:06}").as_bytes());
    key
}

fn set<S: KvStore>(bucket: &Bucket<S>, key: &[u8]) -> Seqno {
    let mut write = Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(key, b"value", &Meta::default())),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    let now = bucket.clock().now();
    match bucket.run(VB, |vbucket| vbucket.store(&mut write, now)) {
        Ok(Outcome::Done(mutated)) => mutated.seqno,
        other => panic!("{other:?}"),
    }
}

fn delete<S: KvStore>(bucket: &Bucket<S>, key: &[u8]) -> Option<Seqno> {
    let now = bucket.clock().now();
    match bucket.run(VB, |vbucket| vbucket.delete(key, Cas::ANY, None, now)) {
        Ok(Outcome::Done(mutated)) => Some(mutated.seqno),
        _ => None,
    }
}

fn flush<S: KvStore>(bucket: &Bucket<S>) {
    while bucket.any_dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
}

/// Creates a bucket with a collection beside the default one.
fn stocked(few: usize, many: usize) -> (Arc<Bucket<Kept>>, Model) {
    let bucket = warm(options(1, ROOMY), Kept::default(), 1);
    let made = bucket.change_manifest(
        |manifest| manifest.with_collection("_default", "made", CollectionSettings::default()),
        |_| Vec::new(),
    );
    let (manifest, _) = made.unwrap();
    assert!(manifest.collection(MADE).is_some());
    let mut model = Model::new();
    for number in 0..many.max(few) {
        if number < few {
            // Keys descend, so that their order differs from that of seqnos.
            let key = key(MADE.0, few - number);
            let seqno = set(&bucket, &key);
            model.insert(key, seqno);
        }
        if number < many {
            model.insert(key(0, number), set(&bucket, &key(0, number)));
        }
    }
    (bucket, model)
}

fn ask<S: KvStore>(bucket: &Bucket<S>, after: u64, by_key: bool, sparse: u64) -> Backfill {
    let range = SnapshotRange {
        start: Seqno(after + 1),
        end: Seqno(u64::MAX),
    };
    let chosen = ChosenRows {
        collections: vec![MADE],
        by_key,
        sparse,
    };
    let ready = Arc::new(ReadySet::new(Ear::new()));
    let buffer = bucket.backfill_buffer(&ready);
    bucket.backfill(VB, range, WantedRows::Newest(Some(chosen)), &buffer)
}

/// Result of a backfill: the end of the view, whether it is by key, and the documents.
struct Came {
    high: Seqno,
    by_key: bool,
    documents: Vec<Document>,
}

impl Came {
    /// Returns the documents of the collection, without its event.
    fn of_collection(&self) -> Model {
        let all = self.documents.iter();
        let ours = all.filter(|one| split_key(one.key()).is_some_and(|(id, _)| id == MADE));
        let mut found = Model::new();
        for document in ours {
            let old = found.insert(document.key().to_vec(), document.seqno());
            assert_eq!(old, None, "{:?} came twice", document.key());
        }
        found
    }
}

/// Runs steps until the backfill ends; `between` runs after each step.
fn read<S: KvStore>(bucket: &Bucket<S>, backfill: &Backfill, mut between: impl FnMut()) -> Came {
    let (mut high, mut by_key, mut documents) = (Seqno::ZERO, false, Vec::new());
    for _ in 0..100_000 {
        match backfill.take() {
            BackfillNews::Opened(view) => (high, by_key) = (view.high, view.by_key),
            BackfillNews::Chunk(chunk) => documents.extend(chunk.documents.iter().cloned()),
            BackfillNews::Done => {
                return Came {
                    high,
                    by_key,
                    documents,
                };
            }
            BackfillNews::Failed => panic!("it failed"),
            BackfillNews::Nothing => {
                let step = bucket.backfill_step();
                assert_ne!(step, Backfilled::Nothing, "it is forgotten");
                between();
            }
        }
    }
    panic!("it has no end");
}

fn of_model(model: &Model) -> Model {
    let ours = model.iter().filter(|(key, _)| key[0] == MADE.0 as u8);
    ours.map(|(key, seqno)| (key.clone(), *seqno)).collect()
}

#[test]
fn only_rows_of_the_collection_are_read_in_the_requested_order() {
    let (bucket, model) = stocked(20, 2_000);
    flush(&bucket);
    for by_key in [false, true] {
        let backfill = ask(&bucket, 0, by_key, 8);
        let came = read(&bucket, &backfill, || {});
        assert_eq!((came.high, came.by_key), (Seqno(2_021), by_key));
        assert_eq!(came.of_collection(), of_model(&model));
        assert_eq!(came.documents.len(), 21, "nothing else, but the event");
        let documents = &came.documents[1..];
        assert_eq!(documents.is_sorted_by_key(Document::seqno), !by_key);
        let keys: Vec<&[u8]> = documents.iter().map(Document::key).collect();
        assert_eq!(keys.is_sorted(), by_key);
    }
    // Rows before the requested seqno are skipped.
    let after = model[&key(MADE.0, 11)];
    let came = read(&bucket, &ask(&bucket, after.0, false, 8), || {});
    assert_eq!(came.documents.len(), 10);
}

#[test]
fn collection_with_a_large_share_is_read_with_all_rows() {
    let (bucket, _) = stocked(500, 1_000);
    flush(&bucket);
    let came = read(&bucket, &ask(&bucket, 0, true, 8), || {});
    assert!(!came.by_key);
    assert_eq!(came.documents.len(), 1_501);
    // With `sparse` 0 the share does not matter.
    let came = read(&bucket, &ask(&bucket, 0, true, 0), || {});
    assert!(came.by_key);
    assert_eq!(came.documents.len(), 501);
    // A collection that is not here has no rows by key.
    let gone = bucket.change_manifest(
        |manifest| manifest.without_collection("_default", "made"),
        |_| Vec::new(),
    );
    gone.unwrap();
    flush(&bucket);
    let came = read(&bucket, &ask(&bucket, 0, true, 0), || {});
    assert!(!came.by_key);
}

#[test]
fn unflushed_changes_are_left_to_the_log() {
    let (bucket, model) = stocked(5, 100);
    flush(&bucket);
    set(&bucket, &key(MADE.0, 1));
    let came = read(&bucket, &ask(&bucket, 0, true, 8), || {});
    assert!(came.by_key);
    assert_eq!(came.high, Seqno(106), "what is in the store");
    assert_eq!(came.of_collection(), of_model(&model));
}

/// Writes between all steps, so that the table grows, splits and shrinks meanwhile, and keys are
/// replaced before and after the walk passes them.
#[test]
fn concurrent_writes_neither_hide_nor_duplicate_rows() {
    for seed in 0..6_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = move |bound: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % bound as u64) as usize
        };
        let size = [2_000, 40_000, 40_000][seed as usize % 3];
        let (bucket, model) = stocked(300, size);
        flush(&bucket);
        let mut model = model;
        // Changes in the order of seqnos, to know the state at any seqno.
        let mut history: Vec<(Vec<u8>, Seqno)> = model
            .iter()
            .map(|(key, seqno)| (key.clone(), *seqno))
            .collect();
        let backfill = ask(&bucket, 0, seed % 2 == 0, if seed % 2 == 0 { 0 } else { 8 });
        let came = read(&bucket, &backfill, || {
            for _ in 0..next(200) {
                let of = if next(3) == 0 { MADE.0 } else { 0 };
                let key = key(of, next(if of == 0 { size * 2 } else { 600 }));
                let seqno = if next(4) == 0 {
                    delete(&bucket, &key)
                } else {
                    Some(set(&bucket, &key))
                };
                if let Some(seqno) = seqno {
                    model.insert(key.clone(), seqno);
                    history.push((key, seqno));
                }
            }
            if next(3) == 0 {
                flush(&bucket);
            }
        });
        let mut expected = Model::new();
        for (key, seqno) in history {
            if key[0] == MADE.0 as u8 && seqno <= came.high {
                let newest = expected.entry(key).or_insert(seqno);
                *newest = seqno.max(*newest);
            }
        }
        assert_eq!(came.of_collection(), expected, "seed {seed}");
    }
}
