//! Tests of extended attributes over the wire: which attributes survive, which clients get them, which requests are
//! refused.

use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, SDK, count, sdk_and, sdk_without, until};
use crate::place::{on_disk, shared};
use crate::subdoc::{
    ADD, COUNTER, DELETE, DICT_ADD, DICT_UPSERT, EXISTS, GET, MKDOC, XATTR, changes, lookups, one,
    results,
};

const P: u8 = 0x01;
const EXPAND: u8 = 0x10;
const BINARY: u8 = 0x20;
const ACCESS_DELETED: u8 = 0x04;
const CREATE_AS_DELETED: u8 = 0x08;
const REVIVE: u8 = 0x10;
const REPLACE_BODY: u8 = 0xd3;

fn with_flags(request: Request, flags: u8) -> Request {
    request.extras(&[flags])
}

/// Returns the values at the paths of attributes; `-` for no value.
fn attributes(client: &mut Client, key: &str, flags: u8, paths: &[&str]) -> Vec<String> {
    let specs: Vec<_> = paths.iter().map(|path| (GET, XATTR, *path)).collect();
    let answer = client.call(&with_flags(lookups(key, &specs), flags));
    let all = results(&answer).into_iter();
    let missing = Status::SUBDOC_PATH_ENOENT.0;
    all.map(|(status, text)| {
        assert!(status == 0 || status == missing, "{status:x}");
        if status == 0 { text } else { "-".into() }
    })
    .collect()
}

fn attributed(client: &mut Client, key: &str) {
    client.set(key, r#"{"n":1}"#).ok();
    let both = [
        (DICT_UPSERT, XATTR | P, "user.a", "[1]"),
        (DICT_UPSERT, XATTR, "_sys", "true"),
    ];
    client.call(&changes(key, &both)).ok();
}

#[test]
fn a_large_write_keeps_attributes_that_left_memory() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::refilled(node.ports().kv);
    attributed(&mut client, "large");
    let evict = Request::of(Opcode::EVICT_KEY, "large");
    until("it does not become durable", || {
        client.call(&evict).status == Status::SUCCESS
    });
    let value = "v".repeat(1 << 20);
    client.set("large", &value).ok();
    assert!(client.get("large").ok().text() == value);
    let found = attributes(&mut client, "large", 0, &["user.a[0]", "_sys"]);
    assert_eq!(found, ["1", "true"]);
    drop(client);
    node.shutdown().unwrap();
}

/// The stale mark of a document goes with its value; other attributes stay.
#[test]
fn a_new_value_removes_the_stale_mark() {
    let mut client = Client::ready(shared());
    let has = |client: &mut Client| {
        let names = attributes(client, "at-stale", 0, &["$XTOC"]);
        names[0].contains("memcached_stale")
    };
    let mark = |client: &mut Client| {
        let mark = [(DICT_UPSERT, XATTR, "memcached_stale", "true")];
        client.call(&changes("at-stale", &mark)).ok();
        assert!(has(client));
    };
    attributed(&mut client, "at-stale");
    mark(&mut client);
    client
        .call(&Request::of(Opcode::APPEND, "at-stale").value(" "))
        .ok();
    assert!(has(&mut client), "what is added to it is of a stale value");
    client.set("at-stale", "6").ok();
    assert!(!has(&mut client));
    let found = attributes(&mut client, "at-stale", 0, &["user.a[0]", "_sys", "$XTOC"]);
    assert_eq!(found, ["1", "true", r#"["user","_sys"]"#]);
    // A document without other attributes has none then.
    client.set("at-stale-only", "1").ok();
    let mark = [(DICT_UPSERT, XATTR, "memcached_stale", "true")];
    client.call(&changes("at-stale-only", &mark)).ok();
    client.set("at-stale-only", "2").ok();
    let got = client.get("at-stale-only").ok();
    assert_eq!((got.text().as_str(), got.datatype), ("2", 1));
    assert_eq!(
        attributes(&mut client, "at-stale-only", 0, &["$XTOC"]),
        ["[]"]
    );
}

#[test]
fn whole_writes_keep_attributes() {
    let mut client = Client::ready(shared());
    attributed(&mut client, "at-keep");
    let kept = |client: &mut Client, body: &str, datatype: u8| {
        let got = client.get("at-keep").ok();
        assert_eq!((got.text().as_str(), got.datatype), (body, datatype));
        let found = attributes(client, "at-keep", 0, &["user.a[0]", "_sys", "$XTOC"]);
        assert_eq!(found, ["1", "true", r#"["user","_sys"]"#], "{body}");
    };
    kept(&mut client, r#"{"n":1}"#, 1);
    client.set("at-keep", "5").ok();
    kept(&mut client, "5", 1);
    let counted = client
        .call(&count(Opcode::INCREMENT, "at-keep", 2, 0, 0))
        .ok();
    assert_eq!(counted.value, 7_u64.to_be_bytes());
    kept(&mut client, "7", 1);
    client
        .call(&Request::of(Opcode::APPEND, "at-keep").value("x"))
        .ok();
    client
        .call(&Request::of(Opcode::PREPEND, "at-keep").value("-"))
        .ok();
    kept(&mut client, "-7x", 0);
    let touch = Request::of(Opcode::TOUCH, "at-keep").extras(&3600_u32.to_be_bytes());
    client.call(&touch).ok();
    kept(&mut client, "-7x", 0);
    let locked = Request::of(Opcode::GET_LOCKED, "at-keep").extras(&[0; 4]);
    let locked = client.call(&locked).ok();
    assert_eq!(locked.text(), "-7x");
    client
        .call(&crate::client::set("at-keep", "{}").cas(locked.cas))
        .ok();
    kept(&mut client, "{}", 1);
    let document = attributes(
        &mut client,
        "at-keep",
        0,
        &["$document.datatype", "$document.value_bytes"],
    );
    assert_eq!(document, [r#"["json","xattr"]"#, "2"]);
    // A compressed body behind attributes is stored plain.
    let mut snappy = Client::with(shared(), &sdk_and(&[Feature::SNAPPY]));
    let text = format!("\"{}\"", "x".repeat(500));
    let packed = snap::raw::Encoder::new()
        .compress_vec(text.as_bytes())
        .unwrap();
    snappy
        .call(&crate::client::set("at-keep", packed).datatype(2))
        .ok();
    let got = snappy.get("at-keep").ok();
    assert_eq!((got.text(), got.datatype), (text.clone(), 1));
    kept(&mut client, &text, 1);
}

#[test]
fn tombstones_keep_system_attributes() {
    let mut client = Client::ready(shared());
    attributed(&mut client, "at-gone");
    client.call(&Request::of(Opcode::DELETE, "at-gone")).ok();
    client.get("at-gone").is(Status::KEY_ENOENT);
    client
        .call(&lookups("at-gone", &[(GET, XATTR, "_sys")]))
        .is(Status::KEY_ENOENT);
    let found = lookups(
        "at-gone",
        &[(GET, XATTR, "_sys"), (EXISTS, XATTR, "user"), (0, 0, "")],
    );
    let found = client.call(&with_flags(found, ACCESS_DELETED));
    assert_eq!(found.status, Status::SUBDOC_MULTI_PATH_FAILURE_DELETED);
    let statuses: Vec<u16> = results(&found).iter().map(|(status, _)| *status).collect();
    let missing = Status::SUBDOC_PATH_ENOENT.0;
    assert_eq!(statuses, [0, missing, missing]);
    let single = client.call(&one(GET, "at-gone", "_sys", "", &[XATTR, ACCESS_DELETED]));
    assert_eq!(single.status, Status::SUBDOC_SUCCESS_DELETED);
    assert_eq!(single.text(), "true");
    // A document that is created again does not have them.
    client.set("at-gone", "{}").ok();
    let found = attributes(&mut client, "at-gone", 0, &["_sys", "user", "$XTOC"]);
    assert_eq!(found, ["-", "-", "[]"]);
}

#[test]
fn tombstones_are_created_changed_and_revived() {
    let mut client = Client::ready(shared());
    let key = "at-staged";
    let stage = |flags: u8| {
        let specs = [(DICT_UPSERT, XATTR | P, "txn.op", r#"{"new":[1,2]}"#)];
        with_flags(changes(key, &specs), flags)
    };
    let makes = ADD | CREATE_AS_DELETED | ACCESS_DELETED;
    let made = client.call(&stage(makes));
    assert_eq!(made.status, Status::SUBDOC_SUCCESS_DELETED);
    assert_eq!(made.extras.len(), 16, "its token");
    client.get(key).is(Status::KEY_ENOENT);
    client.call(&stage(makes)).is(Status::KEY_EEXISTS);
    client.call(&stage(0)).is(Status::KEY_ENOENT);
    // Like a transaction of an SDK for a tombstone that it has seen.
    let again = ACCESS_DELETED | CREATE_AS_DELETED;
    client
        .call(&stage(again).cas(made.cas + 1))
        .is(Status::KEY_EEXISTS);
    let again = client.call(&stage(again).cas(made.cas));
    assert_eq!(again.status, Status::SUBDOC_SUCCESS_DELETED);
    let body = changes(key, &[(DICT_ADD, 0, "a", "1")]);
    client
        .call(&with_flags(body, ACCESS_DELETED))
        .is(Status::SUBDOC_DELETED_DOCUMENT_CANT_HAVE_VALUE);
    let revive = changes(
        key,
        &[
            (REPLACE_BODY, XATTR, "txn.op.new", ""),
            (DELETE, XATTR, "txn", ""),
        ],
    );
    let revive = with_flags(revive, ACCESS_DELETED | REVIVE);
    client.call(&revive).ok();
    let got = client.get(key).ok();
    assert_eq!((got.text().as_str(), got.datatype), ("[1,2]", 1));
    assert_eq!(attributes(&mut client, key, 0, &["$XTOC"]), ["[]"]);
    client
        .call(&revive)
        .is(Status::SUBDOC_CAN_ONLY_REVIVE_DELETED_DOCUMENTS);
    // Another client revived it: this one learns that its CAS is stale.
    client
        .call(&revive.clone().cas(made.cas))
        .is(Status::KEY_EEXISTS);
    client
        .call(&revive.cas(got.cas))
        .is(Status::SUBDOC_CAN_ONLY_REVIVE_DELETED_DOCUMENTS);
    let lives = client.call(&with_flags(lookups(key, &[(0, 0, "")]), ACCESS_DELETED));
    assert_eq!(lives.status, Status::SUCCESS);
}

#[test]
fn macros_expand_to_values_of_their_own_change() {
    let mut client = Client::ready(shared());
    let before = client.set("at-macro", r#"{"n":1}"#).ok();
    let macros = [
        (
            DICT_UPSERT,
            XATTR | P | EXPAND,
            "m.cas",
            r#""${Mutation.CAS}""#,
        ),
        (
            DICT_UPSERT,
            XATTR | EXPAND,
            "m.seqno",
            r#""${Mutation.seqno}""#,
        ),
        (
            DICT_UPSERT,
            XATTR | EXPAND,
            "m.crc",
            r#""${Mutation.value_crc32c}""#,
        ),
        (
            DICT_UPSERT,
            XATTR | EXPAND,
            "m.old",
            r#""${$document.CAS}""#,
        ),
        (COUNTER, 0, "n", "1"),
    ];
    let done = client.call(&changes("at-macro", &macros)).ok();
    let crc = crc32c::crc32c(br#"{"n":2}"#);
    let found = attributes(
        &mut client,
        "at-macro",
        0,
        &["m.cas", "m.seqno", "m.crc", "m.old"],
    );
    let expected = [
        format!("\"{:#018x}\"", done.cas.swap_bytes()),
        format!("\"{:#018x}\"", done.seqno()),
        format!("\"{crc:#010x}\""),
        format!("\"{:#018x}\"", before.cas),
    ];
    assert_eq!(found, expected);
    for (text, status) in [
        (r#""${Mutation.cas}""#, Status::SUBDOC_XATTR_UNKNOWN_MACRO),
        (r#""a ${Mutation.CAS}""#, Status::SUBDOC_XATTR_UNKNOWN_MACRO),
        (
            r#""${$document.nope}""#,
            Status::SUBDOC_XATTR_UNKNOWN_VATTR_MACRO,
        ),
    ] {
        let request = one(DICT_UPSERT, "at-macro", "m", text, &[XATTR | EXPAND]);
        client.call(&request).is(status);
    }
}

#[test]
fn binary_attributes_come_back_as_they_were() {
    let mut client = Client::ready(shared());
    client.set("at-binary", "{}").ok();
    let bytes = one(
        DICT_UPSERT,
        "at-binary",
        "b",
        "\u{1}\u{0}x",
        &[XATTR | BINARY],
    );
    client.call(&bytes).ok();
    let plain = client.call(&one(GET, "at-binary", "b", "", &[XATTR])).ok();
    assert_eq!(plain.text(), "\"cb-content-base64-encoded:AQB4\"");
    let back = client
        .call(&one(GET, "at-binary", "b", "", &[XATTR | BINARY]))
        .ok();
    assert_eq!(back.value, b"\x01\0x");
    let body = one(REPLACE_BODY, "at-binary", "b", "", &[XATTR | BINARY]);
    client.call(&body).ok();
    assert_eq!(client.get("at-binary").ok().value, b"\x01\0x");
    client
        .call(&one(DICT_UPSERT, "at-binary", "t", "1", &[XATTR]))
        .ok();
    client
        .call(&one(GET, "at-binary", "t", "", &[XATTR | BINARY]))
        .is(Status::SUBDOC_FIELD_NOT_BINARY_VALUE);
}

#[test]
fn impossible_attributes_are_refused() {
    let mut client = Client::ready(shared());
    client.set("at-bad", r#"{"a":1}"#).ok();
    let long = "x".repeat(16);
    for (path, status) in [
        ("$document", Status::SUBDOC_XATTR_CANT_MODIFY_VATTR),
        ("$nope.a", Status::SUBDOC_XATTR_CANT_MODIFY_VATTR),
        ("_", Status::XATTR_EINVAL),
        ("+a", Status::XATTR_EINVAL),
        (&long, Status::XATTR_EINVAL),
        ("x.a", Status::SUBDOC_PATH_ENOENT),
    ] {
        client
            .call(&one(DICT_UPSERT, "at-bad", path, "1", &[XATTR]))
            .is(status);
    }
    // An invalid name is refused whatever the document is.
    for key in ["at-bad", "at-bad-missing"] {
        let several = [(GET, XATTR, "a"), (GET, XATTR, long.as_str())];
        for request in [one(GET, key, &long, "", &[XATTR]), lookups(key, &several)] {
            client.call(&request).is(Status::XATTR_EINVAL);
        }
    }
    for flags in [
        CREATE_AS_DELETED | MKDOC | REVIVE | ACCESS_DELETED,
        CREATE_AS_DELETED,
        REVIVE,
        MKDOC | ADD,
    ] {
        let request = one(DICT_UPSERT, "at-bad", "x", "1", &[XATTR, flags]);
        client.call(&request).is(Status::EINVAL);
    }
    let body = one(
        DICT_UPSERT,
        "at-bad",
        "x",
        "1",
        &[0, MKDOC | CREATE_AS_DELETED],
    );
    client.call(&body).is(Status::EINVAL);
    assert_eq!(client.get("at-bad").ok().text(), r#"{"a":1}"#);
    let mut plain = Client::with(shared(), &sdk_without(Feature::XATTR));
    for request in [
        one(DICT_UPSERT, "at-bad", "x", "1", &[XATTR]),
        lookups("at-bad", &[(GET, XATTR, "$document")]),
    ] {
        plain.call(&request).is(Status::NOT_SUPPORTED);
    }
    assert!(SDK.contains(&Feature::XATTR));
}

/// User attributes count with the body; system attributes have their own limit.
#[test]
fn attributes_are_bounded() {
    const MIB: usize = 1 << 20;
    let mut client = Client::ready(shared());
    client.set("at-large", "{}").ok();
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    let put = |name: &str, bytes| one(DICT_UPSERT, "at-large", name, &text(bytes), &[XATTR]);
    client.call(&put("_s", MIB)).is(Status::E2BIG);
    client.call(&put("_s", MIB - 100)).ok();
    client.call(&put("u", 12 * MIB)).ok();
    client
        .call(&crate::client::set("at-large", text(9 * MIB)))
        .is(Status::E2BIG);
    client
        .call(&crate::client::set("at-large", text(7 * MIB)))
        .ok();
    let append = Request::of(Opcode::APPEND, "at-large").value("x".repeat(MIB + 100));
    client.call(&append).is(Status::E2BIG);
    client.call(&put("u", 13 * MIB)).is(Status::E2BIG);
    client.call(&Request::of(Opcode::DELETE, "at-large")).ok();
}
