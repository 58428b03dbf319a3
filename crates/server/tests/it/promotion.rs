//! A replica that becomes active has what other replicas acknowledged.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wire::{Opcode, Status};

use crate::client::{Client, Request, set};
use crate::durable::{durable, until_replicated};
use crate::place::{on_disk, own, replica_of};

const MAJORITY: u8 = 1;
const PATIENCE: Duration = Duration::from_secs(30);

/// Carries bytes both ways to a port until it is frozen: then connections stay open, and nothing
/// comes any more.
fn wire_to(port: u16) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let here = listener.local_addr().unwrap().port();
    let frozen = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&frozen);
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else {
                return;
            };
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
            for (from, to) in [(near, far), back] {
                let frozen = Arc::clone(&flag);
                std::thread::spawn(move || carry(from, to, &frozen));
            }
        }
    });
    (here, frozen)
}

fn carry(mut from: TcpStream, mut to: TcpStream, frozen: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while frozen.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

/// Nodes in the map that a node tells.
fn known_nodes(client: &mut Client) -> usize {
    let map = client.call(&Request::new(Opcode::GET_CLUSTER_CONFIG)).ok();
    map.json()["nodesExt"].as_array().map_or(0, Vec::len)
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One replica is cut off, `others` acknowledge what it never hears of, and it is promoted.
fn promoted_behind(others: usize) {
    let active = own();
    let port = active.ports().kv;
    let others: Vec<_> = (0..others).map(|_| replica_of(port, None)).collect();
    let (through, frozen) = wire_to(port);
    let behind = replica_of(through, None);
    let mut client = Client::ready(port);
    client.call(&set("first", "1")).ok();
    for node in others.iter().chain([&behind]) {
        let mut other = Client::ready(node.ports().kv);
        until_replicated(&mut other, "first", "1");
    }
    let mut other = Client::ready(behind.ports().kv);
    until("the one behind does not know the others", || {
        known_nodes(&mut other) == others.len() + 2
    });
    frozen.store(true, Ordering::SeqCst);
    let key = |number: usize| format!("key-{number}");
    for number in 0..50 {
        let write = set(&key(number), "kept");
        client.call(&durable(write, MAJORITY, 30_000)).ok();
    }
    drop(client);
    active.shutdown().unwrap();
    let mut promoted = Client::ready(behind.ports().kv);
    let lacks = promoted.call(&Request::of(Opcode::GET_REPLICA, &key(0)));
    assert_eq!(lacks.status, Status::KEY_ENOENT, "it heard of nothing");
    let promote = Request::new(Opcode::IOCTL_SET).key("replication.promote");
    promoted.call(&promote).ok();
    for number in 0..50 {
        // It may have come as a prepare, to be decided by the new group.
        until("an acknowledged write is lost", || {
            let got = promoted.call(&Request::of(Opcode::GET, &key(number)));
            got.status == Status::SUCCESS && got.text() == "kept"
        });
    }
    promoted.call(&set("later", "1")).ok();
}

#[test]
fn a_promoted_replica_has_what_only_the_other_one_acknowledged() {
    promoted_behind(1);
}

#[test]
fn a_promoted_replica_of_three_has_what_a_majority_acknowledged() {
    promoted_behind(2);
}

/// Of three, this one and the one that is gone are all that is known: the third may have what the
/// two of them acknowledged.
#[test]
fn a_replica_that_may_lack_what_a_majority_has_is_promoted_by_force_only() {
    let active = own();
    let port = active.ports().kv;
    let (other, one) = (replica_of(port, None), replica_of(port, None));
    let mut client = Client::ready(one.ports().kv);
    until("it does not know the others", || {
        known_nodes(&mut client) == 3
    });
    active.shutdown().unwrap();
    other.shutdown().unwrap();
    let promote = Request::new(Opcode::IOCTL_SET).key("replication.promote");
    for _ in 0..2 {
        let refused = client.call(&promote);
        assert_eq!(refused.status, Status::ETMPFAIL);
        let written = client.call(&set("key", "1"));
        assert_eq!(
            written.status,
            Status::NOT_MY_VBUCKET,
            "it is a replica still"
        );
    }
    let nonsense = client.call(&promote.clone().value("perhaps"));
    assert_eq!(nonsense.status, Status::EINVAL);
    client.call(&promote.value("force")).ok();
    client.call(&set("key", "1")).ok();
}

/// A replica that does not follow any more was promoted once, or never met the others again: no node
/// knows what those have.
#[test]
fn a_replica_that_follows_nobody_any_more_is_promoted_by_force_only() {
    let place = tempfile::tempdir().unwrap();
    let active = own();
    let port = active.ports().kv;
    let replica = replica_of(port, Some(place.path()));
    Client::ready(port).call(&set("key", "1")).ok();
    until_replicated(&mut Client::ready(replica.ports().kv), "key", "1");
    replica.shutdown().unwrap();
    let alone = on_disk(place.path());
    let mut client = Client::ready(alone.ports().kv);
    let promote = Request::new(Opcode::IOCTL_SET).key("replication.promote");
    assert_eq!(client.call(&promote).status, Status::ETMPFAIL);
    let refused = client.call(&set("key", "2"));
    assert_eq!(refused.status, Status::NOT_MY_VBUCKET);
    client.call(&promote.value("force")).ok();
    client.call(&set("key", "2")).ok();
    // Once more changes nothing, and there is nothing to promote.
    let again = Request::new(Opcode::IOCTL_SET).key("replication.promote");
    assert_eq!(client.call(&again).status, Status::EINVAL);
}
