use std::sync::Arc;

use model::{
    Cas, Datatype, Document, Draft, FailoverEntry, Meta, Now, Seqno, SnapshotRange, VbId, VbRecord,
    VbState, VbUuid,
};

use super::*;
use crate::checkpoint::{CheckpointKind, FlushBudget, SnapshotMarker};
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::types::{ObserveState, Outbox, Outcome, StoreMode, Write};

const NOW: Now = Now {
    unix_ns: 1_700_000_000_000_000_000,
    mono_ns: 5_000_000_000,
};

fn history(uuid: u64, seqno: u64) -> FailoverEntry {
    FailoverEntry {
        uuid: VbUuid(uuid),
        seqno: Seqno(seqno),
    }
}

fn active() -> VBucket {
    VBucket::new(VbId(7), VbState::Active, history(11, 0), Arc::default())
}

fn set(vbucket: &mut VBucket, key: &str, value: &[u8]) -> Mutated {
    let meta = Meta {
        datatype: Datatype::RAW,
        ..Meta::default()
    };
    let key = format!("\0{key}");
    let draft = Some(Draft::new(key.as_bytes(), value, &meta));
    let mut write = Write {
        mode: StoreMode::Set,
        draft,
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    match vbucket.store(&mut write, NOW) {
        Ok(Outcome::Done(mutated)) => mutated,
        other => panic!("{other:?}"),
    }
}

fn flush(vbucket: &mut VBucket) -> VbRecord {
    let batch = vbucket
        .begin_flush(FlushBudget::ALL, &mut crate::SpareBuffers::default())
        .expect("something to flush");
    let record = batch.record.clone();
    let garbage = vbucket.finish_flush(batch.done(true));
    drop(garbage);
    record
}

#[test]
fn a_new_vbucket_waits_to_be_flushed() {
    let mut vbucket = active();
    assert_eq!(
        vbucket.take_outbox(),
        Outbox {
            needs_flush: true,
            ..Outbox::default()
        }
    );
    assert_eq!(vbucket.take_outbox(), Outbox::default());
    let record = flush(&mut vbucket);
    assert_eq!(record.high_seqno, Seqno(0));
    assert_eq!(record.failover_log.newest(), history(11, 0));
    assert!(!vbucket.is_dirty());
    assert!(
        vbucket
            .begin_flush(FlushBudget::ALL, &mut crate::SpareBuffers::default())
            .is_none()
    );
}

#[test]
fn outbox_reports_pending_work() {
    let mut vbucket = active();
    flush(&mut vbucket);
    vbucket.take_outbox();
    set(&mut vbucket, "a", b"1");
    set(&mut vbucket, "b", b"1");
    assert_eq!(
        vbucket.take_outbox(),
        Outbox {
            needs_flush: true,
            changed: true,
            ..Outbox::default()
        }
    );
    flush(&mut vbucket);
    let expected = Outbox {
        persisted: Some(Seqno(2)),
        ..Outbox::default()
    };
    assert_eq!(vbucket.take_outbox(), expected);
}

#[test]
fn only_one_flush_is_under_way() {
    let mut vbucket = active();
    set(&mut vbucket, "a", b"1");
    let batch = vbucket
        .begin_flush(FlushBudget::ALL, &mut crate::SpareBuffers::default())
        .unwrap();
    set(&mut vbucket, "b", b"1");
    assert!(
        vbucket
            .begin_flush(FlushBudget::ALL, &mut crate::SpareBuffers::default())
            .is_none()
    );
    let _garbage = vbucket.finish_flush(batch.done(true));
    assert!(vbucket.is_dirty());
    assert_eq!(flush(&mut vbucket).high_seqno, Seqno(2));
}

#[test]
fn the_answer_to_another_vbuckets_batch_is_ignored() {
    let mut before = active();
    set(&mut before, "a", b"1");
    let stale = before
        .begin_flush(FlushBudget::ALL, &mut crate::SpareBuffers::default())
        .unwrap();
    let mut after = VBucket::new(VbId(7), VbState::Active, history(12, 0), Arc::default());
    set(&mut after, "a", b"2");
    let batch = after
        .begin_flush(FlushBudget::ALL, &mut crate::SpareBuffers::default())
        .unwrap();
    assert!(after.finish_flush(stale.done(true)).is_empty());
    assert_eq!(after.persisted_seqno(), Seqno(0));
    assert!(!after.finish_flush(batch.done(true)).is_empty());
    assert_eq!(after.persisted_seqno(), Seqno(1));
}

#[test]
fn memory_is_given_back_to_the_last_byte() {
    let mut vbucket = active();
    let mut sum = vbucket.take_memory_delta().bytes;
    assert_eq!(sum, 0);
    for round in 0..3 {
        for index in 0..100 {
            set(
                &mut vbucket,
                &format!("key{index}"),
                &vec![b'x'; 10 + round * 100],
            );
        }
        sum += vbucket.take_memory_delta().bytes;
        let batch = vbucket
            .begin_flush(FlushBudget::ALL, &mut crate::SpareBuffers::default())
            .unwrap();
        for index in 0..50 {
            set(
                &mut vbucket,
                &format!("key{index}"),
                b"while the flush is under way",
            );
        }
        assert!(vbucket.checkpoint_stats().stale_bytes > 0);
        let _garbage = vbucket.finish_flush(batch.done(round != 1));
    }
    flush(&mut vbucket);
    sum += vbucket.take_memory_delta().bytes;
    let stats = vbucket.stats();
    assert_eq!(sum, i64::try_from(stats.memory_bytes).unwrap());
    let checkpoints = vbucket.checkpoint_stats();
    assert_eq!((checkpoints.stale_bytes, checkpoints.slot_bytes), (0, 0));
    assert_eq!(stats.memory_bytes, stats.document_bytes + stats.table_bytes);
    assert_eq!(
        (
            stats.items,
            checkpoints.dirty_items,
            checkpoints.dirty_bytes
        ),
        (100, 0, 0)
    );
}

#[test]
fn persisted_seqno_waits_for_the_checkpoint_end() {
    let mut vbucket = active();
    flush(&mut vbucket);
    for index in 0..20 {
        set(&mut vbucket, &format!("key{index}"), b"1");
    }
    set(&mut vbucket, "key3", b"2");
    let batch = vbucket
        .begin_flush(
            FlushBudget {
                items: 15,
                bytes: usize::MAX,
            },
            &mut crate::SpareBuffers::default(),
        )
        .unwrap();
    assert_eq!(batch.record.high_seqno, Seqno(16));
    let range = SnapshotRange {
        start: Seqno(0),
        end: Seqno(21),
    };
    assert_eq!(batch.record.snapshot, range);
    let _garbage = vbucket.finish_flush(batch.done(true));
    assert_eq!(
        vbucket.persisted_seqno(),
        Seqno(0),
        "key3@4 is not durable in any form"
    );
    let Ok(Outcome::Done(observed)) = vbucket.observe(b"\0key5", NOW) else {
        panic!("it is in memory");
    };
    assert_eq!(
        observed.state,
        ObserveState::FoundPersisted,
        "but this very document is"
    );
    let record = flush(&mut vbucket);
    assert_eq!(
        record.snapshot,
        SnapshotRange {
            start: Seqno(21),
            end: Seqno(21)
        }
    );
    assert_eq!(vbucket.persisted_seqno(), Seqno(21));
}

#[test]
fn new_history_begins_at_the_last_complete_snapshot() {
    let mut record = flush(&mut active());
    record.high_seqno = Seqno(16);
    record.snapshot = SnapshotRange {
        start: Seqno(9),
        end: Seqno(21),
    };
    record.max_cas = Cas(77);
    let mut vbucket = VBucket::from_record(VbId(7), record, Arc::default());
    vbucket.finish_warmup(Some(VbUuid(12)));
    assert_eq!(
        vbucket.failover_log().entries(),
        [history(12, 9), history(11, 0)]
    );
    assert_eq!(vbucket.high_seqno(), Seqno(16));
    let record = flush(&mut vbucket);
    assert_eq!(
        record.snapshot,
        SnapshotRange {
            start: Seqno(16),
            end: Seqno(16)
        }
    );
}

/// Changes that it lacks, since newer ones of the same keys replaced them, come until its end.
#[test]
fn a_part_of_a_snapshot_stays_a_part_after_a_restart() {
    let mut replica = VBucket::new(VbId(7), VbState::Replica, history(11, 0), Arc::default());
    let mut record = flush(&mut replica);
    record.high_seqno = Seqno(16);
    record.snapshot = SnapshotRange {
        start: Seqno(9),
        end: Seqno(21),
    };
    let whole = record.snapshot;
    let mut vbucket = VBucket::from_record(VbId(7), record, Arc::default());
    vbucket.finish_warmup(None);
    assert_eq!(vbucket.persisted_seqno(), Seqno(9));
    let rest = SnapshotMarker {
        start: Seqno(17),
        end: Seqno(21),
        kind: CheckpointKind::Disk,
        checkpoint: true,
        ..SnapshotMarker::default()
    };
    vbucket.begin_snapshot(&rest).expect("a replica");
    let meta = Meta {
        seqno: Seqno(17),
        ..Meta::default()
    };
    let change = Document::from_parts(b"\0a", b"1", &meta);
    vbucket.apply(&change).expect("the next change");
    let record = flush(&mut vbucket);
    assert_eq!((record.high_seqno, record.snapshot), (Seqno(17), whole));
    assert_eq!(vbucket.persisted_seqno(), Seqno(9));
}

#[test]
fn an_empty_vbucket_has_one_history() {
    let record = flush(&mut active());
    let mut vbucket = VBucket::from_record(VbId(7), record, Arc::default());
    vbucket.finish_warmup(Some(VbUuid(12)));
    assert_eq!(vbucket.failover_log().entries(), [history(12, 0)]);
}

#[test]
fn a_clean_restart_goes_on_with_its_history() {
    let mut before = active();
    let last = set(&mut before, "a", b"1");
    let record = flush(&mut before);
    let mut after = VBucket::from_record(VbId(7), record, Arc::default());
    after.finish_warmup(None);
    assert!(!after.is_dirty());
    assert_eq!(after.failover_log().entries(), [history(11, 0)]);
    let back = Now {
        unix_ns: 1_000,
        mono_ns: 0,
    };
    let draft = Some(Draft::new(b"\0a", b"2", &Meta::default()));
    let mut write = Write {
        mode: StoreMode::Set,
        draft,
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    let Ok(Outcome::Done(next)) = after.store(&mut write, back) else {
        panic!("refused")
    };
    assert!(next.cas > last.cas, "although the wall clock went back");
    assert_eq!((next.seqno, next.vb_uuid), (Seqno(2), VbUuid(11)));
}

#[test]
fn load_reports_rows_that_should_not_be_there() {
    let mut before = active();
    set(&mut before, "a", b"1");
    let first = before.table.at(before.table.place(b"\0a")).unwrap().clone();
    set(&mut before, "a", b"2");
    let second = before.table.at(before.table.place(b"\0a")).unwrap().clone();
    let record = flush(&mut before);
    let mut after = VBucket::from_record(VbId(7), record.clone(), Arc::default());
    assert_eq!(after.load(first.clone()), None);
    assert_eq!(after.load(second.clone()), Some(Seqno(1)));
    assert_eq!(after.load(first), Some(Seqno(1)));
    let lost = VbRecord {
        high_seqno: Seqno(1),
        ..record
    };
    let mut after = VBucket::from_record(VbId(7), lost, Arc::default());
    assert_eq!(after.load(second), Some(Seqno(2)));
    assert_eq!(after.items(), 0);
}

#[test]
fn a_purged_tombstone_is_forgotten_unless_the_key_came_back() {
    let mut vbucket = active();
    for key in ["a", "b"] {
        set(&mut vbucket, key, b"1");
        assert!(matches!(
            vbucket.delete(format!("\0{key}").as_bytes(), Cas::ANY, None, NOW),
            Ok(Outcome::Done(_))
        ));
    }
    set(&mut vbucket, "b", b"2");
    vbucket.forget_tombstone(b"\0a", Seqno(2));
    vbucket.forget_tombstone(b"\0b", Seqno(4));
    assert_eq!(vbucket.purge_seqno(), Seqno(4));
    assert_eq!((vbucket.items(), vbucket.stats().tombstones), (1, 0));
    let created = set(&mut vbucket, "a", b"3");
    let rev = vbucket.table.at(vbucket.table.place(b"\0a")).unwrap().rev();
    assert_eq!(
        (created.seqno, rev),
        (Seqno(6), 5),
        "above every rev of a deleted document"
    );
}

#[test]
fn an_idle_vbucket_is_small() {
    let mut vbucket = active();
    flush(&mut vbucket);
    let heap = vbucket.memory_bytes()
        + size_of_val(vbucket.failover_log.entries())
        + vbucket.topology.len();
    assert!(
        size_of::<VBucket>() + heap <= 1536,
        "{} + {heap}",
        size_of::<VBucket>()
    );
}

#[test]
fn vbucket_and_batches_are_send() {
    fn is_send<T: Send>() {}
    is_send::<VBucket>();
    is_send::<crate::FlushBatch>();
    is_send::<crate::Garbage>();
}

/// Returns a vBucket with a flushed document with user and system attributes, whose value was
/// evicted; and the document as stored.
fn evicted_with_attributes(expiry: u32) -> (VBucket, Document) {
    let mut vbucket = active();
    let mut value = Vec::new();
    let attributes: [(&[u8], &[u8]); 2] = [(b"u", b"1"), (b"_s", b"2")];
    model::encode_attributes(attributes, &mut value);
    value.extend(b"body");
    let meta = Meta {
        expiry,
        datatype: Datatype::XATTR,
        ..Meta::default()
    };
    let mut exchange = crate::Exchange {
        draft: Some(Draft::new(b"\0k", &value, &meta)),
        seen: None,
        as_of: vbucket.position(),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
        raced: false,
    };
    let done = vbucket.exchange(&mut exchange, &|_, _, _| {}, NOW);
    assert!(matches!(done, Ok(Outcome::Done(_))), "{done:?}");
    let Ok(Outcome::Done(got)) = vbucket.get(b"\0k", NOW) else {
        panic!("it is there");
    };
    flush(&mut vbucket);
    assert!(vbucket.evict(b"\0k", NOW));
    (vbucket, got.document)
}

/// Restores the row that an operation requested.
fn put_back<T: std::fmt::Debug>(
    vbucket: &mut VBucket,
    asked: Result<Outcome<T>, OpError>,
    stored: &Document,
) {
    let Ok(Outcome::NeedsFetch(asked)) = asked else {
        panic!("{asked:?}");
    };
    assert_eq!(
        vbucket.restore(&asked, Some(stored.clone())),
        Restored::Done
    );
}

/// Returns the value of the document or tombstone, fetched if it was evicted.
fn value_left(vbucket: &mut VBucket, now: Now) -> (Vec<u8>, Datatype) {
    match vbucket.get_or_tombstone(b"\0k", now) {
        Ok(Outcome::Done(got)) => (got.document.value().to_vec(), got.document.datatype()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn attributes_are_fetched_before_the_document_changes() {
    let (mut vbucket, stored) = evicted_with_attributes(0);
    let section = &stored.value()[..stored.value().len() - 4];
    let mut write = Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(b"\0k", b"new", &Meta::default())),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    let asked = vbucket.store(&mut write, NOW);
    put_back(&mut vbucket, asked, &stored);
    assert!(vbucket.store(&mut write, NOW).is_ok());
    let expected = ([section, b"new"].concat(), Datatype::XATTR);
    assert_eq!(value_left(&mut vbucket, NOW), expected);
    let (mut vbucket, stored) = evicted_with_attributes(0);
    let asked = vbucket.delete(b"\0k", Cas::ANY, None, NOW);
    put_back(&mut vbucket, asked, &stored);
    assert!(vbucket.delete(b"\0k", Cas::ANY, None, NOW).is_ok());
    let system = model::system_section(stored.value(), Datatype::XATTR);
    let expected = (system, Datatype::XATTR);
    assert_eq!(value_left(&mut vbucket, NOW), expected);
    // Values of tombstones are evicted, too.
    flush(&mut vbucket);
    assert!(vbucket.evict(b"\0k", NOW));
    let asked = vbucket.get_or_tombstone(b"\0k", NOW);
    assert!(matches!(asked, Ok(Outcome::NeedsFetch(_))), "{asked:?}");
    set(&mut vbucket, "k", b"again");
    assert_eq!(
        value_left(&mut vbucket, NOW),
        (b"again".to_vec(), Datatype::RAW)
    );
}

#[test]
fn attributes_are_fetched_before_the_document_expires() {
    let (mut vbucket, stored) = evicted_with_attributes(NOW.unix_s() + 10);
    let late = Now {
        unix_ns: NOW.unix_ns + 11_000_000_000,
        ..NOW
    };
    assert!(matches!(
        vbucket.get(b"\0k", late),
        Err(OpError::KeyNotFound)
    ));
    assert_eq!(vbucket.expire_due(1000, late).changed, 0, "it is hidden");
    let asked = vbucket.expire_key(b"\0k", late);
    put_back(&mut vbucket, Ok(asked), &stored);
    assert_eq!(vbucket.expire_key(b"\0k", late), Outcome::Done(true));
    let system = model::system_section(stored.value(), Datatype::XATTR);
    assert_eq!(value_left(&mut vbucket, late), (system, Datatype::XATTR));
}

#[test]
fn exchange_detects_concurrent_changes() {
    let mut vbucket = active();
    set(&mut vbucket, "k", b"1");
    let Ok(Outcome::Done(seen)) = vbucket.get(b"\0k", NOW) else {
        panic!("it is there");
    };
    set(&mut vbucket, "k", b"2");
    let mut exchange = crate::Exchange {
        draft: Some(Draft::new(b"\0k", b"3", &Meta::default())),
        seen: Some(seen.document),
        as_of: vbucket.position(),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
        raced: false,
    };
    let tried = vbucket.exchange(&mut exchange, &|_, _, _| {}, NOW);
    assert_eq!(tried, Err(OpError::KeyExists));
    assert!(exchange.raced && exchange.draft.is_some());
    assert_eq!(
        value_left(&mut vbucket, NOW),
        (b"2".to_vec(), Datatype::RAW)
    );
}
