//! Tests of streams whose store fails, and of silent consumers.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use registry::{BucketConfig, BucketKind, EvictionPolicy};
use wire::{Opcode, Status};

use super::client::{Answer, Client, Request, set};
use super::{SOON, Waits, bucket, config, started};

fn producer_of(port: u16, name: &str) -> Client {
    let mut consumer = Client::with(port, &[]);
    let open = Request::new(Opcode::DCP_OPEN).key(name);
    consumer.call(&open.extras(&1_u64.to_be_bytes())).ok();
    consumer
}

/// Reads the next message of this kind; skips answers to stream requests.
fn next_of(client: &mut Client, opcode: Opcode) -> Answer {
    loop {
        let frame = client.answer();
        if frame.opcode == opcode {
            return frame;
        }
    }
}

/// Flips all bits that the files of a directory have now, headers too, or flips them back.
fn flip(dir: &Path, lengths: &mut BTreeMap<PathBuf, usize>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            flip(&path, lengths);
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let length = *lengths.entry(path.clone()).or_insert(bytes.len());
        let flipped: Vec<u8> = bytes[..length].iter().map(|byte| !byte).collect();
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all(&flipped).unwrap();
    }
}

#[test]
fn a_store_that_cannot_be_read_ends_the_stream_that_needs_it_and_no_other() {
    let place = tempfile::tempdir().unwrap();
    let kept = BucketConfig {
        kind: BucketKind::Couchbase,
        eviction: EvictionPolicy::Values,
        ..bucket("default")
    };
    let node = started(&config(Some(place.path()), vec![kept]), Waits::default());
    let served = node.state.bucket("default").unwrap();
    let mut client = Client::ready(node.ports().kv);
    for vb in [1, 2] {
        client.call(&set("k", "stored").vbucket(vb)).ok();
    }
    let persisted = |vb| {
        let seqno = |vbucket: &mut engine::VBucket| vbucket.persisted_seqno().0;
        served.bucket.with_vbucket(model::VbId(vb), seqno) == Some(1)
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !(persisted(1) && persisted(2)) {
        assert!(Instant::now() < deadline, "the flusher is stuck");
        std::thread::yield_now();
    }
    let mut consumer = producer_of(node.ports().kv, "unlucky");
    let mut from_nothing = [0; 48];
    from_nothing[16..24].fill(0xff);
    let ask = |vb| {
        let request = Request::new(Opcode::DCP_STREAM_REQ).vbucket(vb);
        request.extras(&from_nothing)
    };
    // Nothing of this stream is in the store, and it reads nothing later.
    consumer.call(&ask(3)).ok();
    let files = place.path().join("buckets");
    let mut lengths = BTreeMap::new();
    flip(&files, &mut lengths);
    consumer.call(&ask(1)).ok();
    let end = next_of(&mut consumer, Opcode::DCP_STREAM_END);
    assert_eq!((end.status, &*end.extras), (Status(1), &[0, 0, 0, 5][..]));
    client.call(&set("k", "lives").vbucket(3)).ok();
    assert_eq!(next_of(&mut consumer, Opcode::DCP_MUTATION).value, b"lives");
    flip(&files, &mut lengths);
    for vb in [1, 2] {
        consumer.pipeline(&[ask(vb)]);
        let change = next_of(&mut consumer, Opcode::DCP_MUTATION);
        assert_eq!(change.value, b"stored", "vBucket {vb}");
    }
    node.shutdown().unwrap();
}

#[test]
fn a_silent_consumer_with_noops_is_disconnected() {
    let waits = Waits {
        silence: SOON,
        ..Waits::default()
    };
    let node = started(&config(None, vec![bucket("default")]), waits);
    let mut silent = producer_of(node.ports().kv, "silent");
    let mut without_noops = producer_of(node.ports().kv, "without");
    let noops = Request::new(Opcode::DCP_CONTROL).key("enable_noop");
    silent.call(&noops.value("true")).ok();
    assert!(silent.next().is_none(), "the node closes the connection");
    without_noops.call(&Request::new(Opcode::NOOP)).ok();
    node.shutdown().unwrap();
}
