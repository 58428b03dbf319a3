use std::sync::Arc;

use model::{
    Cas, Datatype, Draft, DurabilityLevel, FailoverEntry, Kind, Meta, Now, Seqno, VbId, VbState,
    VbUuid,
};

use crate::checkpoint::FlushBudget;
use crate::durability::Requirement;
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::types::{Outcome, StoreMode, VbConfig, Write};
use crate::vbucket::VBucket;

const NOW: Now = Now {
    unix_ns: 1_700_000_000_000_000_000,
    mono_ns: 5_000_000_000,
};
const LATER_S: u32 = 1_700_000_100;
const KEY: &[u8] = b"\0key";

fn vbucket(config: &VbConfig) -> VBucket {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno::ZERO,
    };
    let config = Arc::new(VbConfig {
        evicts_keys: true,
        ..config.clone()
    });
    let mut vbucket = VBucket::new(VbId(0), VbState::Active, first, config);
    let alone = Some(r#"[["a"]]"#.into());
    vbucket.set_state(VbState::Active, alone, VbUuid(2));
    vbucket
}

fn asking(value: &[u8], meta: &Meta) -> Write {
    Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(KEY, value, meta)),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    }
}

const MAJORITY: Requirement = Requirement {
    level: DurabilityLevel::Majority,
    deadline_ns: u64::MAX,
};

fn done<T: std::fmt::Debug>(outcome: Result<Outcome<T>, OpError>) -> T {
    match outcome {
        Ok(Outcome::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

fn flush(vbucket: &mut VBucket) -> Vec<(Seqno, Seqno)> {
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
                written.push((document.seqno(), supersedes));
            }
        });
        drop(vbucket.finish_flush(batch.done(true)));
    }
    written
}

/// Writes, makes durable, and lets go of all of it.
fn gone(vbucket: &mut VBucket, mut write: Write) -> Mutated {
    let written = done(vbucket.store(&mut write, NOW));
    flush(vbucket);
    assert!(vbucket.evict(KEY, NOW));
    written
}

fn plain() -> Meta {
    Meta {
        datatype: Datatype::RAW,
        ..Meta::default()
    }
}

#[test]
fn a_plain_write_reads_nothing_and_its_row_takes_the_place_of_the_old_one() {
    let mut vbucket = vbucket(&VbConfig::default());
    let old = gone(&mut vbucket, asking(b"old", &plain()));
    let before = vbucket.stats();
    let new = done(vbucket.store(&mut asking(b"new", &plain()), NOW));
    let stats = vbucket.stats();
    assert_eq!(stats.fetches, before.fetches);
    assert_eq!((stats.items, stats.non_resident), (1, 0));
    assert_eq!(stats.ops_update, before.ops_update + 1);
    assert!(new.cas > old.cas && new.seqno > old.seqno);
    let there = done(vbucket.get(KEY, NOW)).document;
    assert_eq!((there.value(), there.rev()), (&b"new"[..], 2));
    assert_eq!(flush(&mut vbucket), [(new.seqno, old.seqno)]);
    assert!(vbucket.evict(KEY, NOW));
    let next = done(vbucket.store(&mut asking(b"next", &plain()), NOW));
    assert_eq!(done(vbucket.get(KEY, NOW)).document.rev(), 3);
    assert_eq!(flush(&mut vbucket), [(next.seqno, new.seqno)]);
}

#[test]
fn a_deleted_document_is_replaced_blindly_and_counted_anew() {
    let mut vbucket = vbucket(&VbConfig::default());
    done(vbucket.store(&mut asking(b"old", &plain()), NOW));
    let tombstone = done(vbucket.delete(KEY, Cas::ANY, None, NOW));
    flush(&mut vbucket);
    assert!(vbucket.evict(KEY, NOW));
    assert_eq!((vbucket.stats().items, vbucket.stats().tombstones), (0, 1));
    let new = done(vbucket.store(&mut asking(b"new", &plain()), NOW));
    assert_eq!((vbucket.stats().items, vbucket.stats().tombstones), (1, 0));
    assert_eq!(done(vbucket.get(KEY, NOW)).document.rev(), 3);
    assert_eq!(flush(&mut vbucket), [(new.seqno, tombstone.seqno)]);
}

#[test]
fn what_needs_the_old_document_reads_it_first() {
    let expiring = Meta {
        expiry: LATER_S,
        ..plain()
    };
    let attributed = Meta {
        datatype: Datatype::XATTR,
        ..Meta::default()
    };
    // Attributes: none, of four bytes of length.
    let with_attributes = asking(b"\0\0\0\0old", &attributed);
    let asked = |change: fn(&mut Write)| {
        let mut write = asking(b"new", &plain());
        change(&mut write);
        write
    };
    for (name, old, mut write) in [
        ("cas", asking(b"old", &plain()), asked(|w| w.cas = Cas(7))),
        (
            "add",
            asking(b"old", &plain()),
            asked(|w| w.mode = StoreMode::Add),
        ),
        (
            "replace",
            asking(b"old", &plain()),
            asked(|w| w.mode = StoreMode::Replace),
        ),
        (
            "expiry",
            asking(b"old", &expiring),
            asked(|w| w.preserve_expiry = true),
        ),
        (
            "durability",
            asking(b"old", &plain()),
            asked(|w| w.durability = Some(MAJORITY)),
        ),
        ("attributes", with_attributes, asked(|_| {})),
    ] {
        let mut vbucket = vbucket(&VbConfig::default());
        let row = gone(&mut vbucket, old).seqno;
        let outcome = vbucket.store(&mut write, NOW);
        let Ok(Outcome::NeedsFetch(wanted)) = outcome else {
            panic!("{name}: {outcome:?}");
        };
        assert_eq!((wanted.seqno, wanted.whole), (row, true), "{name}");
        assert!(write.draft.is_some(), "{name}: it will run again");
    }
    let mut kept = vbucket(&VbConfig {
        keeps_history: true,
        ..VbConfig::default()
    });
    gone(&mut kept, asking(b"old", &plain()));
    let again = kept.store(&mut asking(b"new", &plain()), NOW);
    assert!(matches!(again, Ok(Outcome::NeedsFetch(_))), "{again:?}");
}

#[test]
fn a_durable_write_and_what_replaces_it_blindly_are_in_checkpoints_of_their_own() {
    for (durability, apart) in [(None, 0), (Some(MAJORITY), 1)] {
        let mut vbucket = vbucket(&VbConfig::default());
        let write = Write {
            durability,
            ..asking(b"old", &plain())
        };
        gone(&mut vbucket, write);
        let before = vbucket.checkpoint_stats().open_id;
        done(vbucket.store(&mut asking(b"new", &plain()), NOW));
        assert_eq!(vbucket.checkpoint_stats().open_id, before + apart);
    }
}

#[test]
fn an_expiry_of_the_bucket_holds() {
    let mut vbucket = vbucket(&VbConfig {
        max_ttl_s: 100,
        ..VbConfig::default()
    });
    gone(&mut vbucket, asking(b"old", &plain()));
    done(vbucket.store(&mut asking(b"new", &plain()), NOW));
    let there = done(vbucket.get(KEY, NOW)).document;
    assert_eq!(there.expiry(), LATER_S);
    assert_eq!(there.kind(), Kind::Mutation);
}
