//! Tests of each document command (protocol, section 4.1, SDK gotchas 25 to 37, 48, 67, 68).

use std::time::{SystemTime, UNIX_EPOCH};

use wire::{Opcode, Status};

use crate::client::{Client, Request, count, sdk_without, set, store};
use crate::place::{on_both, own, shared};

const LOCKED_CAS: u64 = u64::MAX;

fn unix_s() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u32::try_from(since.as_secs()).unwrap()
}

/// Returns the expiry of a document.
fn expiry_of(client: &mut Client, key: &str) -> u32 {
    let meta = client.call(&Request::of(Opcode::GET_META, key)).ok();
    u32::from_be_bytes(meta.extras[8..12].try_into().unwrap())
}

fn touch(key: &str, expiry: u32) -> Request {
    Request::of(Opcode::TOUCH, key).extras(&expiry.to_be_bytes())
}

fn lock(key: &str, seconds: u32) -> Request {
    Request::of(Opcode::GET_LOCKED, key).extras(&seconds.to_be_bytes())
}

#[test]
fn set_get_delete() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let stored = client.call(&store(Opcode::SET, "life", "[1]", 0x0200_0006, 0));
        let stored = stored.ok();
        assert_eq!((stored.key.len(), stored.value.len()), (0, 0));
        assert!(stored.cas > 0 && stored.uuid() > 0);
        let got = client.get("life").ok();
        assert_eq!(got.extras, 0x0200_0006_u32.to_be_bytes());
        assert_eq!((got.value.as_slice(), got.datatype), (&b"[1]"[..], 1));
        assert_eq!((got.cas, got.key.len()), (stored.cas, 0));
        let with_key = client.call(&Request::of(Opcode::GETK, "life")).ok();
        assert_eq!(
            (with_key.key.as_slice(), with_key.cas),
            (&b"\0life"[..], stored.cas)
        );
        let deleted = client.call(&Request::of(Opcode::DELETE, "life")).ok();
        assert!(deleted.cas > stored.cas);
        assert_eq!(deleted.seqno(), stored.seqno() + 1);
        assert_eq!(deleted.uuid(), stored.uuid());
        assert_eq!(client.get("life").is(Status::KEY_ENOENT).value, b"");
        client
            .call(&Request::of(Opcode::GETK, "life"))
            .is(Status::KEY_ENOENT);
        client
            .call(&Request::of(Opcode::DELETE, "life"))
            .is(Status::KEY_ENOENT);
    });
}

#[test]
fn add_and_replace() {
    let mut client = Client::ready(shared());
    client
        .call(&store(Opcode::REPLACE, "ar", "x", 0, 0))
        .is(Status::KEY_ENOENT);
    let replace = store(Opcode::REPLACE, "ar", "x", 0, 0).cas(7);
    client.call(&replace).is(Status::KEY_ENOENT);
    client
        .call(&store(Opcode::ADD, "ar", "x", 0, 0).cas(1))
        .is(Status::EINVAL);
    let added = client.call(&store(Opcode::ADD, "ar", "x", 5, 0)).ok();
    client
        .call(&store(Opcode::ADD, "ar", "y", 0, 0))
        .is(Status::KEY_EEXISTS);
    let replace = store(Opcode::REPLACE, "ar", "z", 0, 0);
    client
        .call(&replace.clone().cas(added.cas + 1))
        .is(Status::KEY_EEXISTS);
    let replaced = client.call(&replace.cas(added.cas)).ok();
    assert!(replaced.cas > added.cas);
    assert_eq!(
        client.get("ar").ok().extras,
        [0; 4],
        "flags are replaced too"
    );
    client.call(&Request::of(Opcode::DELETE, "ar")).ok();
    client.call(&store(Opcode::ADD, "ar", "again", 0, 0)).ok();
}

#[test]
fn cas_guards_every_write() {
    let mut client = Client::ready(shared());
    client.call(&set("cas", "1").cas(9)).is(Status::KEY_ENOENT);
    let first = client.set("cas", "1").ok().cas;
    let second = client.call(&set("cas", "2").cas(first)).ok().cas;
    assert!(second > first);
    client
        .call(&set("cas", "3").cas(first))
        .is(Status::KEY_EEXISTS);
    client
        .call(&set("cas", "3").cas(u64::MAX))
        .is(Status::KEY_EEXISTS);
    for opcode in [Opcode::APPEND, Opcode::PREPEND] {
        let joined = Request::of(opcode, "cas").value("x").cas(first);
        client.call(&joined).is(Status::KEY_EEXISTS);
    }
    client
        .call(&Request::of(Opcode::DELETE, "cas").cas(first))
        .is(Status::KEY_EEXISTS);
    assert_eq!(client.get("cas").value, b"2", "nothing was changed");
    client
        .call(&Request::of(Opcode::DELETE, "cas").cas(second))
        .ok();
    client
        .call(&Request::of(Opcode::DELETE, "cas").cas(second))
        .is(Status::KEY_ENOENT);
}

#[test]
fn the_empty_value_is_a_value() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let first = client.set("empty", "").ok();
        let got = client.get("empty").ok();
        assert_eq!((got.value.len(), got.datatype, got.extras.len()), (0, 0, 4));
        let appended = client.call(&Request::of(Opcode::APPEND, "empty")).ok();
        assert!(
            appended.cas > first.cas,
            "a new revision, though nothing was added"
        );
        assert_eq!(client.get("empty").ok().value, b"");
    });
}

#[test]
fn append_and_prepend() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let append = |value: &str| Request::of(Opcode::APPEND, "join").value(value);
        let prepend = |value: &str| Request::of(Opcode::PREPEND, "join").value(value);
        client.call(&append("x")).is(Status::NOT_STORED);
        client.call(&prepend("x")).is(Status::NOT_STORED);
        client
            .call(&store(Opcode::SET, "join", "{\"a\"", 7, 1000))
            .ok();
        let expiry = expiry_of(&mut client, "join");
        assert_eq!(client.get("join").datatype, 0);
        let cas = client.call(&append(":1}")).ok().cas;
        let got = client.get("join").ok();
        assert_eq!((got.value.as_slice(), got.datatype), (&b"{\"a\":1}"[..], 1));
        assert_eq!((got.cas, got.extras), (cas, vec![0, 0, 0, 7]));
        client.call(&prepend("x").cas(cas)).ok();
        let got = client.get("join").ok();
        assert_eq!(
            (got.value.as_slice(), got.datatype),
            (&b"x{\"a\":1}"[..], 0)
        );
        assert_eq!(expiry_of(&mut client, "join"), expiry, "the expiry stays");
    });
}

#[test]
fn counters() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let up = |delta, initial, expiry| count(Opcode::INCREMENT, "n", delta, initial, expiry);
        let down = |delta| count(Opcode::DECREMENT, "n", delta, 0, 0);
        client.call(&up(1, 5, u32::MAX)).is(Status::KEY_ENOENT);
        let created = client.call(&up(1, 5, 0)).ok();
        assert_eq!(
            (created.value.as_slice(), created.datatype),
            (&5_u64.to_be_bytes()[..], 0)
        );
        let got = client.get("n").ok();
        assert_eq!((got.value.as_slice(), got.datatype), (&b"5"[..], 1));
        assert_eq!((got.extras, got.cas), (vec![0; 4], created.cas));
        assert_eq!(client.call(&up(10, 0, 0)).ok().value, 15_u64.to_be_bytes());
        assert_eq!(client.call(&down(16)).ok().value, 0_u64.to_be_bytes());
        assert_eq!(client.get("n").value, b"0");
        client.set("n", "18446744073709551615").ok();
        assert_eq!(client.call(&up(2, 0, 0)).ok().value, 1_u64.to_be_bytes());
        client.call(&up(1, 0, 0).cas(1)).is(Status::EINVAL);
    });
}

#[test]
fn counters_parse_text_as_decimal_numbers() {
    let mut client = Client::ready(shared());
    for (text, next) in [("7", 8), (" 7", 8), ("+7", 8), ("7 apples", 8), ("007", 8)] {
        client.set("num", text).ok();
        let answer = client.call(&count(Opcode::INCREMENT, "num", 1, 0, 0));
        assert_eq!(answer.ok().value, u64::to_be_bytes(next), "{text:?}");
    }
    for text in ["", "x", "-1", "7a", "{}", "18446744073709551616", "1.5"] {
        client.set("num", text).ok();
        let answer = client.call(&count(Opcode::INCREMENT, "num", 1, 0, 0));
        assert_eq!(answer.status, Status::DELTA_BADVAL, "{text:?}");
        assert_eq!(client.get("num").value, text.as_bytes());
    }
}

#[test]
fn a_counter_keeps_flags_and_expiry() {
    let mut client = Client::ready(shared());
    client.call(&store(Opcode::SET, "keep", "1", 9, 5000)).ok();
    let expiry = expiry_of(&mut client, "keep");
    client
        .call(&count(Opcode::INCREMENT, "keep", 1, 0, 77))
        .ok();
    assert_eq!(expiry_of(&mut client, "keep"), expiry);
    assert_eq!(client.get("keep").extras, [0, 0, 0, 9]);
    client
        .call(&count(Opcode::INCREMENT, "keep-new", 1, 0, 77))
        .ok();
    let created = expiry_of(&mut client, "keep-new");
    // The expiry is rounded up to a whole second.
    assert!(
        (unix_s() + 60..=unix_s() + 78).contains(&created),
        "{created}"
    );
}

#[test]
fn expiries_are_relative_or_absolute() {
    on_both(|port| {
        let mut client = Client::ready(port);
        client
            .call(&store(Opcode::SET, "exp", "x", 0, 2_592_000))
            .ok();
        let expiry = expiry_of(&mut client, "exp");
        assert!((unix_s() + 2_591_990..=unix_s() + 2_592_001).contains(&expiry));
        let late = unix_s() + 3_000_000;
        client.call(&store(Opcode::SET, "exp", "x", 0, late)).ok();
        assert_eq!(expiry_of(&mut client, "exp"), late);
        client
            .call(&store(Opcode::SET, "exp", "x", 0, u32::MAX))
            .ok();
        assert_eq!(expiry_of(&mut client, "exp"), u32::MAX, "the year 2106");
        client.set("exp", "x").ok();
        assert_eq!(
            expiry_of(&mut client, "exp"),
            0,
            "a write says the expiry anew"
        );
        // 30 days and a second is a time in 1970: the document expires at once, and does not stay for ever.
        client
            .call(&store(Opcode::SET, "exp", "x", 0, 2_592_001))
            .ok();
        client.get("exp").is(Status::KEY_ENOENT);
        client
            .call(&Request::of(Opcode::DELETE, "exp"))
            .is(Status::KEY_ENOENT);
        client
            .call(&Request::of(Opcode::APPEND, "exp").value("y"))
            .is(Status::NOT_STORED);
        client
            .call(&store(Opcode::REPLACE, "exp", "y", 0, 0))
            .is(Status::KEY_ENOENT);
        client.call(&store(Opcode::ADD, "exp", "y", 0, 0)).ok();
    });
}

#[test]
fn an_expired_document_still_has_metadata() {
    let mut client = Client::ready(shared());
    client
        .call(&store(Opcode::SET, "expired", "x", 3, 2_592_001))
        .ok();
    let meta = client.call(&Request::of(Opcode::GET_META, "expired")).ok();
    assert_eq!(meta.extras[..4], [0, 0, 0, 1], "deleted");
}

#[test]
fn touch_writes_only_a_new_expiry() {
    on_both(|port| {
        let mut client = Client::ready(port);
        client.call(&touch("t", 10)).is(Status::KEY_ENOENT);
        let set = client.call(&store(Opcode::SET, "t", "x", 1, 0)).ok();
        let same = client.call(&touch("t", 0)).ok();
        assert_eq!(
            (same.cas, same.extras.len()),
            (set.cas, 0),
            "no token, no new revision"
        );
        let late = unix_s() + 4_000_000;
        let touched = client.call(&touch("t", late)).ok();
        assert!(touched.cas > set.cas);
        assert!(touched.extras.is_empty() && touched.value.is_empty());
        assert_eq!(expiry_of(&mut client, "t"), late);
        assert_eq!(client.call(&touch("t", late)).ok().cas, touched.cas);
        let gat = Request::of(Opcode::GAT, "t").extras(&0_u32.to_be_bytes());
        let got = client.call(&gat).ok();
        assert!(got.cas > touched.cas);
        assert_eq!(
            (got.value.as_slice(), got.extras.as_slice()),
            (&b"x"[..], &[0, 0, 0, 1][..])
        );
        assert_eq!(expiry_of(&mut client, "t"), 0);
        let again = client.set("t", "x").ok();
        assert_eq!(
            again.seqno(),
            set.seqno() + 3,
            "two touches wrote, two did not"
        );
    });
}

#[test]
fn preserve_expiry() {
    const PRESERVE: [u8; 1] = [0x50];
    let mut client = Client::ready(shared());
    let late = unix_s() + 5_000_000;
    let write = |opcode, expiry| store(opcode, "pres", "x", 0, expiry);
    client.call(&write(Opcode::SET, late).infos(&PRESERVE)).ok();
    assert_eq!(
        expiry_of(&mut client, "pres"),
        late,
        "new: what the request says"
    );
    for opcode in [Opcode::SET, Opcode::REPLACE] {
        client.call(&write(opcode, 0).infos(&PRESERVE)).ok();
        assert_eq!(expiry_of(&mut client, "pres"), late, "{opcode:?}");
    }
    client.call(&write(Opcode::SET, 0)).ok();
    assert_eq!(expiry_of(&mut client, "pres"), 0);
    let add = store(Opcode::ADD, "pres-2", "x", 0, 0).infos(&PRESERVE);
    client.call(&add).is(Status::NOT_SUPPORTED);
    let get = Request::of(Opcode::GET, "pres").infos(&PRESERVE);
    client.call(&get).is(Status::NOT_SUPPORTED);
    let long = write(Opcode::SET, 0).infos(&[0x51, 0]);
    client.call(&long).is(Status::EINVAL);
}

#[test]
fn a_lock_keeps_others_out() {
    on_both(|port| {
        let mut client = Client::ready(port);
        client.call(&lock("l", 10)).is(Status::KEY_ENOENT);
        let set_cas = client.call(&store(Opcode::SET, "l", "1", 4, 0)).ok().cas;
        let locked = client.call(&lock("l", 10)).ok();
        assert!(locked.cas > set_cas && locked.cas != LOCKED_CAS);
        assert_eq!(
            (locked.value.as_slice(), locked.extras.len()),
            (&b"1"[..], 4)
        );
        assert_eq!(client.get("l").ok().cas, LOCKED_CAS);
        let meta = client.call(&Request::of(Opcode::GET_META, "l")).ok();
        assert_eq!(meta.cas, LOCKED_CAS);
        client.call(&lock("l", 10)).is(Status::LOCKED);
        for request in [
            set("l", "2"),
            set("l", "2").cas(LOCKED_CAS),
            set("l", "2").cas(set_cas),
            store(Opcode::REPLACE, "l", "2", 0, 0),
            Request::of(Opcode::DELETE, "l"),
            Request::of(Opcode::DELETE, "l").cas(set_cas),
            Request::of(Opcode::APPEND, "l").value("2"),
            Request::of(Opcode::PREPEND, "l").value("2"),
            count(Opcode::INCREMENT, "l", 1, 0, 0),
            touch("l", 10),
            Request::of(Opcode::GAT, "l").extras(&[0, 0, 0, 9]),
        ] {
            assert_eq!(client.call(&request).status, Status::LOCKED, "{request:?}");
        }
        let add = client.call(&store(Opcode::ADD, "l", "2", 0, 0));
        assert!([Status::LOCKED, Status::KEY_EEXISTS].contains(&add.status));
        client.call(&set("l", "3").cas(locked.cas)).ok();
        let got = client.get("l").ok();
        assert_eq!(got.value, b"3");
        assert_ne!(got.cas, LOCKED_CAS, "the write took the lock off");
    });
}

#[test]
fn unlock() {
    let mut client = Client::ready(shared());
    let unlock = |cas| Request::of(Opcode::UNLOCK_KEY, "u").cas(cas);
    client.call(&unlock(1)).is(Status::KEY_ENOENT);
    client.set("u", "1").ok();
    client.call(&unlock(0)).is(Status::EINVAL);
    client.call(&unlock(5)).is(Status::NOT_LOCKED);
    for seconds in [0, 31, 15] {
        let cas = client.call(&lock("u", seconds)).ok().cas;
        client.call(&unlock(cas + 1)).is(Status::LOCKED);
        client.call(&unlock(cas)).ok();
        client.call(&unlock(cas)).is(Status::NOT_LOCKED);
        assert_ne!(client.get("u").ok().cas, LOCKED_CAS);
    }
    // Without extras the default time applies.
    let cas = client.call(&Request::of(Opcode::GET_LOCKED, "u")).ok().cas;
    client.call(&Request::of(Opcode::DELETE, "u").cas(cas)).ok();
}

#[test]
fn metadata() {
    let mut client = Client::ready(shared());
    let meta = |extras: &[u8]| Request::of(Opcode::GET_META, "m").extras(extras);
    client.call(&meta(&[2])).is(Status::KEY_ENOENT);
    let set = client
        .call(&store(Opcode::SET, "m", "{}", 0x0102_0304, 0))
        .ok();
    let short = client.call(&meta(&[])).ok();
    assert_eq!((short.extras.len(), short.cas), (20, set.cas));
    assert_eq!(client.call(&meta(&[1])).ok().extras, short.extras);
    let long = client.call(&meta(&[2])).ok();
    assert_eq!(long.extras[..20], short.extras[..]);
    assert_eq!(long.extras[20], 1, "JSON");
    assert_eq!(long.extras[..8], [0, 0, 0, 0, 1, 2, 3, 4]);
    let first = u64::from_be_bytes(long.extras[12..20].try_into().unwrap());
    let deleted = client.call(&Request::of(Opcode::DELETE, "m")).ok();
    let tombstone = client.call(&meta(&[2])).ok();
    assert_eq!((tombstone.extras[3], tombstone.cas), (1, deleted.cas));
    assert_eq!(tombstone.extras[4..8], [0; 4], "flags go with the document");
    let second = u64::from_be_bytes(tombstone.extras[12..20].try_into().unwrap());
    assert_eq!(second, first + 1);
    client.call(&meta(&[3])).is(Status::EINVAL);
}

#[test]
fn a_random_key_is_one_that_exists() {
    let node = own();
    let port = node.ports().kv;
    let mut client = Client::ready(port);
    client.set("random", "x").ok();
    let answer = client.call(&Request::new(Opcode::GET_RANDOM_KEY)).ok();
    assert_eq!(answer.key, b"\0random");
    let mut bare = Client::with(port, &sdk_without(wire::Feature::COLLECTIONS));
    let answer = bare.call(&Request::new(Opcode::GET_RANDOM_KEY)).ok();
    assert_eq!(answer.key, b"random");
    let mut other = Client::logged_in(port, &crate::client::SDK);
    other.select("other").ok();
    other
        .call(&Request::new(Opcode::GET_RANDOM_KEY))
        .is(Status::KEY_ENOENT);
    node.shutdown().unwrap();
}

#[test]
fn cas_grows_and_every_change_has_its_seqno() {
    on_both(|port| {
        let mut client = Client::ready(port);
        let (mut cas, mut seqno) = (0, None);
        for round in 0..200 {
            let stored = client.set("grow", round.to_string()).ok();
            assert!(stored.cas > cas);
            let next = stored.seqno();
            assert!(
                seqno.is_none_or(|seqno| next == seqno + 1),
                "{seqno:?} {next}"
            );
            (cas, seqno) = (stored.cas, Some(next));
        }
    });
}
