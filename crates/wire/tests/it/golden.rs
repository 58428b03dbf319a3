//! Frames of the protocol's description, and frames observed on a reference server: each is parsed
//! into the expected message, and written back to the same bytes.

use model::{Cas, CollectionId, Datatype, ManifestUid, Seqno, VbId, VbUuid};
use wire::request::{
    Arithmetic, CollectionsGetId, Direction, Get, GetAllVbSeqnos, GetAndTouch, GetErrorMap,
    GetLocked, GetMeta, Hello, MetaVersion, Observe, ObserveSeqno, PathFlags, Sasl, SelectBucket,
    Stat, Store, StoreMode, SubdocExtras, SubdocMulti, SubdocSpec, SubdocSpecs, Touch, Unlock,
    encode_spec,
};
use wire::response::{
    CollectionIdReply, ErrorBody, ItemFlags, ItemMeta, KeyState, MutationToken, ObserveEntry,
    ObserveSeqnoReply, counter_value,
};
use wire::{
    Durability, DurabilityLevel, Envelope, Feature, Message, Opaque, Opcode, RequestInfos,
    Response, Status, checks,
};

use crate::support::{check, check_bare, hex, whole_frame};

const OPAQUE: Opaque = Opaque([0xde, 0xad, 0xbe, 0xef]);

fn envelope(vbucket: u16, opaque: u32) -> Envelope<'static> {
    Envelope {
        vbucket: VbId(vbucket),
        opaque: Opaque(opaque.to_be_bytes()),
        ..Envelope::default()
    }
}

/// Parses the bytes as a response, and checks that it is written to the same bytes.
fn response(bytes: &[u8]) -> Response<'_> {
    let response = Response::parse(&whole_frame(bytes)).expect("a response");
    let mut out = Vec::new();
    response.encode(&mut out);
    assert_eq!(out, bytes, "{response:?}");
    response
}

#[test]
fn get() {
    let bytes = "80 00 0004 00 00 0073 00000004 deadbeef 0000000000000000 | 00 666f6f";
    let get = Get {
        key: b"\0foo",
        with_key: false,
        quiet: false,
    };
    check(bytes, envelope(115, 0xdead_beef), &get);
}

#[test]
fn set_with_the_json_bit() {
    let bytes = "80 01 0004 08 01 0073 00000013 deadbeef 0000000000000000 | 02000006 00000000 \
                 | 00 666f6f | 7b2261223a317d";
    let store = Store {
        mode: StoreMode::Set,
        quiet: false,
        key: b"\0foo",
        value: b"{\"a\":1}",
        flags: 0x0200_0006,
        expiry: 0,
    };
    let envelope = Envelope {
        datatype: Datatype::JSON,
        ..envelope(115, 0xdead_beef)
    };
    check(bytes, envelope, &store);
}

#[test]
fn set_with_durability() {
    let bytes = "08 01 04 04 08 00 0073 00000011 deadbeef 0000000000000000 | 13 01 0bb8 \
                 | 02000006 00000000 | 00 666f6f | 31";
    let store = Store {
        mode: StoreMode::Set,
        quiet: false,
        key: b"\0foo",
        value: b"1",
        flags: 0x0200_0006,
        expiry: 0,
    };
    let durability = Durability {
        level: DurabilityLevel::Majority,
        timeout_ms: Some(3000),
    };
    let infos = RequestInfos {
        durability: Some(durability),
        ..RequestInfos::default()
    };
    let envelope = Envelope {
        infos,
        ..envelope(115, 0xdead_beef)
    };
    check(bytes, envelope, &store);
}

#[test]
fn hello() {
    let bytes = hex("80 1f 0013 00 00 0000 0000001d deadbeef 0000000000000000 \
                     | 7b2261223a2274222c2269223a22302f30227d | 0006 0007 0008 000b 0012");
    let frame = whole_frame(&bytes);
    let Ok(Hello { agent, features }) = Hello::parse(&frame) else {
        panic!("no HELLO");
    };
    assert_eq!(agent, b"{\"a\":\"t\",\"i\":\"0/0\"}");
    let expected = [
        Feature::XATTR,
        Feature::XERROR,
        Feature::SELECT_BUCKET,
        Feature::JSON,
        Feature::COLLECTIONS,
    ];
    assert!(features.iter().eq(expected));
    let mut out = Vec::new();
    let request = Hello { agent, features };
    request
        .encode(&envelope(0, 0xdead_beef), &mut out)
        .expect("the parts fit a frame");
    assert_eq!(out, bytes);
}

#[test]
fn collections_get_id() {
    let bytes = "80 bb 0000 00 00 0000 00000011 deadbeef 0000000000000000 \
                 | 5f64656661756c742e5f64656661756c74";
    let request = CollectionsGetId {
        path: b"_default._default",
    };
    check(bytes, envelope(0, 0xdead_beef), &request);

    let answer = hex("81bb00000c0000000000000c000000230000000000000000000000000000000300000000");
    let expected = CollectionIdReply {
        manifest: ManifestUid(3),
        id: CollectionId::DEFAULT,
    };
    let answer = response(&answer);
    assert_eq!(CollectionIdReply::parse(answer.extras), Ok(expected));
    assert_eq!(answer.extras, expected.to_bytes());
}

#[test]
fn sub_document_requests() {
    let spec = |opcode, flags, path, value| SubdocSpec {
        opcode,
        flags: PathFlags(flags),
        path,
        value,
    };
    let lookup = "80 d0 0004 00 00 0073 0000001d deadbeef 0000000000000000 | 00 666f6f \
                  | c5 04 0011 24646f63756d656e742e65787074696d65 | 00 00 0000";
    let mutation = "80 d1 0004 00 00 0073 00000010 deadbeef 0000000000000000 | 00 666f6f \
                    | c8 01 0003 00000001 612e62 35";
    let cases = [
        (
            lookup,
            vec![
                spec(Opcode::SUBDOC_GET, 4, &b"$document.exptime"[..], &b""[..]),
                spec(Opcode::GET, 0, b"", b""),
            ],
        ),
        (
            mutation,
            vec![spec(Opcode::SUBDOC_DICT_UPSERT, 1, b"a.b", b"5")],
        ),
    ];
    for (text, specs) in cases {
        let mutate = text == mutation;
        let mut bytes = Vec::new();
        for spec in &specs {
            encode_spec(spec, mutate, &mut bytes);
        }
        let request = SubdocMulti {
            key: b"\0foo",
            specs: SubdocSpecs::new(&bytes, mutate),
            extras: SubdocExtras::default(),
        };
        check(text, envelope(115, 0xdead_beef), &request);
        assert_eq!(
            request.specs.into_iter().collect::<Result<Vec<_>, _>>(),
            Ok(specs)
        );
    }
}

#[test]
fn get_hit_with_tracing() {
    let bytes = hex(
        "18 00 03 00 04 00 0000 0000000c deadbeef 0000000000000007 | 02 0015 \
                     | 02000006 | 68656c6c6f",
    );
    let answer = response(&bytes);
    assert_eq!(
        answer.server_duration,
        Some(wire::encode_server_duration(100))
    );
    assert_eq!((answer.cas, answer.value), (Cas(7), b"hello".as_slice()));
    assert_eq!(answer.extras, ItemFlags(0x0200_0006).to_bytes());
}

#[test]
fn observed_session() {
    check(
        "802100050000000000000016000000020000000000000000504c41494e0064656661756c740070617373776f72\
         64",
        envelope(0, 2),
        &Sasl {
            step: false,
            mechanism: b"PLAIN",
            payload: b"\0default\0password",
        },
    );
    check(
        "80890007000000000000000700000003000000000000000064656661756c74",
        envelope(0, 3),
        &SelectBucket { name: b"default" },
    );
    check(
        "80fe000000000000000000020000000400000000000000000002",
        envelope(0, 4),
        &GetErrorMap { version: 2 },
    );
    check_bare(
        "802000000000000000000000000000010000000000000000",
        envelope(0, 1),
        Opcode::SASL_LIST_MECHS,
    );
    check_bare(
        "800b00000000000000000000000000300000000000000000",
        envelope(0, 0x30),
        Opcode::VERSION,
    );
    check_bare(
        "800a00000000000000000000000000310000000000000000",
        envelope(0, 0x31),
        Opcode::NOOP,
    );
    check(
        "8010000d000000000000000d0000003200000000000000006e6f2d737563682d67726f7570",
        envelope(0, 0x32),
        &Stat {
            group: b"no-such-group",
            arguments: b"",
        },
    );
}

#[test]
fn observed_set_and_get() {
    let answer = hex(
        "8101000010000000000000100000000518e9efe0c0670000000043ec3cdc70a4000000000000\
                      0005",
    );
    let answer = response(&answer);
    let token = MutationToken {
        uuid: VbUuid(0x43ec_3cdc_70a4),
        seqno: Seqno(5),
    };
    assert_eq!(answer.extras, token.to_bytes());
    assert_eq!(answer.cas, Cas(0x18e9_efe0_c067_0000));

    let answer = hex("81000000040100000000000b0000000618e9efe0c0670000020000067b2261223a317d");
    let answer = response(&answer);
    assert_eq!(answer.value, b"{\"a\":1}");
    assert_eq!(answer.datatype, Datatype::JSON);

    let miss = Response::new(Opcode::GET, Opaque([0, 0, 0, 7]), Status::KEY_ENOENT);
    assert_eq!(
        response(&hex("810000000000000100000000000000070000000000000000")),
        miss
    );
}

#[test]
fn observed_touch_and_locks() {
    let key = b"\0gold-1";
    check(
        "801c00070400008b0000000b0000000900000000000000000000000000676f6c642d31",
        envelope(139, 9),
        &Touch { key, expiry: 0 },
    );
    check(
        "801d00070400008b0000000b0000000a0000000000000000000003e800676f6c642d31",
        envelope(139, 10),
        &GetAndTouch {
            key,
            expiry: 1000,
            quiet: false,
        },
    );
    check(
        "809400070400008b0000000b0000000b00000000000000000000000500676f6c642d31",
        envelope(139, 11),
        &GetLocked {
            key,
            lock_s: Some(5),
        },
    );
    let unlock = Envelope {
        cas: Cas(12345),
        ..envelope(139, 16)
    };
    let bytes = "809500070000008b0000000700000010000000000000303900676f6c642d31";
    check(bytes, unlock, &Unlock { key });
}

#[test]
fn observed_counter() {
    let count = Arithmetic {
        direction: Direction::Increment,
        quiet: false,
        key: b"\0gold-t",
        delta: 1,
        initial: 0,
        expiry: 0,
    };
    let bytes = "800500071400023d0000001b0000001100000000000000000000000000000001000000000000000000\
                 00000000676f6c642d74";
    check(bytes, envelope(573, 17), &count);
    let answer = hex(
        "8105000010000000000000180000001118e9efe261bf000000004dae6a212a29000000000000\
                      00050000000000000000",
    );
    assert_eq!(response(&answer).value, counter_value(0));
}

#[test]
fn observed_metadata() {
    let meta = GetMeta {
        key: b"\0gold-1",
        version: MetaVersion::V2,
        quiet: false,
    };
    check(
        "80a000070100008b000000080000001400000000000000000200676f6c642d31",
        envelope(139, 20),
        &meta,
    );
    let answer = hex(
        "81a0000015000000000000150000001418e9efe0c072000000000000020000066b010bd20000\
                      00000000000201",
    );
    let expected = ItemMeta {
        deleted: false,
        flags: 0x0200_0006,
        expiry: 0x6b01_0bd2,
        rev: 2,
        datatype: Some(Datatype::JSON),
    };
    let encoded = |meta: &ItemMeta| {
        let mut out = Vec::new();
        meta.encode(&mut out);
        out
    };
    assert_eq!(response(&answer).extras, encoded(&expected));
    let answer = hex(
        "81a0000014000000000000140000001518e9efe0c072000000000000020000066b010bd20000\
                      000000000002",
    );
    let expected = ItemMeta {
        datatype: None,
        ..expected
    };
    assert_eq!(response(&answer).extras, encoded(&expected));
    let deleted = ItemMeta {
        deleted: true,
        ..expected
    };
    assert_eq!(encoded(&deleted)[..8], [0, 0, 0, 1, 2, 0, 0, 6]);
}

#[test]
fn observed_observe() {
    let bytes = hex("80920000000000000000000b0000001b0000000000000000008b000700676f6c642d31");
    let frame = whole_frame(&bytes);
    let Ok(observe) = Observe::parse(&frame) else {
        panic!("no OBSERVE")
    };
    let keys: Vec<_> = observe
        .keys
        .iter()
        .map(|one| (one.vbucket, one.key))
        .collect();
    assert_eq!(keys, [(VbId(139), b"\0gold-1".as_slice())]);

    let answer = hex(
        "8192000000000000000000140000001b0000000000000000008b000700676f6c642d310118e9\
                      efe0c0720000",
    );
    let entry = ObserveEntry {
        vbucket: VbId(139),
        key: b"\0gold-1",
        state: KeyState::Persisted,
        cas: Cas(0x18e9_efe0_c072_0000),
    };
    let mut encoded = Vec::new();
    entry.encode(&mut encoded);
    assert_eq!(response(&answer).value, encoded);

    check(
        "809100000000008b000000080000001e0000000000000000000043ec3cdc70a4",
        envelope(139, 0x1e),
        &ObserveSeqno {
            uuid: VbUuid(0x43ec_3cdc_70a4),
        },
    );
    let answer = hex(
        "81910000000000000000001b0000001e000000000000000000008b000043ec3cdc70a4000000\
                      00000000060000000000000006",
    );
    let expected = ObserveSeqnoReply {
        vbucket: VbId(139),
        uuid: VbUuid(0x43ec_3cdc_70a4),
        persisted: Seqno(6),
        current: Seqno(6),
        failover: None,
    };
    assert_eq!(
        ObserveSeqnoReply::parse(response(&answer).value),
        Ok(expected)
    );
}

#[test]
fn observed_seqnos_of_a_collection() {
    let request = GetAllVbSeqnos {
        state: Some(model::VbState::Active),
        collection: Some(CollectionId::DEFAULT),
    };
    check(
        "8048000008000000000000080000002200000000000000000000000100000000",
        envelope(0, 0x22),
        &request,
    );
}

#[test]
fn observed_error_body() {
    let bytes = hex(
        "81bb000000010088000000530000002400000000000000007b226572726f72223a7b22636f6e7465\
                     7874223a22556e6b6e6f776e2073636f7065206f7220636f6c6c656374696f6e20696e206f706572\
                     6174696f6e227d2c226d616e69666573745f756964223a2233227d",
    );
    let body = ErrorBody {
        context: Some("Unknown scope or collection in operation"),
        manifest: Some(ManifestUid(3)),
        ..ErrorBody::default()
    };
    let json = body.to_json();
    let expected = Response {
        datatype: Datatype::JSON,
        value: json.as_bytes(),
        ..Response::new(
            Opcode::COLLECTIONS_GET_ID,
            Opaque([0, 0, 0, 0x24]),
            Status::UNKNOWN_COLLECTION,
        )
    };
    assert_eq!(response(&bytes), expected);
}

#[test]
fn opaque_of_an_unknown_opcode_is_available() {
    let bytes = hex("80e900000000000000000000deadbeef0000000000000000");
    let frame = whole_frame(&bytes);
    assert_eq!(frame.header.opaque, OPAQUE);
    assert_eq!(checks::readers(&frame), Ok(0));
    assert_eq!(frame.header.opcode.info(), None);
}

#[test]
fn secrets_and_documents_are_not_printed() {
    let bytes = hex(
        "802100050000000000000016000000020000000000000000504c41494e0064656661756c740070617373776f72\
         64",
    );
    let frame = whole_frame(&bytes);
    let password = format!("{:?}", b"password".as_slice());
    let digits = password.trim_matches(['[', ']']);
    for printed in [format!("{frame:?}"), format!("{:?}", Sasl::parse(&frame))] {
        assert!(printed.contains("PLAIN"), "{printed}");
        assert!(
            !printed.contains("password") && !printed.contains(digits),
            "{printed}"
        );
    }
}

#[test]
fn long_key_drops_the_duration_from_a_flexible_answer() {
    let key = [b'k'; 256];
    for (len, magic) in [(255, 0x18), (256, 0x81)] {
        let mut out = Vec::new();
        let answer = Response {
            server_duration: Some(21),
            key: &key[..len],
            ..Response::new(Opcode::STAT, OPAQUE, Status::SUCCESS)
        };
        answer.encode(&mut out);
        assert_eq!(out[0], magic, "{len} bytes of key");
        assert_eq!(whole_frame(&out).key, &key[..len]);
    }
}
