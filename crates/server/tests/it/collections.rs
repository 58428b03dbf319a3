//! Tests of collections: the default one, its paths, and errors of others.

use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, sdk_without, set};
use crate::place::shared;

const UNKNOWN: &str =
    r#"{"error":{"context":"Unknown scope or collection in operation"},"manifest_uid":"0"}"#;

#[test]
fn paths() {
    let mut client = Client::ready(shared());
    let get_id = |path: &str| Request::new(Opcode::COLLECTIONS_GET_ID).value(path);
    for path in ["_default._default", "_default.", "._default", "."] {
        let answer = client.call(&get_id(path)).ok();
        assert_eq!(
            (answer.extras.as_slice(), answer.value.len()),
            (&[0; 12][..], 0),
            "{path}"
        );
    }
    let old = Request::new(Opcode::COLLECTIONS_GET_ID).key("_default._default");
    assert_eq!(
        client.call(&old).ok().extras,
        [0; 12],
        "old clients send it as the key"
    );
    client
        .call(&old.value("_default._default"))
        .is(Status::EINVAL);
    for path in ["a", "_default", "a.b.c", "_default._default."] {
        client.call(&get_id(path)).is(Status::EINVAL);
    }
    for (path, status) in [
        ("_default.nope", Status::UNKNOWN_COLLECTION),
        ("nope._default", Status::UNKNOWN_SCOPE),
        ("nope.nope", Status::UNKNOWN_SCOPE),
    ] {
        let answer = client.call(&get_id(path)).is(status);
        assert_eq!(
            (answer.text().as_str(), answer.datatype),
            (UNKNOWN, 1),
            "{path}"
        );
    }
    let scope = |path: &str| Request::new(Opcode::COLLECTIONS_GET_SCOPE_ID).value(path);
    assert_eq!(client.call(&scope("_default")).ok().extras, [0; 12]);
    assert_eq!(
        client.call(&scope("nope")).is(Status::UNKNOWN_SCOPE).text(),
        UNKNOWN
    );
}

#[test]
fn the_manifest() {
    let mut client = Client::ready(shared());
    let answer = client
        .call(&Request::new(Opcode::COLLECTIONS_GET_MANIFEST))
        .ok();
    let manifest = answer.json();
    assert_eq!((manifest["uid"].as_str(), answer.datatype), (Some("0"), 1));
    let scope = &manifest["scopes"][0];
    assert_eq!(
        (scope["name"].as_str(), scope["uid"].as_str()),
        (Some("_default"), Some("0"))
    );
    assert_eq!(scope["collections"][0]["name"], "_default");
}

#[test]
fn unknown_collections() {
    let mut client = Client::ready(shared());
    for key in [
        &b"\x08k"[..],
        b"\x42k",
        b"\xc4\x20k",
        b"\xff\xff\xff\xff\x0fk",
    ] {
        let answer = client.call(&Request::new(Opcode::GET).key(key));
        assert_eq!(answer.status, Status::UNKNOWN_COLLECTION, "{key:?}");
        assert_eq!((answer.text().as_str(), answer.datatype), (UNKNOWN, 1));
        let observe = [&[0, 0, 0, key.len() as u8], key].concat();
        client
            .call(&Request::new(Opcode::OBSERVE).value(observe))
            .is(Status::UNKNOWN_COLLECTION);
    }
    let random = Request::new(Opcode::GET_RANDOM_KEY).extras(&[0, 0, 0, 9]);
    client.call(&random).is(Status::UNKNOWN_COLLECTION);
    let seqnos = Request::new(Opcode::GET_ALL_VB_SEQNOS).extras(&[0, 0, 0, 1, 0, 0, 0, 9]);
    client.call(&seqnos).is(Status::UNKNOWN_COLLECTION);
}

#[test]
fn prefixes_that_break_the_rules() {
    let mut client = Client::ready(shared());
    let keys: [&[u8]; 7] = [
        b"\0",
        b"\x01k",
        b"\x07k",
        b"\x80\0k",
        b"\x88\x80\x80\x80\x80\x01k",
        b"\x80\x80\x80\x80\x10k",
        b"\x80",
    ];
    for key in keys {
        let answer = client.call(&Request::new(Opcode::GET).key(key));
        assert_eq!(answer.status, Status::EINVAL, "{key:?} {}", answer.text());
        assert!(!answer.context().is_empty());
    }
}

#[test]
fn the_vbucket_ignores_the_prefix() {
    let mut client = Client::ready(shared());
    client.set("prefix", "x").ok();
    let mut bare = Client::with(shared(), &sdk_without(Feature::COLLECTIONS));
    let got = bare
        .call(&Request::of(Opcode::GET, "prefix").key("prefix"))
        .ok();
    assert_eq!(got.value, b"x");
    // On such a connection a prefix is part of the key.
    bare.call(&set("prefix", "y").key(b"\0prefix")).ok();
    assert_eq!(client.get("prefix").value, b"x");
    assert_eq!(
        client
            .call(&Request::of(Opcode::GET, "prefix").key(b"\0\0prefix"))
            .value,
        b"y"
    );
}
