//! The files drawn in `docs/format/`, byte by byte.

use std::fs;
use std::io::ErrorKind::InvalidData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cipher::EncryptionKeys;
use model::{
    Cas, CollectionCount, CollectionId, Datatype, Document, DurabilityLevel, Kind, Meta, Seqno,
    VbCounts, VbId,
};

use super::bytes::FileKind;
use super::files::{Directory, Files};
use super::log::{EntryKind, Log};
use super::manifest::{EncodedStates, Manifest, ManifestContents};
use super::row::{self, Row, ValuePlace, Written};
use super::run::RunWriter;
use super::sealed;
use super::state::{self, Lineage, State};
use super::summary;
use super::tail::{LastStop, TailFile};
use crate::points::RestorePoints;

fn crc(parts: &[&[u8]]) -> [u8; 4] {
    crc32fast::hash(&parts.concat()).to_be_bytes()
}

/// Returns the header of a file.
fn header(letters: [u8; 2], number: u8) -> Vec<u8> {
    let mut bytes = [b"SETTEE", &letters[..], &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    bytes.extend([0, 0, 0, 0, 0, 0, 0, number]);
    bytes.extend([0; 36]);
    let crc = crc(&[&bytes]);
    bytes.extend(crc);
    bytes
}

fn document(value: &[u8], meta: Meta) -> Document {
    let known = Meta {
        seqno: Seqno(2),
        cas: Cas(0x2_0001),
        rev: 3,
        flags: 0x0200_0006,
        expiry: 7,
        datatype: Datatype(1),
        ..meta
    };
    Document::from_parts(b"\0k", value, &known)
}

/// Returns the first 42 bytes of that document's row.
fn head(first: [u8; 4], name_len: u8, value_len: u8) -> Vec<u8> {
    let mut bytes = first.to_vec();
    bytes.extend([0, name_len, 0, 0, 0, value_len]);
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 2]); // seqno
    bytes.extend([0, 0, 0, 0, 0, 2, 0, 1]); // CAS
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 3]); // rev
    bytes.extend([2, 0, 0, 6, 0, 0, 0, 7]); // flags, expiry
    bytes
}

fn encoded(document: &Document, written: Written, apart: Option<ValuePlace>) -> Vec<u8> {
    let mut out = Vec::new();
    row::encode(document, written, apart, &mut out);
    out
}

#[test]
fn row() {
    let plain = document(b"v", Meta::default());
    let expected = [head([0, 0, 1, 0], 3, 1), b"\0\0kv".to_vec()].concat();
    assert_eq!(encoded(&plain, Written::Newest, None), expected);
    let place = ValuePlace {
        file: ValuePlace::of_log(5),
        offset: 0x0100 - 65,
        length: 1,
        crc: 0x0102_0304,
    };
    let expected = [
        &head([1, 0, 1, 0], 3, 1)[..],
        b"\0\0k",
        &[0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 1, 0, 1, 2, 3, 4],
    ];
    assert_eq!(
        encoded(&plain, Written::Newest, Some(place)),
        expected.concat()
    );
    assert_eq!(ValuePlace::of_values(5), 10);
    let expected = [
        &head([0, 0, 1, 4], 11, 1)[..],
        b"\x02\0\0\0\0\0\0\0\x02\0k\0\0\x01\0v",
    ];
    assert_eq!(
        encoded(&plain, Written::Version(256), None),
        expected.concat()
    );
    assert_eq!(row::hash(VbId(7), b"\0\0k"), 0xfce7_031a_f053_ff4b);
}

#[test]
fn rows_of_durable_writes() {
    let prepare = Meta {
        kind: Kind::Prepare,
        level: Some(DurabilityLevel::PersistToMajority),
        ..Meta::default()
    };
    let abort = Meta {
        kind: Kind::Abort,
        prepare_seqno: Seqno(1),
        ..Meta::default()
    };
    let expected = [head([0, 0x33, 1, 0], 3, 1), b"\x01\0kv".to_vec()].concat();
    assert_eq!(
        encoded(&document(b"v", prepare), Written::Newest, None),
        expected
    );
    let name_and_more = b"\x01\0k\0\0\0\0\0\0\0\x01".to_vec();
    let expected = [head([0, 7, 1, 8], 3, 0), name_and_more].concat();
    assert_eq!(
        encoded(&document(b"", abort), Written::Newest, None),
        expected
    );
    let mut gone = Vec::new();
    row::encode_gone(b"\x01\0k", Seqno(2), &mut gone);
    let mut expected = vec![2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    expected.resize(42, 0);
    expected.extend(b"\x01\0k");
    assert_eq!(gone, expected);
}

/// Returns the bytes of a known state.
fn known_state() -> Vec<u8> {
    let numbers = [3, 9, 0, 9, 9, 5, 9, 0x9_0002, 7, 6].map(u64::to_be_bytes);
    [
        &[1][..],
        &numbers.concat()[..],
        &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4], // an earlier epoch
        &[2, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9], // restore points
        &[1, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0], // one history
        &[0, 0, 0, 13],
        br#"[["n1",null]]"#,
        &[3, 1, 9, 2].map(u64::to_be_bytes).concat()[..], // counts
        &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1],
    ]
    .concat()
}

#[test]
fn state() {
    let mut record = crate::suite::record(9);
    record.high_prepared = Seqno(5);
    record.high_completed = Seqno(9);
    record.max_deleted_rev = 7;
    record.term = 6;
    record.topology = r#"[["n1",null]]"#.to_owned();
    record.max_cas = Cas(0x9_0002);
    record.counts = Some(Box::new(VbCounts {
        items: 3,
        tombstones: 1,
        default_high: Seqno(9),
        dead_end: Seqno(2),
        collections: vec![CollectionCount {
            id: CollectionId(8),
            items: 2,
            high_seqno: Seqno(1),
        }],
    }));
    let mut lineage = Lineage::new(2);
    lineage.roll_back(Seqno(4), 3);
    let points = RestorePoints::from_seqnos(&[Seqno(8), Seqno(9)]).expect("ascending");
    let mut out = Vec::new();
    let state = State {
        purge_seqno: record.purge_seqno,
        points,
        lineage,
    };
    state::encode(&record, &state, &mut out);
    assert_eq!(out, known_state());
    assert_eq!(state::decode(&out).expect("a state").record, record);
}

fn directory() -> (tempfile::TempDir, Arc<dyn Files>) {
    let place = tempfile::tempdir().expect("a directory");
    let files = Arc::new(Directory::at(place.path(), None));
    (place, files)
}

#[test]
fn log() {
    let (place, files) = directory();
    let mut log = Log::create(&*files, 5, 6, 4096).expect("a log");
    let mut group = log.begin();
    let put = |out: &mut Vec<u8>, _| out.extend_from_slice(b"abc");
    log.put(&mut group, (EntryKind::Record, VbId(0x0102)), &[], put)
        .expect("an entry");
    let put = |_: &mut Vec<u8>, _| {};
    log.put(&mut group, (EntryKind::Forget, VbId(3)), &[], put)
        .expect("an entry");
    log.finish(group).expect("a group");
    log.sync().expect("it is durable");
    let entries = [
        &[2, 1, 2, 0, 0, 0, 3][..],
        &crc(&[&[2, 1, 2], b"abc"]),
        b"abc",
        &[3, 0, 3, 0, 0, 0, 0],
        &crc(&[&[3, 0, 3]]),
    ]
    .concat();
    let chunk = [
        &[0, 0, 0, 25][..],
        &[0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7],
        &[0, 0, 0, 0, 1],
        &entries,
    ]
    .concat();
    let mut expected = [&header(*b"LG", 5)[..], &crc(&[&chunk]), &chunk].concat();
    expected.resize(4096, 0);
    let bytes = fs::read(place.path().join("log-00000005")).expect("it is there");
    assert_eq!(bytes, expected);
}

#[test]
fn run() {
    let (place, files) = directory();
    let mut writer = RunWriter::create(&files, 9).expect("a run");
    writer.begin_section(VbId(0x0102), 3).expect("a section");
    let one = encoded(&document(b"v", Meta::default()), Written::Newest, None);
    let mut gone = Vec::new();
    row::encode_gone(b"\0\0l", Seqno(4), &mut gone);
    for row in [&one, &gone] {
        writer
            .add(Row::of(row).expect("a row"))
            .expect("it is added");
    }
    let (_run, mut made) = writer.finish().expect("a run");
    made.keep();
    let at = |crc_of: &[u8], from: u8| {
        crc(&[&[0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, from], crc_of])
    };
    let mut block = [&one[..], &gone, &[0; 1]].concat();
    block.extend([0, 0, 0, 112, 0, 0, 0, 0, 0, 0, 0, 3, 1, 2, b'S', b'B']);
    block.extend(at(&block, 64));
    assert_eq!(block.len(), 112);
    let filter = FILTER;
    let index_at = 64 + 112 + filter.len() as u8 + 4;
    let numbers = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
    let index: Vec<u8> = [
        numbers(&[0, 2, 0, 1, 1]), // rows, gone, one section
        vec![1, 2],
        numbers(&[0, 3, 0, 64, 0, 2, 0, 4]), // epoch, begins, lowest, highest
        numbers(&[0, 1, 2, 0, 0]),           // first block, blocks, rows, prefix
        numbers(&[1, 112 / 8, 0, 0]),        // one block, its separator, the arena
        numbers(&[1, 0, filter.len() as u32, 0, 64 + 112]),
        numbers(&[0]),
    ]
    .concat();
    let end = [
        &[0, 0, 0, 0, 0, 0, 0, index_at][..],
        &[0, 0, 0, 0, 0, 0, 0, index.len() as u8],
        &at(&index, index_at),
        b"SETTEEND",
    ]
    .concat();
    let expected = [
        &header(*b"RN", 9)[..],
        &block,
        filter,
        &at(filter, 64 + 112),
        &index,
        &end,
        &crc(&[&end]),
    ]
    .concat();
    let bytes = fs::read(place.path().join("run-00000009")).expect("it is there");
    assert_eq!(bytes, expected);
}

/// The filter of two names: seed, lengths (little endian), fingerprints.
const FILTER: &[u8] = &[
    193, 92, 2, 137, 236, 45, 10, 145, 4, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, //
    0, 0, 0, 0, 0, 0, 0, 44, 0, 0, 0, 58,
];

fn bytes_of(digits: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Another library made the expected bytes, with a key of 32 bytes 01, and random numbers that count from 7.
#[test]
fn encrypted() {
    let place = tempfile::tempdir().expect("a directory");
    let next = AtomicU64::new(7);
    let line = EncryptionKeys::line("k1", &[1; 32]).expect("an ID");
    let keys = EncryptionKeys::parse(&line, move || next.fetch_add(1, Ordering::SeqCst));
    let keys = Arc::new(keys.expect("a key"));
    let files = Directory::at(place.path(), Some(&keys));
    let made = (FileKind::Values, 9);
    let (file, header) = sealed::create(&files, "values-00000009", made).expect("a file");
    let expected = "534554544545564c00000002000000000000000000000009016b31000000000000000000\
                    00000000000000070000000000000008957a61f70044ab86d69f941e";
    assert_eq!(header[..], bytes_of(expected));
    let mut unit = b"a value".to_vec();
    file.seal(&mut unit, 0, (64, &[1, 2, 3]))
        .expect("it is sealed");
    let expected = "562c441c9a2729973baac036a32b689673dcbdf52c83300000000000000009";
    assert_eq!(unit, bytes_of(expected));
    file.write_at(&header, 0).expect("a header");
    let file = sealed::open(&files, made.0, made.1).expect("it is there");
    for (at, of) in [(65, [1, 2, 3]), (64, [1, 2, 4]), (64 | 1 << 32, [1, 2, 3])] {
        let error = file.unseal(&mut unit.clone(), 0, (at, &of));
        assert_eq!(error.map_err(|error| error.kind()), Err(InvalidData));
    }
    file.unseal(&mut unit, 0, (64, &[1, 2, 3]))
        .expect("it is whole");
    assert_eq!(unit, b"a value");
}

#[test]
fn manifest() {
    let (place, files) = directory();
    let contents = ManifestContents {
        number: 12,
        next_file: 10,
        next_epoch: 4,
        first_log: 4,
        flushed_group: 3,
        dead_rows: 2,
        has_history: true,
        runs: vec![(9, 300)],
        values: vec![(ValuePlace::of_log(2), 400)],
    };
    let parts = EncodedStates {
        states: vec![(VbId(0x0102), known_state())],
        text: Some(b"{}".to_vec()),
    };
    Manifest::write(&*files, &contents, &parts, || {}).expect("a manifest");
    let numbers = [12, 10, 4, 4, 3, 2, 1, 1, 9, 300, 1, 5, 400].map(u64::to_be_bytes);
    let body = [
        &header(*b"MF", 0)[..],
        &numbers.concat(),
        &[1, 0, 0, 0, 2, b'{', b'}'],
        &crc(&[b"{}"]),
        &[0, 0, 0, 1, 1, 2, 0, 0, 0, known_state().len() as u8],
        &known_state(),
        &crc(&[&[1, 2], &known_state()]),
    ]
    .concat();
    let bytes = fs::read(place.path().join("MANIFEST")).expect("it is there");
    assert_eq!(bytes, [&body[..], &crc(&[&body])].concat());
}

#[test]
fn events() {
    let (place, files) = directory();
    summary::write(&*files, 7, b"a text").expect("a summary");
    let body = [&header(*b"EV", 0)[..], &[0, 0, 0, 0, 0, 0, 0, 7], b"a text"].concat();
    let bytes = fs::read(place.path().join("EVENTS")).expect("it is there");
    assert_eq!(bytes, [&body[..], &crc(&[&body])].concat());
    let read = summary::read(&*files, 7).expect("it is whole");
    assert_eq!(read.as_deref(), Some(&b"a text"[..]));
    let later = summary::read(&*files, 6).map_err(|error| error.kind());
    assert_eq!(later, Err(InvalidData));
    let keys = EncryptionKeys::parse(&EncryptionKeys::line("k1", &[1; 32]).expect("an ID"), || 1);
    let files = Directory::at(place.path(), Some(&Arc::new(keys.expect("a key"))));
    let outdated = summary::read(&files, 7).expect("a change of keys is no damage");
    assert_eq!(outdated, None);
}

#[test]
fn tail() {
    let (place, files) = directory();
    let mut tail = TailFile::make(&*files).expect("a tail");
    tail.note(7, 12, LastStop::Clean).expect("a note");
    let slot = |number: u8, group: u8, manifest: u8, left: u8| {
        let mut slot = b"SETTEETL".to_vec();
        for number in [number, group, manifest] {
            slot.extend([0, 0, 0, 0, 0, 0, 0, number]);
        }
        slot.push(left);
        slot.resize(44, 0);
        slot.extend(crc(&[&slot]));
        slot.resize(512, 0);
        slot
    };
    let bytes = fs::read(place.path().join("TAIL")).expect("it is there");
    assert_eq!(bytes, [slot(2, 7, 12, 1), slot(1, 0, 0, 0)].concat());
    assert!(FileKind::of_name("TAIL").is_none());
}
