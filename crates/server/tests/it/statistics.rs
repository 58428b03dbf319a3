//! Tests of statistics in the forms that other tools read.

use std::collections::BTreeMap;

use serde_json::Value;
use wire::{Opcode, Status};

use crate::client::{Client, Request, store};
use crate::manifests::{apply, manifest, write};
use crate::place::own;

const VB: u16 = 9;

type Rows = BTreeMap<String, String>;

fn put(client: &mut Client, key: &str) {
    let request = store(Opcode::SET, key, "1", 0, 0);
    client.call(&request.vbucket(VB)).ok();
}

fn await_persisted(client: &mut Client, seqno: u64) {
    let request = Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(VB);
    client.call(&request.extras(&seqno.to_be_bytes())).ok();
}

fn number(rows: &Rows, name: &str) -> u64 {
    let row = rows.get(name).unwrap_or_else(|| panic!("no row {name}"));
    row.parse()
        .unwrap_or_else(|_| panic!("{name} is {row}, no number"))
}

/// Returns the histograms among rows by name: `NAME_mean`, and `NAME_LOW,HIGH` for each step. Other rows are no
/// histograms, and no divisor is zero.
fn histograms(rows: &Rows) -> BTreeMap<String, u64> {
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut means = Vec::new();
    for name in rows.keys() {
        let (name_of, last) = name
            .rsplit_once('_')
            .expect("a name and what is told of it");
        let count = number(rows, name);
        if last == "mean" {
            means.push(name_of);
            continue;
        }
        let (low, high) = last.split_once(',').unwrap_or_else(|| panic!("{name}"));
        let [low, high] = [low, high].map(|edge| edge.parse::<u64>().expect(name));
        assert!(low < high, "{name}");
        *totals.entry(name_of.to_owned()).or_default() += count;
    }
    assert!(totals.values().all(|total| *total > 0));
    let names: Vec<&str> = totals.keys().map(String::as_str).collect();
    assert_eq!(means, names, "each has a mean and steps");
    totals
}

#[test]
fn timings_are_histograms() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    for number in 0..20 {
        put(&mut client, &format!("k{number}"));
    }
    await_persisted(&mut client, 20);
    let totals = histograms(&client.stats("timings"));
    assert_eq!(totals["set_cmd"], 20);
    assert!(totals["disk_commit"] > 0);
    let locks = client.stats("locks");
    assert!(number(&locks, "lock_hold_flush_count") > 0);
    assert_eq!(totals.get("lock_hold"), None);
}

#[test]
fn hash_tables_are_shown_with_their_histograms() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    for number in 0..50 {
        put(&mut client, &format!("k{number}"));
    }
    let rows = client.stats("hash");
    for vb in [VB, VB + 1] {
        let of_table = |name: &str| number(&rows, &format!("vb_{vb}:{name}"));
        let expected = if vb == VB { 50 } else { 0 };
        assert_eq!(rows[&format!("vb_{vb}:state")], "active");
        assert_eq!(of_table("reported"), expected);
        assert_eq!(of_table("counted"), expected);
        assert_eq!(of_table("mem_size"), of_table("mem_size_counted"));
        assert!(of_table("size") > 0 && of_table("locks") > 0);
        let prefix = format!("vb_{vb}:histo_");
        let of_histogram = rows.iter().filter(|row| row.0.starts_with(&prefix));
        let steps: Rows = of_histogram.map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(histograms(&steps).len(), 1);
        let documents = steps.iter().filter_map(|(name, buckets)| {
            let low = name[prefix.len()..].split_once(',')?.0;
            Some(low.parse::<u64>().unwrap() * buckets.parse::<u64>().unwrap())
        });
        assert_eq!(documents.sum::<u64>(), expected);
        assert!(of_table("min_depth") <= of_table("max_depth"));
        assert_eq!(of_table("max_depth") > 0, expected > 0);
    }
}

#[test]
fn responses_are_counted_by_status() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    let counts = |client: &mut Client, group: &str| -> Value {
        let rows = client.stats(group);
        assert_eq!(rows.len(), 1);
        serde_json::from_str(&rows["responses"]).unwrap()
    };
    let before = counts(&mut client, "responses");
    assert_eq!(before.get("1"), None, "{before}");
    for _ in 0..3 {
        client.get("nothing").is(Status::KEY_ENOENT);
    }
    let after = counts(&mut client, "responses");
    assert_eq!(after["1"], 3, "{after}");
    assert!(after["0"].as_u64() > before["0"].as_u64());
    let all = counts(&mut client, "responses all");
    assert_eq!(all["d6"], 0, "{all}");
}

#[test]
fn a_document_of_a_collection_is_shown_by_name_and_by_id() {
    let node = own();
    let mut client = Client::ready(node.ports().kv);
    client.call(&apply(&manifest("1", &[("c", "1a")]))).ok();
    client.call(&write(0x1a, "k").vbucket(VB)).ok();
    for group in ["key", "vkey"] {
        for collection in ["_default.c", ".c", "0x1a"] {
            let rows = client.stats(&format!("{group} k {VB} {collection}"));
            assert_eq!(rows["key_seqno"], "2", "{group} {collection}");
        }
    }
    let mut refused = |collection: &str, status| {
        let group = format!("key k {VB} {collection}");
        client
            .call(&Request::new(Opcode::STAT).key(group))
            .is(status);
    };
    refused("", Status::KEY_ENOENT);
    refused("_default._default", Status::KEY_ENOENT);
    refused("_default.none", Status::UNKNOWN_COLLECTION);
    refused("0x99", Status::UNKNOWN_COLLECTION);
    refused("none.c", Status::UNKNOWN_SCOPE);
    refused("0xzz", Status::EINVAL);
    refused("_default.c more", Status::EINVAL);
}
