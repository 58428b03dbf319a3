//! Tests of clients that know nothing of Couchbase, and of clients without XERROR.

use wire::{Feature, Opcode, Status};

use crate::client::{Client, PASSWORD, Request, USER, count, plain, set, store};
use crate::place::{shared, shared_classic};

/// Returns a request like that of a classic client: vBucket 0, no prefix.
fn classic(request: Request) -> Request {
    let key = request.key[1..].to_vec();
    request.vbucket(0).key(key)
}

#[test]
fn a_classic_client_after_sasl() {
    let mut client = Client::connect(shared());
    client
        .call(&Request::new(Opcode::VERSION))
        .is(Status::EACCESS);
    let mechanisms = client.call(&Request::new(Opcode::SASL_LIST_MECHS)).ok();
    assert!(mechanisms.text().ends_with("PLAIN"));
    client.call(&plain(USER, PASSWORD)).ok();
    for number in 0..50 {
        let key = format!("classic-{number}");
        let stored = client
            .call(&classic(store(Opcode::SET, &key, "1", 3, 0)))
            .ok();
        assert!(stored.extras.is_empty(), "no token");
        let got = client.call(&classic(Request::of(Opcode::GET, &key))).ok();
        assert_eq!(
            (got.extras.as_slice(), got.datatype),
            (&[0, 0, 0, 3][..], 0)
        );
        // The document is where SDKs look for it.
        let mut sdk = Client::ready(shared());
        assert_eq!(sdk.get(&key).ok().value, b"1");
        let observe = [&[0, 0, 0, key.len() as u8], key.as_bytes()].concat();
        let observed = client
            .call(&Request::new(Opcode::OBSERVE).value(observe))
            .ok();
        assert!(observed.value[4 + key.len()] < 2, "it is found");
        client
            .call(&classic(count(Opcode::INCREMENT, &key, 1, 0, 0)))
            .ok();
        client
            .call(&classic(Request::of(Opcode::DELETE, &key)))
            .ok();
    }
}

#[test]
fn the_memcached_port_asks_for_no_login() {
    let mut client = Client::connect(shared_classic());
    let version = client.call(&Request::new(Opcode::VERSION)).ok();
    assert!(
        version
            .text()
            .starts_with(|c: char| ('1'..='9').contains(&c))
    );
    client.call(&classic(set("trusted", "x"))).ok();
    assert_eq!(Client::ready(shared()).get("trusted").value, b"x");
    client.pipeline(&[
        classic(Request::of(Opcode::GETKQ, "trusted")),
        classic(Request::of(Opcode::GETKQ, "trusted-no")),
        Request::new(Opcode::NOOP),
    ]);
    assert_eq!(client.answer().ok().key, b"trusted");
    assert_eq!(client.answer().ok().opcode, Opcode::NOOP);
    client.call(&Request::new(Opcode::QUIT)).ok();
    client.expect_end();
}

#[test]
fn hello_turns_a_classic_client_into_an_sdk() {
    let mut client = Client::connect(shared());
    client.log_in().ok();
    client.hello(&[Feature::XERROR]).ok();
    client.get("x").is(Status::NO_BUCKET);
    client.select("default").ok();
    client.get("x").is(Status::KEY_ENOENT);
    let wrong = Request::of(Opcode::GET, "x").vbucket(3000);
    client.call(&wrong).is(Status::NOT_MY_VBUCKET);
}

#[test]
fn statuses_for_clients_without_xerror() {
    let mut client = Client::with(shared(), &[Feature::COLLECTIONS]);
    client.set("old", "1").ok();
    let lock = Request::of(Opcode::GET_LOCKED, "old").extras(&[0, 0, 0, 9]);
    let cas = client.call(&lock).ok().cas;
    for (request, status) in [
        (lock, Status::ETMPFAIL),
        (set("old", "2"), Status::KEY_EEXISTS),
        (Request::of(Opcode::DELETE, "old"), Status::KEY_EEXISTS),
        (
            Request::of(Opcode::UNLOCK_KEY, "old").cas(1),
            Status::ETMPFAIL,
        ),
        (
            Request::new(Opcode::GET).key(b"\x42k"),
            Status::UNKNOWN_COLLECTION,
        ),
        (Request::new(Opcode::NOOP).extras(&[1]), Status::EINVAL),
        (Request::new(Opcode(0xe9)), Status::UNKNOWN_COMMAND),
        (
            Request::new(Opcode::SELECT_BUCKET).key("nope"),
            Status::EACCESS,
        ),
    ] {
        let answer = client.call(&request).is(status);
        assert_eq!(
            (answer.value.as_slice(), answer.datatype),
            (&b""[..], 0),
            "{request:?}"
        );
    }
    let unlock = Request::of(Opcode::UNLOCK_KEY, "old").cas(cas);
    client.call(&unlock).ok();
    client.call(&unlock).is(Status::ETMPFAIL);
    let mut client = Client::with(shared(), &[]);
    let id = Request::new(Opcode::COLLECTIONS_GET_ID).value("nope.nope");
    client.call(&id).is(Status::EINVAL);
}

#[test]
fn without_bucket_and_xerror_the_connection_ends() {
    let mut client = Client::logged_in(shared(), &[Feature::COLLECTIONS]);
    client.call(&Request::new(Opcode::NOOP)).ok();
    client.send(&Request::of(Opcode::GET, "x").bytes());
    client.expect_end();
}

#[test]
fn texts_for_clients_with_xerror() {
    let features = [Feature::XERROR, Feature::COLLECTIONS];
    for (json, datatype) in [(false, 0), (true, 1)] {
        let more: &[Feature] = if json { &[Feature::JSON] } else { &[] };
        let mut client = Client::with(shared(), &[&features, more].concat());
        for request in [
            Request::new(Opcode::NOOP).extras(&[1]),
            Request::new(Opcode::NOOP).key("k"),
            Request::new(Opcode::NOOP).value("v"),
            Request::new(Opcode::NOOP).cas(1),
            Request::new(Opcode::SELECT_BUCKET).key("nope"),
            Request::new(Opcode::DCP_ADD_STREAM).extras(&[0; 4]),
            set("long", "").key([&[0][..], &[b'k'; 251]].concat()),
        ] {
            let answer = client.call(&request);
            assert_ne!(answer.status, Status::SUCCESS);
            assert_eq!(answer.datatype, datatype);
            assert!(!answer.context().is_empty(), "{request:?}");
        }
    }
}
