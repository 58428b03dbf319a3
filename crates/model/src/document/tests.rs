use super::shared::{PUT_TOGETHER_IN_PLACE_MIN, allocated_bytes};
use super::{DOCUMENT_OVERHEAD_BYTES, Document, Draft, Meta};
use crate::{Cas, Datatype, DurabilityLevel, Kind, Seqno};

#[test]
fn a_handle_is_a_pointer_and_the_overhead_is_48_bytes() {
    assert_eq!(size_of::<Option<Document>>(), 8);
    assert_eq!(DOCUMENT_OVERHEAD_BYTES, 48);
}

#[test]
fn memory_is_counted_as_allocators_give_it() {
    for (asked, given) in [
        (48, 48),
        (49, 56),
        (65, 80),
        (128, 128),
        (129, 160),
        (159, 160),
        (4096, 4096),
        (4161, 5120),
        (1 << 20, 1 << 20),
    ] {
        assert_eq!(allocated_bytes(asked), given, "{asked}");
    }
}

#[test]
fn parts_are_joined_at_any_size() {
    for bytes in [3, 300, PUT_TOGETHER_IN_PLACE_MIN] {
        let large = vec![b'l'; bytes];
        let parts: [&[u8]; 3] = [b"first", &large, b"last"];
        let mut draft = Draft::of_parts(b"\0key", &parts, &Meta::default());
        draft.set_datatype(Datatype::JSON);
        let document = draft.document();
        assert_eq!(document.key(), b"\0key");
        assert!(document.value() == parts.concat(), "{bytes}");
        assert_eq!(document.datatype(), Datatype::JSON);
        let meta = Meta {
            kind: Kind::Commit,
            prepare_seqno: Seqno(7),
            ..Meta::default()
        };
        let commit = Document::from_parts(b"\0key", &large, &meta);
        assert!(commit.value() == large, "{bytes}");
        assert_eq!(
            (commit.prepare_seqno(), commit.key()),
            (Seqno(7), &b"\0key"[..])
        );
    }
}

#[test]
fn a_value_that_is_written_into_its_draft_stays_there() {
    for bytes in [1, PUT_TOGETHER_IN_PLACE_MIN] {
        let mut draft = Draft::with_space(b"\0key", bytes);
        assert!(draft.document().value() == vec![0; bytes]);
        let place = draft.edit_value(|value| {
            value.fill(b'v');
            value.as_ptr()
        });
        let meta = Meta {
            flags: 7,
            datatype: Datatype::JSON,
            ..Meta::default()
        };
        draft.set_meta(&meta);
        let document = draft.stamp(Cas(1), Seqno(2), 3);
        assert!(document.value() == vec![b'v'; bytes]);
        assert!(std::ptr::eq(document.value().as_ptr(), place));
        let expected = Meta {
            cas: Cas(1),
            seqno: Seqno(2),
            rev: 3,
            ..meta
        };
        assert_eq!((document.key(), document.meta()), (&b"\0key"[..], expected));
    }
}

#[test]
fn stamp_keeps_all_other_metadata() {
    let meta = Meta {
        flags: 0x0200_0006,
        expiry: 99,
        datatype: Datatype::JSON,
        ..Meta::default()
    };
    let mut draft = Draft::from_joined(b"\0key{}", 4, &meta);
    draft.set_expiry(100);
    let document = draft.stamp(Cas(7), Seqno(0xffff_0000_0001), 0x1_0000_0002);
    assert_eq!(document.key(), b"\0key");
    assert_eq!(document.value(), b"{}");
    let expected = Meta {
        cas: Cas(7),
        seqno: Seqno(0xffff_0000_0001),
        rev: 0x1_0000_0002,
        expiry: 100,
        ..meta
    };
    assert_eq!(document.meta(), expected);
}

#[test]
fn a_non_resident_document_keeps_its_metadata() {
    let meta = Meta {
        cas: Cas(5),
        seqno: Seqno(9),
        rev: 3,
        ..Meta::default()
    };
    let document = Document::from_parts(b"\0k", b"value", &meta);
    let evicted = document.to_non_resident();
    assert!(!evicted.is_resident());
    assert_eq!(evicted.key(), b"\0k");
    assert_eq!(evicted.value(), b"");
    assert_eq!(evicted.meta(), meta);
}

#[test]
fn durable_changes_keep_level_and_prepare_seqno() {
    let prepare = Meta {
        kind: Kind::Prepare,
        level: Some(DurabilityLevel::PersistToMajority),
        ..Meta::default()
    };
    let document = Document::from_parts(b"\0k", b"value", &prepare);
    assert_eq!(document.meta(), prepare);
    assert_eq!(document.key_and_value(), b"\0kvalue");
    for (kind, value) in [
        (Kind::Commit, b"value".as_slice()),
        (Kind::CommitDeletion, b""),
        (Kind::Abort, b""),
    ] {
        let meta = Meta {
            kind,
            prepare_seqno: Seqno(0xffff_0000_0001),
            ..Meta::default()
        };
        let joined = [b"\0k", value].concat();
        let document = Document::from_joined(&joined, 2, &meta);
        assert_eq!(document.meta(), meta);
        assert_eq!(document.value(), value);
        assert_eq!(document.key(), b"\0k");
        let evicted = document.to_non_resident();
        assert_eq!(evicted.meta(), meta);
        assert_eq!(evicted.value(), b"");
        assert!(!evicted.is_resident());
    }
}

#[test]
fn a_prepare_is_committed_or_aborted() {
    let meta = Meta {
        flags: 7,
        expiry: 99,
        datatype: Datatype::JSON,
        ..Meta::default()
    };
    let mut draft = Draft::new(b"\0k", b"value", &meta);
    draft.prepare(DurabilityLevel::Majority);
    let cas = Cas(1_700_000_000_123_456_789);
    let prepare = draft.stamp(cas, Seqno(4), 2);
    assert_eq!(prepare.kind(), Kind::Prepare);
    assert_eq!(prepare.level(), Some(DurabilityLevel::Majority));
    let commit = prepare.committed(Seqno(6));
    let expected = Meta {
        cas,
        seqno: Seqno(6),
        rev: 2,
        kind: Kind::Commit,
        prepare_seqno: Seqno(4),
        ..meta
    };
    assert_eq!((commit.value(), commit.meta()), (&b"value"[..], expected));
    let abort = prepare.aborted(Seqno(5));
    let expected = Meta {
        cas,
        seqno: Seqno(5),
        rev: 2,
        expiry: 1_700_000_000,
        kind: Kind::Abort,
        prepare_seqno: Seqno(4),
        ..Meta::default()
    };
    assert_eq!((abort.value(), abort.meta()), (&b""[..], expected));
    let deletion = Meta {
        kind: Kind::Deletion,
        ..Meta::default()
    };
    let mut draft = Draft::new(b"\0k", b"", &deletion);
    draft.prepare(DurabilityLevel::PersistToMajority);
    let prepare = draft.stamp(cas, Seqno(4), 2);
    assert_eq!(prepare.kind(), Kind::PrepareDeletion);
    assert_eq!(prepare.committed(Seqno(5)).kind(), Kind::CommitDeletion);
}
