//! Tests of the node as a consumer on a connection that a peer opened: its requests, and the messages that it takes and
//! refuses.

use wire::{Opcode, Status};

use super::consumer::{Ask, buffer_ack, control, open};
use super::producer::{ACK, MEMORY, Producer, REPLICA, UUID, add_stream, marker, mutation, state};
use crate::client::{Client, Request, hex};
use crate::place::{on_disk, own, replica_of, set_vbucket};

fn replica(port: u16, vbs: &[u16]) -> Client {
    let mut client = Client::ready(port);
    for vb in vbs {
        set_vbucket(&mut client, *vb, REPLICA);
    }
    client
}

fn get_replica(client: &mut Client, vb: u16, key: &str) -> Status {
    let request = Request::of(Opcode::GET_REPLICA, key).vbucket(vb);
    client.call(&request).status
}

#[test]
fn a_stream_is_added_applied_and_continued() {
    let node = own();
    let port = node.ports().kv;
    let mut client = replica(port, &[7]);
    let mut producer = Producer::opened(port, &open("p", 0).value(r#"{"consumer_name":"me"}"#));
    producer.send(&add_stream(7, 0));
    let (request, asked) = producer.asked();
    assert_eq!((asked.start, asked.end, asked.uuid), (0, u64::MAX, 0));
    let settings = &producer.controls;
    for wanted in ["enable_noop", "connection_buffer_size", "consumer_name"] {
        assert!(settings.iter().any(|(name, _)| name == wanted), "{wanted}");
    }
    producer.grant(&request, &[(UUID, 0)]);
    producer.send(&marker(7, asked.opaque, (0, 2), MEMORY));
    producer.send(&mutation(7, asked.opaque, 1, "a"));
    producer.send(&mutation(7, asked.opaque, 2, "b"));
    producer.send(&marker(7, asked.opaque, (3, 5), MEMORY));
    producer.send(&mutation(7, asked.opaque, 3, "c"));
    producer.expect_silence();
    for key in ["a", "b", "c"] {
        assert_eq!(get_replica(&mut client, 7, key), Status::SUCCESS, "{key}");
    }
    // Another connection continues where this one ended: within a snapshot.
    drop(producer);
    let mut producer = Producer::open(port, "p");
    producer.send(&add_stream(7, 0));
    let (request, asked) = producer.asked();
    assert_eq!((asked.start, asked.uuid), (3, UUID));
    assert_eq!(asked.snapshot, (2, 5));
    let to = 2_u64.to_be_bytes();
    producer.answer(&request, Status::ROLLBACK, &to);
    let (request, asked) = producer.asked();
    assert!(asked.start <= 2, "{asked:?}");
    producer.grant(&request, &[(UUID + 1, 2), (UUID, 0)]);
    assert_eq!(get_replica(&mut client, 7, "c"), Status::KEY_ENOENT);
}

#[test]
fn collections_come_in_all_forms() {
    let node = own();
    let port = node.ports().kv;
    let mut client = replica(port, &[7]);
    let mut producer = Producer::open(port, "p");
    let opaque = producer.stream(7, 0);
    producer.send(&marker(7, opaque, (1, 4), MEMORY));
    for (seqno, version, value) in [
        (1_u64, 0, "00000000000000010000000000000008"),
        (
            2,
            2,
            "1c00000012001e0004000c0010001c00140018001d0000000000000018000000\
                02000000000000000000000009000000000000000800000000000000010000006400",
        ),
    ] {
        let mut extras = seqno.to_be_bytes().to_vec();
        extras.extend([0, 0, 0, 0, version]);
        let event = Request::new(Opcode::DCP_SYSTEM_EVENT).vbucket(7);
        let event = event.extras(&extras).key([b'b' + seqno as u8]);
        producer.send(&event.value(hex(value)).opaque(opaque));
    }
    for (seqno, collection) in [(3, 8), (4, 9)] {
        let document = mutation(7, opaque, seqno, "a");
        producer.send(&document.key([collection, b'a']));
    }
    producer.expect_silence();
    for collection in [8, 9] {
        let read = Request::new(Opcode::GET_REPLICA).vbucket(7);
        client.call(&read.key([collection, b'a'])).ok();
    }
}

/// A peer that lost its connection is back before the node notices.
#[test]
fn a_connection_of_the_same_name_takes_over_at_once() {
    let node = own();
    let port = node.ports().kv;
    let mut client = replica(port, &[7]);
    let mut producers = Vec::new();
    for number in 0..20 {
        let mut producer = Producer::open(port, "p");
        producer.send(&add_stream(7, 0));
        let (request, asked) = producer.asked();
        assert_eq!(asked.start, number);
        producer.grant(&request, &[(UUID, 0)]);
        producer.send(&marker(7, asked.opaque, (number, number + 1), MEMORY));
        let key = format!("k{number}");
        producer.send(&mutation(7, asked.opaque, number + 1, &key));
        producer.expect_silence();
        assert_eq!(get_replica(&mut client, 7, &key), Status::SUCCESS);
        producers.push(producer);
    }
}

#[test]
fn streams_that_cannot_be_added() {
    let node = own();
    let port = node.ports().kv;
    let mut client = replica(port, &[1, 2]);
    let mut producer = Producer::open(port, "p");
    let refused = |producer: &mut Producer, vb, flags, status| {
        producer.refused(&add_stream(vb, flags), status);
    };
    refused(&mut producer, 3, 0, Status::NOT_MY_VBUCKET);
    refused(&mut producer, 1030, 0, Status::NOT_MY_VBUCKET);
    refused(&mut producer, 1, 0x8000_0000, Status::EINVAL);
    producer.stream(1, 0);
    refused(&mut producer, 1, 0, Status::KEY_EEXISTS);
    let mut other = Producer::open(port, "q");
    refused(&mut other, 1, 0, Status::KEY_EEXISTS);
    // The manager gets the refusal of the producer.
    other.send(&add_stream(2, 0));
    let (request, _) = other.asked();
    other.answer(&request, Status::NOT_MY_VBUCKET, b"");
    let answer = other.answered(Opcode::DCP_ADD_STREAM);
    assert_eq!(answer.status, Status::NOT_MY_VBUCKET);
    other.stream(2, 0);
    // A vBucket that was active meanwhile does not continue with the old stream.
    set_vbucket(&mut client, 2, 1);
    set_vbucket(&mut client, 2, REPLICA);
    let lost = marker(2, 0x8000_0002, (1, 1), MEMORY);
    other.refused(&lost, Status::DCP_STREAM_NOT_FOUND);
    other.send(&add_stream(2, 0));
    other.asked();
    let mut idle = Client::ready(port);
    idle.call(&add_stream(1, 0)).is(Status::EINVAL);
    let follower = replica_of(port, None);
    let mut producer = Producer::open(follower.ports().kv, "p");
    refused(&mut producer, 1, 0, Status::NOT_SUPPORTED);
}

/// A vBucket, the status of the answer, and the message of a stream.
type Case = (u16, Status, fn(u16, u32) -> Request);

#[test]
fn a_wrong_message_ends_its_own_stream_at_most() {
    let node = own();
    let port = node.ports().kv;
    let cases: [Case; 9] = [
        (1, Status::ERANGE, |vb, of| mutation(vb, of, 6, "beyond")),
        (2, Status::ERANGE, |vb, of| marker(vb, of, (3, 9), MEMORY)),
        (3, Status::ERANGE, |vb, of| {
            marker(vb, of, (3, 1 << 48), MEMORY)
        }),
        (4, Status::EINVAL, |vb, of| {
            mutation(vb, of, 3, "k").key([1, b'k'])
        }),
        (5, Status::EINVAL, |vb, of| {
            mutation(vb, of, 3, "k").extras(&[0; 30])
        }),
        (6, Status::EINVAL, |vb, of| {
            mutation(vb, of, 3, "k").datatype(2)
        }),
        (7, Status::EINVAL, |vb, of| state(vb, of, 1)),
        (8, Status::NOT_SUPPORTED, |vb, of| {
            let extras = 3_u64.to_be_bytes();
            let advanced = Request::new(Opcode::DCP_SEQNO_ADVANCED).extras(&extras);
            advanced.vbucket(vb).opaque(of)
        }),
        (9, Status::EINVAL, |vb, of| {
            mutation(vb, of, 3, &"k".repeat(251))
        }),
    ];
    let vbs: Vec<u16> = (0..10).collect();
    let mut client = replica(port, &vbs);
    let mut producer = Producer::open(port, "p");
    let healthy = producer.stream(0, 0);
    for (vb, status, wrong) in cases {
        let of = producer.stream(vb, 0);
        producer.send(&marker(vb, of, (1, 5), MEMORY));
        producer.send(&mutation(vb, of, 2, "k"));
        producer.refused(&wrong(vb, of), status);
        // Changes after a missing one are refused.
        producer.refused(&mutation(vb, of, 4, "after"), Status::DCP_STREAM_NOT_FOUND);
        assert_eq!(get_replica(&mut client, vb, "k"), Status::SUCCESS);
        assert_eq!(get_replica(&mut client, vb, "after"), Status::KEY_ENOENT);
    }
    // A change that is here already is refused and does no harm.
    producer.send(&marker(0, healthy, (1, 3), MEMORY));
    producer.send(&mutation(0, healthy, 2, "a"));
    producer.refused(&mutation(0, healthy, 2, "a"), Status::ERANGE);
    producer.refused(&mutation(0, healthy, 1, "b"), Status::ERANGE);
    producer.send(&mutation(0, healthy, 3, "c"));
    producer.refused(&marker(0, healthy, (1, 3), MEMORY), Status::ERANGE);
    producer.expect_silence();
    assert_eq!(get_replica(&mut client, 0, "c"), Status::SUCCESS);
    assert_eq!(get_replica(&mut client, 0, "b"), Status::KEY_ENOENT);
}

#[test]
fn unknown_streams_and_wrong_opaques_are_refused() {
    let node = own();
    let port = node.ports().kv;
    let _client = replica(port, &[1]);
    for (refuses, none, other) in [
        (
            &[][..],
            Status::DCP_STREAM_NOT_FOUND,
            Status::OPAQUE_NO_MATCH,
        ),
        (
            &["v7_dcp_status_codes"][..],
            Status::KEY_ENOENT,
            Status::KEY_EEXISTS,
        ),
    ] {
        let mut producer = Producer::open(port, "p");
        producer.refuses = refuses;
        let opaque = producer.stream(1, 0);
        producer.refused(&mutation(2, opaque, 1, "k"), none);
        producer.refused(&mutation(1030, opaque, 1, "k"), none);
        producer.refused(&marker(1, opaque + 1, (1, 2), MEMORY), other);
        let close = Request::new(Opcode::DCP_CLOSE_STREAM);
        producer.refused(&close.clone().vbucket(2), none);
        // The stream continues until it is closed or ends.
        producer.send(&marker(1, opaque, (1, 2), MEMORY));
        producer.expect_silence();
        producer.send(&close.vbucket(1));
        producer.answered(Opcode::DCP_CLOSE_STREAM).ok();
        producer.refused(&mutation(1, opaque, 1, "k"), none);
        producer.send(&add_stream(1, 0));
        let (request, asked) = producer.asked();
        producer.grant(&request, &[(UUID, 0)]);
        let end = Request::new(Opcode::DCP_STREAM_END).extras(&[0, 0, 0, 2]);
        producer.send(&end.vbucket(1).opaque(asked.opaque));
        producer.expect_silence();
        producer.refused(&mutation(1, asked.opaque, 1, "k"), none);
        drop(producer);
    }
}

#[test]
fn the_end_of_a_snapshot_a_noop_and_bytes_are_acknowledged() {
    let node = own();
    let port = node.ports().kv;
    let _client = replica(port, &[1]);
    let mut producer = Producer::open(port, "p");
    let opaque = producer.stream(1, 0);
    producer.send(&Request::new(Opcode::DCP_NOOP).opaque(77));
    assert_eq!(producer.answered(Opcode::DCP_NOOP).ok().opaque, 77);
    producer.send(&marker(1, opaque, (1, 1), MEMORY | ACK));
    producer.send(&mutation(1, opaque, 1, "k"));
    let acked = producer.answered(Opcode::DCP_SNAPSHOT_MARKER).ok();
    assert_eq!(acked.opaque, opaque);
    let window: u64 = producer
        .controls
        .iter()
        .find(|(name, _)| name == "connection_buffer_size")
        .map(|(_, bytes)| bytes.parse().unwrap())
        .expect("a window");
    let value = vec![b'v'; 1 << 20];
    let (mut seqno, mut sent) = (1, 44 + 24 + 31 + 2 + 1);
    let end = 2 + window / (5 << 20);
    producer.send(&marker(1, opaque, (2, end), MEMORY));
    sent += 44;
    while seqno < end {
        seqno += 1;
        producer.send(&mutation(1, opaque, seqno, "k").value(&value));
        sent += 24 + 31 + 2 + (1 << 20);
    }
    assert!(sent > window / 5);
    producer.expect_silence();
    if producer.acked == 0 {
        // It arrives with the next turn at the latest.
        producer.expect_silence();
    }
    assert!(producer.acked > window / 5, "{} of {sent}", producer.acked);
    assert!(producer.acked <= sent, "{} of {sent}", producer.acked);
}

#[test]
fn a_window_follows_the_quota_of_its_bucket() {
    let node = own();
    let port = node.ports().kv;
    let mut client = replica(port, &[1]);
    let mut producer = Producer::open(port, "p");
    let opaque = producer.stream(1, 0);
    let windows = |producer: &Producer| -> Vec<u64> {
        let settings = producer.controls.iter();
        let sizes = settings.filter(|(name, _)| name == "connection_buffer_size");
        sizes.map(|(_, bytes)| bytes.parse().unwrap()).collect()
    };
    let mut expected = windows(&producer);
    assert_eq!(expected.len(), 1);
    for (quota, window) in [(400_u64 << 20, 20_u64 << 20), (1 << 50, 0xffff_ffff)] {
        let param = Request::new(Opcode::SET_PARAM).extras(&1_u32.to_be_bytes());
        let param = param.key("max_size").value(quota.to_string());
        client.call(&param).ok();
        expected.push(window);
        let started = std::time::Instant::now();
        while windows(&producer).len() < expected.len() {
            assert!(started.elapsed().as_secs() < 30, "{:?}", producer.controls);
            producer.expect_silence();
        }
        assert_eq!(windows(&producer), expected);
    }
    // The stream continues.
    producer.send(&marker(1, opaque, (1, 1), MEMORY));
    producer.send(&mutation(1, opaque, 1, "k"));
    producer.expect_silence();
    assert_eq!(get_replica(&mut client, 1, "k"), Status::SUCCESS);
}

#[test]
fn a_consumer_is_no_producer() {
    let node = own();
    let port = node.ports().kv;
    let mut client = replica(port, &[1]);
    let mut producer = Producer::open(port, "p");
    let opaque = producer.stream(1, 0);
    let seqno = 1_u64.to_be_bytes();
    let acknowledged = Request::new(Opcode::DCP_SEQNO_ACKNOWLEDGED).extras(&seqno);
    for request in [
        Ask::all(2).request(),
        buffer_ack(1),
        control("enable_noop", "true"),
        acknowledged,
        open("again", 0),
        open("again", 1),
    ] {
        producer.refused(&request, Status::EINVAL);
    }
    producer.send(&marker(1, opaque, (1, 1), MEMORY));
    producer.send(&mutation(1, opaque, 1, "k"));
    producer.expect_silence();
    assert_eq!(get_replica(&mut client, 1, "k"), Status::SUCCESS);
    let mut nameless = Client::ready(port);
    nameless.call(&open("", 0)).is(Status::EINVAL);
    let named = open("n", 0).value(r#"{"consumer_name":7}"#);
    nameless.call(&named).is(Status::EINVAL);
}

#[test]
fn invalid_answers_end_the_connection() {
    let node = own();
    let port = node.ports().kv;
    let _client = replica(port, &[1]);
    let mut producer = Producer::open(port, "refused");
    producer.refuses = &["enable_noop"];
    assert_eq!(producer.next(), None);
    let mut producer = Producer::open(port, "log");
    producer.send(&add_stream(1, 0));
    let (request, _) = producer.asked();
    producer.answer(&request, Status::SUCCESS, &[0; 15]);
    assert_eq!(producer.next(), None);
    let mut producer = Producer::open(port, "unasked");
    let control = producer.client.answer();
    let unasked = crate::client::Answer {
        opaque: control.opaque + 9,
        ..control
    };
    producer.answer(&unasked, Status::SUCCESS, b"");
    assert_eq!(producer.next(), None);
    // A stream of the next one does not collide with leftovers.
    Producer::open(port, "next").stream(1, 0);
}

#[test]
fn a_name_belongs_to_its_newest_connection_of_either_kind() {
    let node = own();
    let port = node.ports().kv;
    let _client = replica(port, &[1]);
    let mut first = Producer::open(port, "same");
    first.stream(1, 0);
    let mut second = Producer::open(port, "same");
    assert_eq!(first.next(), None);
    second.expect_silence();
    let mut reader = super::consumer::Consumer::open(port, "same", 1);
    assert_eq!(second.next(), None);
    Producer::open(port, "same").expect_silence();
    reader.client.expect_end();
}

#[test]
fn prepares_are_acknowledged_once_they_are_on_disk() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let port = node.ports().kv;
    let mut client = replica(port, &[1]);
    let mut producer = Producer::opened(port, &open("p", 0).value(r#"{"consumer_name":"me"}"#));
    let opaque = producer.stream(1, 0);
    let prepare = |seqno: u64, key: &str, level: u8| {
        let mut extras = mutation(1, opaque, seqno, key).extras[..28].to_vec();
        extras.extend([0, 0, level]);
        Request {
            opcode: Opcode::DCP_PREPARE,
            ..mutation(1, opaque, seqno, key).extras(&extras)
        }
    };
    producer.send(&marker(1, opaque, (1, 2), MEMORY));
    producer.send(&prepare(1, "m", 1));
    producer.send(&prepare(2, "p", 3));
    let mut acked = 0;
    while acked < 2 {
        let frame = producer.frame();
        assert_eq!(frame.opcode, Opcode::DCP_SEQNO_ACKNOWLEDGED, "{frame:?}");
        acked = u64::from_be_bytes(frame.extras.as_slice().try_into().unwrap());
    }
    assert_eq!(get_replica(&mut client, 1, "m"), Status::KEY_ENOENT);
    let mut extras = 1_u64.to_be_bytes().to_vec();
    extras.extend(3_u64.to_be_bytes());
    let commit = Request::new(Opcode::DCP_COMMIT).vbucket(1).extras(&extras);
    producer.send(&marker(1, opaque, (3, 3), MEMORY));
    producer.send(&commit.key("\0m").opaque(opaque));
    producer.expect_silence();
    assert_eq!(get_replica(&mut client, 1, "m"), Status::SUCCESS);
    // A decision without its prepare: the stream must begin again.
    extras[..8].copy_from_slice(&9_u64.to_be_bytes());
    extras[8..].copy_from_slice(&11_u64.to_be_bytes());
    producer.send(&marker(1, opaque, (4, 11), MEMORY));
    let unknown = Request::new(Opcode::DCP_COMMIT).vbucket(1).extras(&extras);
    let unknown = unknown.key("\0nobody").opaque(opaque);
    producer.refused(&unknown, Status::DCP_STREAM_NOT_FOUND);
    producer.send(&add_stream(1, 0));
    assert_eq!(producer.asked().1.start, 0);
    drop(producer);
    node.shutdown().expect("everything becomes durable");
}

#[test]
fn a_stopping_node_ends_its_consumers() {
    let node = own();
    let port = node.ports().kv;
    let _client = replica(port, &[1]);
    let mut producer = Producer::open(port, "p");
    producer.stream(1, 0);
    node.shutdown().expect("it stops");
    assert_eq!(producer.next(), None);
}
