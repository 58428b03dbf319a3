//! Requests that were observed on the wire of a reference daemon, replayed byte by byte. Answers are compared whole,
//! except for parts that differ per run: CAS, seqno, UUID, opaque, times and the reference of an error. If this node
//! answers differently on purpose, the test states the answer and the reason; `docs/compatibility.md` does so, too.

use wire::{Feature, Opcode, Status};

use crate::client::{Answer, Client, PASSWORD, Request, USER, hex, plain};
use crate::place::shared;

/// The observed HELLO.
const HELLO: &str =
    "801f000300000000000000110000000200000000000000006f627300020004000600070008000b0012";

fn observer() -> Client {
    let mut client = Client::connect(shared());
    client.send(&hex(HELLO));
    let granted = "811f0000000000000000000c0000000200000000000000000004000600070008000b0012";
    assert_eq!(client.answer().bytes, hex(granted));
    client.call(&plain(USER, PASSWORD)).ok();
    client.select("default").ok();
    client
}

/// Sends an observed frame.
fn replay(client: &mut Client, request: &str) -> Answer {
    client.send(&hex(request));
    client.answer()
}

/// Checks that the answer is the observed one, except for the CAS (where there is one) and for `free`: offsets behind
/// the header that differ per run.
#[track_caller]
fn same(answer: &Answer, seen: &str, free: &[usize]) {
    let seen = hex(seen);
    assert_eq!(answer.bytes.len(), seen.len(), "{answer:?}");
    for (at, (ours, theirs)) in answer.bytes.iter().zip(&seen).enumerate() {
        let cas = (16..24).contains(&at) && seen[16..24] != [0; 8];
        let free = at.checked_sub(24).is_some_and(|at| free.contains(&at));
        if !cas && !free {
            assert_eq!(ours, theirs, "byte {at} of {answer:?}");
        }
    }
    assert_eq!(answer.cas == 0, seen[16..24] == [0; 8], "{answer:?}");
    if seen[16..24] == [0xff; 8] {
        assert_eq!(answer.cas, u64::MAX);
    }
}

/// Replays a request whose answer differs only in the CAS.
#[track_caller]
fn exact(client: &mut Client, request: &str, seen: &str) {
    same(&replay(client, request), seen, &[]);
}

/// Offsets of a mutation token.
const TOKEN: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[test]
fn hello_with_every_feature() {
    let mut client = Client::connect(shared());
    let request = "801f000300000000000000410000000200000000000000006f6273000100020003000400060007\
                   0008000a000b000c000d000e000f0010001100120013001400150016001700180019001a001b00\
                   1c001d001e001f00200021";
    // Observed: 03 04 06 07 08 0a 0b 0c 0d 0e 0f 10 11 12 13 14 15 16 17 18 19. This node leaves out 16, which is
    // retired. It grants 1c to 21, which a daemon of 2021 did not know, and 1f in place of 0d, as newer daemons do.
    let answer = replay(&mut client, request);
    let granted = [
        0x03, 0x04, 0x06, 0x07, 0x08, 0x0a, 0x0b, 0x0c, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14,
        0x15, 0x17, 0x18, 0x19, 0x1c, 0x1d, 0x1e, 0x1f, 0x20, 0x21,
    ];
    let list: Vec<u8> = granted.into_iter().flat_map(u16::to_be_bytes).collect();
    assert_eq!(answer.value, list);
    // Observed: magic 81, since that daemon enabled tracing behind the answer. This node sends the duration, as the
    // protocol's description requires.
    assert_eq!((answer.magic, answer.status), (0x18, Status::SUCCESS));
}

#[test]
fn before_and_while_logging_in() {
    let mut client = Client::connect(shared());
    exact(
        &mut client,
        "802000000000000000000000000000010000000000000000",
        "81200000000000000000002a000000010000000000000000534352414d2d53484135313220534352414d2d53\
         484132353620534352414d2d5348413120504c41494e",
    );
    exact(
        &mut client,
        "8000000100000000000000010000000100000000000000006b",
        "810000000000002400000000000000010000000000000000",
    );
    // Observed: a body with only a reference into the log. Without XERROR this node sends none.
    let answer = replay(
        &mut client,
        "802100050000000000000013000000020000000000000000504c41494e0064656661756c740077726f6e67",
    );
    assert_eq!(answer.is(Status::AUTH_ERROR).value, b"");
    client.hello(&[Feature::XERROR]).ok();
    // The observed login was of user `default`; this one is of a user of this node.
    let answer = client.call(&plain(USER, PASSWORD));
    let mut answer = answer.ok();
    answer.bytes[12..16].copy_from_slice(&[0, 0, 0, 2]);
    same(
        &answer,
        "812100000000000000000000000000020000000000000000",
        &[],
    );
}

#[test]
fn selecting_buckets() {
    let mut client = observer();
    exact(
        &mut client,
        "80890007000000000000000700000003000000000000000064656661756c74",
        "818900000000000000000000000000030000000000000000",
    );
    // Observed: no body; this node sends a reason.
    let answer = replay(
        &mut client,
        "8089000400000000000000040000000400000000000000006e6f7065",
    );
    assert!(!answer.is(Status::EACCESS).context().is_empty());
}

#[test]
fn the_error_map() {
    let mut client = observer();
    let answer = replay(
        &mut client,
        "80fe000000000000000000020000000400000000000000000002",
    );
    // The texts are those of Settee; all observed codes must be there.
    assert_eq!((answer.datatype, answer.status), (1, Status::SUCCESS));
    let map = answer.json();
    let seen = "0 1 2 3 4 5 6 7 8 9 a b 1f 20 21 22 23 24 25 30 31 32 33 80 81 82 83 84 85 86 87 \
                88 8a 8c 8d a0 a1 a2 a3 a4 c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 ca cb cc cd ce cf d0 d1 \
                d2 d3 d4 d5 d6 d7";
    for code in seen.split_whitespace() {
        assert!(map["errors"][code]["name"].is_string(), "{code}");
    }
}

#[test]
fn the_life_of_a_document() {
    let mut client = observer();
    let stored = replay(
        &mut client,
        "800100070800008b00000016000000050000000000000000020000060000000000676f6c642d317b2261223a31\
         7d",
    );
    same(
        &stored,
        "8101000010000000000000100000000518e9efe0c0670000000043ec3cdc70a40000000000000005",
        &TOKEN,
    );
    let get = "800000070000008b0000000700000006000000000000000000676f6c642d31";
    let seen = "81000000040100000000000b0000000618e9efe0c0670000020000067b2261223a317d";
    exact(&mut client, get, seen);
    exact(
        &mut client,
        "80000006000002b400000006000000070000000000000000006e6f6b6579",
        "810000000000000100000000000000070000000000000000",
    );
    exact(
        &mut client,
        "800100070800008b000000160000000818e9efe0c0670001000000000000000000676f6c642d317b2261223a32\
         7d",
        "810100000000000200000000000000080000000000000000",
    );
    exact(
        &mut client,
        "801c00070400008b0000000b0000000900000000000000000000000000676f6c642d31",
        "811c000000000000000000000000000918e9efe0c0670000",
    );
    exact(
        &mut client,
        "801d00070400008b0000000b0000000a0000000000000000000003e800676f6c642d31",
        "811d0000040100000000000b0000000a18e9efe0c0700000020000067b2261223a317d",
    );
    locked(&mut client);
    metadata(&mut client);
}

fn locked(client: &mut Client) {
    let lock = "809400070400008b0000000b0000000b00000000000000000000000500676f6c642d31";
    let seen = "81940000040100000000000b0000000b18e9efe0c0720000020000067b2261223a317d";
    let locked = replay(client, lock);
    same(&locked, seen, &[]);
    exact(
        client,
        "800000070000008b000000070000000c000000000000000000676f6c642d31",
        "81000000040100000000000b0000000cffffffffffffffff020000067b2261223a317d",
    );
    exact(
        client,
        "800100070800008b000000100000000d0000000000000000000000000000000000676f6c642d3131",
        "8101000000000009000000000000000d0000000000000000",
    );
    exact(
        client,
        "809400070400008b0000000b0000000e00000000000000000000000500676f6c642d31",
        "8194000000000009000000000000000e0000000000000000",
    );
    exact(
        client,
        "809500070000008b000000070000000f000000000000000100676f6c642d31",
        "8195000000000009000000000000000f0000000000000000",
    );
    client
        .call(&Request::of(Opcode::UNLOCK_KEY, "gold-1").cas(locked.cas))
        .ok();
    // Observed: TemporaryFailure (86), which newer daemons send only if so configured.
    let unlock = "809500070000008b0000000700000010000000000000303900676f6c642d31";
    let answer = replay(client, unlock);
    assert_eq!(answer.is(Status::NOT_LOCKED).value, b"");
}

fn metadata(client: &mut Client) {
    // Ignored: the expiry (8 to 11) and, since a test may run twice, the last byte of the revision.
    let free = [8, 9, 10, 11, 19];
    let answer = replay(
        client,
        "80a000070100008b000000080000001400000000000000000200676f6c642d31",
    );
    same(
        &answer,
        "81a0000015000000000000150000001418e9efe0c072000000000000020000066b010bd20000000000000002\
         01",
        &free,
    );
    let answer = replay(
        client,
        "80a000070000008b0000000700000015000000000000000000676f6c642d31",
    );
    same(
        &answer,
        "81a0000014000000000000140000001518e9efe0c072000000000000020000066b010bd20000000000000002",
        &free,
    );
    exact(
        client,
        "80a00006010002b40000000700000016000000000000000002006e6f6b6579",
        "81a000000000000100000000000000160000000000000000",
    );
}

#[test]
fn numbers() {
    let mut client = observer();
    client.set("gold-t", "4").ok();
    client.set("gold-x", "x").ok();
    let answer = replay(
        &mut client,
        "800500071400023d0000001b000000110000000000000000000000000000000100000000000000000000000000\
         676f6c642d74",
    );
    same(
        &answer,
        "8105000010000000000000180000001118e9efe261bf000000004dae6a212a290000000000000005\
         0000000000000005",
        &TOKEN,
    );
    exact(
        &mut client,
        "800500071400038b0000001b000000130000000000000000000000000000000100000000000000000000000000\
         676f6c642d78",
        "810500000000000600000000000000130000000000000000",
    );
}

#[test]
fn tombstones() {
    let mut client = observer();
    client.set("gold-d", "x").ok();
    let answer = replay(
        &mut client,
        "800400070000038a0000000700000018000000000000000000676f6c642d64",
    );
    same(
        &answer,
        "8104000010000000000000100000001818e9efe261cd00000000a0ec72c368c40000000000000006",
        &TOKEN,
    );
    let answer = replay(
        &mut client,
        "80a000070100038a000000080000001900000000000000000200676f6c642d64",
    );
    // Observed: an expiry of 0. This node sends the time of the deletion, as the description requires.
    let deleted_at = u32::from_be_bytes(answer.extras[8..12].try_into().unwrap());
    assert!(deleted_at > 1_700_000_000, "{deleted_at}");
    same(
        &answer,
        "81a0000015000000000000150000001918e9efe261cd00000000000100000000000000000000000000000002\
         00",
        &[8, 9, 10, 11],
    );
}

#[test]
fn a_vbucket_that_is_not_there() {
    let mut client = observer();
    let answer = replay(
        &mut client,
        "8000000200000407000000020000001a0000000000000000006b",
    );
    // The map is that of this node; its datatype is JSON, as observed.
    assert_eq!((answer.datatype, answer.opaque), (1, 0x1a));
    assert_eq!(answer.is(Status::NOT_MY_VBUCKET).json()["name"], "default");
}

#[test]
fn observing() {
    let mut client = observer();
    client.set("gold-o", "x").ok();
    exact(
        &mut client,
        "80920000000000000000000a0000001c000000000000000002b40006006e6f6b6579",
        "8192000000000000000000130000001c000000000000000002b40006006e6f6b6579800000000000000000",
    );
    // Another test uses the observed key; this is the same frame for `gold-o`.
    let stored = client.set("gold-o", "x").ok();
    let vbucket = model::VbId::of_key(b"gold-o", 1024).0;
    let wait = Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(vbucket);
    client
        .call(&wait.extras(&stored.seqno().to_be_bytes()))
        .ok();
    let value = [&vbucket.to_be_bytes()[..], &[0, 7], b"\0gold-o"].concat();
    let answer = client
        .call(&Request::new(Opcode::OBSERVE).value(&value))
        .ok();
    let expected = [&value[..], &[1], &stored.cas.to_be_bytes()].concat();
    assert_eq!(answer.value, expected);
    let request = Request::new(Opcode::OBSERVE_SEQNO).vbucket(vbucket);
    let answer = client
        .call(&request.clone().value(stored.uuid().to_be_bytes()))
        .ok();
    assert_eq!(answer.bytes[..12], hex("81910000000000000000001b"));
    let answer = client.call(&request.value((stored.uuid() ^ 0xff).to_be_bytes()));
    assert_eq!(answer.bytes[..12], hex("819100000000000100000000"));
}

#[test]
fn all_vbuckets() {
    let mut client = observer();
    // Observed: the four vBuckets of that daemon; this node has 1024.
    for request in [
        "804800000000000000000000000000200000000000000000",
        "80480000040000000000000400000021000000000000000000000001",
        "8048000008000000000000080000002200000000000000000000000100000000",
    ] {
        let answer = replay(&mut client, request).ok();
        assert_eq!(answer.value.len(), 10_240);
        assert_eq!(answer.bytes[..8], hex("8148000000000000"));
    }
}

#[test]
fn collections() {
    let mut client = observer();
    // The manifest has revision 3 there and revision 0 here: bytes 7 and 80.
    let answer = replay(
        &mut client,
        "80bb000000000000000000110000002300000000000000005f64656661756c742e5f64656661756c74",
    );
    let seen = "81bb00000c0000000000000c000000230000000000000000000000000000000300000000";
    same(&answer, seen, &[7]);
    let answer = replay(
        &mut client,
        "80bc000000000000000000080000002700000000000000005f64656661756c74",
    );
    let seen = "81bc00000c0000000000000c000000270000000000000000000000000000000300000000";
    same(&answer, seen, &[7]);
    let body = "7b226572726f72223a7b22636f6e74657874223a22556e6b6e6f776e2073636f7065206f7220636f6c\
                6c656374696f6e20696e206f7065726174696f6e227d2c226d616e69666573745f756964223a223322\
                7d";
    for (request, head) in [
        (
            "80bb0000000000000000000d0000002400000000000000005f64656661756c742e6e6f7065",
            "81bb000000010088000000530000002400000000000000",
        ),
        (
            "80bb000000000000000000060000002500000000000000006e6f70652e63",
            "81bb00000001008c000000530000002500000000000000",
        ),
        (
            "800000030000000000000003000000280000000000000000c4206b",
            "810000000001008800000053000000280000000000000000",
        ),
    ] {
        let answer = replay(&mut client, request);
        let head = format!("{head:0<48}");
        same(&answer, &format!("{head}{body}"), &[80]);
    }
    // Observed: no body; this node sends a reason.
    let answer = replay(
        &mut client,
        "80bb0000000000000000000100000026000000000000000061",
    );
    assert!(!answer.is(Status::EINVAL).context().is_empty());
    let answer = replay(
        &mut client,
        "80ba00000000000000000000000000290000000000000000",
    );
    // The same JSON, except for the order of fields and the revision.
    let seen = hex(
        "7b2273636f706573223a5b7b22636f6c6c656374696f6e73223a5b7b226e616d65223a225f64656661756c74\
         222c22756964223a2230227d5d2c226e616d65223a225f64656661756c74222c22756964223a2230227d5d2c\
         22756964223a2233227d",
    );
    let mut seen: serde_json::Value = serde_json::from_slice(&seen).unwrap();
    seen["uid"] = "0".into();
    assert_eq!(
        (answer.json(), answer.datatype, answer.value.len()),
        (seen, 1, 98)
    );
}

#[test]
fn the_node_itself() {
    let mut client = observer();
    exact(
        &mut client,
        "80e9000000000000000000000000002f0000000000000000",
        "81e9000000000081000000000000002f0000000000000000",
    );
    exact(
        &mut client,
        "800a00000000000000000000000000310000000000000000",
        "810a00000000000000000000000000310000000000000000",
    );
    // Observed: `0.0.0-0000`, which libmemcached refuses.
    let answer = replay(
        &mut client,
        "800b00000000000000000000000000300000000000000000",
    );
    assert!(answer.ok().text().starts_with('7'));
    // Observed: no body; this node sends a reason.
    let answer = replay(
        &mut client,
        "8010000d000000000000000d0000003200000000000000006e6f2d737563682d67726f7570",
    );
    assert!(!answer.is(Status::KEY_ENOENT).context().is_empty());
}

#[test]
fn a_failover_log() {
    let mut client = observer();
    // Observed with opcode 54; opcode 96 has the same frames.
    let answer = replay(
        &mut client,
        "809600000000022500000000000000050000000000000000",
    );
    // One entry: a UUID of 48 bits, and seqno 0.
    same(
        &answer,
        "8196000000000000000000100000000500000000000000000000f8429394668a0000000000000000",
        &[2, 3, 4, 5, 6, 7],
    );
    let answer = replay(
        &mut client,
        "805400000000022500000000000000050000000000000000",
    );
    same(
        &answer,
        "8154000000000000000000100000000500000000000000000000f8429394668a0000000000000000",
        &[2, 3, 4, 5, 6, 7],
    );
}
