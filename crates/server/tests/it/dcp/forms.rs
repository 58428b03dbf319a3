//! Tests of forms that a consumer chooses: compressed values, stream ids, hand-over, old features.

use std::time::{Duration, Instant};

use wire::{Feature, Opcode, Status};

use super::consumer::{Ask, Consumer, Message, PRODUCER};
use crate::client::{Answer, Client, Request, SDK, sdk_and, sdk_without, set};
use crate::place::own;

/// Waits until `so` returns true.
fn until(mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(30), "it never is");
        std::thread::yield_now();
    }
}

fn answer_to(frame: &Answer) -> Vec<u8> {
    let mut answer = Request::new(frame.opcode).bytes();
    answer[0] = 0x81;
    answer[12..16].copy_from_slice(&frame.opaque.to_be_bytes());
    answer
}

#[test]
fn values_are_compressed_only_for_consumers_that_ask() {
    let node = own();
    let port = node.ports().kv;
    let mut writer = Client::ready(port);
    let snappy = sdk_and(&[Feature::SNAPPY]);
    let mut packed = Consumer::with(port, "packed", PRODUCER, &snappy);
    packed.control("force_value_compression", "true").ok();
    let mut plain = Consumer::open(port, "plain", PRODUCER);
    packed.stream(&Ask::all(1));
    plain.stream(&Ask::all(1));
    let value = "a".repeat(1000);
    writer.call(&set("long", &value).vbucket(1)).ok();
    packed.message();
    let frame = packed.frame();
    assert_eq!(frame.datatype, 2);
    assert!(frame.value.len() < 100, "{}", frame.value.len());
    assert_eq!(plain.messages(2)[1], Message::mutation(1, "long", &value));
    writer.call(&set("short", "a").vbucket(1)).ok();
    packed.message();
    assert_eq!(packed.frame().datatype, 0, "not worth it");
}

#[test]
fn streams_may_have_ids() {
    let node = own();
    let port = node.ports().kv;
    let mut writer = Client::ready(port);
    let mut consumer = Consumer::open(port, "numbers", PRODUCER);
    consumer.control("enable_stream_id", "true").ok();
    consumer.refused(&Ask::all(1), Status::DCP_STREAM_ID_INVALID);
    let numbered = |id: u16| Ask::all(1).value(&format!(r#"{{"sid":{id}}}"#));
    consumer.stream(&numbered(7));
    consumer.stream(&numbered(9));
    consumer.refused(&numbered(7), Status::KEY_EEXISTS);
    writer.call(&set("k", "v").vbucket(1)).ok();
    let mut ids = Vec::new();
    for _ in 0..4 {
        let frame = consumer.frame();
        assert_eq!((frame.bytes[0], frame.bytes[2]), (0x08, 3));
        assert_eq!(frame.bytes[24], 0x22);
        ids.push(u16::from_be_bytes([frame.bytes[25], frame.bytes[26]]));
    }
    ids.sort_unstable();
    assert_eq!(ids, [7, 7, 9, 9]);
    let close = Request::new(Opcode::DCP_CLOSE_STREAM).vbucket(1);
    consumer
        .client
        .call(&close)
        .is(Status::DCP_STREAM_ID_INVALID);
    consumer.client.call(&close.infos(&[0x22, 0, 7])).ok();
    writer.call(&set("k", "w").vbucket(1)).ok();
    assert_eq!(consumer.messages(2)[1], Message::mutation(2, "k", "w"));
    consumer.expect_silence();
}

#[test]
fn a_vbucket_is_handed_over() {
    let node = own();
    let port = node.ports().kv;
    let mut writer = Client::ready(port);
    let mut consumer = Consumer::open(port, "takeover", PRODUCER);
    writer.call(&set("a", "1").vbucket(1)).ok();
    consumer.stream(&Ask::all(1).flags(1));
    let marker = consumer.frame();
    assert!(matches!(
        super::consumer::read(&marker),
        Message::Marker { end: 1, flags, .. } if flags & 8 != 0
    ));
    assert_eq!(consumer.message(), Message::mutation(1, "a", "1"));
    consumer.expect_silence();
    consumer.client.send(&answer_to(&marker));
    let state = consumer.frame();
    assert_eq!(super::consumer::read(&state), Message::State(3));
    writer.call(&set("b", "2").vbucket(1)).ok();
    consumer.expect_silence();
    consumer.client.send(&answer_to(&state));
    let marker = consumer.frame();
    assert_eq!(consumer.message(), Message::mutation(2, "b", "2"));
    writer
        .call(&set("c", "3").vbucket(1))
        .is(Status::NOT_MY_VBUCKET);
    consumer.client.send(&answer_to(&marker));
    let state = consumer.frame();
    assert_eq!(super::consumer::read(&state), Message::State(1));
    consumer.client.send(&answer_to(&state));
    assert_eq!(consumer.message(), Message::End(0));
}

#[test]
fn a_consumer_without_collections_sees_plain_keys() {
    let node = own();
    let port = node.ports().kv;
    let mut writer = Client::ready(port);
    let old = sdk_without(Feature::COLLECTIONS);
    let mut consumer = Consumer::with(port, "old", PRODUCER, &old);
    consumer.stream(&Ask::all(1));
    writer.call(&set("k", "v").vbucket(1)).ok();
    consumer.message();
    assert_eq!(consumer.frame().key, b"k");
}

#[test]
fn statistics_of_streams_and_their_end_with_the_connection() {
    let node = own();
    let port = node.ports().kv;
    let mut client = Client::with(port, &SDK);
    let mut rows = |group: &str| {
        client.send(&Request::new(Opcode::STAT).key(group).bytes());
        let mut rows = std::collections::BTreeMap::new();
        loop {
            let row = client.answer().ok();
            if row.key.is_empty() {
                return rows;
            }
            rows.insert(String::from_utf8(row.key.clone()).unwrap(), row.text());
        }
    };
    let mut writer = Client::ready(port);
    let mut consumer = Consumer::open(port, "figures:1", PRODUCER);
    consumer.control("connection_buffer_size", "100").ok();
    consumer.stream(&Ask::all(3));
    writer.call(&set("k", [b'x'; 100]).vbucket(3)).ok();
    consumer.messages(2);
    writer.call(&set("l", "w").vbucket(3)).ok();
    let dcp = rows("dcp");
    let of = |name: &str| dcp[&format!("eq_dcpq:figures:1:{name}")].clone();
    assert_eq!(
        (of("items_sent"), of("items_remaining")),
        ("1".into(), "1".into())
    );
    assert_eq!(of("paused_current_reason"), "BufferLogFull");
    assert_eq!(of("unacked_bytes"), (44 + 24 + 31 + 2 + 100).to_string());
    assert_eq!(of("stream_3_state"), "in-memory");
    assert_eq!(of("stream_3_last_sent_seqno"), "1");
    assert_eq!(dcp["ep_dcp_producer_count"], "1");
    let sums = rows("dcpagg :");
    assert_eq!(sums["figures:count"], "1");
    assert_eq!(sums[":total:items_remaining"], "1");
    let takeover = rows("dcp-vbtakeover 3 figures:1");
    assert_eq!(
        (&*takeover["status"], &*takeover["estimate"]),
        ("in-memory", "1")
    );
    assert!(rows("checkpoint 3").contains_key("vb_3:num_checkpoint_items"));
    drop(consumer);
    until(|| rows("dcp")["ep_dcp_producer_count"] == "0");
}

#[test]
fn markers_take_the_version_that_was_agreed() {
    let node = own();
    let port = node.ports().kv;
    let mut writer = Client::ready(port);
    writer.call(&set("k", "v").vbucket(1)).ok();
    let wait = Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(1);
    writer.call(&wait.extras(&1_u64.to_be_bytes())).ok();
    // All changes come from the store: then the newest version has all its fields.
    let shapes = [
        (None, 20, 0, None),
        (Some(("enable_sync_writes", "true")), 1, 36, Some(0)),
        (Some(("max_marker_version", "2.2")), 1, 52, Some(2)),
    ];
    for (index, (control, extras, value, version)) in shapes.into_iter().enumerate() {
        let mut consumer = Consumer::open(port, &format!("version {index}"), PRODUCER);
        if let Some((name, value)) = control {
            consumer.control(name, value).ok();
        }
        consumer.stream(&Ask::all(1));
        let marker = consumer.frame();
        assert_eq!(marker.opcode, Opcode::DCP_SNAPSHOT_MARKER);
        assert_eq!((marker.extras.len(), marker.value.len()), (extras, value));
        assert_eq!(version, version.map(|_| marker.extras[0]));
        let read = super::consumer::read(&marker);
        assert!(
            matches!(
                read,
                Message::Marker {
                    start: 0,
                    end: 1,
                    ..
                }
            ),
            "{read:?}"
        );
        if let Some(visible) = marker.value.get(20..28) {
            assert_eq!(visible, 1_u64.to_be_bytes());
        }
        assert_eq!(consumer.message(), Message::mutation(1, "k", "v"));
    }
}
