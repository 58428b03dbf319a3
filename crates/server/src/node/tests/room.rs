//! Tests of requests that wait for memory, until it is free or the time limit is over.

use std::path::Path;
use std::time::{Duration, Instant};

use bucket::MemoryWaits;
use model::VbId;
use registry::{BucketConfig, BucketKind, EvictionPolicy};
use wire::{Opcode, Status};

use super::client::{self, Client, Request, until};
use super::{Node, SOON, Waits, bucket, config, started};

/// Longer than any test: a wait with this limit never ends by itself.
const LONG: Duration = Duration::from_mins(5);
const FLUSH: u32 = 1;

fn waiting(room: Duration) -> Waits {
    let memory = MemoryWaits {
        write: room,
        large: room,
        ..MemoryWaits::default()
    };
    Waits {
        memory,
        ..Waits::default()
    }
}

fn ephemeral(room: Duration) -> Node {
    started(&config(None, vec![bucket("default")]), waiting(room))
}

fn set_param(client: &mut Client, name: &str, value: &str) {
    let request = Request::new(Opcode::SET_PARAM).extras(&FLUSH.to_be_bytes());
    client.call(&request.key(name).value(value)).ok();
}

/// Size of a document, bytes: more than a hundredth of the quota.
const PAD_BYTES: usize = 1 << 20;

/// Leaves no room for writes: the limit is a hundredth of the quota, and more is in use.
fn take_room(client: &mut Client) {
    client.set("pad", vec![b'p'; PAD_BYTES]).ok();
    set_param(client, "mutation_mem_ratio", "0.01");
}

fn give_room(client: &mut Client) {
    set_param(client, "mutation_mem_ratio", "0.93");
}

#[test]
fn a_write_waits_until_there_is_room_and_answers_keep_their_order() {
    let node = ephemeral(LONG);
    let (mut writer, mut other) = (
        Client::ready(node.ports().kv),
        Client::ready(node.ports().kv),
    );
    other.set("a", "old").ok();
    take_room(&mut other);
    let requests = [
        client::set("b", "new").opaque(1),
        Request::of(Opcode::GET, "a").opaque(2),
        Request::of(Opcode::DELETE, "a").opaque(3),
        Request::of(Opcode::GET, "b").opaque(4),
    ];
    writer.pipeline_and_wait(&requests);
    assert_eq!(other.get("b").status, Status::KEY_ENOENT, "it waits");
    assert_eq!(other.get("a").ok().value, b"old", "what is behind it waits");
    give_room(&mut other);
    let answers = writer.answers(4);
    let opaques: Vec<u32> = answers.iter().map(|answer| answer.opaque).collect();
    assert_eq!(opaques, [1, 2, 3, 4]);
    let values: Vec<Vec<u8>> = answers.into_iter().map(|a| a.ok().value).collect();
    assert_eq!((&values[1][..], &values[3][..]), (&b"old"[..], &b"new"[..]));
    node.shutdown().unwrap();
}

#[test]
fn writes_wait_for_a_full_quota_unless_they_never_fit() {
    let node = ephemeral(LONG);
    let served = node.state.bucket("default").unwrap();
    let mut writer = Client::ready(node.ports().kv);
    let quota = served.bucket.memory().quota();
    served.bucket.set_memory_overhead(quota);
    writer.pipeline_and_wait(&[client::set("a", "new")]);
    let mut other = Client::ready(node.ports().kv);
    assert_eq!(other.get("a").status, Status::KEY_ENOENT, "it waits");
    set_param(&mut other, "mutation_mem_ratio", "0.01");
    let refused = other.set("b", vec![b'b'; PAD_BYTES + (PAD_BYTES >> 1)]);
    let context = refused.is(Status::ENOMEM).context();
    assert!(context.contains("the write takes more"), "{context}");
    give_room(&mut other);
    served.bucket.set_memory_overhead(0);
    writer.answer().ok();
    assert_eq!(other.get("a").ok().value, b"new");
    node.shutdown().unwrap();
}

#[test]
fn writes_that_wait_too_long_are_refused_with_the_limit() {
    let node = ephemeral(SOON);
    let mut client = Client::ready(node.ports().kv);
    client.set("a", "old").ok();
    take_room(&mut client);
    let began = Instant::now();
    client.pipeline(&[
        client::set("b", "new").opaque(1),
        client::set("c", "new").opaque(2),
        Request::of(Opcode::GET, "a").opaque(3),
    ]);
    let refused = client.answer().is(Status::ETMPFAIL);
    assert!(began.elapsed() >= SOON, "{:?}", began.elapsed());
    let context = refused.context();
    assert!(context.contains("ep_mutation_mem_ratio"), "{context}");
    assert_eq!(refused.opaque, 1);
    assert_eq!(client.answer().is(Status::ETMPFAIL).opaque, 2);
    let read = client.answer().ok();
    assert_eq!((read.opaque, &read.value[..]), (3, &b"old"[..]));
    give_room(&mut client);
    client.set("b", "new").ok();
    node.shutdown().unwrap();
}

#[test]
fn a_write_with_metadata_waits_for_room_like_others() {
    let with_meta = |opcode, rev: u64| {
        let numbers = [0_u64, rev, 1 << 60].map(u64::to_be_bytes).concat();
        Request::of(opcode, "m").extras(&numbers)
    };
    let store = |rev| with_meta(Opcode::SET_WITH_META, rev).value("new");
    let node = ephemeral(LONG);
    let (mut writer, mut other) = (
        Client::ready(node.ports().kv),
        Client::ready(node.ports().kv),
    );
    take_room(&mut other);
    writer.pipeline_and_wait(&[store(1)]);
    assert_eq!(other.get("m").status, Status::KEY_ENOENT, "it waits");
    give_room(&mut other);
    writer.answer().ok();
    assert_eq!(other.get("m").ok().value, b"new");
    node.shutdown().unwrap();

    let node = ephemeral(SOON);
    let mut client = Client::ready(node.ports().kv);
    client.call(&store(1)).ok();
    take_room(&mut client);
    client.call(&store(2)).is(Status::ETMPFAIL);
    client.call(&with_meta(Opcode::DEL_WITH_META, 3)).ok();
    node.shutdown().unwrap();
}

/// Starts a node whose quota holds three large documents.
fn with_little_room(path: &Path, large_room: Duration) -> Node {
    with_little_room_for(EvictionPolicy::Values, path, large_room)
}

fn with_little_room_for(eviction: EvictionPolicy, path: &Path, large_room: Duration) -> Node {
    let mut large = bucket("default");
    large.kind = BucketKind::Couchbase;
    large.eviction = eviction;
    let memory = MemoryWaits {
        large: large_room,
        ..MemoryWaits::default()
    };
    let waits = Waits {
        memory,
        ..Waits::default()
    };
    started(&config(Some(path), vec![large]), waits)
}

#[test]
fn a_large_request_makes_relief_free_more_memory() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_little_room(dir.path(), LONG);
    let served = node.state.bucket("default").unwrap();
    let memory = served.bucket.memory();
    let bytes = 16 << 20;
    let by_itself = memory.mutation_limit() - memory.low_mark();
    assert!(2 * bytes as u64 > by_itself, "twice the request");
    let mut client = Client::ready(node.ports().kv);
    for index in 0..8 {
        client.set(&format!("large{index}"), vec![b'l'; bytes]).ok();
    }
    assert_eq!(client.get("large0").ok().value.len(), bytes);
    node.shutdown().unwrap();
}

#[test]
fn a_large_document_that_left_memory_is_replaced_without_its_old_value() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_little_room_for(EvictionPolicy::Documents, dir.path(), LONG);
    let served = node.state.bucket("default").unwrap();
    let memory = served.bucket.memory();
    let bytes = 16 << 20;
    let mut client = Client::refilled(node.ports().kv);
    client.set("large", vec![b'o'; bytes]).ok();
    let evict = Request::of(Opcode::EVICT_KEY, "large");
    until("it has left memory", || {
        client.call(&evict).status == Status::SUCCESS && memory.booked() < bytes as u64
    });
    // Space for the request and the new document, but not for the old one beside them.
    served.bucket.set_memory_overhead(16 << 20);
    client.set("large", vec![b'n'; bytes]).ok();
    served.bucket.set_memory_overhead(0);
    assert_eq!(client.get("large").ok().value, vec![b'n'; bytes]);
    node.shutdown().unwrap();
}

#[test]
fn a_write_for_which_a_document_was_fetched_does_not_wait_for_room() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_little_room_for(EvictionPolicy::Values, dir.path(), SOON);
    let served = node.state.bucket("default").unwrap();
    let memory = served.bucket.memory();
    let mut client = Client::refilled(node.ports().kv);
    client.set("a", vec![b'a'; PAD_BYTES]).ok();
    let append = Request::of(Opcode::APPEND, "a").value(vec![b'b'; PAD_BYTES / 2]);
    let evict = Request::of(Opcode::EVICT_KEY, "a");
    until("it has left memory", || {
        client.call(&evict).status == Status::SUCCESS
    });
    until("the request is gone", || memory.transit() == 0);
    // Room for the request and what is appended, but not for the document with them.
    let room = (PAD_BYTES + PAD_BYTES / 4) as u64;
    served
        .bucket
        .set_memory_overhead(memory.mutation_limit() - memory.used() - room);
    client.call(&append).ok();
    served.bucket.set_memory_overhead(0);
    node.shutdown().unwrap();
}

#[test]
fn writer_faster_than_the_store_backs_off_and_continues() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_little_room(dir.path(), LONG);
    let served = node.state.bucket("default").unwrap();
    let memory = served.bucket.memory();
    let mut client = Client::ready(node.ports().kv);
    // Between the high watermark and the limit for writes: no written document stays in memory.
    let between = memory.high_mark().midpoint(memory.mutation_limit());
    served.bucket.set_memory_overhead(between);
    let rests = || bucket::Counters::read(&served.bucket.counters().write_backoffs);
    let mut next = 0;
    let mut write_some = || {
        let sets = (next..next + 64).map(|index| {
            let key = format!("k{index}");
            client::set(&key, vec![b'v'; 1000]).opaque(index)
        });
        client.pipeline(&sets.collect::<Vec<_>>());
        for (answer, index) in client.answers(64).into_iter().zip(next..) {
            assert_eq!(answer.ok().opaque, index);
        }
        next += 64;
    };
    until("it rests", || {
        write_some();
        rests() > 3
    });
    served.bucket.set_memory_overhead(0);
    write_some();
    node.shutdown().unwrap();
}

#[test]
fn large_requests_get_room_in_order_of_arrival() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_little_room(dir.path(), LONG);
    let served = node.state.bucket("default").unwrap();
    let full = || served.bucket.set_memory_overhead(60 << 20);
    let waiting = || {
        let all = node.state.connections.all();
        all.iter().filter(|info| info.waits_for_room()).count()
    };
    full();
    std::thread::scope(|threads| {
        let port = node.ports().kv;
        // The later one would have room before the earlier one.
        let sizes = [16 << 20, 2 << 20];
        let mut writers = Vec::new();
        for (index, bytes) in sizes.into_iter().enumerate() {
            writers.push(threads.spawn(move || {
                let mut client = Client::ready(port);
                client.set("large", vec![b'l'; bytes]).ok().cas
            }));
            until("it waits", || waiting() > index);
        }
        served.bucket.set_memory_overhead(50 << 20);
        let mut looker = Client::ready(port);
        looker.set("small", "s").ok();
        assert_eq!(waiting(), 2, "there is room for the later one only");
        served.bucket.set_memory_overhead(0);
        let cas: Vec<_> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        assert!(cas[0] < cas[1], "{cas:?}");
    });
    node.shutdown().unwrap();
}

#[test]
fn a_large_request_for_which_its_bucket_has_no_room_is_refused_unread() {
    let dir = tempfile::tempdir().unwrap();
    let node = with_little_room(dir.path(), SOON);
    let served = node.state.bucket("default").unwrap();
    served.bucket.set_memory_overhead(50 << 20);
    let mut client = Client::ready(node.ports().kv);
    let request = client::set("large", vec![b'l'; 16 << 20]).bytes();
    let (sent, unsent) = request.split_at(1 << 20);
    client.send(sent);
    let context = client.answer().is(Status::ETMPFAIL).context();
    assert!(context.contains("ep_mutation_mem_ratio"), "{context}");
    let refused = bucket::Counters::read(&served.bucket.counters().refused_for_memory);
    assert_eq!(refused, 1);
    client.send(unsent);
    client.set("small", "s").ok();
    assert_eq!(client.get("large").status, Status::KEY_ENOENT);
    node.shutdown().unwrap();
}

#[test]
fn an_append_needs_room_for_all_of_the_new_document() {
    let mut large = bucket("default");
    large.quota_bytes = 1 << 30;
    let node = started(&config(None, vec![large]), waiting(SOON));
    let mut client = Client::ready(node.ports().kv);
    client.set("a", vec![b'a'; 19 << 20]).ok();
    let served = node.state.bucket("default").unwrap();
    let memory = served.bucket.memory();
    until("the request is gone", || memory.transit() == 0);
    // Room for half of such a document.
    let millionths = (memory.used() + (10 << 20)) * 1_000_000 / memory.quota();
    let ratio = format!("0.{millionths:06}");
    set_param(&mut client, "mutation_mem_ratio", &ratio);
    let append = || Request::of(Opcode::APPEND, "a").value(b"b");
    client.call(&append()).is(Status::ETMPFAIL);
    client.set("small", "s").ok();
    assert_eq!(memory.transit(), 0, "nothing stays set aside");
    give_room(&mut client);
    client.call(&append()).ok();
    assert_eq!(client.get("a").ok().value.last(), Some(&b'b'));
    node.shutdown().unwrap();
}

#[test]
fn a_client_that_quits_while_waiting_leaves_nothing_behind() {
    let node = ephemeral(SOON);
    let mut other = Client::ready(node.ports().kv);
    take_room(&mut other);
    let connections = || node.state.connections.all().len();
    for abruptly in [true, false] {
        let mut writer = Client::ready(node.ports().kv);
        writer.pipeline_and_wait(&[client::set("b", "new")]);
        assert_eq!(connections(), 2);
        if !abruptly {
            writer.end_output();
        }
        drop(writer);
        until("a connection stays", || connections() == 1);
    }
    give_room(&mut other);
    assert_eq!(
        other.get("b").status,
        Status::KEY_ENOENT,
        "nothing was late"
    );
    node.shutdown().unwrap();
}

#[test]
fn a_stopping_node_refuses_waiting_writes() {
    let waits = Waits {
        stop: LONG,
        ..waiting(LONG)
    };
    let node = started(&config(None, vec![bucket("default")]), waits);
    let (mut writer, mut other) = (
        Client::ready(node.ports().kv),
        Client::ready(node.ports().kv),
    );
    take_room(&mut other);
    writer.pipeline_and_wait(&[client::set("b", "new")]);
    node.shutdown().unwrap();
    writer.answer().is(Status::ETMPFAIL);
    writer.expect_end();
}

/// Returns a value so large that without it a bucket takes less than a ten-thousandth of its quota.
fn large() -> Vec<u8> {
    vec![b'v'; 100 << 10]
}

/// Starts a node whose only document is not in memory, and that has no room to read it.
fn with_a_value_on_disk(dir: &Path, room: Duration) -> (Node, Client) {
    let values = BucketConfig {
        kind: BucketKind::Couchbase,
        eviction: EvictionPolicy::Values,
        ..bucket("default")
    };
    let node = started(&config(Some(dir), vec![values]), waiting(room));
    let mut client = Client::refilled(node.ports().kv);
    client.set("a", large()).ok();
    set_param(&mut client, "mem_low_wat_percent", "0.0001");
    set_param(&mut client, "mem_high_wat_percent", "0.0001");
    let served = node.state.bucket("default").unwrap();
    until("the value does not leave memory", || {
        let stats = served
            .bucket
            .with_vbucket(VbId::of_key(b"a", 1024), |vb| vb.stats());
        stats.unwrap().non_resident == 1
    });
    set_param(&mut client, "mem_high_wat_percent", "0.85");
    set_param(&mut client, "mem_low_wat_percent", "0.75");
    client.set("pad", vec![b'p'; PAD_BYTES]).ok();
    set_param(&mut client, "backfill_mem_threshold", "1");
    (node, client)
}

#[test]
fn a_read_from_the_store_waits_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut other) = with_a_value_on_disk(dir.path(), LONG);
    let mut reader = Client::ready(node.ports().kv);
    reader.pipeline_and_wait(&[
        Request::of(Opcode::GET, "a").opaque(1),
        Request::of(Opcode::GET, "b").opaque(2),
    ]);
    set_param(&mut other, "backfill_mem_threshold", "96");
    let read = reader.answer().ok();
    assert!(read.opaque == 1 && read.value == large());
    assert_eq!(reader.answer().is(Status::KEY_ENOENT).opaque, 2);
    node.shutdown().unwrap();
}

#[test]
fn a_read_from_the_store_that_waits_too_long_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut client) = with_a_value_on_disk(dir.path(), SOON);
    let began = Instant::now();
    let refused = client.get("a").is(Status::ETMPFAIL);
    assert!(began.elapsed() >= SOON, "{:?}", began.elapsed());
    let context = refused.context();
    assert!(context.contains("ep_backfill_mem_threshold"), "{context}");
    set_param(&mut client, "backfill_mem_threshold", "96");
    assert!(client.get("a").ok().value == large());
    node.shutdown().unwrap();
}

#[test]
fn invalid_settings_change_nothing() {
    let node = ephemeral(SOON);
    let mut client = Client::ready(node.ports().kv);
    let before = node
        .state
        .bucket("default")
        .unwrap()
        .bucket
        .memory()
        .limits();
    let mut refused = |family: u32, name: &str, value: &str| {
        let request = Request::new(Opcode::SET_PARAM).extras(&family.to_be_bytes());
        let answer = client.call(&request.key(name).value(value));
        assert!(
            answer.status == Status::EINVAL && !answer.context().is_empty(),
            "{family} {name} {value}: {answer:?}"
        );
    };
    refused(FLUSH, "max_size", "0");
    refused(FLUSH, "max_size", "99999999999999999999999");
    refused(FLUSH, "max_size", "-1");
    refused(FLUSH, "mem_low_wat_percent", "0.9");
    refused(FLUSH, "mem_high_wat_percent", "0.5");
    refused(FLUSH, "mem_high_wat", "999999999999");
    refused(FLUSH, "mutation_mem_ratio", "1.5");
    refused(FLUSH, "mutation_mem_ratio", "NaN");
    refused(FLUSH, "backfill_mem_threshold", "101");
    refused(FLUSH, "exp_pager_enabled", "perhaps");
    refused(FLUSH, "exp_pager_stime", "99999999999");
    refused(FLUSH, "checkpoint_memory_ratio", "0.1");
    refused(3, "checkpoint_memory_ratio", "0");
    refused(4, "anything", "1");
    refused(5, "max_cas", "-1");
    let unknown = Request::new(Opcode::SET_PARAM).extras(&2_u32.to_be_bytes());
    let unknown = unknown.key("max_size").value("99999999");
    client.call(&unknown).is(Status::KEY_ENOENT);
    let served = node.state.bucket("default").unwrap();
    assert_eq!(served.bucket.memory().limits(), before);
    node.shutdown().unwrap();
}

#[test]
fn settings_take_effect() {
    let node = ephemeral(SOON);
    let mut client = Client::ready(node.ports().kv);
    let mut set = |family: u32, name: &str, value: &str| {
        let request = Request::new(Opcode::SET_PARAM).extras(&family.to_be_bytes());
        client.call(&request.key(name).value(value)).ok();
    };
    set(FLUSH, "max_size", "100000000");
    set(FLUSH, "mem_high_wat", "90000000");
    set(FLUSH, "mem_low_wat", "80000000");
    set(3, "checkpoint_memory_ratio", "0.5");
    set(3, "checkpoint_memory_recovery_upper_mark", "0.8");
    set(3, "checkpoint_memory_recovery_lower_mark", "0.4");
    set(6, "exp_pager_stime", "7");
    set(FLUSH, "exp_pager_enabled", "false");
    let served = node.state.bucket("default").unwrap();
    let memory = served.bucket.memory();
    assert_eq!(memory.quota(), 100_000_000);
    assert_eq!(
        (memory.low_mark(), memory.high_mark()),
        (80_000_000, 90_000_000)
    );
    assert_eq!(memory.checkpoint_quota(), 50_000_000);
    let checkpoints = (
        memory.checkpoint_lower_mark(),
        memory.checkpoint_upper_mark(),
    );
    assert_eq!(checkpoints, (20_000_000, 40_000_000));
    assert_eq!(
        (served.bucket.expiry_pass_s(), served.bucket.expires()),
        (7, false)
    );
    node.shutdown().unwrap();
}
