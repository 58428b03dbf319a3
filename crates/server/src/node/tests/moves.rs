//! Tests of connections that move from one worker to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wire::Opcode;

use super::client::{Client, Request};
use super::{Waits, bucket, config, started};
use crate::config::NodeConfig;

/// Rounds of a client below, and the moves of connections that must happen meanwhile.
const ROUNDS: u32 = 200;
const MOVES: u64 = 50;

/// Writes and reads documents, in frames that are sent in two pieces, until `stop` is set.
fn write_and_read(port: u16, name: &str, stop: &AtomicBool) -> u32 {
    let mut client = Client::ready(port);
    for round in 0.. {
        if round >= ROUNDS && stop.load(Ordering::SeqCst) {
            return round;
        }
        let key = format!("{name}-{}", round % 50);
        let value = format!("{name} {round}");
        let set = Request::of(Opcode::SET, &key)
            .extras(&[0; 8])
            .value(&value)
            .bytes();
        let get = Request::of(Opcode::GET, &key).bytes();
        let both = [set, get].concat();
        let (first, second) = both.split_at(round as usize % both.len());
        client.send(first);
        client.send(second);
        client.answer().ok();
        assert_eq!(client.answer().ok().value, value.as_bytes());
    }
    unreachable!("counting does not end")
}

#[test]
fn connections_move_between_workers_and_lose_nothing() {
    let config = NodeConfig {
        threads: 3,
        ..config(None, vec![bucket("default")])
    };
    let node = started(&config, Waits::default());
    let port = node.ports().kv;
    let pool = Arc::clone(&node.state.pool);
    let stop = AtomicBool::new(false);
    // Changes of one vBucket, which a stream follows while its connection moves, too.
    let keys: Vec<String> = (0..)
        .map(|number| format!("streamed-{number}"))
        .filter(|key| model::VbId::of_key(key.as_bytes(), 1024).0 == 7)
        .take(60)
        .collect();
    let mut stream = Client::ready(port);
    let open = Request::new(Opcode::DCP_OPEN).key("follower");
    stream.call(&open.extras(&[0, 0, 0, 0, 0, 0, 0, 1])).ok();
    let noop = Request::new(Opcode::DCP_CONTROL).key("enable_noop");
    stream.call(&noop.value("true")).ok();
    let mut range = [0; 48];
    range[16..24].fill(0xff);
    let request = Request::new(Opcode::DCP_STREAM_REQ)
        .vbucket(7)
        .extras(&range);
    stream.call(&request).ok();
    std::thread::scope(|scope| {
        let writers: Vec<_> = ["a", "b", "c", "d"]
            .map(|name| {
                let stop = &stop;
                scope.spawn(move || write_and_read(port, name, stop))
            })
            .into_iter()
            .collect();
        let mut writer = Client::ready(port);
        let mut turn = 0;
        let began = pool.serving().moves.load(Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_mins(1);
        while pool.serving().moves.load(Ordering::Relaxed) < began + MOVES || turn < keys.len() {
            turn += 1;
            pool.serve_with(turn % 3 + 1);
            let key = &keys[turn % keys.len()];
            let set = Request::of(Opcode::SET, key).extras(&[0; 8]).value(key);
            let seqno = writer.call(&set).ok().seqno();
            let told = std::iter::repeat_with(|| stream.answer())
                .find(|answer| answer.opcode == Opcode::DCP_MUTATION)
                .unwrap();
            assert_eq!(told.extras[..8], seqno.to_be_bytes());
            assert_eq!(told.value, key.as_bytes());
            assert!(
                Instant::now() < deadline,
                "{} moves",
                pool.serving().moves.load(Ordering::Relaxed)
            );
        }
        stop.store(true, Ordering::SeqCst);
        for writer in writers {
            assert!(writer.join().unwrap() >= ROUNDS);
        }
    });
    pool.serve_with(2);
    assert_eq!(pool.serves_with(), 2);
    stream.expect_silence();
    node.shutdown().unwrap();
    assert_eq!(node.state.connections.open(), 0, "all are told to end");
}
