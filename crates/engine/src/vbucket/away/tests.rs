use std::sync::Arc;

use model::{Cas, Document, Draft, FailoverEntry, Meta, Now, Seqno, VbId, VbState, VbUuid};

use super::Restored;
use crate::checkpoint::FlushBudget;
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::types::{FetchKey, KeyFilter, Outcome, StoreMode, StoredKeys, VbConfig, Write};
use crate::vbucket::VBucket;

const NOW: Now = Now {
    unix_ns: 1_700_000_000_000_000_000,
    mono_ns: 5_000_000_000,
};
const KEY: &[u8] = b"\0key";

/// A store that surely has none of the keys that contain an `x`.
#[derive(Debug)]
struct WithoutX;

impl KeyFilter for WithoutX {
    fn may_have(&self, _: VbId, key: &[u8]) -> bool {
        !key.contains(&b'x')
    }
}

fn vbucket() -> VBucket {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno::ZERO,
    };
    let config = Arc::new(VbConfig {
        evicts_keys: true,
        stored_keys: StoredKeys(Some(Arc::new(WithoutX))),
        ..VbConfig::default()
    });
    VBucket::new(VbId(0), VbState::Active, first, config)
}

fn set(vbucket: &mut VBucket, key: &[u8], value: &[u8]) -> Result<Outcome<Mutated>, OpError> {
    let mut write = Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(key, value, &Meta::default())),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    vbucket.store(&mut write, NOW)
}

/// Flushes; gives the rows and the seqnos of those that they replace.
fn flush(vbucket: &mut VBucket) -> Vec<(Document, Seqno)> {
    let mut written = Vec::new();
    while let Some(batch) =
        vbucket.begin_flush(FlushBudget::ALL, &mut crate::SpareBuffers::default())
    {
        batch.for_each(&mut |item| {
            if let crate::FlushItem::Put {
                document,
                supersedes,
            } = item
            {
                written.push((document.clone(), supersedes));
            }
        });
        drop(vbucket.finish_flush(batch.done(true)));
    }
    written
}

/// Writes, makes durable, and lets go of it; gives the row.
fn gone(vbucket: &mut VBucket, value: &[u8]) -> Document {
    assert!(matches!(set(vbucket, KEY, value), Ok(Outcome::Done(_))));
    let (row, _) = flush(vbucket).remove(0);
    assert!(vbucket.evict(KEY, NOW));
    row
}

fn wanted<T: std::fmt::Debug>(outcome: Result<Outcome<T>, OpError>) -> FetchKey {
    match outcome {
        Ok(Outcome::NeedsFetch(wanted)) => wanted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_replaces_it_reads_it_first() {
    let mut vbucket = vbucket();
    let old = gone(&mut vbucket, b"old");
    let asked = wanted(set(&mut vbucket, KEY, b"new"));
    assert_eq!(vbucket.restore(&asked, Some(old.clone())), Restored::Done);
    assert!(matches!(
        set(&mut vbucket, KEY, b"new"),
        Ok(Outcome::Done(_))
    ));
    assert_eq!(vbucket.stats().ops_update, 1);
    let (new, supersedes) = flush(&mut vbucket).remove(0);
    assert_eq!((new.rev(), supersedes), (2, old.seqno()));
    assert_eq!(
        (vbucket.stats().items, vbucket.stats().non_resident),
        (1, 0)
    );
}

#[test]
fn an_answer_to_an_earlier_question_is_ignored() {
    let mut vbucket = vbucket();
    let old = gone(&mut vbucket, b"old");
    let first = wanted(vbucket.get(KEY, NOW));
    assert_eq!(
        wanted(vbucket.get(KEY, NOW)),
        first,
        "all wait for one answer"
    );
    assert_eq!(vbucket.restore(&first, Some(old.clone())), Restored::Done);
    let new = gone(&mut vbucket, b"new");
    assert_eq!(
        vbucket.restore(&first, Some(old.clone())),
        Restored::Ignored
    );
    let second = wanted(vbucket.get(KEY, NOW));
    assert_eq!(vbucket.restore(&first, Some(old)), Restored::Ignored);
    assert_eq!(vbucket.restore(&first, None), Restored::Ignored);
    assert_eq!(vbucket.restore(&second, Some(new)), Restored::Done);
    let Ok(Outcome::Done(got)) = vbucket.get(KEY, NOW) else {
        panic!("it is here");
    };
    assert_eq!(got.document.value(), b"new");
}

#[test]
fn a_key_that_the_store_does_not_have_is_absent_until_it_is_written() {
    let mut vbucket = vbucket();
    gone(&mut vbucket, b"v");
    for key in [b"\0x", b"\0y"] {
        if key == b"\0y" {
            let asked = wanted(vbucket.get(key, NOW));
            assert_eq!(vbucket.restore(&asked, None), Restored::Done);
        }
        let fetches = vbucket.stats().fetches;
        for _ in 0..2 {
            assert_eq!(vbucket.get(key, NOW).err(), Some(OpError::KeyNotFound));
        }
        assert!(matches!(set(&mut vbucket, key, b"v"), Ok(Outcome::Done(_))));
        assert_eq!(vbucket.stats().fetches, fetches);
    }
    flush(&mut vbucket);
    assert!(vbucket.evict(b"\0y", NOW));
    wanted(vbucket.get(b"\0y", NOW));
    assert_eq!(vbucket.stats().items, 3);
}

#[test]
fn so_many_absent_keys_are_remembered() {
    let mut vbucket = vbucket();
    gone(&mut vbucket, b"v");
    let before = vbucket.memory_bytes();
    for index in 0..10_000_u32 {
        let key = [b"\0y".as_slice(), &index.to_be_bytes()].concat();
        if let Ok(Outcome::NeedsFetch(asked)) = vbucket.get(&key, NOW) {
            assert_eq!(vbucket.restore(&asked, None), Restored::Done);
        }
        assert_eq!(vbucket.get(&key, NOW).err(), Some(OpError::KeyNotFound));
    }
    assert!(vbucket.memory_bytes() < before + 10_000);
}

#[test]
fn a_purged_tombstone_does_not_come_back() {
    let mut vbucket = vbucket();
    assert!(matches!(set(&mut vbucket, KEY, b"v"), Ok(Outcome::Done(_))));
    vbucket.delete(KEY, Cas::ANY, None, NOW).unwrap();
    let (tombstone, _) = flush(&mut vbucket).remove(0);
    assert!(vbucket.evict(KEY, NOW));
    assert_eq!((vbucket.stats().items, vbucket.stats().tombstones), (0, 1));
    let asked = wanted(vbucket.get(KEY, NOW));
    vbucket.forget_tombstone(KEY, tombstone.seqno());
    vbucket.bound_tombstones(0);
    assert_eq!(vbucket.restore(&asked, Some(tombstone)), Restored::Ignored);
    assert_eq!((vbucket.stats().items, vbucket.stats().tombstones), (0, 0));
}
