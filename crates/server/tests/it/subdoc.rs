//! Tests of parts of documents over the wire: forms of answers, and refusals.

use wire::{Opcode, Status};

use crate::client::{Answer, Client, Request};
use crate::place::{set_vbucket, shared};

pub(crate) const GET: u8 = 0xc5;
pub(crate) const EXISTS: u8 = 0xc6;
pub(crate) const DICT_ADD: u8 = 0xc7;
pub(crate) const DICT_UPSERT: u8 = 0xc8;
pub(crate) const DELETE: u8 = 0xc9;
pub(crate) const COUNTER: u8 = 0xcf;
pub(crate) const XATTR: u8 = 0x04;
pub(crate) const MKDOC: u8 = 0x01;
pub(crate) const ADD: u8 = 0x02;

/// Returns a request for one path.
pub(crate) fn one(opcode: u8, key: &str, path: &str, value: &str, flags: &[u8]) -> Request {
    let length = u16::try_from(path.len()).unwrap().to_be_bytes();
    let path_flags = flags.first().copied().unwrap_or(0);
    let mut extras = vec![length[0], length[1], path_flags];
    extras.extend(flags.get(1));
    Request::of(Opcode(opcode), key)
        .extras(&extras)
        .value([path, value].concat())
}

pub(crate) fn lookups(key: &str, specs: &[(u8, u8, &str)]) -> Request {
    let mut value = Vec::new();
    for (opcode, flags, path) in specs {
        value.extend([*opcode, *flags, 0, path.len() as u8]);
        value.extend(path.bytes());
    }
    Request::of(Opcode::SUBDOC_MULTI_LOOKUP, key).value(value)
}

pub(crate) fn changes(key: &str, specs: &[(u8, u8, &str, &str)]) -> Request {
    let mut bytes = Vec::new();
    for (opcode, flags, path, value) in specs {
        bytes.extend([*opcode, *flags, 0, path.len() as u8]);
        bytes.extend((value.len() as u32).to_be_bytes());
        bytes.extend(path.bytes().chain(value.bytes()));
    }
    Request::of(Opcode::SUBDOC_MULTI_MUTATION, key).value(bytes)
}

/// Returns the results of the paths of a lookup.
pub(crate) fn results(answer: &Answer) -> Vec<(u16, String)> {
    let (mut rest, mut all) = (answer.value.as_slice(), Vec::new());
    while let [high, low, a, b, c, d, after @ ..] = rest {
        let (found, after) = after.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        let status = u16::from_be_bytes([*high, *low]);
        all.push((status, String::from_utf8(found.to_vec()).unwrap()));
        rest = after;
    }
    assert_eq!(rest, b"");
    all
}

#[test]
fn each_lookup_has_its_own_result() {
    let mut client = Client::ready(shared());
    let cas = client.set("sd-look", r#"{"a":[1,{}]}"#).ok().cas;
    let answer = client.call(&lookups(
        "sd-look",
        &[
            (GET, XATTR, "$document.deleted"),
            (GET, XATTR, "$document.value_bytes"),
            (GET, XATTR, "user"),
            (GET, 0, "a[1]"),
            (EXISTS, 0, "a"),
            (EXISTS, 0, "b"),
            (0xd2, 0, "a"),
            (0, 0, ""),
        ],
    ));
    assert_eq!(answer.status, Status::SUBDOC_MULTI_PATH_FAILURE);
    assert_eq!(answer.cas, cas);
    let missing = Status::SUBDOC_PATH_ENOENT.0;
    let expected = [
        (0, "false"),
        (0, "12"),
        (missing, ""),
        (0, "{}"),
        (0, ""),
        (missing, ""),
        (0, "2"),
        (0, r#"{"a":[1,{}]}"#),
    ];
    let expected = expected.map(|(status, text)| (status, text.to_owned()));
    assert_eq!(results(&answer), expected);
    let single = client.call(&one(GET, "sd-look", "a[0]", "", &[])).ok();
    assert_eq!((single.text().as_str(), single.datatype), ("1", 1));
    client
        .call(&one(GET, "sd-look", "b", "", &[]))
        .is(Status::SUBDOC_PATH_ENOENT);
    client
        .call(&one(GET, "sd-none", "b", "", &[]))
        .is(Status::KEY_ENOENT);
    client.set("sd-raw", "no JSON").ok();
    client
        .call(&one(GET, "sd-raw", "a", "", &[]))
        .is(Status::SUBDOC_DOC_NOT_JSON);
    let whole = client.call(&lookups("sd-raw", &[(0, 0, ""), (GET, 0, "a")]));
    let not_json = Status::SUBDOC_DOC_NOT_JSON.0;
    assert_eq!(
        results(&whole),
        [(0, "no JSON".to_owned()), (not_json, String::new())]
    );
}

#[test]
fn the_clock_of_a_vbucket_is_in_seconds_like_expiries() {
    let mut client = Client::ready(shared());
    let set = Request::of(Opcode::SET, "clocked").extras(&[0, 0, 0, 0, 0, 0, 0x27, 0x10]);
    client.call(&set.value("{}"));
    let specs = [
        (GET, XATTR, "$document.exptime"),
        (GET, XATTR, "$vbucket.HLC.now"),
    ];
    let seconds: Vec<i64> = results(&client.call(&lookups("clocked", &specs)))
        .into_iter()
        .map(|(status, text)| {
            assert_eq!(status, 0, "{text}");
            text.trim_matches('"').parse().unwrap()
        })
        .collect();
    let left = seconds[0] - seconds[1];
    assert!((1..=10_001).contains(&left), "{seconds:?}");
}

#[test]
fn changes_are_made_all_or_none() {
    let mut client = Client::ready(shared());
    client.set("sd-edit", r#"{"n":1}"#).ok();
    let answer = client.call(&changes(
        "sd-edit",
        &[(DICT_UPSERT, 1, "a.b", "2"), (COUNTER, 0, "n", "41")],
    ));
    // The second path, success, two bytes: 42.
    assert_eq!(answer.ok().value, b"\x01\0\0\0\0\0\x0242");
    let answer = client.call(&changes(
        "sd-edit",
        &[(DELETE, 0, "a", ""), (DICT_ADD, 0, "n", "0")],
    ));
    let exists = Status::SUBDOC_PATH_EEXISTS.0.to_be_bytes();
    assert_eq!(answer.status, Status::SUBDOC_MULTI_PATH_FAILURE);
    assert_eq!(answer.value, [1, exists[0], exists[1]]);
    let seen = client.get("sd-edit").ok();
    assert_eq!(seen.text(), r#"{"n":42,"a":{"b":2}}"#);
    client
        .call(&one(DICT_UPSERT, "sd-edit", "x", "1", &[]).cas(seen.cas + 1))
        .is(Status::KEY_EEXISTS);
    let changed = client.call(&one(DICT_UPSERT, "sd-edit", "x", "1", &[]).cas(seen.cas));
    assert_ne!(changed.ok().cas, seen.cas);
    // Missing documents; a path and the whole document.
    let upsert = |flags: &[u8]| one(DICT_UPSERT, "sd-made", "x", "1", flags);
    client.call(&upsert(&[])).is(Status::KEY_ENOENT);
    client.call(&upsert(&[0, ADD])).ok();
    client.call(&upsert(&[0, ADD])).is(Status::KEY_EEXISTS);
    client.call(&upsert(&[0, MKDOC])).ok();
    client.call(&changes("sd-made", &[(1, 0, "", "raw")])).ok();
    assert_eq!(client.get("sd-made").ok().text(), "raw");
    client.call(&changes("sd-made", &[(4, 0, "", "")])).ok();
    client.get("sd-made").is(Status::KEY_ENOENT);
}

/// A client that retries after a stale CAS must not be told of a missing path instead.
#[test]
fn a_stale_cas_is_reported_before_a_path_that_does_not_fit() {
    let mut client = Client::ready(shared());
    let seen = client.set("sd-stale", r#"{"list":[1]}"#).ok().cas;
    client.set("sd-stale", "{}").ok();
    let push = |path| one(0xca, "sd-stale", path, "2", &[]);
    let both = |cas: u64| {
        let specs = [(DICT_UPSERT, 0, "n", "1"), (DELETE, 0, "list", "")];
        changes("sd-stale", &specs).cas(cas)
    };
    client
        .call(&push("list[0]").cas(seen))
        .is(Status::KEY_EEXISTS);
    client.call(&both(seen)).is(Status::KEY_EEXISTS);
    let text = client.set("sd-stale", "text").ok().cas;
    client
        .call(&push("list[0]").cas(seen))
        .is(Status::KEY_EEXISTS);
    client
        .call(&push("list[0]").cas(text))
        .is(Status::SUBDOC_DOC_NOT_JSON);
    client
        .call(&both(text))
        .is(Status::SUBDOC_MULTI_PATH_FAILURE);
    // The CAS of a lock is that of the document.
    let locked = Request::of(Opcode::GET_LOCKED, "sd-stale").extras(&[0; 4]);
    let locked = client.call(&locked).ok().cas;
    let whole = changes("sd-stale", &[(1, 0, "", "7")]);
    client.call(&whole.clone().cas(text)).is(Status::LOCKED);
    client.call(&whole.cas(locked)).ok();
}

#[test]
fn a_document_is_not_made_or_revived_to_be_deleted() {
    let mut client = Client::ready(shared());
    let with = |flags: u8| changes("sd-gone", &[(4, 0, "", "")]).extras(&[flags]);
    client.call(&with(MKDOC)).is(Status::KEY_ENOENT);
    client.call(&with(ADD)).is(Status::KEY_ENOENT);
    client.get("sd-gone").is(Status::KEY_ENOENT);
    client.set("sd-gone", "{}").ok();
    client.call(&with(MKDOC)).ok();
    let (access_deleted, revive) = (0x04, 0x10);
    client
        .call(&with(access_deleted | revive))
        .is(Status::KEY_ENOENT);
    client.get("sd-gone").is(Status::KEY_ENOENT);
}

#[test]
fn impossible_requests_are_refused() {
    let mut client = Client::ready(shared());
    client.set("sd-bad", r#"{"a":1}"#).ok();
    let many = vec![(GET, 0, "a"); 17];
    let cases = [
        (lookups("sd-bad", &[]), Status::SUBDOC_INVALID_COMBO),
        (lookups("sd-bad", &many), Status::SUBDOC_INVALID_COMBO),
        (
            lookups("sd-bad", &[(DICT_ADD, 0, "a")]),
            Status::SUBDOC_INVALID_COMBO,
        ),
        (
            lookups("sd-bad", &[(GET, 0, "a"), (GET, XATTR, "x")]),
            Status::SUBDOC_INVALID_XATTR_ORDER,
        ),
        (
            lookups("sd-bad", &[(GET, 0x20, "a")]),
            Status::SUBDOC_XATTR_INVALID_FLAG_COMBO,
        ),
        (lookups("sd-bad", &[(GET, 0x02, "a")]), Status::EINVAL),
        (lookups("sd-bad", &[(GET, 0, "")]), Status::EINVAL),
        (
            Request::of(Opcode::SUBDOC_MULTI_LOOKUP, "sd-bad").value([GET, 0, 0, 9, b'a']),
            Status::EINVAL,
        ),
        (
            changes("sd-bad", &[(4, 0, "", ""), (DELETE, 0, "a", "")]),
            Status::SUBDOC_INVALID_COMBO,
        ),
        (
            changes("sd-bad", &[(DICT_ADD, XATTR, "$document", "1")]),
            Status::SUBDOC_XATTR_CANT_MODIFY_VATTR,
        ),
    ];
    refused(&mut client, &cases);
}

/// Checks that each request gets its status, and that the document does not change.
fn refused(client: &mut Client, cases: &[(Request, Status)]) {
    for (request, status) in cases {
        let answer = client.call(request);
        assert_eq!(answer.status, *status, "{request:?}");
    }
    assert_eq!(client.get("sd-bad").ok().text(), r#"{"a":1}"#);
}

#[test]
fn impossible_single_paths_are_refused() {
    let mut client = Client::ready(shared());
    client.set("sd-bad", r#"{"a":1}"#).ok();
    let deep = vec!["a"; 33].join(".");
    let cases = [
        (one(DICT_ADD, "sd-bad", "b", "1", &[0, 3]), Status::EINVAL),
        (
            one(DICT_ADD, "sd-bad", "b", "1", &[0, 0x20]),
            Status::EINVAL,
        ),
        (one(DICT_ADD, "sd-bad", "b", "", &[]), Status::EINVAL),
        (one(GET, "sd-bad", "a", "x", &[]), Status::EINVAL),
        (
            one(GET, "sd-bad", &deep, "", &[]),
            Status::SUBDOC_PATH_E2BIG,
        ),
        (
            one(GET, "sd-bad", "a..b", "", &[]),
            Status::SUBDOC_PATH_EINVAL,
        ),
        (
            one(GET, "sd-bad", "$nope", "", &[XATTR]),
            Status::SUBDOC_XATTR_UNKNOWN_VATTR,
        ),
        (
            Request::of(Opcode(GET), "sd-bad")
                .extras(&[0, 9, 0])
                .value("a"),
            Status::EINVAL,
        ),
    ];
    refused(&mut client, &cases);
}

/// Sixteen copies of a large document exceed the limit of an answer.
#[test]
fn answers_are_bounded() {
    let mut client = Client::ready(shared());
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(5 << 20));
    client.set("sd-large", &text).ok();
    let whole = (0, 0, "");
    let answer = client.call(&lookups("sd-large", &[whole; 2])).ok();
    assert_eq!(results(&answer)[1].1.len(), text.len());
    client
        .call(&lookups("sd-large", &[whole; 16]))
        .is(Status::E2BIG);
    client.call(&Request::of(Opcode::DELETE, "sd-large")).ok();
}

#[test]
fn replicas_are_read_on_request() {
    let node = crate::place::own();
    let mut client = Client::ready(node.ports().kv);
    client.set("sd-rep", r#"{"a":1}"#).ok();
    let vb = Request::of(Opcode::GET, "sd-rep").vbucket;
    set_vbucket(&mut client, vb, 2);
    client
        .call(&one(GET, "sd-rep", "a", "", &[]))
        .is(Status::NOT_MY_VBUCKET);
    let read = client.call(&one(GET, "sd-rep", "a", "", &[0, 0x20]));
    assert_eq!(read.ok().text(), "1");
}
