//! Tests of a stop beside clients.

use std::time::Duration;

use registry::{BucketConfig, BucketKind};
use wire::{Opcode, Status};

use super::client::{Client, Request, set, until};
use super::{Waits, bucket, config, started};

/// Frame info of a durable write that is persisted to a majority.
const PERSIST_TO_MAJORITY: [u8; 2] = [0x11, 3];

#[test]
fn a_stop_answers_what_waits_and_refuses_later_writes() {
    let dir = tempfile::tempdir().unwrap();
    let on_disk = BucketConfig {
        kind: BucketKind::Couchbase,
        ..bucket("default")
    };
    let waits = Waits {
        stop: Duration::from_mins(5),
        ..Waits::default()
    };
    let node = started(&config(Some(dir.path()), vec![on_disk]), waits);
    let mut other = Client::ready(node.ports().kv);
    other.call(&set("kept", "1")).ok();
    other.call(&Request::new(Opcode::STOP_PERSISTENCE)).ok();
    until("persistence goes on", || {
        other.stats("")["ep_flusher_state"] == "paused"
    });
    let mut durable = Client::ready(node.ports().kv);
    durable.pipeline_and_wait(&[set("durable", "1").infos(&PERSIST_TO_MAJORITY)]);
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| node.shutdown());
        until("writes are not refused", || {
            other.call(&set("late", "1")).status == Status::ETMPFAIL
        });
        assert_eq!(other.get("kept").ok().value, b"1");
        other.call(&Request::new(Opcode::START_PERSISTENCE)).ok();
        durable.answer().ok();
        durable.expect_end();
        other.expect_end();
        stopped.join().unwrap().unwrap();
    });
}
