//! Tests of documents with metadata from another node (protocol, section 4.3).

use std::time::{SystemTime, UNIX_EPOCH};

use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, sdk_and, sdk_without, set};
use crate::place::{on_both, shared};

pub(crate) const JSON: u8 = 1;
const SNAPPY: u8 = 2;
pub(crate) const XATTR: u8 = 4;

const SKIP: u32 = 0x08;
const REGENERATE_CAS: u32 = 0x04;
pub(crate) const FORCE_ACCEPT: u32 = 0x02;
const FORCE: u32 = 0x01;
const IS_EXPIRATION: u32 = 0x10;

#[derive(Clone, Copy)]
pub(crate) struct Meta {
    pub(crate) flags: u32,
    pub(crate) expiry: u32,
    pub(crate) rev: u64,
    pub(crate) cas: u64,
}

pub(crate) const FIRST: Meta = Meta {
    flags: 0x0200_0006,
    expiry: 0,
    rev: 7,
    cas: 0x1600_0000_0001_0000,
};

impl Meta {
    pub(crate) fn extras(self) -> Vec<u8> {
        let words = [self.flags.to_be_bytes(), self.expiry.to_be_bytes()].concat();
        let longs = [self.rev.to_be_bytes(), self.cas.to_be_bytes()].concat();
        [words, longs].concat()
    }

    pub(crate) fn with(self, options: u32) -> Vec<u8> {
        [self.extras(), options.to_be_bytes().to_vec()].concat()
    }
}

pub(crate) fn put(key: &str, value: &str, meta: Meta) -> Request {
    let request = Request::of(Opcode::SET_WITH_META, key).extras(&meta.extras());
    request.value(value).datatype(0)
}

pub(crate) fn remove(key: &str, meta: Meta) -> Request {
    Request::of(Opcode::DEL_WITH_META, key).extras(&meta.extras())
}

/// Returns deletion, flags, expiry, revision and datatype, as `GET_META` sends them; and the CAS.
pub(crate) fn known(client: &mut Client, key: &str) -> (bool, Meta, u8) {
    let answer = client.call(&Request::of(Opcode::GET_META, key).extras(&[2]));
    let answer = answer.ok();
    let word = |at: usize| u32::from_be_bytes(answer.extras[at..at + 4].try_into().unwrap());
    let meta = Meta {
        flags: word(4),
        expiry: word(8),
        rev: u64::from(word(12)) << 32 | u64::from(word(16)),
        cas: answer.cas,
    };
    (word(0) == 1, meta, answer.extras[20])
}

fn rev(client: &mut Client, key: &str) -> u64 {
    known(client, key).1.rev
}

pub(crate) fn section(attributes: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let pairs = attributes.iter();
    let pairs = pairs.map(|(name, text)| (name.as_bytes(), text.as_bytes()));
    model::encode_attributes(pairs, &mut out);
    out
}

fn attributed(port: u16) -> Client {
    Client::with(port, &sdk_and(&[Feature::XATTR, Feature::SNAPPY]))
}

fn attribute(client: &mut Client, key: &str, path: &str, deleted: bool) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    let mut extras = vec![0, length, 4];
    extras.extend(deleted.then_some(4));
    let request = Request::of(Opcode::SUBDOC_GET, key).extras(&extras);
    let answer = client.call(&request.value(path));
    let expected = if deleted {
        Status::SUBDOC_SUCCESS_DELETED
    } else {
        Status::SUCCESS
    };
    assert_eq!(answer.status, expected);
    answer.value
}

#[test]
fn a_document_keeps_the_metadata_of_its_request() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let expiry = 4_000_000_000;
        let meta = Meta { expiry, ..FIRST };
        let stored = client.call(&put("wm", "{}", meta)).ok();
        assert_eq!(stored.cas, meta.cas);
        assert!(stored.seqno() > 0 && stored.uuid() > 0);
        let (deleted, there, datatype) = known(&mut client, "wm");
        assert_eq!((deleted, datatype), (false, JSON));
        assert_eq!(there.extras(), meta.extras());
        let got = client.get("wm").ok();
        assert_eq!(got.extras, meta.flags.to_be_bytes());
        let own = client.set("wm", "1").ok();
        assert!(own.cas > meta.cas);
        assert_eq!(rev(&mut client, "wm"), 8);
    });
}

#[test]
fn the_version_with_more_changes_wins() {
    on_both(|port| {
        let mut client = Client::ready(port);
        client.call(&put("cr", "1", FIRST)).ok();
        let same = client.call(&put("cr", "2", FIRST));
        same.is(Status::KEY_EEXISTS);
        let older = Meta {
            rev: 6,
            cas: FIRST.cas + 1,
            ..FIRST
        };
        client.call(&put("cr", "2", older)).is(Status::KEY_EEXISTS);
        client.call(&remove("cr", older)).is(Status::KEY_EEXISTS);
        assert_eq!(client.get("cr").ok().value, b"1");
        let newer = Meta { rev: 8, ..FIRST };
        client.call(&put("cr", "3", newer)).ok();
        let gone = Meta {
            rev: 9,
            expiry: 1_700_000_000,
            ..FIRST
        };
        client.call(&remove("cr", gone)).ok();
        client.get("cr").is(Status::KEY_ENOENT);
        let (deleted, there, _) = known(&mut client, "cr");
        assert_eq!((deleted, there.extras()), (true, gone.extras()));
        client.call(&put("cr", "4", newer)).is(Status::KEY_EEXISTS);
        let add = Request::of(Opcode::ADD_WITH_META, "cr").value("5");
        let newest = Meta { rev: 10, ..FIRST };
        client.call(&add.clone().extras(&newest.extras())).ok();
        let again = Meta { rev: 11, ..FIRST };
        client
            .call(&add.extras(&again.extras()))
            .is(Status::KEY_EEXISTS);
    });
}

#[test]
fn options_of_writes_with_metadata() {
    let mut client = Client::ready(shared());
    let older = Meta { rev: 3, ..FIRST };
    let asked = |opcode, options| {
        let request = Request::of(opcode, "op").extras(&older.with(options));
        request.value(if opcode == Opcode::DEL_WITH_META {
            ""
        } else {
            "2"
        })
    };
    for options in [SKIP, FORCE, SKIP | FORCE] {
        // A version newer than that of the previous turn.
        client.call(&put("op", "1", FIRST)).ok();
        client.call(&asked(Opcode::SET_WITH_META, options)).ok();
        assert_eq!(known(&mut client, "op").1.extras(), older.extras());
    }
    let regenerated = asked(Opcode::SET_WITH_META, SKIP | REGENERATE_CAS);
    let cas = client.call(&regenerated).ok().cas;
    let (_, there, _) = known(&mut client, "op");
    assert_eq!((there.cas, there.rev), (cas, 3));
    assert!(cas > FIRST.cas);
    for (opcode, options) in [
        (Opcode::SET_WITH_META, REGENERATE_CAS),
        (Opcode::SET_WITH_META, IS_EXPIRATION | SKIP),
        (Opcode::ADD_WITH_META, IS_EXPIRATION | SKIP),
        // The last write wins only if the bucket is set so.
        (Opcode::SET_WITH_META, FORCE_ACCEPT),
        (Opcode::DEL_WITH_META, FORCE_ACCEPT | SKIP),
        (Opcode::SET_WITH_META, 0x20),
        (Opcode::SET_WITH_META, 1 << 31),
    ] {
        let answer = client.call(&asked(opcode, options));
        assert_eq!(answer.status, Status::EINVAL, "{opcode} {options:x}");
    }
    client
        .call(&asked(Opcode::DEL_WITH_META, IS_EXPIRATION | SKIP))
        .ok();
    assert!(known(&mut client, "op").0);
}

#[test]
fn extended_metadata_is_ignored_and_must_be_well_formed() {
    let mut client = Client::ready(shared());
    let with_tail = |options: Option<u32>, tail: &[u8], length: u16| {
        let mut extras = FIRST.extras();
        extras.extend(options.iter().flat_map(|options| options.to_be_bytes()));
        extras.extend(length.to_be_bytes());
        let request = Request::of(Opcode::SET_WITH_META, "tail").extras(&extras);
        request.value([b"text", tail].concat())
    };
    let tail = [1, 1, 0, 2, b'x', b'y', 2, 0, 0];
    for options in [None, Some(SKIP)] {
        let request = with_tail(options, &tail, 9);
        client.call(&request).ok();
        assert_eq!(client.get("tail").ok().value, b"text");
        client.call(&Request::of(Opcode::DELETE, "tail")).ok();
        let gone = known(&mut client, "tail").1.rev;
        assert_eq!(gone, 8);
    }
    for (tail, length) in [
        (&[2][..], 1),
        (&[1, 1], 2),
        (&[1, 1, 0, 2, b'x'], 5),
        (&[1], 200),
        (&[], 0xffff),
    ] {
        let answer = client.call(&with_tail(Some(SKIP), tail, length));
        assert_eq!(answer.status, Status::EINVAL, "{tail:?}");
    }
}

#[test]
fn an_impossible_cas_is_refused() {
    let mut client = Client::ready(shared());
    for cas in [0, u64::MAX, u64::MAX - 1] {
        let meta = Meta { cas, ..FIRST };
        let answer = client.call(&put("invalid-cas", "1", meta));
        answer.is(Status::CAS_VALUE_INVALID);
        let answer = client.call(&remove("invalid-cas", meta));
        answer.is(Status::CAS_VALUE_INVALID);
    }
    let rev = Meta {
        rev: u64::MAX,
        ..FIRST
    };
    client
        .call(&put("invalid-cas", "1", rev))
        .is(Status::EINVAL);
    client.get("invalid-cas").is(Status::KEY_ENOENT);
}

#[test]
fn a_cas_of_tomorrow_is_kept_and_later_ones_are_above_it() {
    let mut client = Client::ready(shared());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let cas = u64::try_from(now.as_nanos()).unwrap() + 86_400_000_000_000;
    client.call(&put("far", "1", Meta { cas, ..FIRST })).ok();
    assert_eq!(client.get("far").ok().cas, cas);
    assert_eq!(client.set("far", "2").ok().cas, cas + 1);
}

#[test]
fn cas_and_locks_are_checked_first() {
    let mut client = Client::ready(shared());
    let newer = |rev| put("cl", "2", Meta { rev, ..FIRST });
    client.call(&newer(7).cas(1)).is(Status::KEY_ENOENT);
    client.call(&put("cl", "1", FIRST)).ok();
    client.call(&newer(8).cas(1)).is(Status::KEY_EEXISTS);
    client.call(&newer(8).cas(FIRST.cas)).ok();
    let lock = Request::of(Opcode::GET_LOCKED, "cl").extras(&[0; 4]);
    let lock = client.call(&lock).ok().cas;
    client.call(&newer(9)).is(Status::LOCKED);
    client
        .call(&remove("cl", Meta { rev: 9, ..FIRST }))
        .is(Status::LOCKED);
    client.call(&newer(9).cas(lock)).ok();
    client.call(&newer(10)).ok();
}

#[test]
fn quiet_forms_answer_only_errors() {
    let mut client = Client::ready(shared());
    let quiet = |opcode, rev| {
        let meta = Meta { rev, ..FIRST };
        Request::of(opcode, "q").extras(&meta.extras()).opaque(1)
    };
    client.pipeline(&[
        quiet(Opcode::SETQ_WITH_META, 1).value("1"),
        quiet(Opcode::DELQ_WITH_META, 2),
        quiet(Opcode::ADDQ_WITH_META, 3).value("2"),
        quiet(Opcode::SETQ_WITH_META, 3).value("3"),
        Request::new(Opcode::NOOP).opaque(2),
    ]);
    let refused = client.answer();
    assert_eq!((refused.opaque, refused.status), (1, Status::KEY_EEXISTS));
    assert_eq!(client.answer().opaque, 2);
    assert_eq!(client.get("q").ok().value, b"2");
}

#[test]
fn values_are_checked_as_in_other_writes() {
    let mut client = attributed(shared());
    let mut seen = 0;
    let mut stored = |value: &[u8], datatype: u8| {
        seen += 1;
        let meta = Meta { rev: seen, ..FIRST };
        let request = put("jv", "", meta).value(value).datatype(datatype);
        let status = client.call(&request).status;
        (status, known_datatype(&mut client, "jv"))
    };
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(1000));
    let packed = snap::raw::Encoder::new().compress_vec(text.as_bytes());
    assert_eq!(stored(b"[1]", 0), (Status::SUCCESS, JSON));
    assert_eq!(stored(b"[1", JSON), (Status::SUCCESS, 0));
    assert_eq!(
        stored(&packed.unwrap(), SNAPPY),
        (Status::SUCCESS, SNAPPY | JSON)
    );
    assert_eq!(stored(b"\xff\xff", SNAPPY).0, Status::EINVAL);
    let value = [section(&[("_sync", "{}"), ("mine", "1")]), b"[2]".to_vec()].concat();
    assert_eq!(stored(&value, XATTR), (Status::SUCCESS, XATTR | JSON));
    let packed = snap::raw::Encoder::new().compress_vec(&value).unwrap();
    assert_eq!(
        stored(&packed, XATTR | SNAPPY),
        (Status::SUCCESS, XATTR | JSON)
    );
    for broken in [
        &[0, 0, 0, 9][..],
        b"",
        &[0xff; 12],
        b"\0\0\0\x05\0\0\0\x01x",
    ] {
        assert_eq!(stored(broken, XATTR).0, Status::XATTR_EINVAL, "{broken:?}");
    }
    for wrong in [
        &[("twice", "1"), ("twice", "2")][..],
        &[("longer_than_names", "1")],
        &[("a.b", "1")],
        &[("no_json", "{")],
    ] {
        let value = [section(wrong), b"[2]".to_vec()].concat();
        assert_eq!(stored(&value, XATTR).0, Status::XATTR_EINVAL, "{wrong:?}");
    }
    assert_eq!(stored(&[0, 0, 0, 0, b'5'], XATTR), (Status::SUCCESS, JSON));
    assert_eq!(stored(b"x", 8).0, Status::EINVAL);
    let big = vec![b'x'; (20 << 20) + 1];
    assert_eq!(stored(&big, 0).0, Status::E2BIG);
    let mut no_attributes = Client::with(shared(), &sdk_without(Feature::XATTR));
    let request = put("jv", "", FIRST).value(&value).datatype(XATTR);
    no_attributes.call(&request).is(Status::EINVAL);
}

fn known_datatype(client: &mut Client, key: &str) -> u8 {
    known(client, key).2
}

#[test]
fn attributes_come_along_with_documents_and_tombstones() {
    on_both(|port| {
        let mut client = attributed(port);
        let attributes = [("_vv", "{\"cas\":1}"), ("_sync", "{}"), ("mine", "7")];
        let value = [section(&attributes), b"{\"a\":1}".to_vec()].concat();
        let request = put("at", "", FIRST).value(&value).datatype(XATTR | JSON);
        client.call(&request).ok();
        assert_eq!(client.get("at").ok().value, b"{\"a\":1}");
        assert_eq!(attribute(&mut client, "at", "_vv.cas", false), b"1");
        // The attributes are those of the request, not the previous ones.
        let newer = Meta { rev: 8, ..FIRST };
        client.call(&put("at", "2", newer)).ok();
        assert_eq!(known(&mut client, "at").2, JSON);
        let gone = Meta { rev: 9, ..FIRST };
        let request = remove("at", gone).value(&value).datatype(XATTR);
        client.call(&request).ok();
        let (deleted, _, datatype) = known(&mut client, "at");
        assert_eq!((deleted, datatype), (true, XATTR), "no body is left");
        assert_eq!(attribute(&mut client, "at", "_vv.cas", true), b"1");
        assert_eq!(attribute(&mut client, "at", "mine", true), b"7");
    });
}

fn mutate(key: &str, value: &[u8], json: &str) -> Request {
    let length = u32::try_from(json.len()).unwrap().to_be_bytes();
    let request = Request::of(Opcode::MUTATE_WITH_META, key).extras(&length);
    request.value([value, json.as_bytes()].concat())
}

#[test]
fn metadata_may_come_as_json() {
    let mut client = attributed(shared());
    let json = r#"{"command":"add","cas":"0x1600000000010000","rev_seqno":"0x7","flags":6,
        "expiration":4000000000,"options":0}"#;
    client.call(&mutate("js", b"[1]", json)).ok();
    let (_, there, _) = known(&mut client, "js");
    assert_eq!((there.cas, there.rev), (FIRST.cas, 7));
    assert_eq!((there.flags, there.expiry), (6, 4_000_000_000));
    assert_eq!(client.get("js").ok().value, b"[1]");
    client
        .call(&mutate("js", b"[1]", json))
        .is(Status::KEY_EEXISTS);
    // The CAS and the seqno of the change are written into its attributes.
    let blank = format!("\"{}\"", "x".repeat(18));
    let both = format!("[{blank},{blank}]");
    let value = section(&[("_vv", &both)]);
    let at = value.iter().position(|byte| *byte == b'x').unwrap();
    let json = format!(
        r#"{{"command":"set","rev_seqno":8,"options":"0xc","cas_offsets":[{at}],"seqno_offsets":[{}]}}"#,
        at + 21
    );
    let body = [value, b"{}".to_vec()].concat();
    let stored = client
        .call(&mutate("js", &body, &json).datatype(XATTR))
        .ok();
    let expected = format!(
        "[\"{:#018x}\",\"{:#018x}\"]",
        stored.cas.swap_bytes(),
        stored.seqno()
    );
    let text = attribute(&mut client, "js", "_vv", false);
    assert_eq!(String::from_utf8(text).unwrap(), expected);
    let json = r#"{"command":"delete","cas":1,"rev_seqno":9,"options":16}"#;
    client.call(&mutate("js", b"", json)).ok();
    assert!(known(&mut client, "js").0);
    for json in [
        "",
        "{}",
        r#"{"command":"drop","cas":1,"rev_seqno":1}"#,
        r#"{"command":"set","cas":1}"#,
        r#"{"command":"set","cas":1,"rev_seqno":"0xg"}"#,
        r#"{"command":"set","cas":1,"rev_seqno":1,"flags":4294967296}"#,
        r#"{"command":"set","cas":1,"rev_seqno":1,"options":1}"#,
        r#"{"command":"set","cas":1,"rev_seqno":1,"options":4}"#,
        r#"{"command":"set","cas":1,"rev_seqno":1,"options":32}"#,
        r#"{"command":"set","cas":1,"rev_seqno":99,"cas_offsets":[0]}"#,
        r#"{"command":"set","cas":1,"rev_seqno":99,"seqno_offsets":[18446744073709551615]}"#,
    ] {
        let answer = client.call(&mutate("js", b"x", json));
        assert_eq!(answer.status, Status::EINVAL, "{json}");
    }
    let long = Request::of(Opcode::MUTATE_WITH_META, "js").extras(&[0, 0, 0, 9]);
    client.call(&long.value("{}")).is(Status::EINVAL);
}

#[test]
fn an_answer_may_contain_the_metadata_of_the_change() {
    let mut client = Client::ready(shared());
    let change = |kind: u32, flags: u32, expiry: u32| {
        let extras = [kind, flags, expiry].map(u32::to_be_bytes).concat();
        Request::of(Opcode::RETURN_META, "rm").extras(&extras)
    };
    let told = client.call(&change(2, 7, 4_000_000_000).value("[1]")).ok();
    let expected = [&7_u32.to_be_bytes()[..], &4_000_000_000_u32.to_be_bytes()].concat();
    let first = told.extras[8..].to_vec();
    assert_eq!(told.extras[..8], expected);
    assert_eq!(first, rev(&mut client, "rm").to_be_bytes());
    assert_eq!(told.cas, client.get("rm").ok().cas);
    client
        .call(&change(2, 0, 0).value("x"))
        .is(Status::KEY_EEXISTS);
    client
        .call(&change(2, 0, 0).cas(told.cas))
        .is(Status::EINVAL);
    let again = client.call(&change(1, 0, 0).value("2").cas(told.cas)).ok();
    let next = u64::from_be_bytes(first.try_into().unwrap()) + 1;
    assert_eq!(again.extras, [[0; 8], next.to_be_bytes()].concat());
    let gone = client.call(&change(3, 0, 0)).ok();
    assert_eq!(gone.extras[8..], (next + 1).to_be_bytes());
    client.get("rm").is(Status::KEY_ENOENT);
    client.call(&change(3, 0, 0)).is(Status::KEY_ENOENT);
    client.call(&change(4, 0, 0)).is(Status::EINVAL);
    client.call(&change(0, 0, 0)).is(Status::EINVAL);
}

#[test]
fn a_document_is_read_with_its_attributes() {
    let features = [Feature::XATTR, Feature::SNAPPY, Feature::SNAPPY_EVERYWHERE];
    let mut client = Client::with(shared(), &sdk_and(&features));
    let get = Request::of(Opcode::GET_EX, "ex");
    client.call(&get).is(Status::KEY_ENOENT);
    let value = [section(&[("_sync", "{}"), ("mine", "1")]), b"[2]".to_vec()].concat();
    let stored = put("ex", "", FIRST).value(&value).datatype(XATTR);
    client.call(&stored).ok();
    let got = client.call(&get).ok();
    assert_eq!((got.value, got.datatype), (value, XATTR | JSON));
    assert_eq!(
        (got.cas, got.extras),
        (FIRST.cas, FIRST.flags.to_be_bytes().to_vec())
    );
    let replica = Request::of(Opcode::GET_EX_REPLICA, "ex");
    client.call(&replica).is(Status::NOT_MY_VBUCKET);
    let mut other = Client::ready(shared());
    other.call(&get).is(Status::NOT_SUPPORTED);
}

#[test]
fn lengths_and_collections_are_checked() {
    let mut client = Client::ready(shared());
    for length in [0, 8, 23, 25, 27, 29, 31, 32] {
        let request = put("len", "1", FIRST).extras(&vec![0; length]);
        client.call(&request).is(Status::EINVAL);
    }
    let unknown = put("", "1", FIRST).key(b"\x7fk");
    client.call(&unknown).is(Status::UNKNOWN_COLLECTION);
    client.call(&set("len", "1")).ok();
}
