use std::sync::Arc;

use model::{
    Cas, ConflictResolution, Document, Draft, DurabilityLevel, FailoverEntry, Kind, Meta, Now,
    Seqno, VbId, VbState, VbUuid,
};

use crate::checkpoint::FlushBudget;
use crate::drift::{DriftLimits, FutureCas};
use crate::durability::Requirement;
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::types::{Outcome, StoreMode, VbConfig, WithMeta, Write};
use crate::vbucket::{Restored, VBucket};

pub(super) const NOW: Now = Now {
    unix_ns: 1_700_000_000_000_000_000,
    mono_ns: 5_000_000_000,
};
pub(super) const KEY: &[u8] = b"\0key";
const FIRST: Meta = Meta {
    cas: Cas(1_600_000_000_000_000_000),
    seqno: Seqno(0),
    rev: 7,
    flags: 5,
    expiry: 1_800_000_000,
    datatype: model::Datatype::RAW,
    kind: Kind::Mutation,
    level: None,
    prepare_seqno: Seqno(0),
};

pub(super) fn vbucket_of(config: VbConfig) -> VBucket {
    vbucket_with(VbUuid(1), config)
}

fn vbucket_with(uuid: VbUuid, config: VbConfig) -> VBucket {
    let seqno = Seqno::ZERO;
    let first = FailoverEntry { uuid, seqno };
    VBucket::new(VbId(0), VbState::Active, first, Arc::new(config))
}

fn vbucket() -> VBucket {
    vbucket_of(VbConfig::default())
}

fn asking(meta: &Meta) -> WithMeta {
    WithMeta {
        draft: Some(Draft::new(KEY, b"value", meta)),
        adds: false,
        cas: Cas::ANY,
        resolves: true,
        regenerates_cas: false,
    }
}

pub(super) fn write(vbucket: &mut VBucket, mut write: WithMeta) -> Result<Mutated, OpError> {
    match vbucket.write_with_meta(&mut write, &|_, _, _| {}, NOW)? {
        Outcome::Done(mutated) => Ok(mutated),
        other => panic!("{other:?}"),
    }
}

fn set(vbucket: &mut VBucket, meta: &Meta) -> Result<Mutated, OpError> {
    write(vbucket, asking(meta))
}

fn meta_of(vbucket: &mut VBucket) -> Meta {
    match vbucket.get_meta(KEY, NOW) {
        Ok(Outcome::Done(found)) => found.meta,
        other => panic!("{other:?}"),
    }
}

fn store(vbucket: &mut VBucket, durability: Option<Requirement>) -> Mutated {
    let mut write = Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(KEY, b"own", &Meta::default())),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability,
    };
    match vbucket.store(&mut write, NOW) {
        Ok(Outcome::Done(mutated) | Outcome::Prepared(mutated)) => mutated,
        other => panic!("{other:?}"),
    }
}

fn flush(vbucket: &mut VBucket) -> Vec<Document> {
    let mut spare = crate::SpareBuffers::default();
    let batch = vbucket.begin_flush(FlushBudget::ALL, &mut spare);
    let batch = batch.expect("something to flush");
    let mut written = Vec::new();
    batch.for_each(&mut |item| {
        if let crate::FlushItem::Put { document, .. } = item {
            written.push(document.clone());
        }
    });
    drop(vbucket.finish_flush(batch.done(true)));
    written
}

#[test]
fn document_keeps_foreign_metadata() {
    let mut vbucket = vbucket();
    let mutated = set(&mut vbucket, &FIRST).unwrap();
    assert_eq!((mutated.cas, mutated.seqno), (FIRST.cas, Seqno(1)));
    let kept = Meta {
        seqno: Seqno(1),
        ..FIRST
    };
    assert_eq!(meta_of(&mut vbucket), kept);
    assert_eq!(flush(&mut vbucket)[0].meta(), kept, "also in the store");
    // Local changes continue from this metadata.
    store(&mut vbucket, None);
    let own = meta_of(&mut vbucket);
    assert_eq!((own.rev, own.flags), (8, 0));
    assert!(own.cas > FIRST.cas);
}

#[test]
fn newer_foreign_cas_raises_later_ones() {
    let mut vbucket = vbucket();
    let ahead = Cas(NOW.unix_ns + 3_600_000_000_000);
    set(
        &mut vbucket,
        &Meta {
            cas: ahead,
            ..FIRST
        },
    )
    .unwrap();
    assert_eq!(store(&mut vbucket, None).cas, Cas(ahead.0 + 1));
}

#[test]
fn a_cas_of_the_far_future_is_counted_and_taken_refused_or_replaced() {
    let hours = |hours: u64| Cas(NOW.unix_ns + hours * 3_600_000_000_000);
    let of = |cas| Meta { cas, ..FIRST };
    for (future, expected) in [
        (FutureCas::Ignore, Ok(hours(2))),
        (FutureCas::Refuse, Err(OpError::InvalidCas)),
        (FutureCas::Replace, Ok(Cas(hours(1).0 + 1))),
    ] {
        let mut vbucket = vbucket_of(VbConfig {
            conflicts: ConflictResolution::LastWrite,
            drift: DriftLimits {
                future,
                ..DriftLimits::default()
            },
            ..VbConfig::default()
        });
        // Ahead of the clock, but below the limit of 65 minutes.
        set(&mut vbucket, &of(hours(1))).unwrap();
        let far = set(&mut vbucket, &of(hours(2)));
        assert_eq!(far.map(|mutated| mutated.cas), expected);
        let stats = vbucket.stats();
        let taken = 1 + u64::from(future == FutureCas::Ignore);
        assert_eq!((stats.drift_count, stats.drift_ahead), (taken, taken));
        assert_eq!(stats.drift_behind, 0);
        let own = Cas(vbucket.max_cas().0 + 1);
        assert_eq!(store(&mut vbucket, None).cas, own);
    }
}

#[test]
fn one_of_two_versions_made_in_the_same_tick_wins_at_both_sites() {
    for conflicts in [ConflictResolution::Revision, ConflictResolution::LastWrite] {
        let [mut one, mut other] = [VbUuid(0x7001), VbUuid(0x7002)].map(|uuid| {
            let config = VbConfig {
                conflicts,
                ..VbConfig::default()
            };
            vbucket_with(uuid, config)
        });
        store(&mut one, None);
        store(&mut other, None);
        let (first, second) = (meta_of(&mut one), meta_of(&mut other));
        assert!(set(&mut one, &second).is_ok());
        assert_eq!(set(&mut other, &first), Err(OpError::KeyExists));
        assert_eq!(meta_of(&mut one).cas, meta_of(&mut other).cas);
    }
}

#[test]
fn conflict_resolution_refuses_the_losing_version() {
    for (conflicts, wins, loses) in [
        (ConflictResolution::Revision, (8, 1), (6, 9)),
        (ConflictResolution::LastWrite, (1, 8), (9, 6)),
    ] {
        let mut vbucket = vbucket_of(VbConfig {
            conflicts,
            ..VbConfig::default()
        });
        let of = |(rev, cas): (u64, u64)| Meta {
            rev,
            cas: Cas(cas),
            ..FIRST
        };
        set(&mut vbucket, &of((7, 7))).unwrap();
        assert_eq!(set(&mut vbucket, &of((7, 7))), Err(OpError::KeyExists));
        assert_eq!(set(&mut vbucket, &of(loses)), Err(OpError::KeyExists));
        assert_eq!(vbucket.high_seqno(), Seqno(1), "nothing has changed");
        assert_eq!(vbucket.stats().sets_lost, 2);
        set(&mut vbucket, &of(wins)).unwrap();
        assert_eq!(meta_of(&mut vbucket).rev, wins.0);
        let forced = WithMeta {
            resolves: false,
            ..asking(&of(loses))
        };
        write(&mut vbucket, forced).unwrap();
        assert_eq!(meta_of(&mut vbucket).rev, loses.0);
    }
}

#[test]
fn deletions_and_documents_replace_each_other() {
    let mut vbucket = vbucket();
    let gone = Meta {
        kind: Kind::Deletion,
        expiry: 1_650_000_000,
        rev: 8,
        ..FIRST
    };
    // Also for a document that was never here: an older version may still arrive.
    set(&mut vbucket, &gone).unwrap();
    assert_eq!(meta_of(&mut vbucket).expiry, 1_650_000_000);
    assert_eq!(set(&mut vbucket, &FIRST), Err(OpError::KeyExists));
    assert_eq!(vbucket.stats().items, 0);
    set(&mut vbucket, &Meta { rev: 9, ..FIRST }).unwrap();
    assert_eq!(vbucket.stats().items, 1);
    assert_eq!(set(&mut vbucket, &gone), Err(OpError::KeyExists));
    let stats = vbucket.stats();
    assert_eq!((stats.sets_lost, stats.deletes_lost), (1, 1));
    let expired = Meta {
        kind: Kind::Expiration,
        rev: 10,
        ..gone
    };
    set(&mut vbucket, &expired).unwrap();
    assert_eq!(flush(&mut vbucket)[0].kind(), Kind::Expiration);
    assert_eq!(vbucket.stats().items, 0);
    assert_eq!(vbucket.max_deleted_rev(), 10);
}

#[test]
fn invalid_cas_and_revision_are_refused() {
    let mut vbucket = vbucket();
    for cas in [0, u64::MAX, u64::MAX - 1, (1 << 63) + 1] {
        let meta = Meta {
            cas: Cas(cas),
            ..FIRST
        };
        assert_eq!(set(&mut vbucket, &meta), Err(OpError::InvalidCas));
        // If the CAS is replaced, it may be any.
        let regenerated = WithMeta {
            regenerates_cas: true,
            resolves: false,
            ..asking(&meta)
        };
        let given = write(&mut vbucket, regenerated).unwrap().cas;
        assert!(given.0 & !0xffff == NOW.unix_ns & !0xffff);
        assert_eq!(meta_of(&mut vbucket).rev, FIRST.rev);
    }
    let meta = Meta {
        rev: (1 << 47) + 1,
        ..FIRST
    };
    let refused = set(&mut vbucket, &meta);
    assert!(matches!(refused, Err(OpError::InvalidArgument(_))));
}

#[test]
fn adds_and_cas_check_the_existing_document() {
    let mut vbucket = vbucket();
    let add = |rev| WithMeta {
        adds: true,
        ..asking(&Meta { rev, ..FIRST })
    };
    let over = |rev, cas| WithMeta {
        cas,
        ..asking(&Meta { rev, ..FIRST })
    };
    let missing = write(&mut vbucket, over(7, Cas(1)));
    assert_eq!(missing, Err(OpError::KeyNotFound));
    write(&mut vbucket, add(7)).unwrap();
    assert_eq!(write(&mut vbucket, add(8)), Err(OpError::KeyExists));
    assert_eq!(
        write(&mut vbucket, over(8, Cas(1))),
        Err(OpError::KeyExists)
    );
    let cas = write(&mut vbucket, over(8, FIRST.cas)).unwrap().cas;
    let mut gone = asking(&Meta {
        kind: Kind::Deletion,
        rev: 9,
        ..FIRST
    });
    gone.cas = cas;
    write(&mut vbucket, gone).unwrap();
    write(&mut vbucket, add(10)).unwrap();
}

#[test]
fn a_locked_document_needs_the_cas_of_its_lock() {
    let mut vbucket = vbucket();
    set(&mut vbucket, &FIRST).unwrap();
    let Ok(Outcome::Done(lock)) = vbucket.get_locked(KEY, 10, NOW) else {
        panic!("not locked");
    };
    let newer = Meta { rev: 8, ..FIRST };
    assert_eq!(set(&mut vbucket, &newer), Err(OpError::Locked));
    let older = Meta { rev: 1, ..FIRST };
    assert_eq!(set(&mut vbucket, &older), Err(OpError::KeyExists));
    let with_lock = WithMeta {
        cas: lock.cas,
        ..asking(&newer)
    };
    write(&mut vbucket, with_lock).unwrap();
    assert_eq!(vbucket.unlock(KEY, lock.cas, NOW), Err(OpError::NotLocked));
}

#[test]
fn undecided_durable_write_blocks_writes_with_meta() {
    let mut vbucket = vbucket();
    let chains = Some(r#"[["a","b"]]"#.into());
    vbucket.set_state(VbState::Active, chains, VbUuid(2));
    let majority = Requirement {
        level: DurabilityLevel::Majority,
        deadline_ns: u64::MAX,
    };
    let prepare = store(&mut vbucket, Some(majority)).seqno;
    assert_eq!(set(&mut vbucket, &FIRST), Err(OpError::SyncWriteInProgress));
    vbucket.seqno_acknowledged("b", prepare).unwrap();
    set(&mut vbucket, &FIRST).unwrap();
    assert_eq!(meta_of(&mut vbucket).rev, FIRST.rev);
}

#[test]
fn evicted_documents_are_fetched_for_conflict_resolution() {
    let mut vbucket = vbucket_of(VbConfig {
        evicts_keys: true,
        ..VbConfig::default()
    });
    set(&mut vbucket, &FIRST).unwrap();
    let row = flush(&mut vbucket).remove(0);
    assert!(vbucket.evict(KEY, NOW));
    let mut older = asking(&Meta { rev: 6, ..FIRST });
    let fetch = vbucket.write_with_meta(&mut older, &|_, _, _| {}, NOW);
    let Ok(Outcome::NeedsFetch(asked)) = fetch else {
        panic!("{fetch:?}");
    };
    assert_eq!(vbucket.restore(&asked, Some(row)), Restored::Done);
    let refused = vbucket.write_with_meta(&mut older, &|_, _, _| {}, NOW);
    assert_eq!(refused.err(), Some(OpError::KeyExists));
    set(&mut vbucket, &Meta { rev: 8, ..FIRST }).unwrap();
}

#[test]
fn write_with_meta_needs_no_resident_value() {
    let mut vbucket = vbucket();
    set(&mut vbucket, &FIRST).unwrap();
    flush(&mut vbucket);
    assert!(vbucket.evict(KEY, NOW));
    assert_eq!(set(&mut vbucket, &FIRST), Err(OpError::KeyExists));
    set(&mut vbucket, &Meta { rev: 8, ..FIRST }).unwrap();
    assert_eq!(vbucket.stats().non_resident, 0);
}
