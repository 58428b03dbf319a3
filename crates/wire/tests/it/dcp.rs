//! Messages of the change protocol: frames of the protocol's description, and frames observed on a
//! reference server, parsed and written back to the same bytes.

use model::{
    Cas, CollectionId, Datatype, FailoverEntry, ManifestUid, Seqno, SnapshotRange, VbId, VbUuid,
};
use wire::dcp::{
    BufferAck, CollectionEvent, CollectionModified, Commit, DcpControl, DcpOpen, Deletion,
    EndReason, EventId, Expiration, MarkerFlags, MarkerVersion, Mutation, OpenFlags, Prepare,
    SeqnoAcknowledged, SeqnoAdvanced, SnapshotMarker, StreamEnd, StreamFlags, StreamRequest,
    SystemEvent, flow_bytes, flow_bytes_of, parse_rollback,
};
use wire::response::FailoverEntries;
use wire::{
    DurabilityLevel, Envelope, Message, Opaque, Opcode, RawParts, RequestInfos, Response, Status,
    encode_raw,
};

use crate::support::{Sample, bare, check, hex, whole_frame};

fn with_opaque(vbucket: u16, opaque: u32) -> Envelope<'static> {
    let opaque = Opaque(opaque.to_be_bytes());
    Envelope::of_stream(VbId(vbucket), opaque, None)
}

fn of_stream(cas: u64) -> Envelope<'static> {
    Envelope {
        cas: Cas(cas),
        ..with_opaque(5, 0x1000)
    }
}

fn range(start: u64, end: u64) -> SnapshotRange {
    SnapshotRange {
        start: Seqno(start),
        end: Seqno(end),
    }
}

#[test]
fn open_and_control() {
    let open = DcpOpen {
        flags: OpenFlags::PRODUCER
            .with(OpenFlags::INCLUDE_XATTRS)
            .with(OpenFlags::INCLUDE_DELETE_TIMES),
        name: b"t:1",
        value: b"",
    };
    let bytes = "80500003 08000000 0000000b 00000001 00000000 00000000 00000000 00000025 743a31";
    check(bytes, with_opaque(0, 1), &open);
    let noop = DcpControl {
        name: b"enable_noop",
        value: b"true",
    };
    let bytes = "805e000b 00000000 0000000f 00000002 00000000 00000000 656e6162 6c655f6e 6f6f7074 \
                 727565";
    check(bytes, with_opaque(0, 2), &noop);
    assert_eq!((noop.flag(), noop.number()), (Some(true), None));
    let window = DcpControl {
        name: b"connection_buffer_size",
        value: b"10485760",
    };
    let bytes = "805e0016 00000000 0000001e 00000003 00000000 00000000 636f6e6e 65637469 6f6e5f62 \
                 75666665 725f7369 7a653130 34383537 3630";
    check(bytes, with_opaque(0, 3), &window);
    assert_eq!(
        (window.flag(), window.number()),
        (None, Some(10 * 1024 * 1024))
    );
}

#[test]
fn control_values_are_parsed() {
    let of = |value: &'static str| DcpControl {
        name: b"n",
        value: value.as_bytes(),
    };
    assert_eq!(of("false").flag(), Some(false));
    for text in ["True", "1", "true "] {
        assert_eq!(of(text).flag(), None, "{text}");
    }
    assert_eq!(of("4294967295").number(), Some(u32::MAX));
    for text in ["4294967296", "-1", "+1", " 1", "1.0", "0x10"] {
        assert_eq!(of(text).number(), None, "{text}");
    }
    assert_eq!(of("120").seconds(), Some(120.0));
    assert_eq!(of("0.5").seconds(), Some(0.5));
    for text in ["-1", "1e3", "inf", "NaN", ".", "1.2.3"] {
        assert_eq!(of(text).seconds(), None, "{text}");
    }
}

#[test]
fn stream_request_and_its_answers() {
    let request = StreamRequest {
        flags: StreamFlags::default(),
        start: Seqno(0),
        end: Seqno(u64::MAX),
        uuid: VbUuid(0),
        snapshot: range(0, 0),
        value: b"",
    };
    let bytes = "80530000 30000005 00000030 00001000 00000000 00000000 00000000 00000000 00000000 \
                 00000000 ffffffff ffffffff 00000000 00000000 00000000 00000000 00000000 00000000";
    check(bytes, of_stream(0), &request);
    let answer = hex(
        "81530000 00000000 00000010 00001000 00000000 00000000 00000000 0000feed \
                      00000000 00000000",
    );
    let response = Response::parse(&whole_frame(&answer)).expect("an answer");
    assert_eq!(response.status, Status::SUCCESS);
    let log = FailoverEntries::parse(response.value).expect("a failover log");
    let entry = FailoverEntry {
        uuid: VbUuid(0xfeed),
        seqno: Seqno(0),
    };
    assert!(log.iter().eq([entry]));
    let answer = hex("81530000 00000023 00000008 00001000 00000000 00000000 00000000 00000096");
    let response = Response::parse(&whole_frame(&answer)).expect("an answer");
    assert_eq!(response.status, Status::ROLLBACK);
    assert_eq!(parse_rollback(response.value), Ok(Seqno(150)));
    assert!(parse_rollback(&[0; 7]).is_err());
    assert!(parse_rollback(&[0; 9]).is_err());
}

#[test]
fn a_resuming_stream_request_as_observed() {
    let request = StreamRequest {
        flags: StreamFlags::default(),
        start: Seqno(4),
        end: Seqno(u64::MAX),
        uuid: VbUuid(0xf842_9394_668a),
        snapshot: range(4, 4),
        value: b"",
    };
    let bytes = "8053000030000225000000300000000800000000000000000000000000000000000000000000000\
                 4ffffffffffffffff0000f8429394668a00000000000000040000000000000004";
    check(bytes, with_opaque(549, 8), &request);
}

#[test]
fn snapshot_markers_of_all_versions() {
    let disk = MarkerFlags::DISK;
    let marker = SnapshotMarker {
        range: range(0, 8),
        flags: disk.with(MarkerFlags::CHECKPOINT),
        version: MarkerVersion::V1,
    };
    let bytes = "80560000 14000005 00000014 00001000 00000000 00000000 00000000 00000000 00000000 \
                 00000008 00000006";
    check(bytes, of_stream(0), &marker);
    let marker = SnapshotMarker {
        range: range(1, 8),
        flags: disk,
        version: MarkerVersion::V2_0 {
            visible_end: Seqno(8),
            high_completed: Seqno(7),
        },
    };
    let bytes = "80560000 01000005 00000025 00001000 00000000 00000000 00000000 00000000 01000000 \
                 00000000 08000000 02000000 00000000 08000000 00000000 07";
    check(bytes, of_stream(0), &marker);
    let marker = SnapshotMarker {
        version: MarkerVersion::V2_2 {
            visible_end: Seqno(8),
            high_completed: Seqno(7),
            purge_seqno: Seqno(3),
            high_prepared: Seqno(8),
        },
        ..marker
    };
    let bytes = "80560000 01000005 00000035 00001000 00000000 00000000 02000000 00000000 01000000 \
                 00000000 08000000 02000000 00000000 08000000 00000000 07000000 00000000 03000000 \
                 00000000 08";
    check(bytes, of_stream(0), &marker);
}

fn hello_mutation() -> Mutation<'static> {
    Mutation {
        seqno: Seqno(4),
        rev: 1,
        flags: 0,
        expiry: 0,
        lock_time: 0,
        heat: 4,
        key: b"\0hello",
        value: b"world",
    }
}

#[test]
fn documents() {
    let bytes = "80570006 1f000005 0000002a 00001000 00000000 00000016 00000000 00000004 00000000 \
                 00000001 00000000 00000000 00000000 00000400 68656c6c 6f776f72 6c64";
    check(bytes, of_stream(0x16), &hello_mutation());
    let deletion = Deletion {
        seqno: Seqno(5),
        rev: 2,
        delete_time: Some(0x5f00_0000),
        key: b"\0hello",
        value: b"",
    };
    let bytes = "80580006 15000005 0000001b 00001000 00000000 00000017 00000000 00000005 00000000 \
                 00000002 5f000000 00006865 6c6c6f";
    check(bytes, of_stream(0x17), &deletion);
    let expiration = Expiration {
        seqno: Seqno(6),
        rev: 3,
        delete_time: 0x5f00_0001,
        key: b"\0hello",
        value: b"",
    };
    let bytes = "80590006 14000005 0000001a 00001000 00000000 00000018 00000000 00000006 00000000 \
                 00000003 5f000001 0068656c 6c6f";
    check(bytes, of_stream(0x18), &expiration);
}

#[test]
fn documents_as_observed() {
    let stream = |cas, datatype| Envelope {
        cas: Cas(cas),
        datatype,
        ..with_opaque(549, 8)
    };
    let mutation = Mutation {
        seqno: Seqno(5),
        rev: 1,
        flags: 0x0200_0006,
        expiry: 0,
        lock_time: 0,
        heat: 2,
        key: b"gold-dcp",
        value: b"{\"a\":1}",
    };
    let bytes = "805700091f0102250000002f0000000818e9efe27fec0000000000000000000500000000000000010200\
                 0006000000000000000000000200676f6c642d6463707b2261223a317d";
    // The observed key has its collection prefix before the name.
    let mutation = Mutation {
        key: b"\0gold-dcp",
        ..mutation
    };
    let json = stream(0x18e9_efe2_7fec_0000, Datatype::JSON);
    check(bytes, json, &mutation);
    let deletion = Deletion {
        seqno: Seqno(0xa),
        rev: 7,
        delete_time: None,
        key: b"\0gold-dcp",
        value: b"",
    };
    let bytes = "80580009120002250000001b0000000718e9efe39e780000000000000000000a000000000000000700\
                 0000676f6c642d646370";
    let envelope = Envelope {
        cas: Cas(0x18e9_efe3_9e78_0000),
        ..with_opaque(549, 7)
    };
    check(bytes, envelope, &deletion);
}

#[test]
fn sync_writes() {
    let prepare = Prepare {
        seqno: Seqno(7),
        rev: 4,
        flags: 0,
        expiry: 0,
        lock_time: 0,
        heat: 4,
        deleted: false,
        level: DurabilityLevel::Majority,
        key: b"\0hello",
        value: b"w2",
    };
    let bytes = "80600006 1f000005 00000027 00001000 00000000 00000019 00000000 00000007 00000000 \
                 00000004 00000000 00000000 00000000 04000100 68656c6c 6f7732";
    check(bytes, of_stream(0x19), &prepare);
    let acknowledged = SeqnoAcknowledged { prepared: Seqno(7) };
    let bytes = "80610000 08000005 00000008 00001000 00000000 00000000 00000000 00000007";
    check(bytes, of_stream(0), &acknowledged);
    let commit = Commit {
        prepared: Seqno(7),
        seqno: Seqno(8),
        key: b"\0hello",
    };
    let bytes = "80620006 10000005 00000016 00001000 00000000 00000000 00000000 00000007 00000000 \
                 00000008 0068656c 6c6f";
    check(bytes, of_stream(0), &commit);
}

#[test]
fn advances_acknowledgements_and_stream_ends() {
    let advanced = SeqnoAdvanced { seqno: Seqno(9) };
    let bytes = "80640000 08000005 00000008 00001000 00000000 00000000 00000000 00000009";
    check(bytes, of_stream(0), &advanced);
    let infos = RequestInfos {
        stream_id: Some(7),
        ..RequestInfos::default()
    };
    let bytes = "08640300 08000005 0000000b 00001000 00000000 00000000 22000700 00000000 000009";
    check(
        bytes,
        Envelope {
            infos,
            ..of_stream(0)
        },
        &advanced,
    );
    let ack = BufferAck { bytes: 1 << 20 };
    let bytes = "805d0000 04000000 00000004 00000000 00000000 00000000 00100000";
    check(bytes, with_opaque(0, 0), &ack);
    let end = StreamEnd {
        reason: EndReason::STATE_CHANGED,
    };
    let bytes = "80550000 04000005 00000004 00001000 00000000 00000000 00000002";
    check(bytes, of_stream(0), &end);
}

#[test]
fn modified_collection_is_encoded_as_gocbcore_reads_it() {
    let modified = CollectionModified {
        manifest: ManifestUid(5),
        collection: CollectionId(9),
        expiry_max_s: 1000,
        scope: 8,
    };
    let mut value = Vec::new();
    modified.encode(&mut value);
    let number = |at: usize| u32::from_be_bytes(value[at..at + 4].try_into().unwrap());
    assert_eq!(value[..8], 5_u64.to_be_bytes());
    assert_eq!((number(8), number(12)), (9, 1000));
    assert_eq!(CollectionModified::parse(&value), Ok(modified));
    for length in (0..value.len()).chain([21]) {
        let mut other = value.clone();
        other.resize(length, 0);
        assert!(CollectionModified::parse(&other).is_err(), "{length}");
    }
}

#[test]
fn system_events() {
    let created = CollectionEvent {
        manifest: ManifestUid(2),
        scope: 0,
        collection: Some(CollectionId(8)),
        expiry_max_s: None,
    };
    let mut value = Vec::new();
    created.encode(&mut value);
    let event = SystemEvent {
        seqno: Seqno(1),
        event: EventId::BEGIN_COLLECTION,
        version: 0,
        name: b"c",
        value: &value,
    };
    let bytes = "805f0001 0d000005 0000001e 00001000 00000000 00000000 00000000 00000001 00000000 \
                 00630000 00000000 00020000 00000000 0008";
    check(bytes, of_stream(0), &event);
    let dropped = hex(
        "805f00000d0002250000001900000007000000000000000000000000000000040000\
                       000400000000000000000300000008",
    );
    let frame = whole_frame(&dropped);
    let Ok(event) = SystemEvent::parse(&frame) else {
        panic!("no system event");
    };
    assert_eq!((event.event, event.version), (EventId::DROP_SCOPE, 0));
    let expected = CollectionEvent {
        manifest: ManifestUid(3),
        scope: 8,
        collection: None,
        expiry_max_s: None,
    };
    assert_eq!(CollectionEvent::parse(event.value), Ok(expected));
    for len in [0, 11, 13, 15, 17, 21] {
        assert!(
            CollectionEvent::parse(&vec![0; len]).is_err(),
            "{len} bytes"
        );
    }
}

#[test]
fn flow_control_arithmetic() {
    let size_of = |bytes: &[u8]| {
        let frame = whole_frame(bytes);
        let size = flow_bytes_of(&frame);
        assert_eq!(size, flow_bytes(frame.header.opcode, bytes.len()));
        size
    };
    let size = |message: &dyn Sample<'_>| {
        let mut out = Vec::new();
        let written = message.write(&of_stream(0), &mut out);
        written.expect("short parts");
        size_of(&out)
    };
    assert_eq!(size(&hello_mutation()), 66);
    let prepare = Prepare {
        seqno: Seqno(1),
        rev: 1,
        flags: 0,
        expiry: 0,
        lock_time: 0,
        heat: 0,
        deleted: false,
        level: DurabilityLevel::Majority,
        key: b"\0hello",
        value: b"0123456789",
    };
    assert_eq!(size(&prepare), 24 + 31 + 6 + 10 + 2);
    assert_eq!(size_of(&bare(&of_stream(0), Opcode::DCP_NOOP)), 0);
    let control = DcpControl {
        name: b"a",
        value: b"b",
    };
    assert_eq!(size(&control), 0);
    let end = StreamEnd {
        reason: EndReason::OK,
    };
    assert_eq!(size(&end), 28);
    let mut answer = Vec::new();
    Response::new(
        Opcode::DCP_SNAPSHOT_MARKER,
        Opaque::default(),
        Status::SUCCESS,
    )
    .encode(&mut answer);
    assert_eq!(flow_bytes_of(&whole_frame(&answer)), 0, "an answer");
}

#[test]
fn oversized_message_leaves_the_buffer_unchanged() {
    let long = vec![b'k'; 70_000];
    let mutation = Mutation {
        key: &long,
        ..hello_mutation()
    };
    let mut out = b"before".to_vec();
    let refused = mutation.encode(&of_stream(0), &mut out);
    assert!(refused.is_err());
    let parts = RawParts {
        extras: &[0; 256],
        key: b"k",
        ..RawParts::default()
    };
    assert!(encode_raw(Opcode::DCP_MUTATION, &of_stream(0), parts, &mut out).is_err());
    assert_eq!(out, b"before");
}
