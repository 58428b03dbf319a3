//! Tests of size limits, and of frames that cannot be parsed.

use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, sdk_without, set};
use crate::place::{on_both, shared};

const VALUE_MAX: usize = 20 << 20;

#[test]
fn the_largest_value() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let value = vec![b'x'; VALUE_MAX];
        client.set("big", &value).ok();
        assert!(client.get("big").ok().value == value);
        client
            .set("big", [&value[..], b"x"].concat())
            .is(Status::E2BIG);
        client
            .call(&Request::of(Opcode::APPEND, "big").value("x"))
            .is(Status::E2BIG);
        client.call(&Request::of(Opcode::APPEND, "big")).ok();
        assert_eq!(client.get("big").ok().value.len(), VALUE_MAX);
        // Up to a frame of 30 MiB the answer is a proper refusal.
        let most = (30 << 20) - 24 - 8 - 4;
        client.set("big", vec![b'x'; most]).is(Status::E2BIG);
        client.call(&Request::of(Opcode::DELETE, "big")).ok();
    });
}

#[test]
fn a_frame_beyond_30_mib_ends_the_connection() {
    let mut client = Client::ready(shared());
    let mut bytes = set("big", vec![b'x'; 64]).bytes();
    let claim: u32 = (30 << 20) - 24;
    bytes[8..12].copy_from_slice(&(claim + 1).to_be_bytes());
    client.send(&bytes);
    client.expect_end();
    // A length of almost 4 GiB is refused before memory is reserved for it.
    let mut client = Client::ready(shared());
    bytes[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    client.send(&bytes);
    client.expect_end();
}

#[test]
fn a_client_before_login_may_send_16_kib() {
    let frame_of = |bytes: usize| Request::new(Opcode::HELLO).key(vec![b'a'; bytes - 24]);
    let mut client = Client::connect(shared());
    client.call(&frame_of(16 << 10)).ok();
    client.send(&frame_of((16 << 10) + 1).bytes());
    client.expect_end();
    let mut client = Client::connect(shared());
    client.log_in().ok();
    client.call(&frame_of((16 << 10) + 1)).ok();
}

#[test]
fn bytes_that_are_no_frame() {
    for magic in [0x00, 0x7f, 0x81, 0x18, 0x84, 0xff] {
        let mut client = Client::ready(shared());
        let mut bytes = Request::new(Opcode::NOOP).bytes();
        bytes[0] = magic;
        client.pipeline(&[Request::new(Opcode::NOOP)]);
        client.send(&bytes);
        client.answer().ok();
        client.expect_end();
    }
    // Lengths that contradict each other.
    let mut client = Client::ready(shared());
    let mut bytes = Request::new(Opcode::GET).key("key").bytes();
    bytes[11] = 2;
    client.send(&bytes);
    client.expect_end();
    let mut client = Client::connect(shared());
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    client.expect_end();
}

#[test]
fn answers_and_pushes_of_a_client() {
    let mut client = Client::ready(shared());
    let with = |magic, opcode| {
        let mut bytes = Request::new(Opcode(opcode)).opaque(7).bytes();
        bytes[0] = magic;
        bytes
    };
    client.send(&with(0x83, 1));
    client.expect_silence();
    client.send(&with(0x82, 1));
    assert_eq!(client.answer().status, Status::NOT_SUPPORTED);
    client.send(&with(0x82, 9));
    assert_eq!(client.answer().status, Status::UNKNOWN_COMMAND);
    client.expect_silence();
}

#[test]
fn the_longest_keys() {
    let mut client = Client::ready(shared());
    let mut bare = Client::with(shared(), &sdk_without(Feature::COLLECTIONS));
    let longest = "k".repeat(250);
    client.set(&longest, "x").ok();
    assert_eq!(client.get(&longest).ok().value, b"x");
    let raw = Request::of(Opcode::GETK, &longest).key(&longest);
    assert_eq!(bare.call(&raw).ok().key, longest.as_bytes());
    let over = "k".repeat(251);
    client.set(&over, "x").is(Status::EINVAL);
    bare.call(&set(&over, "x").key(&over)).is(Status::EINVAL);
    client
        .call(&set("x", "x").key(vec![b'k'; 60_000]))
        .is(Status::EINVAL);
    client.call(&set("x", "x").key(b"\0")).is(Status::EINVAL);
    client.call(&set("x", "x").key(b"")).is(Status::EINVAL);
    // Keys are bytes.
    let odd = "\u{0}\u{1f980} \n\u{ff}";
    client.set(odd, "crab").ok();
    assert_eq!(client.get(odd).ok().value, b"crab");
}

#[test]
fn every_opcode_is_answered_whatever_the_frame() {
    let mut client = Client::ready(shared());
    for opcode in (0..=255).map(Opcode) {
        let ends = [
            Opcode::QUIT,
            Opcode::QUITQ,
            Opcode::HELLO,
            Opcode::SELECT_BUCKET,
        ];
        if ends.contains(&opcode) || [Opcode::SASL_AUTH, Opcode::DEL_VBUCKET].contains(&opcode) {
            continue;
        }
        for request in [
            Request::new(opcode).extras(&[0xee; 37]),
            Request::new(opcode).datatype(0xf0),
            Request::new(opcode).infos(&[0x81, 0]).key("k"),
        ] {
            let answer = client.call(&request);
            let status = answer.status;
            assert_ne!(status, Status::SUCCESS, "{request:?}");
            assert_ne!(status, Status::EINTERNAL, "{request:?}");
        }
    }
    client.expect_silence();
}
