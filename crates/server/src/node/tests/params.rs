//! Tests of settings that `SET_PARAM` changes on a running bucket.

use registry::{BucketConfig, BucketKind, EvictionPolicy};
use wire::{Opcode, Status};

use super::client::{Answer, Client, Request, set};
use super::{Node, Waits, bucket, config, start, started};

const FLUSH: u32 = 1;
const VBUCKET: u32 = 5;

fn param(client: &mut Client, family: u32, name: &str, value: &str) -> Answer {
    let request = Request::new(Opcode::SET_PARAM).extras(&family.to_be_bytes());
    client.call(&request.key(name).value(value))
}

fn on_disk(place: &std::path::Path) -> Node {
    let default = BucketConfig {
        kind: BucketKind::Couchbase,
        eviction: EvictionPolicy::Values,
        ..bucket("default")
    };
    started(&config(Some(place), vec![default]), Waits::default())
}

/// Returns a document with the metadata of another node.
fn foreign(rev: u64, cas: u64) -> Request {
    let numbers = [0, rev, cas].map(u64::to_be_bytes).concat();
    let request = Request::of(Opcode::SET_WITH_META, "foreign");
    request.extras(&numbers).value("x")
}

#[test]
fn every_setting_is_reported_as_it_was_set() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    for (family, name, value) in [
        (FLUSH, "max_ttl", "100"),
        (FLUSH, "durability_min_level", "majority"),
        (FLUSH, "durability_min_level", "none"),
        (FLUSH, "compression_mode", "off"),
        (FLUSH, "getl_default_timeout", "3"),
        (FLUSH, "getl_max_timeout", "7"),
        (FLUSH, "max_item_size", "1000"),
        (FLUSH, "persistent_metadata_purge_age", "86400"),
        (FLUSH, "seqno_persistence_timeout", "5"),
        (VBUCKET, "hlc_drift_ahead_threshold_us", "11"),
        (VBUCKET, "hlc_drift_behind_threshold_us", "12"),
        (VBUCKET, "hlc_max_future_threshold_us", "13"),
        (VBUCKET, "hlc_invalid_strategy", "replace"),
    ] {
        param(&mut client, family, name, value).ok();
        let told = client.stats("config").remove(&format!("ep_{name}"));
        assert_eq!(told.as_deref(), Some(value), "{name}");
    }
    let details = client.stats("vbucket-details 0");
    assert_eq!(details["vb_0:drift_ahead_threshold"], "11000");
    node.shutdown().unwrap();
}

#[test]
fn invalid_values_are_refused() {
    let node = start();
    let mut client = Client::ready(node.ports().kv);
    for (family, name, value) in [
        (FLUSH, "max_ttl", "-1"),
        (FLUSH, "durability_min_level", "most"),
        (FLUSH, "durability_min_level", "persistToMajority"),
        (FLUSH, "compression_mode", "gzip"),
        (FLUSH, "getl_default_timeout", "0"),
        (FLUSH, "getl_max_timeout", "99999999999"),
        (FLUSH, "max_item_size", "20971521"),
        (FLUSH, "max_item_size", "0"),
        (FLUSH, "persistent_metadata_purge_age", "86400"),
        (FLUSH, "history_retention_seconds", "5"),
        (FLUSH, "history_retention_bytes", "5"),
        (VBUCKET, "hlc_invalid_strategy", "panic"),
        (FLUSH, "hlc_invalid_strategy", "error"),
    ] {
        let context = param(&mut client, family, name, value)
            .is(Status::EINVAL)
            .context();
        assert!(!context.is_empty(), "{name}");
    }
    node.shutdown().unwrap();
}

#[test]
fn settings_hold_from_the_next_operation_on() {
    let node = start();
    let mut client = Client::ready(node.ports().kv);
    param(&mut client, FLUSH, "max_item_size", "3").ok();
    client.set("k", "1234").is(Status::E2BIG);
    client.set("k", "123").ok();
    param(&mut client, FLUSH, "max_ttl", "100").ok();
    client.set("k", "1").ok();
    let meta = client.call(&Request::of(Opcode::GET_META, "k")).ok();
    assert_ne!(meta.extras[8..12], [0; 4], "it expires");

    let far = u64::MAX >> 1;
    client.call(&foreign(1, far - 1)).ok();
    param(&mut client, VBUCKET, "hlc_invalid_strategy", "error").ok();
    client.call(&foreign(2, far)).is(Status::CAS_VALUE_INVALID);
    param(&mut client, VBUCKET, "hlc_invalid_strategy", "replace").ok();
    let replaced = client.call(&foreign(2, far)).ok();
    assert_eq!(replaced.cas, far, "one more than the last");

    param(&mut client, FLUSH, "durability_min_level", "majority").ok();
    let before = client.set("k", "2").ok().seqno();
    let after = client.set("k", "3").ok().seqno();
    assert_eq!(after, before + 2, "a prepare and a commit");
    node.shutdown().unwrap();
}

#[test]
fn a_setting_limits_the_wait_for_persistence() {
    let place = tempfile::tempdir().unwrap();
    let node = on_disk(place.path());
    let mut client = Client::ready(node.ports().kv);
    client.call(&Request::new(Opcode::STOP_PERSISTENCE)).ok();
    param(&mut client, FLUSH, "seqno_persistence_timeout", "0").ok();
    let stored = set("k", "1").vbucket(0);
    let seqno = client.call(&stored).ok().seqno();
    let wait = Request::new(Opcode::SEQNO_PERSISTENCE).extras(&seqno.to_be_bytes());
    client.call(&wait).is(Status::ETMPFAIL);
    client.call(&Request::new(Opcode::START_PERSISTENCE)).ok();
    param(&mut client, FLUSH, "seqno_persistence_timeout", "30").ok();
    client.call(&wait).ok();
    node.shutdown().unwrap();
}
