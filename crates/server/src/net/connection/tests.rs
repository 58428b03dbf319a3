//! Tests of the length of a connection's turn.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use model::VbId;
use registry::{BucketConfig, BucketKind, EvictionPolicy, Waits};
use session::Door;
use wire::{Decoded, Frame, Limits, Opcode, Status};

use super::*;
use crate::node::Node;
use crate::node::tests::client::{Client, PASSWORD, Request, USER, set};
use crate::node::tests::{bucket, config, started};

const PATIENCE: Duration = Duration::from_secs(30);
const DOCUMENTS: u64 = 64;
const DOCUMENT_BYTES: usize = 64 << 10;

/// Returns a connection that no worker serves, and its peer.
fn alone(node: &Node) -> (Connection, WorkerContext, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let state = node.state();
    let context = WorkerContext {
        served_by: ServedBy::Worker(0),
        pool: Arc::clone(&state.pool),
        timings: Arc::clone(&state.timings[0]),
        alone: |_, _, _| unreachable!("it brings no changes here"),
    };
    let arrival = Arrival::New {
        stream,
        door: Door::Plain,
    };
    let connection = Connection::admitted(arrival, &state.net, &context);
    (connection.expect("there is room for it"), context, peer)
}

/// Returns the requests that select the bucket.
fn login() -> [Request; 2] {
    let login = format!("\0{USER}\0{PASSWORD}");
    [
        Request::new(Opcode::SASL_AUTH).key("PLAIN").value(login),
        Request::new(Opcode::SELECT_BUCKET).key("default"),
    ]
}

/// Returns requests that stream the whole vBucket in small turns.
fn stream() -> Vec<Request> {
    let mut everything = [0; 48];
    everything[16..24].fill(0xff);
    let streams = [
        Request::new(Opcode::DCP_OPEN)
            .key("c")
            .extras(&1_u64.to_be_bytes()),
        Request::new(Opcode::DCP_CONTROL)
            .key("set_priority")
            .value("low"),
        Request::new(Opcode::DCP_STREAM_REQ).extras(&everything),
    ];
    login().into_iter().chain(streams).collect()
}

/// Returns the whole frames.
fn frames(mut bytes: &[u8]) -> Vec<Frame<'_>> {
    let mut found = Vec::new();
    while let Ok(Decoded::Frame { frame, consumed }) = wire::decode(bytes, Limits::AUTHENTICATED) {
        found.push(frame);
        bytes = &bytes[consumed..];
    }
    found
}

#[test]
fn a_large_value_is_copied_only_as_far_as_the_peer_reads() {
    const VALUE_BYTES: usize = 8 << 20;
    let node = started(&config(None, vec![bucket("default")]), Waits::default());
    let value: Vec<u8> = (0..VALUE_BYTES).map(|at| (at >> 10) as u8).collect();
    let mut writer = Client::ready(node.ports().kv);
    writer.set("large", value.clone()).ok();
    let (mut connection, context, mut peer) = alone(&node);
    let get = Request::new(Opcode::GET).key("large");
    let get = get.vbucket(VbId::of_key(b"large", 1024).0);
    let mut requests = login().to_vec();
    requests.extend([get.clone(), get, Request::new(Opcode::NOOP)]);
    let bytes: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
    peer.write_all(&bytes).unwrap();
    peer.set_nonblocking(true).unwrap();
    let (mut scratch, mut read) = (Scratch::default(), Vec::new());
    let began = Instant::now();
    while !read.ends_with(&[0; 20]) || frames(&read).len() < requests.len() {
        assert!(began.elapsed() < PATIENCE, "{} bytes", read.len());
        (connection.socket.readable, connection.socket.writable) = (true, true);
        connection.advance(&context, &mut scratch).unwrap();
        let copied = connection.unsent.capacity() + scratch.output.capacity();
        assert!(copied <= VALUE_BYTES / 2, "{copied} bytes");
        if connection.session.is_in_long_answer() {
            let held = connection.info.held();
            assert!(held >= VALUE_BYTES, "{held} bytes are counted");
        }
        let mut some = vec![0; 64 << 10];
        while let Ok(count) = peer.read(&mut some) {
            read.extend_from_slice(&some[..count]);
        }
    }
    let frames = frames(&read);
    let opcodes: Vec<u8> = frames.iter().map(|frame| frame.header.opcode.0).collect();
    let expected: Vec<u8> = requests.iter().map(|request| request.bytes()[1]).collect();
    assert_eq!(opcodes, expected);
    assert!(frames[2].value == value && frames[3].value == value);
    connection.end(&node.state().net);
    node.shutdown().unwrap();
}

#[test]
fn a_large_value_is_received_into_its_document() {
    const VALUE_BYTES: usize = 8 << 20;
    let place = tempfile::tempdir().unwrap();
    let evicting = BucketConfig {
        kind: BucketKind::Couchbase,
        eviction: EvictionPolicy::Values,
        ..bucket("default")
    };
    let node = started(
        &config(Some(place.path()), vec![evicting]),
        Waits::default(),
    );
    let value: Vec<u8> = (0..VALUE_BYTES).map(|at| (at >> 10) as u8).collect();
    let (mut connection, context, mut peer) = alone(&node);
    let vbucket = VbId::of_key(b"large", 1024).0;
    let large = Request::new(Opcode::SET)
        .key("large")
        .vbucket(vbucket)
        .extras(&[0; 8])
        .value(&value);
    let store = |opcode| Request {
        opcode,
        ..large.clone()
    };
    let mut requests = login().to_vec();
    requests.extend([Opcode::SET, Opcode::ADD, Opcode::REPLACE].map(store));
    requests.push(Request::new(Opcode::NOOP));
    let bytes: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
    peer.set_nonblocking(true).unwrap();
    let (mut scratch, mut unsent, mut read) = (Scratch::default(), &bytes[..], Vec::new());
    let (mut held_max, began) = (0, Instant::now());
    while frames(&read).len() < requests.len() {
        assert!(began.elapsed() < PATIENCE, "{} bytes", unsent.len());
        while let Ok(count @ 1..) = peer.write(unsent) {
            unsent = &unsent[count..];
        }
        (connection.socket.readable, connection.socket.writable) = (true, true);
        connection.advance(&context, &mut scratch).unwrap();
        let copied = connection.backlog.capacity();
        assert!(copied <= 2 * READ_BYTES, "{copied} bytes");
        held_max = connection.info.held().max(held_max);
        let mut some = vec![0; 64 << 10];
        while let Ok(count) = peer.read(&mut some) {
            read.extend_from_slice(&some[..count]);
        }
    }
    let expected = VALUE_BYTES..VALUE_BYTES + VALUE_BYTES / 2;
    assert!(expected.contains(&held_max), "{held_max} bytes");
    assert_eq!(connection.info.held(), 0);
    let statuses: Vec<Status> = frames(&read).iter().map(Frame::status).collect();
    let (ok, exists) = (Status::SUCCESS, Status::KEY_EEXISTS);
    assert_eq!(statuses, [ok, ok, ok, exists, ok, ok]);
    let mut reader = Client::ready(node.ports().kv);
    assert!(reader.get("large").ok().value == value);
    connection.end(&node.state().net);
    node.shutdown().unwrap();
}

#[test]
fn a_waiting_request_beside_streams_does_not_delay_others() {
    let waits = Waits {
        persistence: Duration::from_mins(5),
        ..Waits::default()
    };
    let node = started(&config(None, vec![bucket("default")]), waits);
    let mut writer = Client::ready(node.ports().kv);
    for number in 0..DOCUMENTS {
        let set = Request::of(Opcode::SET, &format!("k{number}")).vbucket(0);
        writer
            .call(&set.extras(&[0; 8]).value(vec![b'v'; DOCUMENT_BYTES]))
            .ok();
    }
    let (mut connection, context, mut peer) = alone(&node);
    let never = Request::new(Opcode::SEQNO_PERSISTENCE).extras(&(DOCUMENTS * 2).to_be_bytes());
    let mut requests = stream();
    requests.push(never);
    let bytes: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
    peer.write_all(&bytes).unwrap();
    (connection.socket.readable, connection.socket.writable) = (true, true);
    // The peer reads nothing, so all sent bytes are in the socket: far less than the vBucket holds.
    let mut scratch = Scratch::default();
    let began = Instant::now();
    // The first changes of the stream come from the store, which posts mail.
    loop {
        let result = connection.advance(&context, &mut scratch).unwrap();
        if matches!(connection.next, NextAction::Again) {
            continue; // the requests took longer than a turn
        }
        if result == TurnResult::Again {
            break;
        }
        assert!(
            connection.unsent.is_empty(),
            "it sent until nothing more could be sent"
        );
        while !connection.mailbox.has_mail() {
            assert!(
                began.elapsed() < PATIENCE,
                "others have no turn before it waits"
            );
            std::thread::yield_now();
        }
    }
    let next = connection.next;
    assert!(matches!(next, NextAction::Park(_)), "{next:?}");
    assert!(connection.unsent.is_empty());
    connection.end(&node.state().net);
    node.shutdown().unwrap();
}

#[test]
fn a_peer_that_sends_nothing_more_gets_the_answers_that_it_is_owed() {
    let place = tempfile::tempdir().unwrap();
    let persistent = BucketConfig {
        kind: BucketKind::Couchbase,
        eviction: EvictionPolicy::Values,
        ..bucket("default")
    };
    let buckets = vec![persistent];
    let node = started(&config(Some(place.path()), buckets), Waits::default());
    let mut admin = Client::ready(node.ports().kv);
    admin.call(&Request::new(Opcode::STOP_PERSISTENCE)).ok();
    let (mut connection, context, mut peer) = alone(&node);
    // Durability is frame info 1; the level asks for the disk.
    let durable = set("a", "1").infos(&[0x11, 2]);
    let requests = login().into_iter().chain([durable]);
    let bytes: Vec<u8> = requests.flat_map(|request| request.bytes()).collect();
    peer.write_all(&bytes).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    connection.socket.read_closed = true;
    (connection.socket.readable, connection.socket.writable) = (true, true);
    let mut scratch = Scratch::default();
    let mut turn = || loop {
        match connection.advance(&context, &mut scratch).unwrap() {
            TurnResult::Again => {}
            result => return result,
        }
    };
    let waits = TurnResult::Wait(None);
    assert_eq!(turn(), waits);
    admin.call(&Request::new(Opcode::START_PERSISTENCE)).ok();
    let began = Instant::now();
    while turn() == waits {
        assert!(began.elapsed() < PATIENCE, "the write is decided");
        std::thread::yield_now();
    }
    let mut answers = Vec::new();
    connection.end(&node.state().net);
    peer.read_to_end(&mut answers).unwrap();
    let statuses: Vec<_> = frames(&answers).iter().map(Frame::status).collect();
    assert_eq!(statuses, [Status::SUCCESS; 3]);
    node.shutdown().unwrap();
}
