//! Tests of the messages of a stream, and of their timing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use server::Node;
use wire::{Feature, Opcode, Status};

use super::consumer::{
    Ask, Consumer, DELETE_TIMES, Message, NO_VALUE, PRODUCER, SKIP_DELETES, buffer_ack,
};
use crate::client::{Client, Request, sdk_and, set, store};
use crate::place::{on_disk, own, set_vbucket};

const MEMORY: u32 = 1;
const DISK: u32 = 2;
const CHECKPOINT: u32 = 4;

fn marker(start: u64, end: u64, flags: u32) -> Message {
    Message::Marker { start, end, flags }
}

fn deletion(seqno: u64, key: &str) -> Message {
    Message::Deletion {
        seqno,
        key: key.into(),
    }
}

fn delete(key: &str) -> Request {
    Request::of(Opcode::DELETE, key)
}

/// Waits until everything up to `seqno` is in the store, and gone from memory.
fn await_persisted(client: &mut Client, vb: u16, seqno: u64) {
    let request = Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(vb);
    client.call(&request.extras(&seqno.to_be_bytes())).ok();
}

fn kv(node: &Node) -> u16 {
    node.ports().kv
}

#[test]
fn the_cursor_of_a_stream_is_among_the_statistics_of_checkpoints() {
    let node = own();
    let mut writer = Client::ready(kv(&node));
    let mut consumer = Consumer::open(kv(&node), "seen", PRODUCER);
    consumer.stream(&Ask::all(7));
    writer.call(&set("a", "1").vbucket(7)).ok();
    consumer.messages(2);
    let rows = writer.stats("checkpoint 7");
    let row = |name: &str| rows[&format!("vb_7:eq_dcpq:seen:{name}")].as_str();
    assert_eq!(row("cursor_seqno"), "1");
    assert_eq!(row("num_items_for_cursor"), "0");
    assert_eq!(rows["vb_7:num_conn_cursors"], "2");
    let pulls = &writer.stats("locks")["lock_hold_pull_count"];
    assert!(
        pulls.parse::<u64>().unwrap() > 0,
        "what a stream holds is noted"
    );
    drop(consumer);
    let (mut left, deadline) = (rows, Instant::now() + Duration::from_secs(30));
    while left.keys().any(|name| name.contains("seen")) {
        assert!(Instant::now() < deadline, "the cursor stays: {left:?}");
        left = writer.stats("checkpoint 7");
    }
    node.shutdown().unwrap();
}

#[test]
fn a_stream_from_seqno_zero_follows_the_vbucket() {
    let node = own();
    let mut writer = Client::ready(kv(&node));
    let mut consumer = Consumer::open(kv(&node), "live", PRODUCER);
    assert_eq!(consumer.stream(&Ask::all(7)).len(), 1);
    writer.call(&set("a", "1").vbucket(7)).ok();
    let first = Message::mutation(1, "a", "1");
    assert_eq!(
        consumer.messages(2),
        [marker(0, 1, MEMORY | CHECKPOINT), first]
    );
    writer.call(&set("b", "{}").vbucket(7)).ok();
    let second = Message::mutation(2, "b", "{}");
    assert_eq!(consumer.messages(2), [marker(2, 2, MEMORY), second]);
    writer.call(&delete("b").vbucket(7)).ok();
    assert_eq!(
        consumer.messages(2),
        [marker(3, 3, MEMORY), deletion(3, "b")]
    );
    consumer.expect_silence();
    let other = Message::mutation(1, "c", "x");
    consumer.stream(&Ask::all(8));
    writer.call(&set("c", "x").vbucket(8)).ok();
    assert_eq!(
        consumer.messages(2),
        [marker(0, 1, MEMORY | CHECKPOINT), other]
    );
}

#[test]
fn changes_that_left_memory_come_from_the_store() {
    let place = tempfile::tempdir().unwrap();
    for node in [own(), on_disk(place.path())] {
        let mut writer = Client::ready(kv(&node));
        for key in ["a", "b", "c", "a"] {
            writer.call(&set(key, "1").vbucket(3)).ok();
        }
        writer.call(&delete("c").vbucket(3)).ok();
        await_persisted(&mut writer, 3, 5);
        let mut consumer = Consumer::open(kv(&node), "late", PRODUCER);
        consumer.stream(&Ask::all(3));
        assert_eq!(
            consumer.messages(4),
            [
                marker(0, 5, DISK | CHECKPOINT),
                Message::mutation(2, "b", "1"),
                Message::mutation(4, "a", "1"),
                deletion(5, "c"),
            ]
        );
        writer.call(&set("d", "2").vbucket(3)).ok();
        assert_eq!(
            consumer.messages(2),
            [
                marker(6, 6, MEMORY | CHECKPOINT),
                Message::mutation(6, "d", "2")
            ]
        );
    }
}

#[test]
fn the_first_backfill_leaves_deletions_out_if_negotiated() {
    let node = own();
    let mut writer = Client::ready(kv(&node));
    for key in ["a", "b"] {
        writer.call(&set(key, "1").vbucket(3)).ok();
    }
    writer.call(&delete("a").vbucket(3)).ok();
    await_persisted(&mut writer, 3, 3);
    let features = sdk_and(&[Feature::DCP_SKIP_DELETES_IN_INITIAL_BACKFILL]);
    let flags = PRODUCER | SKIP_DELETES;
    let mut consumer = Consumer::with(kv(&node), "skips", flags, &features);
    consumer.stream(&Ask::all(3));
    let first = [
        marker(0, 3, DISK | CHECKPOINT),
        Message::mutation(2, "b", "1"),
        Message::Advanced(3),
    ];
    assert_eq!(consumer.messages(3), first);
    writer.call(&delete("b").vbucket(3)).ok();
    assert_eq!(consumer.messages(2)[1], deletion(4, "b"));
}

#[test]
fn a_stream_covers_a_store_that_ends_in_a_prepare() {
    let node = own();
    let mut admin = Client::ready(kv(&node));
    let topology = Request::new(Opcode::SET_VBUCKET).vbucket(5).extras(&[1]);
    let nobody_there = r#"{"topology":[["here","there"]]}"#;
    admin.call(&topology.datatype(1).value(nobody_there)).ok();
    admin.call(&set("a", "1").vbucket(5)).ok();
    let mut waiting = Client::ready(kv(&node));
    let a_minute = [0x13, 1, 0xea, 0x60];
    waiting.pipeline(&[set("b", "2").vbucket(5).infos(&a_minute)]);
    await_persisted(&mut admin, 5, 2);
    let mut plain = Consumer::with(kv(&node), "plain", PRODUCER, &[]);
    plain.stream(&Ask::all(5));
    assert_eq!(
        plain.messages(2),
        [
            marker(0, 1, DISK | CHECKPOINT),
            Message::mutation(1, "a", "1")
        ]
    );
    plain.expect_silence();
    let mut told = Consumer::open(kv(&node), "told", PRODUCER);
    told.stream(&Ask::all(5));
    let all = [
        marker(0, 2, DISK | CHECKPOINT),
        Message::mutation(1, "a", "1"),
        Message::Advanced(2),
    ];
    assert_eq!(told.messages(3), all);
}

#[test]
fn a_stream_ends_with_the_snapshot_of_the_requested_seqno() {
    let node = own();
    let mut writer = Client::ready(kv(&node));
    for number in 1..=5 {
        writer
            .call(&set(&format!("k{number}"), "v").vbucket(9))
            .ok();
    }
    await_persisted(&mut writer, 9, 5);
    let mut consumer = Consumer::open(kv(&node), "until", PRODUCER);
    consumer.stream(&Ask::all(9).until(3));
    let messages = consumer.until_end();
    assert_eq!(messages[0], marker(0, 5, DISK | CHECKPOINT));
    assert_eq!(messages[5], Message::mutation(5, "k5", "v"));
    assert_eq!(messages[6..], [Message::End(0)]);
    // The same stream again: the first one has ended. From memory, too.
    let log = consumer.stream(&Ask::all(9).until(6));
    assert_eq!(consumer.messages(6).len(), 6);
    writer.call(&set("k6", "v").vbucket(9)).ok();
    assert_eq!(
        consumer.until_end()[1..],
        [Message::mutation(6, "k6", "v"), Message::End(0)]
    );
    writer.call(&set("k7", "v").vbucket(9)).ok();
    consumer.stream(&Ask::after(9, log[0].0, 7).until(7));
    assert_eq!(consumer.until_end(), [Message::End(0)]);
}

#[test]
fn a_consumer_closes_a_stream() {
    let node = own();
    let mut consumer = Consumer::open(kv(&node), "closer", PRODUCER);
    let close = Request::new(Opcode::DCP_CLOSE_STREAM).vbucket(1);
    consumer.client.call(&close).is(Status::KEY_ENOENT);
    consumer.stream(&Ask::all(1));
    consumer.refused(&Ask::all(1), Status::KEY_EEXISTS);
    consumer.client.call(&close).ok();
    consumer.expect_silence();
    consumer
        .control("send_stream_end_on_client_close_stream", "true")
        .ok();
    consumer.stream(&Ask::all(1));
    consumer.client.call(&close).ok();
    assert_eq!(consumer.message(), Message::End(1));
    consumer.client.call(&close).is(Status::KEY_ENOENT);
}

#[test]
fn a_vbucket_that_changes_its_state_ends_its_streams() {
    let node = own();
    let mut admin = Client::ready(kv(&node));
    let mut consumer = Consumer::open(kv(&node), "states", PRODUCER);
    for (vb, state) in [(1, 2), (2, 4)] {
        consumer.stream(&Ask::all(vb));
        consumer.stream(&Ask::all(vb + 10));
        set_vbucket(&mut admin, vb, state);
        assert_eq!(consumer.message(), Message::End(2));
    }
    consumer.stream(&Ask::all(3));
    admin
        .call(&Request::new(Opcode::DEL_VBUCKET).vbucket(3))
        .ok();
    assert_eq!(consumer.message(), Message::End(2));
    consumer.refused(&Ask::all(3), Status::NOT_MY_VBUCKET);
    consumer.refused(&Ask::all(2), Status::NOT_MY_VBUCKET);
    // The other streams are unharmed.
    admin.call(&set("k", "v").vbucket(11)).ok();
    assert_eq!(consumer.messages(2)[1], Message::mutation(1, "k", "v"));
}

#[test]
fn all_vbuckets_are_streamed_from_seqno_zero() {
    let node = own();
    let mut writer = Client::ready(kv(&node));
    let keys: Vec<String> = (0..5000).map(|number| format!("all-{number}")).collect();
    let sets: Vec<Request> = keys.iter().map(|key| set(key, "value")).collect();
    writer.pipeline(&sets);
    writer.answers(sets.len());
    let mut consumer = Consumer::open(kv(&node), "all", PRODUCER);
    let asks: Vec<Request> = (0..1024).map(|vb| Ask::all(vb).request()).collect();
    consumer.client.pipeline(&asks);
    let mut seen = BTreeMap::new();
    let mut granted = 0;
    while seen.len() < keys.len() || granted < 1024 {
        let answer = consumer.client.answer();
        if answer.opcode == Opcode::DCP_STREAM_REQ {
            answer.ok();
            granted += 1;
        } else if let Message::Mutation { key, .. } = super::consumer::read(&answer) {
            *seen.entry(key).or_insert(0) += 1;
        }
    }
    assert!(seen.values().all(|&times| times == 1));
    assert!(keys.iter().all(|key| seen.contains_key(key)));
}

#[test]
fn a_full_window_stops_the_stream_until_it_is_acknowledged() {
    let node = own();
    let mut writer = Client::ready(kv(&node));
    for number in 0..20 {
        let key = format!("w{number:02}");
        writer.call(&set(&key, [b'x'; 100]).vbucket(5)).ok();
    }
    await_persisted(&mut writer, 5, 20);
    let mut consumer = Consumer::open(kv(&node), "window", PRODUCER);
    consumer.control("connection_buffer_size", "500").ok();
    consumer.stream(&Ask::all(5));
    // A marker of 44 bytes, mutations of 24 + 31 + 4 + 100: the third one exceeds 500 bytes.
    let first = consumer.messages(4);
    assert_eq!(first[0], marker(0, 20, DISK | CHECKPOINT));
    consumer.expect_silence();
    // One byte less than needed to open the window again.
    consumer.client.send(&buffer_ack(21).bytes());
    consumer.expect_silence();
    consumer.client.send(&buffer_ack(1).bytes());
    consumer.message();
    consumer.expect_silence();
    // Acknowledging more than was sent is no credit for later messages.
    consumer.client.send(&buffer_ack(u32::MAX).bytes());
    consumer.messages(4);
    consumer.expect_silence();
    for _ in 0..12 {
        consumer.client.send(&buffer_ack(159).bytes());
        consumer.message();
    }
}

#[test]
fn noops_come_at_their_interval_and_are_answered() {
    let node = own();
    let mut consumer = Consumer::open(kv(&node), "noop", PRODUCER);
    consumer.control("set_noop_interval", "0.1").ok();
    for _ in 0..2 {
        let frame = consumer.frame();
        assert_eq!(super::consumer::read(&frame), Message::Noop);
        let mut answer = Request::new(Opcode::DCP_NOOP).bytes();
        answer[0] = 0x81;
        answer[12..16].copy_from_slice(&frame.opaque.to_be_bytes());
        consumer.client.send(&answer);
    }
    // A consumer may send noops as well.
    let noop = consumer.client.call(&Request::new(Opcode::DCP_NOOP));
    noop.ok();
}

#[test]
fn deletions_and_expirations_take_the_form_that_was_agreed() {
    let node = own();
    let mut writer = Client::ready(kv(&node));
    let mut timed = Consumer::open(kv(&node), "timed", PRODUCER | DELETE_TIMES);
    timed.control("enable_expiry_opcode", "true").ok();
    let mut plain = Consumer::open(kv(&node), "plain", PRODUCER | NO_VALUE);
    // A consumer that asks for expirations gets times of deletions with them, with any flags of `DCP_OPEN`.
    let mut asked = Consumer::open(kv(&node), "asked", PRODUCER);
    asked.control("enable_expiry_opcode", "true").ok();
    timed.stream(&Ask::all(2));
    plain.stream(&Ask::all(2));
    asked.stream(&Ask::all(2));
    writer.call(&set("gone", "1").vbucket(2)).ok();
    assert_eq!(timed.messages(2)[1], Message::mutation(1, "gone", "1"));
    assert_eq!(plain.messages(2)[1], Message::mutation(1, "gone", ""));
    assert_eq!(asked.messages(2)[1], Message::mutation(1, "gone", "1"));
    writer.call(&delete("gone").vbucket(2)).ok();
    let lengths = [&mut timed, &mut plain, &mut asked].map(|consumer| {
        consumer.message();
        let frame = consumer.frame();
        assert_eq!(super::consumer::read(&frame), deletion(2, "gone"));
        frame.extras.len()
    });
    assert_eq!(lengths, [21, 18, 21]);
    // The expiry has passed long ago; the next read makes it a tombstone.
    let expired = store(Opcode::SET, "short", "1", 0, 1_000_000_000);
    writer.call(&expired.vbucket(2)).ok();
    timed.messages(2);
    plain.messages(2);
    asked.messages(2);
    let get = Request::of(Opcode::GET, "short").vbucket(2);
    writer.call(&get).is(Status::KEY_ENOENT);
    let expiration = Message::Expiration {
        seqno: 4,
        key: "short".into(),
    };
    assert_eq!(timed.messages(2)[1], expiration);
    assert_eq!(asked.messages(2)[1], expiration);
    assert_eq!(plain.messages(2)[1], deletion(4, "short"));
}
