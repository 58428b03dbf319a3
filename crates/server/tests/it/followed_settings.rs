//! Tests of the settings of a bucket at nodes that follow its active node.

use serde_json::Value;
use server::Node;
use wire::Opcode;

use crate::client::{Client, Request, SDK, set, until};
use crate::handed_on::{BUCKETS, admin, asked};
use crate::place::{own, replica_of_bucket};
use crate::with_meta::{FIRST, FORCE_ACCEPT, known, put};

const SHOP: &str = "/pools/default/buckets/shop";
/// Fields of a bucket over HTTP that differ on each node.
const OWN: [&str; 7] = [
    "basicStats",
    "evictionPolicy",
    "nodes",
    "quota",
    "uuid",
    "uri",
    "streamingUri",
];

/// Returns all settings of the bucket that followers take, too.
fn settings_at(node: &Node) -> Value {
    let (status, body) = asked(node.ports().http, "GET", SHOP, "", &admin());
    assert_eq!(status, 200, "{body}");
    let mut told: Value = serde_json::from_str(&body).unwrap();
    for name in OWN.into_iter().chain(["vBucketServerMap"]) {
        told.as_object_mut().unwrap().remove(name);
    }
    told
}

fn change(node: &Node, path: &str, form: &str) {
    let (status, body) = asked(node.ports().http, "POST", path, form, &admin());
    assert!([200, 202].contains(&status), "{form}: {body}");
}

fn client(node: &Node) -> Client {
    let mut client = Client::logged_in(node.ports().kv, &SDK);
    client.select("shop").ok();
    client
}

/// Covers all settings, changes of them at runtime, a restart of the follower without its active node, and a promotion.
#[test]
fn a_follower_has_the_settings_of_the_bucket_of_its_active_node() {
    let place = tempfile::tempdir().unwrap();
    let active = own();
    let form = "name=shop&ramQuota=64&conflictResolutionType=lww&compressionMode=off\
                &storageBackend=magma&evictionPolicy=valueOnly";
    change(&active, BUCKETS, form);
    let port = active.ports().kv;
    let follower = replica_of_bucket(port, "shop", Some(place.path()));
    let same = |follower: &Node| settings_at(follower) == settings_at(&active);
    until("what it was made with", || same(&follower));
    let quota = asked(follower.ports().http, "GET", SHOP, "", &admin()).1;
    assert!(quota.contains("\"ram\":1073741824"), "its own: {quota}");

    for form in [
        "maxTTL=77&compressionMode=passive&durabilityMinLevel=majority&flushEnabled=1",
        "durabilityImpossibleFallback=fallbackToActiveAck&replicaNumber=2&historyRetentionSeconds=60",
        "enableCrossClusterVersioning=true&versionPruningWindowHrs=48",
        "autoCompactionDefined=true&parallelDBAndViewCompaction=false&purgeInterval=5",
    ] {
        change(&active, SHOP, form);
        until(form, || same(&follower));
    }
    // Through the follower, and back.
    change(&follower, SHOP, "durabilityMinLevel=none&maxTTL=99");
    until("what was handed on", || same(&follower));
    let expected = settings_at(&active);
    assert_eq!(expected["maxTTL"], 99);
    assert_eq!(
        expected["vbucketsMaxCas"].as_array().map(Vec::len),
        Some(1024)
    );

    active.shutdown().unwrap();
    follower.shutdown().unwrap();
    drop(follower);
    let follower = replica_of_bucket(port, "shop", Some(place.path()));
    assert_eq!(settings_at(&follower), expected, "kept");
    let promote = Request::new(Opcode::IOCTL_SET).key("replication.promote");
    let mut client = client(&follower);
    client.call(&promote).ok();
    until("it is active", || {
        client.call(&set("k", "1")).status == wire::Status::SUCCESS
    });
    assert_ne!(
        known(&mut client, "k").1.expiry,
        0,
        "the longest time to live"
    );
    // The last write wins, whatever its revision.
    let force = |meta: crate::with_meta::Meta| meta.with(FORCE_ACCEPT);
    let newer = crate::with_meta::Meta {
        rev: 6,
        cas: FIRST.cas + 1,
        ..FIRST
    };
    client
        .call(&put("lww", "1", FIRST).extras(&force(FIRST)))
        .ok();
    client
        .call(&put("lww", "2", newer).extras(&force(newer)))
        .ok();
    assert_eq!(settings_at(&follower), expected, "after the promotion");
    follower.shutdown().unwrap();
}
