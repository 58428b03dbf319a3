use std::sync::Arc;

use model::{Cas, Document, Draft, FailoverEntry, Meta, Now, Seqno, VbId, VbState, VbUuid};

use super::Restored;
use crate::checkpoint::FlushBudget;
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::types::{
    DocumentPart, Exchange, FetchKey, HistoryPoint, KeyFilter, Outcome, StoreMode, StoredKeys,
    VbConfig, Write,
};
use crate::vbucket::VBucket;

const NOW: Now = Now {
    unix_ns: 1_700_000_000_000_000_000,
    mono_ns: 5_000_000_000,
};
const KEY: &[u8] = b"\0key";

/// A store that certainly has no key with an `x`.
#[derive(Debug)]
struct WithoutX;

impl KeyFilter for WithoutX {
    fn may_have(&self, _: VbId, key: &[u8]) -> bool {
        !key.contains(&b'x')
    }
}

fn config() -> Arc<VbConfig> {
    Arc::new(VbConfig {
        evicts_keys: true,
        stored_keys: StoredKeys(Some(Arc::new(WithoutX))),
        ..VbConfig::default()
    })
}

fn vbucket() -> VBucket {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno::ZERO,
    };
    VBucket::new(VbId(0), VbState::Active, first, config())
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

/// Flushes; returns the rows, and the seqnos of the rows that they replace.
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

/// Writes, flushes and evicts a document; returns its row.
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
fn write_over_an_evicted_key_fetches_its_row_first() {
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
fn exchange_brings_back_the_version_that_left_memory_since_it_was_read() {
    let mut vbucket = vbucket();
    let seen = gone(&mut vbucket, b"old");
    let as_of = vbucket.position();
    // A change that is still in memory is not of this key.
    let other = set(&mut vbucket, b"\0x", b"1");
    assert!(matches!(other, Ok(Outcome::Done(_))));
    let mut exchange = |as_of| {
        let mut exchange = Exchange {
            draft: Some(Draft::new(KEY, b"new", &Meta::default())),
            seen: Some(seen.clone()),
            as_of,
            cas: Cas::ANY,
            preserve_expiry: false,
            durability: None,
            raced: false,
        };
        let done = vbucket.exchange(&mut exchange, &|_, _, _| {}, NOW);
        let new = flush(&mut vbucket)
            .into_iter()
            .find(|(new, _)| new.key() == KEY);
        vbucket.evict(KEY, NOW);
        (done, exchange.raced, new)
    };
    let other = HistoryPoint {
        vb_uuid: VbUuid(2),
        ..as_of
    };
    assert!(matches!(
        exchange(other),
        (Err(OpError::KeyExists), true, None)
    ));
    let (done, raced, new) = exchange(as_of);
    assert!(
        matches!(done, Ok(Outcome::Done(_))) && !raced,
        "{done:?} {raced}"
    );
    let (new, supersedes) = new.unwrap();
    assert_eq!((new.rev(), supersedes), (2, seen.seqno()));
    // The change that has left since then may be of this key.
    assert!(matches!(
        exchange(as_of),
        (Ok(Outcome::NeedsFetch(_)), false, None)
    ));
}

#[test]
fn operation_that_needs_no_value_leaves_it_in_the_store() {
    let mut vbucket = vbucket();
    let old = gone(&mut vbucket, &[7; 1000]);
    let asked = wanted(set(&mut vbucket, KEY, b"new"));
    assert_eq!(wanted(vbucket.delete(KEY, Cas::ANY, None, NOW)), asked);
    assert_eq!(wanted(vbucket.get_meta(KEY, NOW)), asked);
    assert_eq!(wanted(vbucket.observe(KEY, NOW)), asked);
    assert_eq!(wanted(vbucket.unlock(KEY, Cas(1), NOW)), asked);
    assert_eq!(vbucket.fetch_before_apply(KEY).as_ref(), Some(&asked));
    let reader = wanted(vbucket.get(KEY, NOW));
    assert_eq!(vbucket.restore(&asked, Some(old.clone())), Restored::Done);
    assert!(vbucket.is_value_away(KEY));
    assert!(vbucket.stats().document_bytes < 500);
    assert!(matches!(
        vbucket.get_meta(KEY, NOW),
        Ok(Outcome::Done(there)) if there.cas == old.cas()
    ));
    // An operation that needs the value fetches it then.
    assert_eq!(
        vbucket.restore(&reader, Some(old.clone())),
        Restored::Ignored
    );
    let reader = wanted(vbucket.get(KEY, NOW));
    assert_eq!(reader.wanted, DocumentPart::Value(old.seqno()));
    assert!(matches!(
        set(&mut vbucket, KEY, b"new"),
        Ok(Outcome::Done(_))
    ));
    assert_eq!(vbucket.restore(&reader, Some(old)), Restored::Ignored);
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
fn remembered_absent_keys_are_bounded() {
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

/// Writes and flushes keys, then starts again without them; returns their rows.
fn restarted(keys: &[&[u8]]) -> (VBucket, Vec<Document>) {
    let mut before = vbucket();
    for key in keys {
        assert!(matches!(
            set(&mut before, key, b"old"),
            Ok(Outcome::Done(_))
        ));
    }
    let rows = flush(&mut before).into_iter().map(|(row, _)| row);
    let rows = rows.collect();
    let record = before.record();
    let counts = record.counts.clone().expect("they are known");
    let mut after = VBucket::from_record(VbId(0), record, config());
    after.leave_in_store(&counts);
    (after, rows)
}

#[test]
fn bring_back_restores_rows_that_are_only_in_the_store() {
    let (mut vbucket, rows) = restarted(&[b"\0a", b"\0b", b"\0c"]);
    let as_of = vbucket.high_seqno();
    assert_eq!(vbucket.stats().non_resident, 3);
    let asked = wanted(vbucket.get(b"\0a", NOW));
    for row in &rows {
        assert!(vbucket.lacks(row.key(), row.seqno(), as_of));
        assert!(vbucket.bring_back(row.clone(), as_of));
        assert!(!vbucket.bring_back(row.clone(), as_of), "it is here");
    }
    let stats = vbucket.stats();
    assert_eq!((stats.items, stats.non_resident), (3, 0));
    let mut cold = Vec::new();
    assert_eq!(
        vbucket.evict_cold(64, usize::MAX, NOW, &mut cold).changed,
        3
    );
    assert_eq!(vbucket.stats().non_resident, 3);
    let late = vbucket.restore(&asked, Some(rows[0].clone()));
    assert_eq!(late, Restored::Ignored);
}

#[test]
fn bring_back_ignores_rows_that_may_be_outdated() {
    let (mut vbucket, rows) = restarted(&[b"\0a", b"\0b"]);
    let as_of = vbucket.high_seqno();
    let asked = wanted(set(&mut vbucket, b"\0a", b"new"));
    assert_eq!(
        vbucket.restore(&asked, Some(rows[0].clone())),
        Restored::Done
    );
    assert!(matches!(
        set(&mut vbucket, b"\0a", b"new"),
        Ok(Outcome::Done(_))
    ));
    assert!(
        !vbucket.bring_back(rows[0].clone(), as_of),
        "it has changed"
    );
    flush(&mut vbucket);
    assert!(vbucket.evict(b"\0a", NOW));
    assert!(!vbucket.bring_back(rows[0].clone(), as_of));
    assert!(!vbucket.bring_back(rows[1].clone(), as_of), "not known");
    assert!(vbucket.bring_back(rows[1].clone(), vbucket.high_seqno()));
    let (mut vbucket, rows) = restarted(&[b"\0a"]);
    let as_of = vbucket.high_seqno();
    let asked = wanted(vbucket.delete(KEY, Cas::ANY, None, NOW));
    assert_eq!(vbucket.restore(&asked, None), Restored::Done);
    let asked = wanted(vbucket.delete(b"\0a", Cas::ANY, None, NOW));
    assert_eq!(
        vbucket.restore(&asked, Some(rows[0].clone())),
        Restored::Done
    );
    let deleted = vbucket.delete(b"\0a", Cas::ANY, None, NOW);
    assert!(matches!(deleted, Ok(Outcome::Done(_))));
    let (tombstone, _) = flush(&mut vbucket).remove(0);
    vbucket.forget_tombstone(b"\0a", tombstone.seqno());
    assert!(!vbucket.bring_back(rows[0].clone(), as_of), "purged since");
}

#[test]
fn bring_back_restores_an_evicted_value() {
    let mut vbucket = vbucket();
    vbucket.set_evicts_keys(false);
    let old = gone(&mut vbucket, &[7; 100]);
    assert!(!vbucket.lacks(old.key(), old.seqno().next(), Seqno(u64::MAX)));
    let bytes = vbucket.stats().document_bytes;
    assert!(vbucket.bring_back(old.clone(), old.seqno()));
    assert!(vbucket.stats().document_bytes > bytes);
    let Ok(Outcome::Done(got)) = vbucket.get(KEY, NOW) else {
        panic!("it is here");
    };
    assert_eq!(got.document.value(), &[7; 100]);
}
