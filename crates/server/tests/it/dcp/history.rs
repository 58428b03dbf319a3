//! Tests of streams of every version: from memory, from the store, after a restart, and after old versions are gone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use server::Node;
use wire::{Opcode, Status};

use super::consumer::{Ask, Consumer, Message, PRODUCER, control, open, read};
use crate::client::{Client, Request, SDK, set};
use crate::durable::durable;
use crate::place::{on_disk, replica_of_bucket};

const MEMORY: u32 = 1;
const DISK: u32 = 2;
const CHECKPOINT: u32 = 4;
const HISTORY: u32 = 0x10;
const REPEATS: u32 = 0x20;
const VB: u16 = 5;

/// Posts a form to the management port; returns the status line.
pub(crate) fn post(node: &Node, path: &str, form: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", node.ports().http)).unwrap();
    let login = "QWRtaW5pc3RyYXRvcjpzZWNyZXQgd29yZA==";
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

fn client(node: &Node) -> Client {
    let mut client = Client::logged_in(node.ports().kv, &SDK);
    client.select("past").ok();
    client
}

fn consumer(node: &Node, name: &str, versions: bool) -> Consumer {
    let mut client = client(node);
    client.call(&open(name, PRODUCER)).ok();
    client.call(&control("enable_noop", "true")).ok();
    let mut consumer = Consumer { client };
    if versions {
        consumer.control("change_streams", "true").ok();
    }
    consumer
}

/// Returns the next messages, without system events.
fn messages(consumer: &mut Consumer, count: usize) -> Vec<Message> {
    let mut found = Vec::new();
    while found.len() < count {
        let frame = consumer.frame();
        if frame.opcode != Opcode::DCP_SYSTEM_EVENT {
            found.push(read(&frame));
        }
    }
    found
}

fn put(client: &mut Client, key: &str, value: &str) {
    client.call(&set(key, value).vbucket(VB)).ok();
}

/// Returns the seqno of a change; the three seqnos before belong to the system collections.
fn at(change: u64) -> u64 {
    change + 3
}

fn await_persisted(client: &mut Client, change: u64) {
    let request = Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(VB);
    client.call(&request.extras(&at(change).to_be_bytes())).ok();
}

/// Returns the marker of a snapshot of changes; from the beginning for start 0.
fn marker(start: u64, end: u64, flags: u32) -> Message {
    let start = if start == 0 { 0 } else { at(start) };
    let end = at(end);
    Message::Marker { start, end, flags }
}

fn mutation(change: u64, key: &str) -> Message {
    Message::mutation(at(change), key, &change.to_string())
}

fn a(change: u64) -> Message {
    mutation(change, "a")
}

/// Returns all versions up to 8 in the order of the store: 1 creates the collection, 4 is of another key.
fn all_versions() -> Vec<Message> {
    let mut expected = vec![
        marker(0, 8, DISK | CHECKPOINT),
        marker(0, 8, DISK | CHECKPOINT | HISTORY | REPEATS),
    ];
    expected.extend([a(2), a(3), mutation(4, "b")]);
    expected.extend([5, 6, 7, 8].map(a));
    expected
}

fn read_all(node: &Node, name: &str) -> Vec<Message> {
    let mut consumer = consumer(node, name, true);
    consumer.stream(&Ask::all(VB).until(at(8)));
    let mut found = Vec::new();
    loop {
        match messages(&mut consumer, 1).remove(0) {
            Message::End(_) => return found,
            message => found.push(message),
        }
    }
}

#[test]
fn every_version_is_streamed_from_memory_and_from_the_store() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let form = "name=past&ramQuota=64&storageBackend=magma&historyRetentionSeconds=3600";
    assert!(post(&node, "/pools/default/buckets", form).contains("202"));
    let mut writer = client(&node);
    for (key, value) in [("a", "2"), ("a", "3"), ("b", "4"), ("a", "5")] {
        put(&mut writer, key, value);
    }
    await_persisted(&mut writer, 5);

    let mut plain = consumer(&node, "plain", false);
    plain.stream(&Ask::all(VB));
    let newest = [marker(0, 5, DISK | CHECKPOINT), mutation(4, "b"), a(5)];
    assert_eq!(messages(&mut plain, 3), newest);
    let mut all = consumer(&node, "all", true);
    let log = all.stream(&Ask::all(VB));
    let found = messages(&mut all, 6);
    assert_eq!(found[0], marker(0, 5, DISK | CHECKPOINT));
    assert_eq!(
        found[1],
        marker(0, 5, DISK | CHECKPOINT | HISTORY | REPEATS)
    );
    assert_eq!(found[2..], [a(2), a(3), mutation(4, "b"), a(5)]);
    for seqno in [6, 7] {
        put(&mut writer, "a", &seqno.to_string());
        let seen = marker(seqno, seqno, MEMORY | CHECKPOINT);
        assert_eq!(messages(&mut plain, 2), [seen, a(seqno)]);
        let seen = marker(seqno, seqno, MEMORY | CHECKPOINT | HISTORY);
        assert_eq!(messages(&mut all, 2), [seen, a(seqno)]);
    }
    put(&mut writer, "a", "8");
    await_persisted(&mut writer, 8);
    // A consumer that stopped in the middle of the history continues there.
    let mut late = consumer(&node, "late", true);
    let mut ask = Ask::after(VB, log[0].0, at(4)).until(at(8));
    ask.snapshot = (0, at(5));
    late.stream(&ask);
    let mut expected = vec![marker(0, 8, DISK | CHECKPOINT | HISTORY | REPEATS)];
    expected.extend([5, 6, 7, 8].map(a));
    assert_eq!(messages(&mut late, 5), expected);
    assert_eq!(read_all(&node, "before"), all_versions());
    drop((writer, plain, all, late));
    node.shutdown().unwrap();

    let node = on_disk(place.path());
    assert_eq!(read_all(&node, "after"), all_versions());
    // The versions are too old then: the compactor removes them by itself.
    let path = "/pools/default/buckets/past";
    assert!(post(&node, path, "historyRetentionSeconds=1").contains("200"));
    let left = [marker(0, 8, DISK | CHECKPOINT), mutation(4, "b"), a(8)];
    let deadline = Instant::now() + Duration::from_secs(30);
    for number in 0.. {
        let found = read_all(&node, &format!("old-{number}"));
        if found == left {
            break;
        }
        assert!(Instant::now() < deadline, "it stays: {found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    node.shutdown().unwrap();
}

/// Waits until the replica has everything up to a change.
fn until_followed(replica: &Node, change: u64) {
    let mut client = client(replica);
    let all = Request::new(Opcode::GET_ALL_VB_SEQNOS).extras(&[0, 0, 0, 2]);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = client.call(&all).ok();
        let mut entries = answer.value.chunks(10);
        let ours = entries.find(|entry| entry[..2] == VB.to_be_bytes());
        let high = ours.map(|entry| u64::from_be_bytes(entry[2..].try_into().unwrap()));
        if high == Some(at(change)) {
            return;
        }
        assert!(Instant::now() < deadline, "it stands at {high:?}");
        std::thread::yield_now();
    }
}

/// A replica gets the history like the documents: from the store and from memory, behind the older part. It keeps the
/// history over its own restart, and streams it once it is active.
#[test]
fn a_promoted_replica_has_the_history() {
    const MAJORITY: u8 = 1;
    let place = tempfile::tempdir().unwrap();
    let (one, two) = (place.path().join("1"), place.path().join("2"));
    let active = on_disk(&one);
    let port = active.ports().kv;
    let form = "name=past&ramQuota=64&storageBackend=magma";
    assert!(post(&active, "/pools/default/buckets", form).contains("202"));
    let mut writer = client(&active);
    put(&mut writer, "old", "2");
    await_persisted(&mut writer, 2);
    let path = "/pools/default/buckets/past";
    assert!(post(&active, path, "historyRetentionSeconds=3600").contains("200"));
    for (key, value) in [("a", "3"), ("a", "4"), ("b", "5"), ("a", "6")] {
        put(&mut writer, key, value);
    }
    await_persisted(&mut writer, 6);
    let replica = replica_of_bucket(port, "past", Some(&two));
    until_followed(&replica, 6);
    for value in ["7", "8"] {
        put(&mut writer, "a", value);
    }
    until_followed(&replica, 8);
    replica.shutdown().unwrap();
    let replica = replica_of_bucket(port, "past", Some(&two));
    put(&mut writer, "a", "9");
    until_followed(&replica, 9);
    let write = set("a", "11").vbucket(VB);
    writer.call(&durable(write, MAJORITY, 30_000)).ok();
    until_followed(&replica, 11);
    drop(writer);
    active.shutdown().unwrap();

    let promote = Request::new(Opcode::IOCTL_SET).key("replication.promote");
    let mut writer = client(&replica);
    writer.call(&promote).ok();
    put(&mut writer, "a", "12");
    await_persisted(&mut writer, 12);
    let mut all = consumer(&replica, "all", true);
    all.stream(&Ask::all(VB).until(at(12)));
    let mut expected = vec![
        marker(0, 12, DISK | CHECKPOINT),
        mutation(2, "old"),
        marker(0, 12, DISK | CHECKPOINT | HISTORY | REPEATS),
    ];
    expected.extend([a(3), a(4), mutation(5, "b")]);
    expected.extend([6, 7, 8, 9, 11, 12].map(a));
    expected.push(Message::End(0));
    assert_eq!(messages(&mut all, expected.len()), expected);
    let config = writer.call(&Request::new(Opcode::GET_CLUSTER_CONFIG)).ok();
    assert!(config.text().contains("nonDedupedHistory"));
    replica.shutdown().unwrap();
}

#[test]
fn history_needs_settings_of_the_bucket() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let make = |form: &str| post(&node, "/pools/default/buckets", form);
    assert!(make("name=past&historyRetentionSeconds=5").contains("400"));
    assert!(make("name=past&storageBackend=magma&historyRetentionBytes=5").contains("400"));
    assert!(make("name=past&bucketType=ephemeral&storageBackend=magma").contains("400"));
    assert!(make("name=past&storageBackend=magma").contains("202"));
    let config = |bucket: &str| {
        let mut client = Client::logged_in(node.ports().kv, &SDK);
        client.select(bucket).ok();
        let config = client.call(&Request::new(Opcode::GET_CLUSTER_CONFIG)).ok();
        config.text().contains("nonDedupedHistory")
    };
    assert!(config("past") && !config("default"));
    // Without retention no old version is kept, and streams carry no history.
    let mut writer = client(&node);
    for value in ["2", "3"] {
        put(&mut writer, "a", value);
    }
    await_persisted(&mut writer, 3);
    let mut all = consumer(&node, "all", true);
    all.control("change_streams", "false").is(Status::EINVAL);
    all.stream(&Ask::all(VB));
    let newest = [marker(0, 3, DISK | CHECKPOINT), a(3)];
    assert_eq!(messages(&mut all, 2), newest);
    node.shutdown().unwrap();
}
