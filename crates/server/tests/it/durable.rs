//! Tests of durable writes, as a client sees them.

use std::time::{Duration, Instant};

use model::{DurabilityLevel, VbId};
use server::Node;
use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, SDK, count, sdk_and, set};
use crate::place::{on_disk, own, replica_of, shared, with_least};

const ACTIVE: u8 = 1;
const REPLICA: u8 = 2;
const MAJORITY: u8 = 1;
const ON_ACTIVE: u8 = 2;
const TO_MAJORITY: u8 = 3;
/// Longer than any test, ms.
const LONG_MS: u16 = 60_000;

/// Returns the frame info of a level and a timeout.
fn level(level: u8, timeout_ms: u16) -> [u8; 4] {
    let [high, low] = timeout_ms.to_be_bytes();
    [0x13, level, high, low]
}

pub(crate) fn durable(request: Request, asked: u8, timeout_ms: u16) -> Request {
    request.infos(&level(asked, timeout_ms))
}

pub(crate) fn vbucket(key: &str) -> u16 {
    VbId::of_key(key.as_bytes(), 1024).0
}

/// Makes the node active for the key's vBucket, with these nodes.
fn topology(client: &mut Client, key: &str, chains: &str) {
    let request = Request::new(Opcode::SET_VBUCKET).vbucket(vbucket(key));
    let value = format!("{{\"topology\":{chains}}}");
    client
        .call(&request.extras(&[ACTIVE]).datatype(1).value(value))
        .ok();
}

/// Starts a node whose vBucket of `key` waits for a missing replica.
pub(crate) fn waiting_for_a_replica(key: &str) -> (Node, Client) {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    topology(&mut client, key, r#"[["here","there"]]"#);
    (node, client)
}

#[test]
fn every_write_may_be_durable() {
    let mut client = Client::ready(shared());
    let key = "durable-every";
    let first = client.call(&durable(set(key, "1"), MAJORITY, LONG_MS)).ok();
    assert!(first.cas != 0);
    let next = client.call(&durable(set(key, "2"), MAJORITY, LONG_MS)).ok();
    assert_eq!(
        next.seqno(),
        first.seqno() + 2,
        "a prepare and a commit each"
    );
    assert_eq!(next.uuid(), first.uuid());
    let got = client.get(key).ok();
    assert_eq!((got.text(), got.cas), ("2".into(), next.cas));
    let stale = durable(set(key, "3").cas(first.cas), MAJORITY, LONG_MS);
    client.call(&stale).is(Status::KEY_EEXISTS);
    let add = Request::of(Opcode::ADD, key).extras(&[0; 8]).value("x");
    client
        .call(&durable(add, MAJORITY, LONG_MS))
        .is(Status::KEY_EEXISTS);
    let append = Request::of(Opcode::APPEND, key).value("9");
    client.call(&durable(append, MAJORITY, LONG_MS)).ok();
    let up = durable(count(Opcode::INCREMENT, key, 3, 0, 0), MAJORITY, LONG_MS);
    assert_eq!(client.call(&up).ok().value, 32u64.to_be_bytes());
    assert_eq!(client.get(key).text(), "32");
    let delete = durable(Request::of(Opcode::DELETE, key), MAJORITY, LONG_MS);
    client.call(&delete).ok();
    client.get(key).is(Status::KEY_ENOENT);
    client.call(&delete).is(Status::KEY_ENOENT);
    let quiet = durable(set(key, "quiet"), MAJORITY, LONG_MS);
    let quiet = Request {
        opcode: Opcode::SETQ,
        ..quiet
    };
    client.call(&quiet).is(Status::EINVAL);
}

#[test]
fn persistence_is_refused_without_a_disk() {
    let mut client = Client::ready(shared());
    for asked in [ON_ACTIVE, TO_MAJORITY] {
        client
            .call(&durable(set("durable-memory", "x"), asked, LONG_MS))
            .is(Status::DURABILITY_INVALID_LEVEL);
    }
    client.get("durable-memory").is(Status::KEY_ENOENT);
}

#[test]
fn writes_acknowledged_as_persisted_are_on_disk() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    for asked in [ON_ACTIVE, TO_MAJORITY] {
        let key = format!("durable-{asked}");
        let stored = client.call(&durable(set(&key, "x"), asked, LONG_MS)).ok();
        assert_eq!(client.get(&key).ok().cas, stored.cas);
        let request = Request::new(Opcode::OBSERVE_SEQNO).vbucket(vbucket(&key));
        let seen = client
            .call(&request.value(stored.uuid().to_be_bytes()))
            .ok();
        let persisted = u64::from_be_bytes(seen.value[11..19].try_into().unwrap());
        assert!(persisted >= stored.seqno() - 1, "the prepare is on disk");
    }
    node.shutdown().expect("everything becomes durable");
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    assert_eq!(client.get("durable-2").text(), "x");
    assert_eq!(client.get("durable-3").text(), "x");
}

#[test]
fn too_few_nodes_are_reported_at_once() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    topology(&mut client, "few", r#"[["here",null]]"#);
    client
        .call(&durable(set("few", "x"), MAJORITY, LONG_MS))
        .is(Status::DURABILITY_IMPOSSIBLE);
    client.set("few", "plain").ok();
    topology(&mut client, "few", r#"[["here"]]"#);
    client
        .call(&durable(set("few", "x"), MAJORITY, LONG_MS))
        .ok();
    let bad = Request::new(Opcode::SET_VBUCKET).vbucket(vbucket("few"));
    let bad = bad.extras(&[ACTIVE]).datatype(1);
    for text in [
        r#"{"topology":[[]]}"#,
        r#"{"topology":[[null]]}"#,
        r#"{"topology":["a"]}"#,
    ] {
        client.call(&bad.clone().value(text)).is(Status::EINVAL);
    }
}

#[test]
fn a_write_that_is_not_acknowledged_in_time_is_ambiguous() {
    let (_node, mut client) = waiting_for_a_replica("late");
    client.set("late", "old").ok();
    let answer = client.call(&durable(set("late", "new"), MAJORITY, 20));
    let context = answer.is(Status::SYNC_WRITE_AMBIGUOUS).context();
    assert!(context.contains("not decided"), "{context}");
    assert_eq!(client.get("late").text(), "old", "it was given up");
    client.set("late", "newer").ok();
}

#[test]
fn others_see_the_old_value_and_may_not_write() {
    let (node, mut client) = waiting_for_a_replica("busy");
    client.set("busy", "old").ok();
    let mut waiting = Client::ready(node.ports().kv);
    waiting.pipeline_and_wait(&[durable(set("busy", "new"), MAJORITY, LONG_MS)]);
    assert_eq!(client.get("busy").text(), "old");
    for request in [
        set("busy", "x"),
        durable(set("busy", "x"), MAJORITY, LONG_MS),
        Request::of(Opcode::DELETE, "busy"),
        Request::of(Opcode::APPEND, "busy").value("x"),
        count(Opcode::INCREMENT, "busy", 1, 0, 0),
        Request::of(Opcode::TOUCH, "busy").extras(&[0; 4]),
        Request::of(Opcode::GET_LOCKED, "busy"),
    ] {
        client.call(&request).is(Status::SYNC_WRITE_IN_PROGRESS);
    }
    let mut old = Client::logged_in(node.ports().kv, &[Feature::SELECT_BUCKET]);
    old.select("default").ok();
    let request = Request::new(Opcode::SET)
        .vbucket(vbucket("busy"))
        .key("busy");
    let request = request.extras(&[0; 8]).value("x");
    old.call(&request).is(Status::ETMPFAIL);
    topology(&mut client, "busy", r#"[["here"]]"#);
    assert_eq!(waiting.answer().ok().opcode, Opcode::SET);
    assert_eq!(client.get("busy").text(), "new");
}

#[test]
fn answers_keep_their_order_unless_the_peer_takes_any() {
    for unordered in [false, true] {
        let (node, mut admin) = waiting_for_a_replica("order");
        let features = if unordered {
            sdk_and(&[Feature::UNORDERED_EXECUTION])
        } else {
            SDK.to_vec()
        };
        let mut client = Client::with(node.ports().kv, &features);
        let other = "another-key";
        assert_ne!(vbucket(other), vbucket("order"));
        client.pipeline_and_wait(&[
            durable(set("order", "1"), MAJORITY, LONG_MS).opaque(1),
            set(other, "2").opaque(2),
            Request::of(Opcode::GET, other).opaque(3),
            Request::new(Opcode::NOOP).opaque(4),
        ]);
        let mut seen = Vec::new();
        if unordered {
            seen.extend(client.answers(2).iter().map(|answer| answer.opaque));
        }
        topology(&mut admin, "order", r#"[["here"]]"#);
        let count = 4 - seen.len();
        seen.extend(client.answers(count).iter().map(|answer| answer.opaque));
        let expected: &[u32] = if unordered {
            &[2, 3, 1, 4]
        } else {
            &[1, 2, 3, 4]
        };
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_write_continues_after_its_client_left() {
    let (node, mut client) = waiting_for_a_replica("gone");
    let mut gone = Client::ready(node.ports().kv);
    gone.pipeline_and_wait(&[durable(set("gone", "x"), MAJORITY, LONG_MS)]);
    drop(gone);
    client
        .call(&set("gone", "y"))
        .is(Status::SYNC_WRITE_IN_PROGRESS);
    topology(&mut client, "gone", r#"[["here"]]"#);
    assert_eq!(client.get("gone").text(), "x");
}

#[test]
fn waiting_writes_are_answered_when_the_vbucket_goes() {
    for deleted in [false, true] {
        let (node, mut client) = waiting_for_a_replica("moved");
        let mut waiting = Client::ready(node.ports().kv);
        waiting.pipeline_and_wait(&[durable(set("moved", "x"), MAJORITY, LONG_MS)]);
        let opcode = if deleted {
            Opcode::DEL_VBUCKET
        } else {
            Opcode::SET_VBUCKET
        };
        let request = Request::new(opcode).vbucket(vbucket("moved"));
        let extras: &[u8] = if deleted { &[] } else { &[REPLICA] };
        client.call(&request.extras(extras)).ok();
        waiting.answer().is(Status::SYNC_WRITE_AMBIGUOUS);
    }
}

#[test]
fn many_durable_writes_wait_at_once_within_limits() {
    // More than the limit of owed answers per peer.
    const MANY: u32 = 1100;
    let (node, mut admin) = waiting_for_a_replica("k0");
    let vb = vbucket("k0");
    let features = sdk_and(&[Feature::UNORDERED_EXECUTION]);
    let mut client = Client::with(node.ports().kv, &features);
    let requests: Vec<Request> = (0..MANY)
        .map(|index| {
            let request = set(&format!("k{index}"), "x").vbucket(vb).opaque(index);
            durable(request, MAJORITY, LONG_MS)
        })
        .collect();
    client.pipeline_and_wait(&requests);
    topology(&mut admin, "k0", r#"[["here"]]"#);
    let mut seen: Vec<u32> = client
        .answers(MANY as usize)
        .into_iter()
        .map(|one| one.ok().opaque)
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..MANY).collect::<Vec<u32>>());
}

/// All pipelined writes of a client are prepared at once: none of them waits for the decision of another one.
#[test]
fn a_window_of_durable_writes_is_prepared_as_a_whole() {
    const WINDOW: u32 = 512;
    let (node, mut admin) = waiting_for_a_replica("k0");
    let vb = vbucket("k0");
    let features = sdk_and(&[Feature::UNORDERED_EXECUTION]);
    let mut client = Client::with(node.ports().kv, &features);
    let requests: Vec<Request> = (0..WINDOW)
        .map(|index| {
            let request = set(&format!("k{index}"), "x").vbucket(vb).opaque(index);
            durable(request, MAJORITY, LONG_MS)
        })
        .collect();
    // None of them is decided before the last one has run, or this test waits for ever.
    client.pipeline(&requests);
    let last = format!("k{}", WINDOW - 1);
    let write = set(&last, "other").vbucket(vb);
    let deadline = Instant::now() + Duration::from_secs(10);
    while admin.call(&write).status != Status::SYNC_WRITE_IN_PROGRESS {
        assert!(Instant::now() < deadline, "the last one still waits");
    }
    topology(&mut admin, "k0", r#"[["here"]]"#);
    for answer in client.answers(WINDOW as usize) {
        answer.ok();
    }
}

#[test]
fn a_bucket_raises_levels_below_its_minimum() {
    let place = tempfile::tempdir().unwrap();
    let node = with_least(place.path(), DurabilityLevel::PersistToMajority);
    let mut client = Client::ready(node.ports().kv);
    let plain = set("raised", "1");
    let quiet = Request {
        opcode: Opcode::SETQ,
        ..set("raised", "2")
    };
    for request in [plain, durable(set("raised", "3"), MAJORITY, LONG_MS)] {
        client.pipeline(&[quiet.clone().opaque(6), request.opaque(7)]);
        let stored = client.answer().ok();
        assert_eq!(stored.opaque, 7, "the quiet one says nothing");
        let seen = Request::new(Opcode::OBSERVE_SEQNO).vbucket(vbucket("raised"));
        let seen = client.call(&seen.value(stored.uuid().to_be_bytes())).ok();
        let persisted = u64::from_be_bytes(seen.value[11..19].try_into().unwrap());
        assert!(persisted >= stored.seqno() - 1, "the prepare is on disk");
        assert_eq!(stored.seqno() % 2, 0, "a prepare and a commit each");
    }
    topology(&mut client, "raised", r#"[["here",null]]"#);
    client
        .call(&set("raised", "4"))
        .is(Status::DURABILITY_IMPOSSIBLE);
    client
        .call(&Request::of(Opcode::DELETE, "raised"))
        .is(Status::DURABILITY_IMPOSSIBLE);
    assert_eq!(client.get("raised").text(), "3");
}

/// Connections move between threads when their load changes, also with an owed answer.
#[test]
fn every_durable_write_is_answered_wherever_its_connection_is_served() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let port = node.ports().kv;
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            std::thread::spawn(move || {
                let mut client = Client::ready(port);
                for number in 0..300 {
                    let key = format!("moves {writer} {number}");
                    let asked = if number < 100 { MAJORITY } else { ON_ACTIVE };
                    client.call(&durable(set(&key, "x"), asked, LONG_MS)).ok();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().expect("every answer came");
    }
}

/// Waits until the node of a replica returns this value.
pub(crate) fn until_replicated(other: &mut Client, key: &str, value: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let got = other.call(&Request::of(Opcode::GET_REPLICA, key));
        if got.status == Status::SUCCESS && got.text() == value {
            return;
        }
        assert!(Instant::now() < deadline, "{value} never came");
        std::thread::yield_now();
    }
}

#[test]
fn a_majority_of_two_is_two() {
    let place = tempfile::tempdir().unwrap();
    let (one, two) = (place.path().join("1"), place.path().join("2"));
    let active = on_disk(&one);
    let mut client = Client::ready(active.ports().kv);
    client
        .call(&durable(set("pair", "alone"), MAJORITY, LONG_MS))
        .ok();
    let replica = replica_of(active.ports().kv, Some(&two));
    let mut other = Client::ready(replica.ports().kv);
    until_replicated(&mut other, "pair", "alone");
    for asked in [MAJORITY, ON_ACTIVE, TO_MAJORITY] {
        for round in 0..20 {
            let value = format!("{asked}-{round}");
            client
                .call(&durable(set("pair", &value), asked, LONG_MS))
                .ok();
            // The replica has the prepare; it learns of the commit after the client.
            until_replicated(&mut other, "pair", &value);
        }
    }
    client
        .call(&durable(
            Request::of(Opcode::DELETE, "pair"),
            MAJORITY,
            LONG_MS,
        ))
        .ok();
    replica.shutdown().expect("everything becomes durable");
    let late = durable(set("pair", "late"), MAJORITY, 20);
    client.call(&late).is(Status::SYNC_WRITE_AMBIGUOUS);
    client.get("pair").is(Status::KEY_ENOENT);
    // A replica that reconnects gets all decisions.
    let replica = replica_of(active.ports().kv, Some(&two));
    client
        .call(&durable(set("pair", "again"), TO_MAJORITY, LONG_MS))
        .ok();
    replica.shutdown().expect("everything becomes durable");
}
