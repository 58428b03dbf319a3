//! Tests of HELLO: granted features, their dependencies, and the reset by every HELLO.

use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, SDK, hello, set};
use crate::place::shared;

fn granted(client: &mut Client, features: &[u16]) -> Vec<u16> {
    let features: Vec<Feature> = features.iter().map(|number| Feature(*number)).collect();
    let value = client.hello(&features).ok().value;
    assert_eq!(value.len() % 2, 0);
    value
        .chunks(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
        .collect()
}

#[test]
fn hello_grants_the_lists_of_sdks() {
    let mut client = Client::connect(shared());
    // The lists of the C++ core and of gocbcore.
    let cxx = [
        0x03, 0x06, 0x07, 0x08, 0x0b, 0x0c, 0x10, 0x0f, 0x11, 0x15, 0x12, 0x17, 0x14, 0x1c, 0x21,
        0x0e, 0x0d, 0x1e, 0x0a, 0x04,
    ];
    let expected = [
        0x03, 0x04, 0x06, 0x07, 0x08, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x14,
        0x15, 0x17, 0x1c, 0x1e, 0x21,
    ];
    assert_eq!(granted(&mut client, &cxx), expected);
    let go = [
        0x02, 0x06, 0x08, 0x1e, 0x1d, 0x0c, 0x07, 0x0b, 0x16, 0x04, 0x0a, 0x13, 0x0f, 0x12, 0x0e,
        0x1f, 0x10, 0x17, 0x19, 0x14, 0x1c, 0x11, 0x1a,
    ];
    let expected = [
        0x04, 0x06, 0x07, 0x08, 0x0a, 0x0b, 0x0c, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x17,
        0x19, 0x1c, 0x1d, 0x1e, 0x1f,
    ];
    assert_eq!(granted(&mut client, &go), expected);
    assert_eq!(granted(&mut client, &[0x26]), [0x26], "of change streams");
    assert_eq!(granted(&mut client, &[7, 7, 7]), [7], "once");
    assert_eq!(granted(&mut client, &[]), [0; 0]);
    assert_eq!(granted(&mut client, &[0, 1, 2, 5, 9, 0x16, 0x7fff]), [0; 0]);
    assert_eq!(
        granted(&mut client, &[0x0c, 0x0d, 0x1f]),
        [0x0c, 0x1f],
        "brief wins"
    );
}

#[test]
fn a_missing_dependency_fails_the_whole_hello() {
    for features in [
        &[0x0d][..],
        &[0x1f],
        &[0x15],
        &[0x18],
        &[3, 5],
        &[0x22],
        &[0x24],
    ] {
        let mut client = Client::connect(shared());
        let all: Vec<Feature> = [7].iter().chain(features).map(|n| Feature(*n)).collect();
        let answer = client.hello(&all).is(Status::EINVAL);
        // XERROR was not enabled either, so there is no text.
        assert_eq!(answer.value, b"", "{features:?}");
    }
    let mut client = Client::connect(shared());
    client.hello(&[Feature::XERROR]).ok();
    client
        .call(&Request::new(Opcode::HELLO).value([0]))
        .is(Status::EINVAL);
}

#[test]
fn every_hello_replaces_the_previous_one() {
    let mut client = Client::ready(shared());
    let token = client.set("hello", "{}").ok();
    assert_eq!(token.extras.len(), 16);
    client.hello(&[Feature::XERROR]).ok();
    // Without collections the prefix is part of the key, for example.
    let bare = Request::of(Opcode::GET, "hello").key("hello");
    let got = client.call(&bare).ok();
    assert_eq!((got.datatype, got.value.as_slice()), (0, &b"{}"[..]));
    let stored = client.call(&set("hello", "{}").key("hello")).ok();
    assert!(stored.extras.is_empty(), "no token");
    client.hello(&SDK).ok();
    assert_eq!(client.get("hello").ok().datatype, 1);
}

#[test]
fn an_answer_to_hello_lists_the_granted_features() {
    let mut client = Client::connect(shared());
    let answer = client.hello(&[Feature::TRACING]).ok();
    assert_eq!((answer.magic, answer.duration.is_some()), (0x18, true));
    let answer = client.hello(&[]).ok();
    assert_eq!((answer.magic, answer.duration), (0x81, None));
}

#[test]
fn every_answer_contains_its_duration() {
    let mut client = Client::with(shared(), &crate::client::sdk_and(&[Feature::TRACING]));
    let requests = [
        set("traced", "1"),
        Request::of(Opcode::GET, "traced"),
        Request::of(Opcode::GETK, "traced"),
        Request::of(Opcode::GET, "traced-no"),
        Request::of(Opcode::GET, "traced").vbucket(2000),
        Request::new(Opcode(0xe9)),
        Request::new(Opcode::NOOP).extras(&[1]),
        Request::new(Opcode::GET_CLUSTER_CONFIG),
        Request::new(Opcode::COLLECTIONS_GET_ID).value("a.b"),
        Request::new(Opcode::OBSERVE).value([0]),
    ];
    for request in requests {
        let answer = client.call(&request);
        assert_eq!(
            (answer.magic, answer.duration.is_some()),
            (0x18, true),
            "{request:?}"
        );
        assert_eq!(answer.bytes[24], 0x02);
    }
    client.send(&Request::new(Opcode::STAT).key("memory").bytes());
    loop {
        let row = client.answer().ok();
        assert!(row.duration.is_some());
        if row.key.is_empty() && row.value.is_empty() {
            break;
        }
    }
}

#[test]
fn agents_of_any_bytes_are_taken() {
    let mut client = Client::connect(shared());
    let json = r#"{"a":"it/1.0","i":"0123456789abcdef/0123456789abcdef"}"#;
    for agent in [
        &b""[..],
        b"{",
        b"{\"a\":5}",
        b"\xff\xfe",
        json.as_bytes(),
        &[b'x'; 4000],
    ] {
        client.call(&hello(&[Feature::XERROR]).key(agent)).ok();
    }
    client.log_in().ok();
    client.send(&Request::new(Opcode::STAT).key("connections self").bytes());
    let row = client.answer().ok();
    assert!(row.text().contains("xxxx"), "{}", row.text());
}
