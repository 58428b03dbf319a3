//! Tests of groups of statistics that tools read, against the operations that were done.

use wire::{Opcode, Status};

use crate::client::{Client, Request};
use crate::place::{on_disk, own};

#[test]
fn bytes_of_connections_are_counted_also_once_they_end() {
    const VALUE_BYTES: u64 = 100_000;
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let moved = |client: &mut Client| {
        let stats = client.stats("");
        ["bytes_read", "bytes_written"].map(|name| stats[name].parse::<u64>().unwrap())
    };
    let before = moved(&mut client);
    let mut other = Client::ready(node.ports().kv);
    other.set("k", vec![b'x'; VALUE_BYTES as usize]).ok();
    let after = moved(&mut client);
    assert!(after[0] - before[0] > VALUE_BYTES, "{before:?} {after:?}");
    other.get("k").ok();
    other.get("k").ok();
    other.call(&Request::new(Opcode::QUIT)).ok();
    other.expect_end();
    let last = moved(&mut client);
    assert!(last[1] - after[1] > 2 * VALUE_BYTES, "{after:?} {last:?}");
}

#[test]
fn the_store_counts_its_operations() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::refilled(node.ports().kv);
    let seqno = client.set("k", "1").ok().seqno();
    let vb = crate::durable::vbucket("k");
    let wait = Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(vb);
    client.call(&wait.extras(&seqno.to_be_bytes())).ok();
    let (all, store) = (client.stats(""), client.stats("kvstore"));
    assert_eq!(store["rw_0:backend_type"], "runs");
    assert_ne!(store["rw_0:io_num_write"], "0");
    assert_eq!(store["rw_0:io_num_write"], all["ep_total_persisted"]);
    assert!(client.stats("kvtimings").contains_key("rw_0:commit_mean"));
    let failures = client.stats("disk-failures");
    assert_eq!(failures["ep_data_write_failed"], "0");
    assert_eq!(failures.len(), 2);
    let evict = Request::of(Opcode::EVICT_KEY, "k");
    client.call(&evict).ok();
    assert_eq!(client.stats("eviction")["ep_num_non_resident"], "1");
}

#[test]
fn documents_are_found_by_the_id_of_their_collection() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    client.set("k", "1").ok();
    let vb = crate::durable::vbucket("k");
    let named = client.stats(&format!("vkey k {vb} _default._default"));
    let by_id = client.stats(&format!("vkey-byid k {vb} 0x0"));
    // It may become durable between the two reads.
    assert!(named.keys().eq(by_id.keys()));
    assert_eq!(by_id["key_cas"], named["key_cas"]);
    let stat = |group: String| Request::new(Opcode::STAT).key(group);
    let unknown = client.call(&stat(format!("key-byid k {vb} 77")));
    unknown.is(Status::UNKNOWN_COLLECTION);
    let path = client.call(&stat(format!("key-byid k {vb} _default._default")));
    path.is(Status::EINVAL);
    client
        .call(&stat(format!("key-byid k {vb}")))
        .is(Status::EINVAL);
}

#[test]
fn settings_are_one_row() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let row = client
        .call(&Request::new(Opcode::STAT).key("settings"))
        .ok();
    let settings = row.json();
    assert_eq!(settings["interfaces"]["kv"], node.ports().kv);
    assert_eq!(settings["threads"], 2);
    let end = client.answer().ok();
    assert!(end.key.is_empty() && end.value.is_empty());
}
