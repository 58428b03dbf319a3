//! Tests of a promoted replica: it has the writes that other replicas acknowledged.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wire::{Opcode, Status};

use crate::client::{Client, Request, set, until};
use crate::durable::{durable, until_replicated};
use crate::place::{on_disk, own, replica_of};

const MAJORITY: u8 = 1;

/// Forwards bytes both ways to a port until it is frozen. Then connections stay open, and no more bytes arrive.
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

/// Returns the number of nodes in the map of a node.
fn known_nodes(client: &mut Client) -> usize {
    let map = client.call(&Request::new(Opcode::GET_CLUSTER_CONFIG)).ok();
    map.json()["nodesExt"].as_array().map_or(0, Vec::len)
}

/// Cuts one replica off; `others` acknowledge writes that it does not get. Then it is promoted.
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
        // The write may have come as a prepare, which the new group decides.
        until("an acknowledged write is lost", || {
            let got = promoted.call(&Request::of(Opcode::GET, &key(number)));
            got.status == Status::SUCCESS && got.text() == "kept"
        });
    }
    promoted.call(&set("later", "1")).ok();
}

#[test]
fn a_promoted_replica_has_writes_that_only_the_other_one_had() {
    promoted_behind(1);
}

#[test]
fn a_promoted_replica_of_three_has_all_majority_writes() {
    promoted_behind(2);
}

/// Of three replicas, this one and one that is gone are known. The third may have writes that it acknowledged with the
/// second.
#[test]
fn a_replica_that_may_lack_majority_writes_is_promoted_by_force_only() {
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

/// A replica that follows no node was promoted once, or never met the others again: no node knows which writes those
/// have.
#[test]
fn a_replica_that_follows_no_node_is_promoted_by_force_only() {
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
    // Another promotion changes nothing: there is nothing to promote.
    let again = Request::new(Opcode::IOCTL_SET).key("replication.promote");
    assert_eq!(client.call(&again).status, Status::EINVAL);
}
