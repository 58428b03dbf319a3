//! Tests of orders of operators: traffic, persistence and documents in memory.

use wire::{Opcode, Status};

use crate::client::{Client, Request, SDK, until};
use crate::dcp::history::post;
use crate::place::{on_disk, own, with_full_eviction};

fn order(client: &mut Client, opcode: Opcode) {
    client.call(&Request::new(opcode)).ok();
}

#[test]
fn changes_during_stopped_persistence_become_durable_later() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    let stat = |client: &mut Client, name: &str| client.stats("")[name].clone();
    client.set("first", "1").ok();
    until("nothing became durable", || {
        stat(&mut client, "ep_queue_size") == "0"
    });
    order(&mut client, Opcode::STOP_PERSISTENCE);
    until("persistence goes on", || {
        stat(&mut client, "ep_flusher_state") == "paused"
    });
    let commits = stat(&mut client, "ep_commit_num");
    client.set("second", "2").ok();
    let evict = Request::of(Opcode::EVICT_KEY, "second");
    client.call(&evict).is(Status::KEY_EEXISTS);
    assert_eq!(stat(&mut client, "ep_queue_size"), "1");
    assert_eq!(stat(&mut client, "ep_commit_num"), commits);
    order(&mut client, Opcode::START_PERSISTENCE);
    until("nothing became durable", || {
        stat(&mut client, "ep_queue_size") == "0"
    });
    assert_eq!(stat(&mut client, "ep_flusher_state"), "running");
    // A stop of the node persists it all the same.
    order(&mut client, Opcode::STOP_PERSISTENCE);
    client.set("third", "3").ok();
    drop(client);
    node.shutdown().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    assert_eq!(client.get("third").ok().value, b"3");
}

#[test]
fn a_value_leaves_memory_on_request_and_is_read_back() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::refilled(node.ports().kv);
    client.set("k", "value").ok();
    let evict = Request::of(Opcode::EVICT_KEY, "k");
    until("it does not become durable", || {
        client.call(&evict).status == Status::SUCCESS
    });
    assert_eq!(client.stats("")["ep_num_non_resident"], "1");
    assert_eq!(client.call(&evict).ok().text(), "Already ejected.");
    assert_eq!(client.get("k").ok().value, b"value");
    assert_eq!(client.stats("")["ep_num_non_resident"], "0");
    assert_eq!(client.call(&evict).ok().text(), "Ejected.");
    let missing = Request::of(Opcode::EVICT_KEY, "missing");
    client.call(&missing).is(Status::KEY_ENOENT);
}

/// After a start with full eviction, tombstones are not in memory, and reads load documents from the store.
#[test]
fn the_store_answers_for_keys_that_left_memory() {
    let place = tempfile::tempdir().unwrap();
    let node = with_full_eviction(place.path());
    let mut client = Client::ready(node.ports().kv);
    client.set("there", "value").ok();
    client.set("gone", "value").ok();
    client.call(&Request::of(Opcode::DELETE, "gone")).ok();
    drop(client);
    node.shutdown().unwrap();
    let node = with_full_eviction(place.path());
    let mut client = Client::refilled(node.ports().kv);
    let evict = |key| Request::of(Opcode::EVICT_KEY, key);
    client.call(&evict("there")).ok();
    for _ in 0..2 {
        client.call(&evict("gone")).is(Status::KEY_ENOENT);
        client.call(&evict("never")).is(Status::KEY_ENOENT);
        let there = client.call(&evict("there")).ok();
        assert_eq!(there.text(), "Already ejected.");
    }
    assert_eq!(client.get("there").ok().value, b"value");
    assert_eq!(client.call(&evict("there")).ok().text(), "Ejected.");
}

#[test]
fn a_random_key_is_fetched_if_all_have_left_memory() {
    let place = tempfile::tempdir().unwrap();
    let node = with_full_eviction(place.path());
    let mut client = Client::refilled(node.ports().kv);
    let keys: Vec<String> = (0..50).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        client.set(key, "value").ok();
    }
    for key in &keys {
        let evict = Request::of(Opcode::EVICT_KEY, key);
        until("it left memory", || {
            client.call(&evict).status == Status::SUCCESS
        });
    }
    let drawn = client.call(&Request::new(Opcode::GET_RANDOM_KEY)).ok();
    assert_eq!(drawn.value, b"value");
}

#[test]
fn unsupported_orders_are_refused_with_a_reason() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    client.set("k", "1").ok();
    for request in [
        Request::new(Opcode::STOP_PERSISTENCE),
        Request::new(Opcode::START_PERSISTENCE),
        Request::of(Opcode::EVICT_KEY, "k"),
    ] {
        let context = client.call(&request).is(Status::NOT_SUPPORTED).context();
        assert!(context.contains("only in memory"), "{context}");
    }
    assert_eq!(client.get("k").ok().value, b"1");
    for opcode in [
        Opcode::ISASL_REFRESH,
        Opcode::RBAC_REFRESH,
        Opcode::ENABLE_TRAFFIC,
    ] {
        order(&mut client, opcode);
    }
    for (opcode, reason) in [
        (Opcode::SHUTDOWN, "SIGTERM"),
        (Opcode::DISABLE_TRAFFIC, "clients of others"),
        (Opcode::CREATE_BUCKET, "over HTTP"),
        (Opcode::GET_KEYS, "RANGE_SCAN_CREATE"),
    ] {
        let refused = client.call(&Request::new(opcode));
        let context = refused.is(Status::NOT_SUPPORTED).context();
        assert!(context.contains(reason), "{context}");
    }
}

#[test]
fn a_history_begins_on_request_if_the_bucket_may_have_one() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let form = "name=past&ramQuota=100&storageBackend=magma";
    assert!(post(&node, "/pools/default/buckets", form).contains("202"));
    let keep = |client: &mut Client, name: &str, value: &str| {
        let request = Request::new(Opcode::SET_PARAM).extras(&1_u32.to_be_bytes());
        client.call(&request.key(name).value(value))
    };
    let mut plain = Client::ready(node.ports().kv);
    let refused = keep(&mut plain, "history_retention_seconds", "60");
    assert!(refused.is(Status::EINVAL).context().contains("magma"));
    let mut client = Client::logged_in(node.ports().kv, &SDK);
    client.select("past").ok();
    keep(&mut client, "history_retention_seconds", "60").ok();
    keep(&mut client, "history_retention_bytes", "2147483648").ok();
    let config = client.stats("config");
    assert_eq!(config["ep_history_retention_seconds"], "60");
    assert_eq!(config["ep_history_retention_bytes"], "2147483648");
}
