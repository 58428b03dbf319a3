//! Tests of requests with several faults: the answer names the first one in the protocol's order (protocol, section 2).

use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, sdk_and, set};
use crate::place::shared;

const UNKNOWN_INFO: [u8; 1] = [0x80];
const SNAPPY: u8 = 2;

fn client() -> Client {
    Client::with(shared(), &sdk_and(&[Feature::SNAPPY]))
}

#[test]
fn faults_are_reported_from_the_outside_in() {
    let mut client = client();
    let not_negotiated = 4;
    // Each request has the fault in its name, and every later one.
    let later = set("order", b"\xff").key(b"\x42").infos(&UNKNOWN_INFO);
    let cases = [
        (
            "datatype",
            later.clone().datatype(8).extras(&[1]),
            "datatype invalid",
        ),
        (
            "extras",
            later.clone().datatype(not_negotiated).extras(&[1]),
            "extras",
        ),
        (
            "key",
            later.clone().datatype(not_negotiated).key(b""),
            "key is required",
        ),
        (
            "datatype mask",
            later.clone().datatype(not_negotiated),
            "not accepted",
        ),
        (
            "snappy",
            later.clone().datatype(SNAPPY).key(b"\x42k"),
            "Snappy",
        ),
    ];
    for (name, request, text) in cases {
        let answer = client.call(&request).is(Status::EINVAL);
        assert!(answer.context().contains(text), "{name}: {}", answer.text());
    }
    client
        .call(&later.clone().key(b"\x42k"))
        .is(Status::UNKNOWN_FRAME_INFO);
    client
        .call(&later.clone().key(b"\x80\0k"))
        .is(Status::UNKNOWN_FRAME_INFO);
    let plain = set("order", "v").vbucket(2000);
    client
        .call(&plain.clone().key(b"\x80\0k"))
        .is(Status::EINVAL);
    client
        .call(&plain.clone().key(b"\x42k"))
        .is(Status::UNKNOWN_COLLECTION);
    client.call(&plain).is(Status::NOT_MY_VBUCKET);
}

#[test]
fn value_faults_come_before_cas_faults() {
    let mut client = client();
    let answer = client.call(&Request::new(Opcode::NOOP).value("x").cas(1).datatype(1));
    assert!(answer.is(Status::EINVAL).context().contains("value"));
    let answer = client.call(&Request::new(Opcode::NOOP).cas(1).datatype(1));
    assert!(answer.is(Status::EINVAL).context().contains("CAS"));
}

#[test]
fn snappy_comes_before_frame_infos_and_keys() {
    let mut client = client();
    let damaged = set("order", b"\xff\xff").datatype(SNAPPY);
    for request in [
        damaged.clone().infos(&UNKNOWN_INFO),
        damaged.clone().infos(&[0x11, 9]),
        damaged.clone().infos(&[0x11, 1]),
        damaged.clone().key(b"\x42k"),
        damaged.clone().vbucket(2000),
        damaged.clone().cas(99),
    ] {
        let answer = client.call(&request).is(Status::EINVAL);
        assert!(
            answer.context().contains("Snappy"),
            "{request:?} {}",
            answer.text()
        );
    }
}

#[test]
fn size_comes_after_the_collection_and_before_the_vbucket() {
    let mut client = client();
    let big = set("order", vec![b'x'; (20 << 20) + 1]);
    client
        .call(&big.clone().key(b"\x42k"))
        .is(Status::UNKNOWN_COLLECTION);
    client.call(&big.vbucket(2000)).is(Status::E2BIG);
}

#[test]
fn the_login_comes_before_everything() {
    let mut client = Client::connect(shared());
    client.hello(&[Feature::XERROR]).ok();
    for request in [
        Request::new(Opcode(0xe9)),
        Request::new(Opcode::NOOP).extras(&[1]).datatype(0xff),
        set("order", "x").infos(&UNKNOWN_INFO),
    ] {
        client.call(&request).is(Status::EACCESS);
    }
}

#[test]
fn the_opcode_comes_before_the_frame() {
    let mut client = client();
    let odd = |opcode| {
        Request::new(Opcode(opcode))
            .extras(&[9; 40])
            .datatype(0xff)
            .infos(&UNKNOWN_INFO)
    };
    client.call(&odd(0xe9)).is(Status::UNKNOWN_COMMAND);
    client.call(&odd(0x30)).is(Status::NOT_SUPPORTED); // RGET, which is retired
    client
        .call(&Request::new(Opcode::FLUSH))
        .is(Status::NOT_SUPPORTED);
    client.call(&odd(0x40)).is(Status::NOT_SUPPORTED); // TAP, which is retired
}

#[test]
fn frame_infos_are_checked_one_by_one() {
    let mut client = client();
    client.set("infos", "x").ok();
    let get = |infos: &[u8]| Request::of(Opcode::GET, "infos").infos(infos);
    client.call(&get(&[0x00])).ok(); // a barrier
    for (infos, status) in [
        (&[0x01, 0][..], Status::EINVAL),      // a barrier with data
        (&[0x11, 1], Status::EINVAL),          // GET cannot be durable
        (&[0x12, 1, 1], Status::EINVAL),       // durability of two bytes
        (&[0x22, 0, 1], Status::SUCCESS),      // a stream id means nothing here
        (&[0x21, 0], Status::EINVAL),          // and has two bytes
        (&[0x30], Status::UNKNOWN_FRAME_INFO), // retired
        (&[0x40], Status::EINVAL),             // no user to impersonate
        (&[0x41, b'u'], Status::EACCESS),      // not served
        (&[0x72, 0, 1], Status::EACCESS),      // not served
        (&[0x50], Status::NOT_SUPPORTED),      // GET sets no expiry
        (&[0x80], Status::UNKNOWN_FRAME_INFO),
        (&[0xf0, 0], Status::UNKNOWN_FRAME_INFO), // id 15, escaped
        (&[0x1f], Status::EINVAL),                // ends within an escape
        (&[0x13, 1], Status::EINVAL),             // ends within its data
    ] {
        assert_eq!(client.call(&get(infos)).status, status, "{infos:02x?}");
    }
    let durable = |infos: &[u8]| set("infos", "y").infos(infos);
    client
        .call(&durable(&[0x11, 9]))
        .is(Status::DURABILITY_INVALID_LEVEL);
    client
        .call(&durable(&[0x13, 1, 0, 0]))
        .is(Status::DURABILITY_INVALID_LEVEL);
    assert_eq!(client.get("infos").value, b"x", "nothing was written");
    client.call(&durable(&[0x11, 1])).ok();
    let touch = Request::of(Opcode::TOUCH, "infos").extras(&[0; 4]);
    let touch = touch.infos(&[0x11, 1]);
    client.call(&touch).is(Status::NOT_SUPPORTED);
}
