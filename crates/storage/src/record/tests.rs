use model::{
    Cas, Datatype, Document, DurabilityLevel, FailoverEntry, FailoverLog, Kind, Meta, Seqno,
    SnapshotRange, VbId, VbRecord, VbState, VbUuid,
};
use proptest::prelude::*;

use super::sealed::{CRC_BYTES, seal};
use super::*;
use crate::points::RestorePoints;
use crate::suite::{document, parts, record};

const U48: u64 = 1 << 48;

prop_compose! {
    fn any_document()(
        key in proptest::collection::vec(any::<u8>(), 1..=251),
        value in proptest::collection::vec(any::<u8>(), 0..600),
        numbers in (any::<u64>(), 1..U48, 0..U48),
        words in (any::<u32>(), any::<u32>(), any::<u8>()),
        kind in 0..8u8,
        level in 1..=3u8,
        prepare in 0..U48,
    ) -> Document {
        let kind = Kind::from_number(kind).expect("0 to 7 are kinds");
        let meta = Meta {
            cas: Cas(numbers.0),
            seqno: Seqno(numbers.1),
            rev: numbers.2,
            flags: words.0,
            expiry: words.1,
            datatype: Datatype(words.2),
            kind,
            level: DurabilityLevel::from_number(level).filter(|_| kind.is_prepare()),
            prepare_seqno: Seqno(if kind as u8 >= Kind::Commit as u8 { prepare } else { 0 }),
        };
        Document::from_parts(&key, &value, &meta)
    }
}

prop_compose! {
    fn any_vb()(
        state in 1..=4u8,
        numbers in proptest::array::uniform10(any::<u64>()),
        points in proptest::collection::btree_set(any::<u64>(), 0..=16),
        log in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..=25),
        topology in ".{0,80}",
    ) -> StoredVb {
        let entries = log.into_iter();
        let entries = entries
            .map(|(uuid, seqno)| FailoverEntry { uuid: VbUuid(uuid), seqno: Seqno(seqno) });
        let record = VbRecord {
            state: VbState::from_wire(state).expect("1 to 4 are states"),
            high_seqno: Seqno(numbers[0]),
            purge_seqno: Seqno(numbers[1]),
            snapshot: SnapshotRange { start: Seqno(numbers[2]), end: Seqno(numbers[3]) },
            high_prepared: Seqno(numbers[8]),
            high_completed: Seqno(numbers[9]),
            max_cas: Cas(numbers[4]),
            max_deleted_rev: numbers[5],
            failover_log: FailoverLog::from_entries(entries.collect()).expect("not empty"),
            topology,
            term: numbers[6],
        };
        let points: Vec<Seqno> = points.into_iter().map(Seqno).collect();
        let points = RestorePoints::from_seqnos(&points);
        StoredVb { record, commit: numbers[7], points: points.expect("ascending") }
    }
}

proptest! {
    #[test]
    fn rows_round_trip(vb in any::<u16>(), document in any_document()) {
        let mut out = Vec::new();
        encode_row(VbId(vb), &document, &mut out);
        let read = decode_row(VbId(vb), document.seqno(), &out).unwrap();
        let mut expected = parts(&document);
        if document.kind().is_commit() {
            expected.2.kind = document.kind().plain();
            expected.2.prepare_seqno = Seqno::ZERO;
        }
        prop_assert_eq!(parts(&read), expected);
    }

    #[test]
    fn vb_records_round_trip(vb in any::<u16>(), stored in any_vb()) {
        let mut out = Vec::new();
        encode_vb(VbId(vb), (&stored).into(), &mut out);
        prop_assert_eq!(decode_vb(VbId(vb), &out).unwrap(), stored);
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode_row(VbId(0), Seqno(1), &bytes).is_err());
        prop_assert!(decode_vb(VbId(0), &bytes).is_err());
    }

    #[test]
    fn sealed_nonsense_never_panics(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        for version in [1, 2] {
            let mut value = vec![0; CRC_BYTES];
            value.push(version);
            value.extend_from_slice(&body);
            seal(&row_key(VbId(0), Seqno(1)), &mut value, &[]);
            drop(decode_row(VbId(0), Seqno(1), &value));
            seal(&vb_key(VbId(0)), &mut value, &[]);
            drop(decode_vb(VbId(0), &value));
        }
    }
}

/// Calls `check` with `value` after each change of one bit and each cut.
fn damaged(value: &[u8], mut check: impl FnMut(&[u8])) {
    for index in 0..value.len() {
        for bit in 0..8 {
            let mut flipped = value.to_vec();
            flipped[index] ^= 1 << bit;
            check(&flipped);
        }
        check(&value[..index]);
    }
}

#[test]
fn every_flipped_bit_of_a_row_is_detected() {
    let mut out = Vec::new();
    encode_row(VbId(5), &document(9, "key", "{\"a\":1}"), &mut out);
    damaged(&out, |bytes| {
        assert_eq!(
            decode_row(VbId(5), Seqno(9), bytes).unwrap_err(),
            DecodeError::Checksum
        );
    });
}

#[test]
fn every_flipped_bit_of_a_record_is_detected() {
    let stored = StoredVb {
        record: record(9),
        commit: 3,
        points: RestorePoints::default(),
    };
    let mut out = Vec::new();
    encode_vb(VbId(5), (&stored).into(), &mut out);
    damaged(&out, |bytes| {
        assert_eq!(
            decode_vb(VbId(5), bytes).unwrap_err(),
            DecodeError::Checksum
        );
    });
}

#[test]
fn a_row_in_a_wrong_place_is_detected() {
    let mut out = Vec::new();
    encode_row(VbId(5), &document(9, "key", "v"), &mut out);
    for (vb, seqno) in [(5, 10), (6, 9)] {
        let read = decode_row(VbId(vb), Seqno(seqno), &out);
        assert_eq!(read.unwrap_err(), DecodeError::Checksum);
    }
}

#[test]
fn a_later_version_is_named() {
    let mut out = Vec::new();
    encode_row(VbId(5), &document(9, "key", "v"), &mut out);
    out[CRC_BYTES] = 4;
    seal(&row_key(VbId(5), Seqno(9)), &mut out, &[]);
    assert_eq!(
        decode_row(VbId(5), Seqno(9), &out).unwrap_err(),
        DecodeError::Version(4)
    );
}

#[test]
fn rows_sort_by_vbucket_then_seqno_and_the_record_last() {
    let keys = [
        row_key(VbId(1), Seqno(1)),
        row_key(VbId(1), Seqno(256)),
        vb_key(VbId(1)),
        row_key(VbId(2), Seqno(1)),
        vb_key(VbId(256)),
    ];
    assert!(keys.is_sorted());
    assert_eq!(split_row_key(&keys[1]), Some((VbId(1), Seqno(256))));
    assert_eq!(split_row_key(&keys[1][1..]), None);
}

/// The drawing in `docs/format/record.md`, byte by byte.
#[test]
fn golden_row() {
    let mut out = Vec::new();
    encode_row(VbId(1), &document(2, "k", "v"), &mut out);
    let body = [
        &[1, 0, 1, 2][..],               // version, kind, datatype, length of the key
        &[0, 0, 0, 0, 0, 2, 0, 1],       // CAS
        &[0, 0, 0, 0, 0, 0, 0, 2],       // rev
        &[0x02, 0, 0, 0x06, 0, 0, 0, 7], // flags, expiry
        b"\0kv",                         // key, value
    ]
    .concat();
    let place = [0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
    assert_eq!(row_key(VbId(1), Seqno(2)), place);
    let crc = crc32fast::hash(&[&place[..], &body[..]].concat());
    assert_eq!(out, [&crc.to_be_bytes()[..], &body[..]].concat());
}

/// The same for a prepare and an abort.
#[test]
fn golden_rows_of_durable_writes() {
    let prepare = Meta {
        kind: Kind::Prepare,
        level: Some(DurabilityLevel::PersistToMajority),
        seqno: Seqno(2),
        ..Meta::default()
    };
    let abort = Meta {
        kind: Kind::Abort,
        level: None,
        prepare_seqno: Seqno(1),
        ..prepare
    };
    let known: [(Document, &[u8], &[u8]); 2] = [
        (
            Document::from_parts(b"\0k", b"v", &prepare),
            &[2, 0x33, 0, 2],
            b"\0kv",
        ),
        (
            Document::from_parts(b"\0k", b"", &abort),
            &[2, 0x07, 0, 2],
            b"\0k\0\0\0\0\0\0\0\x01",
        ),
    ];
    for (document, head, tail) in known {
        let mut out = Vec::new();
        encode_row(VbId(1), &document, &mut out);
        let body = [head, &[0; 24][..], tail].concat();
        assert_eq!(out[CRC_BYTES..], body);
        let read = decode_row(VbId(1), Seqno(2), &out).unwrap();
        assert_eq!(parts(&read), parts(&document));
    }
}

/// The same for the record of a vBucket.
#[test]
fn golden_vb_record() {
    let points = RestorePoints::from_seqnos(&[Seqno(8), Seqno(9)]).expect("ascending");
    let stored = StoredVb {
        record: record(9),
        commit: 3,
        points,
    };
    let mut out = Vec::new();
    encode_vb(VbId(5), (&stored).into(), &mut out);
    let numbers = [9, 0, 9, 9, 0x9_0002, 5, 9, 3, 7, 6]
        .map(u64::to_be_bytes)
        .concat();
    let body = [
        &[2, 1][..],                  // version, state
        &numbers[..],                 // high to high completed
        &[2, 0, 0, 0, 0, 0, 0, 0, 8], // two restore points
        &[0, 0, 0, 0, 0, 0, 0, 9],
        &[1, 0, 0, 0, 0, 0, 0, 0, 77], // one history
        &[0; 8],
        br#"[["n1",null]]"#, // topology
    ]
    .concat();
    let place = [0, 5, 255, 255, 255, 255, 255, 255, 255, 255];
    let crc = crc32fast::hash(&[&place[..], &body[..]].concat());
    assert_eq!(out, [&crc.to_be_bytes()[..], &body[..]].concat());
    let first = [&[1, 1][..], &numbers[..64], &body[82..]].concat();
    let crc = crc32fast::hash(&[&place[..], &first[..]].concat());
    let mut expected = stored;
    expected.record.high_prepared = Seqno::ZERO;
    expected.record.high_completed = Seqno::ZERO;
    let read = decode_vb(VbId(5), &[&crc.to_be_bytes()[..], &first[..]].concat());
    assert_eq!(read.unwrap(), expected, "records of version 1 are read");
}

#[test]
fn a_reference_is_told_from_a_row_and_every_flipped_bit_of_it_is_detected() {
    let key = row_key(VbId(7), Seqno(9));
    let value = encode_reference(&key, 0x0102, 0x0304_0506);
    let golden = "0000000000000102000000000304 0506".replace(' ', "");
    let bytes = u128::from_be_bytes(value[4..].try_into().unwrap());
    assert_eq!(format!("{bytes:032x}"), golden);
    assert_eq!(
        decode_reference(&key, &value),
        Ok(Some((0x0102, 0x0304_0506)))
    );
    let elsewhere = row_key(VbId(7), Seqno(8));
    assert_eq!(
        decode_reference(&elsewhere, &value),
        Err(DecodeError::Checksum)
    );
    for bit in 0..value.len() * 8 {
        let mut damaged = value;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            decode_reference(&key, &damaged),
            Err(DecodeError::Checksum),
            "{bit}"
        );
    }
    // No row is so short, not even one of an empty key.
    let row = document_row(VbId(7));
    assert!(row.len() > REFERENCE_BYTES);
    assert_eq!(decode_reference(&key, &row), Ok(None));
}

/// The shortest row there can be.
fn document_row(vb: VbId) -> Vec<u8> {
    let meta = Meta {
        seqno: Seqno(9),
        ..Meta::default()
    };
    let mut row = Vec::new();
    encode_row(vb, &Document::from_parts(b"", b"", &meta), &mut row);
    row
}
