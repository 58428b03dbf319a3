//! Tests of scopes and collections that are created and dropped, over the wire.

use serde_json::{Value, json};
use wire::dcp::{EventId, FlatEvent};
use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, sdk_without};
use crate::dcp::consumer::{Ask, Consumer, Message, PRODUCER};
use crate::place::{on_disk, own, replica_of, set_vbucket};

const SYSTEM_EVENT: u8 = 0x5f;
const DISK_ONLY: u32 = 2;

/// Returns a manifest of the default scope: names with ids.
pub(crate) fn manifest(uid: &str, collections: &[(&str, &str)]) -> Value {
    let mut all = vec![json!({ "name": "_default", "uid": "0" })];
    let named = collections
        .iter()
        .map(|(name, id)| json!({ "name": name, "uid": id }));
    all.extend(named);
    json!({ "uid": uid, "scopes": [{ "name": "_default", "uid": "0", "collections": all }] })
}

pub(crate) fn apply(manifest: &Value) -> Request {
    Request::new(Opcode::COLLECTIONS_SET_MANIFEST).value(manifest.to_string())
}

/// Returns a request for a key of a collection, in vBucket 0.
fn of(opcode: Opcode, id: u8, key: &str) -> Request {
    Request::new(opcode).key([&[id], key.as_bytes()].concat())
}

pub(crate) fn write(id: u8, key: &str) -> Request {
    of(Opcode::SET, id, key).extras(&[0; 8]).value("v")
}

fn id_of(client: &mut Client, path: &str) -> Result<u32, Status> {
    let answer = client.call(&Request::new(Opcode::COLLECTIONS_GET_ID).value(path));
    if answer.status != Status::SUCCESS {
        return Err(answer.status);
    }
    Ok(u32::from_be_bytes(answer.extras[8..].try_into().unwrap()))
}

fn collection_stat(client: &mut Client, group: &str, name: &str) -> Option<String> {
    client.send(&Request::new(Opcode::STAT).key(group).bytes());
    let mut found = None;
    loop {
        let row = client.answer();
        if row.key.is_empty() {
            return found;
        }
        if row.key == name.as_bytes() {
            found = Some(row.text());
        }
    }
}

#[test]
fn a_collection_from_its_creation_to_its_end() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    client.call(&write(8, "a")).is(Status::UNKNOWN_COLLECTION);
    client.call(&apply(&manifest("1", &[("c", "8")]))).ok();
    assert_eq!(id_of(&mut client, "_default.c"), Ok(8));
    client.call(&write(8, "a")).ok();
    client.call(&write(0, "a")).ok();
    assert_eq!(client.call(&of(Opcode::GET, 8, "a")).ok().value, b"v");
    let seqnos = |id: &[u8]| Request::new(Opcode::GET_ALL_VB_SEQNOS).extras(id);
    let high = |client: &mut Client, id: &[u8]| {
        let value = client.call(&seqnos(id)).ok().value;
        u64::from_be_bytes(value[2..10].try_into().unwrap())
    };
    assert_eq!(high(&mut client, &[0, 0, 0, 1, 0, 0, 0, 8]), 2);
    assert_eq!(high(&mut client, &[0, 0, 0, 1, 0, 0, 0, 0]), 3);
    assert_eq!(high(&mut client, &[0, 0, 0, 1]), 3);
    let random = Request::new(Opcode::GET_RANDOM_KEY).extras(&[0, 0, 0, 8]);
    assert_eq!(client.call(&random).ok().key, b"\x08a");
    let stat = |client: &mut Client, name: &str| collection_stat(client, "collections", name);
    assert_eq!(stat(&mut client, "0x0:0x8:items").as_deref(), Some("1"));
    assert_eq!(stat(&mut client, "0x0:0x0:items").as_deref(), Some("1"));
    assert_eq!(stat(&mut client, "0x0:0x8:ops_store").as_deref(), Some("1"));
    assert_eq!(stat(&mut client, "manifest_uid").as_deref(), Some("1"));

    client.call(&apply(&manifest("2", &[]))).ok();
    let gone = client.call(&of(Opcode::GET, 8, "a"));
    assert_eq!(gone.status, Status::UNKNOWN_COLLECTION);
    assert_eq!(gone.json()["manifest_uid"], "2");
    assert_eq!(
        id_of(&mut client, "_default.c"),
        Err(Status::UNKNOWN_COLLECTION)
    );
    assert_eq!(stat(&mut client, "0x0:0x8:items"), None);
    client.call(&random).is(Status::UNKNOWN_COLLECTION);
    // A new collection of the same name.
    client.call(&apply(&manifest("3", &[("c", "a")]))).ok();
    client
        .call(&of(Opcode::GET, 10, "a"))
        .is(Status::KEY_ENOENT);
    assert_eq!(id_of(&mut client, "_default.c"), Ok(10));
}

#[test]
fn manifests_that_cannot_follow_are_refused() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let current = manifest("5", &[("c", "8")]);
    client.call(&apply(&current)).ok();
    client.call(&apply(&current)).ok();
    let refused = [
        manifest("4", &[("c", "8")]),
        manifest("5", &[("d", "8")]),
        manifest("6", &[("d", "8")]),
        json!({ "uid": "6", "scopes": [
            { "name": "_default", "uid": "0", "collections": [] },
            { "name": "s", "uid": "8", "collections": [{ "name": "c", "uid": "8" }] },
        ] }),
    ];
    for manifest in &refused {
        let answer = client.call(&apply(manifest));
        assert_eq!(
            answer.status,
            Status::CANNOT_APPLY_COLLECTIONS_MANIFEST,
            "{manifest}"
        );
    }
    let invalid = [
        json!({ "uid": "6", "scopes": [] }),
        manifest("6", &[("c", "7")]),
        manifest("6", &[("%c", "8")]),
        manifest("6", &[("c", "8"), ("c", "9")]),
        manifest("x", &[]),
        json!(1),
    ];
    for manifest in &invalid {
        let answer = client.call(&apply(manifest));
        assert_eq!(answer.status, Status::EINVAL, "{manifest}");
    }
    let get = Request::new(Opcode::COLLECTIONS_GET_MANIFEST);
    assert_eq!(client.call(&get).ok().json()["uid"], "5");
    // The default collection can be dropped, and does not come back.
    let without = json!({ "uid": "6", "scopes": [{ "name": "_default", "uid": "0" }] });
    client.call(&apply(&without)).ok();
    client.call(&write(0, "a")).is(Status::UNKNOWN_COLLECTION);
    let mut old = Client::with(node.ports().kv, &sdk_without(Feature::COLLECTIONS));
    old.call(&Request::new(Opcode::GET).key("a"))
        .is(Status::UNKNOWN_COLLECTION);
    client
        .call(&apply(&manifest("7", &[])))
        .is(Status::CANNOT_APPLY_COLLECTIONS_MANIFEST);
}

#[test]
fn collections_survive_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    client
        .call(&apply(&manifest("1", &[("c", "8"), ("d", "9")])))
        .ok();
    client.call(&write(8, "a")).ok();
    client.call(&write(9, "a")).ok();
    client.call(&apply(&manifest("2", &[("c", "8")]))).ok();
    drop(client);
    node.shutdown().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    assert_eq!(client.call(&of(Opcode::GET, 8, "a")).ok().value, b"v");
    client
        .call(&of(Opcode::GET, 9, "a"))
        .is(Status::UNKNOWN_COLLECTION);
    assert_eq!(id_of(&mut client, "_default.c"), Ok(8));
    assert_eq!(
        collection_stat(&mut client, "collections-details 0", "vb_0:0x8:items").as_deref(),
        Some("1")
    );
    node.shutdown().unwrap();
    // The records of the vBuckets are enough.
    let file = std::fs::read_dir(place.path().join("buckets")).unwrap();
    for bucket in file {
        let path = bucket.unwrap().path().join("manifest");
        if path.exists() {
            std::fs::write(path, "damaged").unwrap();
        }
    }
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    assert_eq!(client.call(&of(Opcode::GET, 8, "a")).ok().value, b"v");
    assert_eq!(id_of(&mut client, "_default.c"), Ok(8));
    node.shutdown().unwrap();
}

#[test]
fn the_id_of_a_dropped_collection_is_not_used_again() {
    let place = tempfile::tempdir().unwrap();
    let scopes = |uid: &str, scopes: &[&str]| {
        let named = scopes
            .iter()
            .map(|id| json!({ "name": format!("s{id}"), "uid": id }));
        let mut all = vec![json!({ "name": "_default", "uid": "0" })];
        all.extend(named);
        json!({ "uid": uid, "scopes": all })
    };
    let refused = |client: &mut Client, manifest: &Value| {
        let answer = client.call(&apply(manifest));
        answer.is(Status::CANNOT_APPLY_COLLECTIONS_MANIFEST);
    };
    let mut uid = 1;
    let mut next = || {
        uid += 1;
        format!("{uid:x}")
    };
    let with = manifest(&next(), &[("c", "8")]);
    for round in ["the same run", "after a restart"] {
        let node = on_disk(place.path());
        let mut client = Client::ready(node.ports().kv);
        if round == "the same run" {
            client.call(&apply(&with)).ok();
            client.call(&write(8, "a")).ok();
            client.call(&apply(&manifest(&next(), &[]))).ok();
            client.call(&apply(&scopes(&next(), &["9"]))).ok();
            client.call(&apply(&scopes(&next(), &[]))).ok();
        }
        refused(&mut client, &manifest(&next(), &[("c", "8")]));
        refused(&mut client, &manifest(&next(), &[("other", "8")]));
        refused(&mut client, &scopes(&next(), &["9"]));
        client
            .call(&of(Opcode::GET, 8, "a"))
            .is(Status::UNKNOWN_COLLECTION);
        node.shutdown().unwrap();
    }
}

/// Returns the next changes of a stream, and its end, in short form. The bounds of snapshots depend on other readers of
/// the vBucket.
fn told(consumer: &mut Consumer, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    while told.len() < count {
        let frame = consumer.frame();
        let seqno = || u64::from_be_bytes(frame.extras[..8].try_into().unwrap());
        let key = frame.key.escape_ascii();
        told.push(match frame.opcode {
            Opcode(SYSTEM_EVENT) => format!("event{} {key}@{}", frame.extras[11], seqno()),
            Opcode::DCP_MUTATION => format!("{key}@{}", seqno()),
            Opcode::DCP_STREAM_END => format!("end {}", frame.extras[3]),
            Opcode::DCP_OSO_SNAPSHOT => ["", "(", ")"][usize::from(frame.extras[3])].to_owned(),
            Opcode::DCP_SNAPSHOT_MARKER | Opcode::DCP_SEQNO_ADVANCED => continue,
            other => panic!("{other}"),
        });
    }
    told
}

fn await_persisted(client: &mut Client, seqno: u64) {
    let request = Request::new(Opcode::SEQNO_PERSISTENCE);
    client.call(&request.extras(&seqno.to_be_bytes())).ok();
}

#[test]
fn streams_are_filtered_by_collection() {
    let node = own();
    let kv = node.ports().kv;
    let mut client = Client::ready(kv);
    client
        .call(&apply(&manifest("1", &[("c", "8"), ("d", "9")])))
        .ok();
    for (id, key) in [(9, "j"), (8, "k"), (9, "k"), (0, "k")] {
        client.call(&write(id, key)).ok();
    }
    let open = |name: &str, value: &str| {
        let mut consumer = Consumer::open(kv, name, PRODUCER);
        consumer.stream(&Ask::all(0).value(value));
        consumer
    };
    for round in ["memory", "disk"] {
        let mut all = open(&format!("all-{round}"), "");
        let all_of_it = [
            "event0 c@1",
            "event0 d@2",
            "\\tj@3",
            "\\x08k@4",
            "\\tk@5",
            "\\x00k@6",
        ];
        assert_eq!(told(&mut all, 6), all_of_it, "{round}");
        let mut one = open(&format!("one-{round}"), r#"{"collections":["8"]}"#);
        let expected = ["event0 c@1", "\\x08k@4"];
        assert_eq!(told(&mut one, 2), expected, "{round}");
        let mut scope = open(&format!("scope-{round}"), r#"{"scope":"0"}"#);
        assert_eq!(told(&mut scope, 6), all_of_it, "{round}");
        let features = sdk_without(Feature::COLLECTIONS);
        let mut old = Consumer::with(kv, &format!("old-{round}"), PRODUCER, &features);
        old.stream(&Ask::all(0));
        assert_eq!(told(&mut old, 1), ["k@6"], "{round}");
        await_persisted(&mut client, 6);
    }
    let mut consumer = Consumer::open(kv, "ends", PRODUCER);
    consumer.refused(
        &Ask::all(0).value(r#"{"collections":["a"]}"#),
        Status::UNKNOWN_COLLECTION,
    );
    consumer.refused(
        &Ask::all(0).value(r#"{"scope":"a"}"#),
        Status::UNKNOWN_SCOPE,
    );
    consumer.stream(&Ask::all(0).value(r#"{"collections":["9"]}"#));
    let expected = ["event0 d@2", "\\tj@3", "\\tk@5"];
    assert_eq!(told(&mut consumer, 3), expected);
    client.call(&apply(&manifest("2", &[("c", "8")]))).ok();
    assert_eq!(told(&mut consumer, 2), ["event1 @7", "end 7"]);
    // A later stream gets the end of the collection, and nothing before it.
    await_persisted(&mut client, 7);
    let mut late = Consumer::open(kv, "late", PRODUCER);
    late.stream(&Ask::all(0).flags(DISK_ONLY));
    let expected = ["event0 c@1", "\\x08k@4", "\\x00k@6", "event1 @7"];
    assert_eq!(told(&mut late, 4), expected);
}

#[test]
fn events_come_as_flatbuffers_on_request() {
    let node = own();
    let kv = node.ports().kv;
    let mut client = Client::ready(kv);
    let mut manifest = manifest("1f", &[("c", "8")]);
    manifest["scopes"][0]["collections"][1]["maxTTL"] = json!(77);
    client.call(&apply(&manifest)).ok();
    let mut consumer = Consumer::open(kv, "tables", PRODUCER);
    consumer
        .control("flatbuffers_system_events", "false")
        .is(Status::EINVAL);
    consumer.control("flatbuffers_system_events", "true").ok();
    consumer.stream(&Ask::all(0));
    assert_eq!(consumer.frame().opcode, Opcode::DCP_SNAPSHOT_MARKER);
    let frame = consumer.frame();
    assert_eq!(frame.opcode, Opcode(SYSTEM_EVENT));
    assert_eq!(frame.extras[12], 2, "the version");
    assert_eq!(frame.key, b"c");
    let told = FlatEvent::parse(EventId::BEGIN_COLLECTION, &frame.value).unwrap();
    assert_eq!((told.manifest.0, told.scope, told.name), (0x1f, 0, "c"));
    assert_eq!(told.collection.map(|id| id.0), Some(8));
    assert_eq!((told.expiry_max_s, told.history), (Some(77), false));
}

#[test]
fn a_replica_has_the_collections_of_its_active_node() {
    let active = own();
    let mut client = Client::ready(active.ports().kv);
    client.call(&apply(&manifest("1", &[("c", "8")]))).ok();
    client.call(&write(8, "a")).ok();
    let replica = replica_of(active.ports().kv, None);
    let mut other = Client::ready(replica.ports().kv);
    let has = |other: &mut Client, path: &str, wanted: Result<u32, Status>| {
        for _ in 0..3000 {
            if id_of(other, path) == wanted {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{path} is not {wanted:?}");
    };
    has(&mut other, "_default.c", Ok(8));
    // vBucket 0 may get it later than the first vBucket that got it.
    let read = of(Opcode::GET_REPLICA, 8, "a");
    let mut tries = 0;
    while other.call(&read).status != Status::SUCCESS {
        tries += 1;
        assert!(tries < 3000, "the document does not come");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    client.call(&apply(&manifest("2", &[("d", "9")]))).ok();
    has(&mut other, "_default.d", Ok(9));
    has(&mut other, "_default.c", Err(Status::UNKNOWN_COLLECTION));
    other
        .call(&apply(&manifest("9", &[])))
        .is(Status::NOT_SUPPORTED);
}

#[test]
fn a_recreated_vbucket_has_the_collections() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    client.call(&apply(&manifest("1", &[("c", "8")]))).ok();
    client.call(&write(8, "a")).ok();
    client.call(&Request::new(Opcode::DEL_VBUCKET)).ok();
    set_vbucket(&mut client, 0, 1);
    client.call(&of(Opcode::GET, 8, "a")).is(Status::KEY_ENOENT);
    client.call(&write(8, "a")).ok();
    // A replica records nothing by itself, and catches up when it becomes active.
    set_vbucket(&mut client, 0, 2);
    client.call(&apply(&manifest("2", &[("d", "9")]))).ok();
    set_vbucket(&mut client, 0, 1);
    client
        .call(&of(Opcode::GET, 8, "a"))
        .is(Status::UNKNOWN_COLLECTION);
    client.call(&write(9, "a")).ok();
}

/// Returns the messages about a vBucket in the store to a filtered consumer that takes any order, and the first marker
/// after them.
fn out_of_order(kv: u16, name: &str, order: &str, count: usize) -> Vec<String> {
    let mut consumer = Consumer::open(kv, name, PRODUCER);
    consumer
        .control("enable_out_of_order_snapshots", order)
        .ok();
    consumer.stream(&Ask::all(0).value(r#"{"collections":["8"]}"#));
    let mut told = Vec::new();
    while told.len() < count {
        let frame = consumer.frame();
        let number = |at: usize| u64::from_be_bytes(frame.extras[at..at + 8].try_into().unwrap());
        told.push(match frame.opcode {
            Opcode(SYSTEM_EVENT) => format!("event@{}", number(0)),
            Opcode::DCP_MUTATION => format!("{}@{}", frame.key[1..].escape_ascii(), number(0)),
            Opcode::DCP_SNAPSHOT_MARKER => format!("[{}..{}]", number(0), number(8)),
            Opcode::DCP_SEQNO_ADVANCED => format!("advanced@{}", number(0)),
            Opcode::DCP_OSO_SNAPSHOT => ["", "(", ")"][usize::from(frame.extras[3])].to_owned(),
            other => panic!("{other}"),
        });
    }
    told
}

#[test]
fn a_collection_comes_by_key_to_consumers_of_any_order() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let kv = node.ports().kv;
    let mut client = Client::ready(kv);
    client.call(&apply(&manifest("1", &[("c", "8")]))).ok();
    for key in ["z", "y", "x"] {
        client.call(&write(8, key)).ok();
    }
    for number in 0..80 {
        client.call(&write(0, &format!("other{number}"))).ok();
    }
    client.call(&write(8, "y")).ok();
    client.call(&write(0, "last")).ok();
    await_persisted(&mut client, 86);
    let by_key = ["(", "event@1", "x@4", "y@85", "z@2"];
    let came = out_of_order(kv, "plain", "true", 6);
    assert_eq!(came, [&by_key[..], &[")"]].concat());
    let came = out_of_order(kv, "advanced", "true_with_seqno_advanced", 7);
    assert_eq!(came, [&by_key[..], &["advanced@86", ")"]].concat());
    // A consumer without that option gets the rows in order.
    let in_order = ["[0..86]", "event@1", "z@2", "x@4", "y@85", "advanced@86"];
    assert_eq!(out_of_order(kv, "in-order", "false", 6), in_order);
    // Changes from memory follow in order, and begin after the snapshot.
    let mut consumer = Consumer::open(kv, "follows", PRODUCER);
    let order = "enable_out_of_order_snapshots";
    consumer.control(order, "true").ok();
    consumer.stream(&Ask::all(0).value(r#"{"collections":["8"]}"#));
    assert_eq!(told(&mut consumer, 6).last().unwrap(), ")");
    client.call(&write(8, "x")).ok();
    let Message::Marker { start, end, .. } = consumer.message() else {
        panic!("a snapshot is announced");
    };
    assert_eq!((start, end), (87, 87));
    // The setting disables it, and enables it for any share.
    let set_param = |client: &mut Client, value: &str| {
        let param = Request::new(Opcode::SET_PARAM).extras(&4_u32.to_be_bytes());
        client.call(&param.key("dcp_oso_backfill").value(value))
    };
    await_persisted(&mut client, 87);
    set_param(&mut client, "disabled").ok();
    assert_eq!(out_of_order(kv, "off", "true", 1), ["[0..87]"]);
    set_param(&mut client, "enabled").ok();
    assert_eq!(out_of_order(kv, "on", "true", 1), ["("]);
    set_param(&mut client, "sometimes").is(Status::EINVAL);
    drop(client);
    node.shutdown().unwrap();
}
