//! Tests of the memory that all connections hold: half-received requests and answers that are not read.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use bucket::MemoryWaits;
use model::VbId;
use registry::{BucketKind, EvictionPolicy};
use wire::{Opcode, Status};

use super::client::{Client, Request, until};
use super::{Node, Waits, bucket, config, started};

/// Longer than any test: a wait with this limit never ends by itself.
const LONG: Duration = Duration::from_mins(5);
/// Size of a large document, bytes: more than the sockets of both ends take.
const LARGE_BYTES: usize = 20 << 20;

fn congested_for(congestion: Duration) -> MemoryWaits {
    MemoryWaits {
        congestion,
        ..MemoryWaits::default()
    }
}

fn node() -> Node {
    node_that_grants(LONG)
}

fn node_that_grants(stillness: Duration) -> Node {
    node_at(None, stillness)
}

fn node_at(path: Option<&Path>, stillness: Duration) -> Node {
    let waits = Waits {
        memory: congested_for(LONG),
        stillness,
        ..Waits::default()
    };
    let mut bucket = bucket("default");
    bucket.quota_bytes = 128 << 20;
    if path.is_some() {
        bucket.kind = BucketKind::Couchbase;
        bucket.eviction = EvictionPolicy::Values;
    }
    started(&config(path, vec![bucket]), waits)
}

fn get_large() -> Request {
    Request::of(Opcode::GET, "large")
}

/// Returns a client that requests a large document and does not read it. The memory of its answer reaches the limit.
fn deaf(node: &Node) -> Client {
    let mut deaf = Client::ready(node.ports().kv);
    deaf.set("large", vec![b'l'; LARGE_BYTES]).ok();
    let held = || node.state.buffers.held();
    until("the request is gone", || held() == 0);
    deaf.pipeline(&[get_large()]);
    until("an answer is held", || held() > LARGE_BYTES / 8);
    // The sockets may still take some of it.
    node.state.buffers.set_least(held() / 4 * 3);
    deaf
}

/// As [`deaf`], once the limit is reached.
fn crowded(node: &Node) -> Client {
    let deaf = deaf(node);
    until("the limit is reached", || {
        node.state.buffers.is_congested(None)
    });
    deaf
}

#[test]
fn large_answers_wait_for_unread_ones_and_small_ones_do_not() {
    let node = node();
    let mut other = Client::ready(node.ports().kv);
    let mut deaf = crowded(&node);
    let mut late = Client::ready(node.ports().kv);
    late.pipeline_and_wait(&[get_large()]);
    other.set("small", "s").ok();
    assert_eq!(other.get("small").ok().value, b"s");
    assert!(node.state.buffers.is_congested(None));
    assert_eq!(deaf.answer().ok().value.len(), LARGE_BYTES);
    assert_eq!(late.answer().ok().value.len(), LARGE_BYTES);
    until("nothing is held", || node.state.buffers.held() == 0);
    assert_eq!(node.state.buffers.closed(), 0);
    node.shutdown().unwrap();
}

#[test]
fn large_answers_wait_for_unread_ones_also_after_a_fetch() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_at(Some(dir.path()), LONG);
    let mut other = Client::refilled(node.ports().kv);
    let mut deaf = crowded(&node);
    other.set("small", "s").ok();
    let evict = Request::of(Opcode::EVICT_KEY, "large");
    until("it has left memory", || {
        other.call(&evict).status == Status::SUCCESS
    });
    let mut late = Client::ready(node.ports().kv);
    late.pipeline_and_wait(&[get_large()]);
    let fetched = || {
        let served = node.state.bucket("default").unwrap();
        bucket::Counters::read(&served.bucket.counters().fetched) > 0
    };
    until("it is fetched", fetched);
    for _ in 0..100 {
        assert_eq!(other.get("small").ok().value, b"s");
    }
    let (held, limit) = (node.state.buffers.held(), node.state.buffers.limit());
    assert!(held < 2 * limit, "{held} bytes: one answer is held");
    assert_eq!(deaf.answer().ok().value.len(), LARGE_BYTES);
    assert_eq!(late.answer().ok().value.len(), LARGE_BYTES);
    node.shutdown().unwrap();
}

#[test]
fn the_rest_of_a_large_request_is_not_read_before_there_is_room() {
    let node = node();
    let mut deaf = crowded(&node);
    let mut writer = Client::ready(node.ports().kv);
    std::thread::scope(|threads| {
        let written = threads.spawn(|| writer.set("other", vec![b'o'; LARGE_BYTES]));
        let waiting = || {
            let mut all = node.state.connections.all().into_iter();
            all.find(|info| info.waits_for_room())
        };
        until("the request waits", || waiting().is_some());
        let held: Vec<usize> = node
            .state
            .connections
            .all()
            .iter()
            .map(|i| i.held())
            .collect();
        let small = held.iter().filter(|&&bytes| bytes < 512 << 10).count();
        assert_eq!(small, 1, "{held:?}: what came of it is a few reads");
        assert_eq!(deaf.answer().ok().value.len(), LARGE_BYTES);
        written.join().unwrap().ok();
    });
    until("nothing is held", || node.state.buffers.held() == 0);
    node.shutdown().unwrap();
}

#[test]
fn a_large_request_that_waited_long_enough_is_refused_unread() {
    let waits = Waits {
        memory: congested_for(super::SOON),
        stillness: LONG,
        ..Waits::default()
    };
    let mut bucket = bucket("default");
    bucket.quota_bytes = 128 << 20;
    let node = started(&config(None, vec![bucket]), waits);
    let mut deaf = crowded(&node);
    let mut writer = Client::ready(node.ports().kv);
    let refused = writer.set("other", vec![b'o'; LARGE_BYTES]);
    let context = refused.is(Status::ETMPFAIL).context();
    assert!(context.contains("connections hold too much"), "{context}");
    // The rest of it was dropped, and the connection continues behind it.
    writer.set("small", "s").ok();
    assert_eq!(writer.get("small").ok().value, b"s");
    assert_eq!(writer.get("other").status, Status::KEY_ENOENT);
    assert_eq!(deaf.answer().ok().value.len(), LARGE_BYTES);
    node.shutdown().unwrap();
}

fn memory_of(node: &Node) -> std::sync::Arc<registry::ServedBucket> {
    node.state.bucket("default").unwrap()
}

#[test]
fn memory_of_connections_counts_against_their_buckets_quota() {
    let node = node();
    let served = memory_of(&node);
    let memory = served.bucket.memory();
    let mut deaf = crowded(&node);
    let used = || memory.used() - memory.booked() - memory.overhead();
    // The sockets may still take some of it.
    until("what is held counts", || {
        let held = node.state.buffers.held() as u64;
        (memory.transit(), used()) == (held, held)
    });
    assert_eq!(deaf.answer().ok().value.len(), LARGE_BYTES);
    until("all of it is given back", || memory.transit() == 0);
    drop(crowded(&node));
    until("a connection that ends, too", || memory.transit() == 0);
    node.shutdown().unwrap();
}

#[test]
fn large_answers_and_requests_wait_while_a_full_bucket_is_held_by_others() {
    let node = node();
    let served = memory_of(&node);
    let memory = served.bucket.memory();
    let mut deaf = Client::ready(node.ports().kv);
    deaf.set("large", vec![b'l'; LARGE_BYTES]).ok();
    deaf.pipeline(&[get_large()]);
    until("an answer is held", || {
        memory.transit() > LARGE_BYTES as u64 / 8
    });
    assert!(
        !node.state.buffers.is_congested(None),
        "all of them hold little"
    );
    let mut late = Client::ready(node.ports().kv);
    // The overhead takes the rest of the quota: only held memory can make room.
    let full = || served.bucket.set_memory_overhead(memory.quota());
    full();
    until("it is crowded", || {
        full();
        memory.is_transit_congested()
    });
    late.pipeline_and_wait(&[get_large()]);
    assert_eq!(deaf.answer().ok().value.len(), LARGE_BYTES);
    assert_eq!(late.answer().ok().value.len(), LARGE_BYTES);
    node.shutdown().unwrap();
}

#[test]
fn idle_holders_of_too_much_memory_are_closed_and_counted() {
    let node = node_that_grants(super::SOON);
    let mut late = Client::ready(node.ports().kv);
    let deaf = deaf(&node);
    until("it is closed", || node.state.buffers.closed() == 1);
    late.pipeline(&[get_large()]);
    assert_eq!(late.answer().ok().value.len(), LARGE_BYTES);
    until("nothing is held", || node.state.buffers.held() == 0);
    drop(deaf);
    node.shutdown().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn the_system_takes_little_of_an_answer_that_is_not_read() {
    let node = node();
    let (mut deaf, _) = crowded(&node).into_parts();
    let all = node.state.connections.all();
    let holder = all.iter().find(|info| info.held() > 0).unwrap();
    holder.mailbox.shut_down();
    let mut taken = Vec::new();
    deaf.read_to_end(&mut taken).unwrap();
    assert!(taken.len() < 1 << 20, "{} bytes", taken.len());
    node.shutdown().unwrap();
}

#[test]
fn streams_wait_like_large_answers() {
    let node = node();
    let mut deaf = crowded(&node);
    let mut consumer = Client::with(node.ports().kv, &[]);
    let open = Request::new(Opcode::DCP_OPEN).extras(&1_u64.to_be_bytes());
    consumer.call(&open.key("c")).ok();
    let vb = VbId::of_key(b"large", 1024).0;
    let mut everything = [0; 48];
    everything[16..24].fill(0xff);
    let request = Request::new(Opcode::DCP_STREAM_REQ).extras(&everything);
    consumer.call(&request.vbucket(vb)).ok();
    consumer.expect_silence();
    assert_eq!(deaf.answer().ok().value.len(), LARGE_BYTES);
    let mut answer = consumer.answer();
    while answer.opcode != Opcode::DCP_MUTATION {
        answer = consumer.answer();
    }
    assert_eq!(answer.value.len(), LARGE_BYTES);
    node.shutdown().unwrap();
}
