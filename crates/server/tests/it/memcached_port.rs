//! Tests of clients of the memcached port: they may use documents of one bucket, and little else.

use wire::{Feature, Opcode, Status};

use crate::client::{Client, PASSWORD, Request, SDK, USER, hello, plain, set};
use crate::place::{asking_for_logins, shared, shared_classic};

/// Opcodes that are never refused, whatever the request contains.
const ALLOWED: &[Opcode] = &[
    Opcode::GET,
    Opcode::GETQ,
    Opcode::GETK,
    Opcode::GETKQ,
    Opcode::SET,
    Opcode::SETQ,
    Opcode::ADD,
    Opcode::ADDQ,
    Opcode::REPLACE,
    Opcode::REPLACEQ,
    Opcode::DELETE,
    Opcode::DELETEQ,
    Opcode::INCREMENT,
    Opcode::INCREMENTQ,
    Opcode::DECREMENT,
    Opcode::DECREMENTQ,
    Opcode::APPEND,
    Opcode::APPENDQ,
    Opcode::PREPEND,
    Opcode::PREPENDQ,
    Opcode::TOUCH,
    Opcode::GAT,
    Opcode::GATQ,
    Opcode::GET_LOCKED,
    Opcode::UNLOCK_KEY,
    Opcode::GET_META,
    Opcode::GETQ_META,
    Opcode::GET_REPLICA,
    Opcode::GET_EX,
    Opcode::GET_EX_REPLICA,
    Opcode::SUBDOC_GET,
    Opcode::SUBDOC_EXISTS,
    Opcode::SUBDOC_GET_COUNT,
    Opcode::SUBDOC_MULTI_LOOKUP,
    Opcode::SUBDOC_DICT_ADD,
    Opcode::SUBDOC_DICT_UPSERT,
    Opcode::SUBDOC_DELETE,
    Opcode::SUBDOC_REPLACE,
    Opcode::SUBDOC_ARRAY_PUSH_LAST,
    Opcode::SUBDOC_ARRAY_PUSH_FIRST,
    Opcode::SUBDOC_ARRAY_INSERT,
    Opcode::SUBDOC_ARRAY_ADD_UNIQUE,
    Opcode::SUBDOC_COUNTER,
    Opcode::SUBDOC_MULTI_MUTATION,
    Opcode::SUBDOC_REPLACE_BODY_WITH_XATTR,
    Opcode::FLUSH,
    Opcode::FLUSHQ,
    Opcode::STAT,
    Opcode::NOOP,
    Opcode::VERSION,
    Opcode::QUIT,
    Opcode::QUITQ,
    Opcode::HELLO,
    Opcode::SASL_LIST_MECHS,
    Opcode::SASL_AUTH,
    Opcode::SASL_STEP,
    Opcode::GET_ERROR_MAP,
];

/// Checks that opcodes are refused on connections of `client`, except for the allowed ones.
fn only_the_allowed_are_served(client: impl Fn() -> Client) {
    for number in 0..=255 {
        let opcode = Opcode(number);
        let mut client = client();
        let request = Request::new(opcode).opaque(7);
        client.pipeline(&[request, Request::new(Opcode::NOOP).opaque(8)]);
        // QUITQ has no answer, and refusals always have one.
        let refused = client
            .next()
            .is_some_and(|answer| answer.status == Status::EACCESS);
        assert_eq!(refused, !ALLOWED.contains(&opcode), "{opcode}");
    }
}

#[test]
fn the_memcached_port_serves_documents_and_nothing_else() {
    only_the_allowed_are_served(|| Client::connect(shared_classic()));
}

#[test]
fn neither_hello_nor_a_login_gives_more_on_the_memcached_port() {
    only_the_allowed_are_served(|| {
        let mut client = Client::connect(shared_classic());
        client.call(&plain(USER, PASSWORD)).ok();
        client.call(&hello(&SDK)).ok();
        client.call(&plain(USER, PASSWORD)).ok();
        client
    });
    let mut client = Client::connect(shared_classic());
    client
        .call(&hello(&[Feature::XERROR, Feature::COLLECTIONS]))
        .ok();
    let refused = Request::new(Opcode::SELECT_BUCKET).key("other");
    let answer = client.call(&refused).is(Status::EACCESS);
    assert!(answer.context().contains("one bucket"));
    client.call(&set("memcached-port", "x")).ok();
    assert_eq!(Client::ready(shared()).get("memcached-port").value, b"x");
}

#[test]
fn harmless_statistics_of_the_memcached_port() {
    let mut client = Client::connect(shared_classic());
    let groups = [
        ("", Status::SUCCESS),
        ("memory", Status::SUCCESS),
        ("items", Status::KEY_ENOENT),
        ("reset", Status::EACCESS),
        ("reset timings", Status::EACCESS),
        ("connections", Status::EACCESS),
        ("vbucket-details", Status::EACCESS),
        ("dcp", Status::EACCESS),
    ];
    for (group, status) in groups {
        let mut answer = client
            .call(&Request::new(Opcode::STAT).key(group))
            .is(status);
        while !answer.key.is_empty() {
            answer = client.answer().ok();
        }
    }
}

#[test]
fn a_memcached_port_may_ask_for_logins() {
    let node = asking_for_logins();
    let port = node.ports().memcached.unwrap();
    let mut client = Client::connect(port);
    client
        .call(&Request::new(Opcode::VERSION))
        .is(Status::EACCESS);
    let get = Request::new(Opcode::GET).key("k");
    client.call(&get).is(Status::EACCESS);
    client.call(&plain(USER, "wrong")).is(Status::AUTH_ERROR);
    client.call(&get).is(Status::EACCESS);
    client.call(&plain(USER, PASSWORD)).ok();
    client.call(&get).is(Status::KEY_ENOENT);
    only_the_allowed_are_served(|| {
        let mut client = Client::connect(port);
        client.call(&plain(USER, PASSWORD)).ok();
        client
    });
    node.shutdown().unwrap();
}
