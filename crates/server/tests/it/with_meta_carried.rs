//! Tests of documents with their own metadata: where the metadata is kept, and where such writes are refused.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wire::{Feature, Opcode, Status};

use crate::client::{Client, Request, SDK, sdk_and, set};
use crate::dcp::consumer::{Ask, Consumer, PRODUCER, XATTRS, control, open};
use crate::dcp::history::post;
use crate::durable::{durable, vbucket, waiting_for_a_replica};
use crate::manifests::{apply, manifest};
use crate::place::{on_disk, own, replica_of};
use crate::with_meta::{FIRST, FORCE_ACCEPT, JSON, Meta, XATTR, known, put, remove, section};

const HOUR_NS: u64 = 3_600_000_000_000;
const PATIENCE: Duration = Duration::from_secs(30);

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

/// Returns a document with attributes, and its value.
fn attributed(key: &str, meta: Meta) -> (Request, Vec<u8>) {
    let value = [section(&[("_vv", "{\"cas\":1}")]), b"[1]".to_vec()].concat();
    let request = put(key, "", meta).value(&value).datatype(XATTR | JSON);
    (request, value)
}

#[test]
fn a_replica_has_the_metadata_and_keeps_it_when_promoted() {
    let features = [Feature::XATTR, Feature::SNAPPY, Feature::SNAPPY_EVERYWHERE];
    let active = own();
    let replica = replica_of(active.ports().kv, None);
    let mut client = Client::with(active.ports().kv, &sdk_and(&features));
    let mut other = Client::with(replica.ports().kv, &sdk_and(&features));
    let first = Meta {
        expiry: 4_000_000_000,
        ..FIRST
    };
    let (request, value) = attributed("kept", first);
    client.call(&request).ok();
    client.call(&put("gone", "1", FIRST)).ok();
    let deletion = Meta {
        rev: 8,
        cas: FIRST.cas + 5,
        expiry: 1_700_000_000,
        flags: 0,
    };
    client.call(&remove("gone", deletion)).ok();
    client.call(&set("last", "1")).ok();
    let deadline = Instant::now() + PATIENCE;
    for (key, there) in [("last", true), ("kept", true), ("gone", false)] {
        let get = Request::of(Opcode::GET_EX_REPLICA, key);
        while (other.call(&get).status == Status::SUCCESS) != there {
            assert!(Instant::now() < deadline, "{key} never came");
        }
    }
    let got = other
        .call(&Request::of(Opcode::GET_EX_REPLICA, "kept"))
        .ok();
    assert_eq!((got.value, got.cas), (value, first.cas));
    let drift = other.stats("");
    assert_ne!(drift["ep_replica_hlc_drift_count"], "0");
    assert_ne!(drift["ep_replica_behind_exceptions"], "0");
    active.shutdown().unwrap();
    let promote = Request::new(Opcode::IOCTL_SET).key("replication.promote");
    while other.call(&promote).status != Status::SUCCESS {
        assert!(Instant::now() < deadline, "it is not promoted");
    }
    let (deleted, there, datatype) = known(&mut other, "kept");
    assert_eq!((deleted, datatype), (false, XATTR | JSON));
    assert_eq!(there.extras(), first.extras());
    let (deleted, there, _) = known(&mut other, "gone");
    assert_eq!((deleted, there.extras()), (true, deletion.extras()));
    let older = other.call(&put("gone", "2", FIRST));
    older.is(Status::KEY_EEXISTS);
}

#[test]
fn history_has_every_version_with_metadata() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let form = "name=past&ramQuota=64&storageBackend=magma&historyRetentionSeconds=3600";
    assert!(post(&node, "/pools/default/buckets", form).contains("202"));
    let select = |features: &[Feature]| {
        let mut client = Client::logged_in(node.ports().kv, features);
        client.select("past").ok();
        client
    };
    let mut client = select(&SDK);
    let versions = [7, 8, 9].map(|rev| Meta {
        rev,
        cas: FIRST.cas + rev,
        ..FIRST
    });
    let [first, second, gone] = versions;
    client.call(&put("k", "1", first)).ok();
    client.call(&put("k", "2", second)).ok();
    let last = client.call(&remove("k", gone)).ok().seqno();
    let request = Request::new(Opcode::SEQNO_PERSISTENCE).vbucket(vbucket("k"));
    client.call(&request.extras(&last.to_be_bytes())).ok();

    let mut client = select(&sdk_and(&[Feature::XATTR]));
    client.call(&open("versions", PRODUCER | XATTRS)).ok();
    client.call(&control("enable_noop", "true")).ok();
    let mut consumer = Consumer { client };
    consumer.control("change_streams", "true").ok();
    consumer.stream(&Ask::all(vbucket("k")).until(last));
    let mut told = Vec::new();
    while told.len() < versions.len() {
        let frame = consumer.frame();
        if [Opcode::DCP_MUTATION, Opcode::DCP_DELETION].contains(&frame.opcode) {
            let rev = u64::from_be_bytes(frame.extras[8..16].try_into().unwrap());
            told.push((rev, frame.cas));
        }
    }
    assert_eq!(told, versions.map(|meta| (meta.rev, meta.cas)));
}

#[test]
fn a_prepared_key_and_a_dropped_collection_refuse_documents() {
    let (node, mut client) = waiting_for_a_replica("busy");
    client.set("busy", "old").ok();
    let mut waiting = Client::ready(node.ports().kv);
    waiting.pipeline_and_wait(&[durable(set("busy", "new"), 1, 60_000)]);
    let newer = Meta {
        rev: 100,
        cas: now_ns(),
        ..FIRST
    };
    for request in [put("busy", "x", newer), remove("busy", newer)] {
        client.call(&request).is(Status::SYNC_WRITE_IN_PROGRESS);
    }
    assert_eq!(client.get("busy").text(), "old");

    client.call(&apply(&manifest("1", &[("stools", "8")]))).ok();
    let stool = |opcode| {
        let request = Request::new(opcode).key(b"\x08k").extras(&FIRST.extras());
        request.vbucket(0)
    };
    client.call(&stool(Opcode::SET_WITH_META).value("1")).ok();
    client.call(&apply(&manifest("2", &[]))).ok();
    for opcode in [
        Opcode::SET_WITH_META,
        Opcode::ADD_WITH_META,
        Opcode::DEL_WITH_META,
    ] {
        client.call(&stool(opcode)).is(Status::UNKNOWN_COLLECTION);
    }
}

#[test]
fn last_write_wins_counts_clocks_that_are_ahead() {
    let node = own();
    let form = "name=late&ramQuota=100&bucketType=ephemeral&conflictResolutionType=lww";
    assert!(post(&node, "/pools/default/buckets", form).contains("202"));
    let mut client = Client::logged_in(node.ports().kv, &SDK);
    client.select("late").ok();
    let request = |opcode, cas| {
        let meta = Meta { cas, ..FIRST };
        Request::of(opcode, "k").extras(&meta.with(FORCE_ACCEPT))
    };
    let put = |cas| request(Opcode::SET_WITH_META, cas).value("1");
    let ahead = now_ns() + HOUR_NS;
    client.call(&put(ahead)).ok();
    client.call(&put(ahead + HOUR_NS)).ok();
    client.call(&put(ahead)).is(Status::KEY_EEXISTS);
    let deletion = request(Opcode::DEL_WITH_META, ahead);
    client.call(&deletion).is(Status::KEY_EEXISTS);
    for cas in [0, u64::MAX] {
        client.call(&put(cas)).is(Status::CAS_VALUE_INVALID);
    }
    let stats = client.stats("");
    for (name, value) in [
        ("ep_active_hlc_drift_count", "2"),
        ("ep_active_ahead_exceptions", "2"),
        ("ep_active_behind_exceptions", "0"),
        ("ep_clock_cas_drift_threshold_exceeded", "2"),
        ("ep_num_ops_set_meta_res_fail", "1"),
        ("ep_num_ops_del_meta_res_fail", "1"),
        ("ep_hlc_invalid_strategy", "ignore"),
    ] {
        assert_eq!(stats[name], value, "{name}");
    }
    let drift_us: u64 = stats["ep_active_hlc_drift"].parse().unwrap();
    let hours_us = HOUR_NS / 1000;
    assert!(
        (2 * hours_us..=3 * hours_us).contains(&drift_us),
        "{drift_us}"
    );
}
