//! Tests of states that cannot be reached from outside: changed maps, and short time limits.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use registry::cluster_map::MapRevision;
use registry::{BucketConfig, BucketKind, MapVersion, ServedBucket, Waits};
use wire::{Feature, Opcode, Status};

use super::{Node, NodeState};
use crate::config::NodeConfig;
use client::{Client, PASSWORD, Request, SDK, USER};

mod agreed;
mod audit;
mod buckets;
mod certificates;
mod changes;
#[path = "../../../tests/it/client.rs"]
#[expect(
    dead_code,
    reason = "the client of the integration tests, of which this needs little"
)]
pub(crate) mod client;
mod cluster;
mod congestion;
mod encrypted;
mod moves;
mod params;
mod privileges;
mod provision;
mod room;
mod statistics;
mod stop;
mod streams;
mod users;

const SOON: Duration = Duration::from_millis(50);

fn start() -> Node {
    let waits = Waits {
        persistence: SOON,
        pending: SOON,
        ..Waits::default()
    };
    started(
        &config(None, ["default", "other"].map(bucket).to_vec()),
        waits,
    )
}

pub(crate) fn config(data_dir: Option<&Path>, buckets: Vec<BucketConfig>) -> NodeConfig {
    NodeConfig {
        data_dir: data_dir.map(Path::to_path_buf),
        listen: "127.0.0.1".parse().unwrap(),
        advertise: None,
        kv_port: 0,
        http_port: 0,
        memcached: None,
        kv_tls_port: None,
        https_port: None,
        certificate: None,
        client_cert: None,
        client_ca: None,
        provisionable: None,
        username: USER.into(),
        password: PASSWORD.into(),
        buckets,
        replica_of: None,
        cluster: None,
        threads: 1,
        purge_age_s: 259_200,
        journal_bytes: 32 << 20,
        encryption_keys: None,
        buckets_max: 100,
    }
}

pub(crate) fn started(config: &NodeConfig, waits: Waits) -> Node {
    let node = Node::start_with(config, waits).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(node.warmed_up()).unwrap();
    node
}

pub(crate) fn bucket(name: &str) -> BucketConfig {
    BucketConfig {
        name: name.into(),
        quota_bytes: 64 << 20,
        kind: BucketKind::Ephemeral,
        eviction: registry::EvictionPolicy::None,
        durability_min: None,
        vbuckets: None,
    }
}

/// Returns a client like an SDK that subscribes to changed maps in one of the two forms.
fn listening(node: &Node, form: Feature) -> Client {
    let features: Vec<Feature> = SDK.into_iter().chain([form]).collect();
    Client::with(node.ports().kv, &features)
}

/// Publishes the next revision of a bucket's map.
fn change(state: &NodeState, served: &Arc<ServedBucket>) -> MapRevision {
    let old = served.map();
    let revision = MapRevision {
        rev: old.revision.rev + 1,
        ..old.revision
    };
    let (before, after) = (old.revision.rev, revision.rev);
    let json = old
        .json
        .replace(&format!("\"rev\":{before}"), &format!("\"rev\":{after}"));
    let json = json.into();
    state.publish_map(served, MapVersion { revision, json });
    revision
}

fn extras(revision: MapRevision) -> Vec<u8> {
    [revision.epoch.to_be_bytes(), revision.rev.to_be_bytes()].concat()
}

#[test]
fn a_changed_map_is_pushed_in_the_form_that_was_asked_for() {
    let node = start();
    let served = node.state.bucket("default").unwrap();
    let mut full = listening(&node, Feature::CLUSTERMAP_CHANGE_NOTIFICATION);
    let mut brief = listening(&node, Feature::CLUSTERMAP_CHANGE_NOTIFICATION_BRIEF);
    let mut silent = Client::ready(node.ports().kv);
    let mut elsewhere = listening(&node, Feature::CLUSTERMAP_CHANGE_NOTIFICATION);
    elsewhere.select("other").ok();
    elsewhere
        .call(&Request::new(Opcode::GET_CLUSTER_CONFIG))
        .ok();
    let revision = change(&node.state, &served);
    for (client, with_map) in [(&mut full, true), (&mut brief, false)] {
        let push = client.answer();
        assert_eq!((push.magic, push.opcode), (0x82, Opcode(0x01)));
        assert_eq!(push.extras, extras(revision));
        assert_eq!(push.key, b"default");
        assert_eq!(push.value.is_empty(), !with_map);
        if with_map {
            assert_eq!(push.json()["rev"], revision.rev);
        }
    }
    silent.expect_silence();
    elsewhere.expect_silence();
    node.shutdown().unwrap();
}

#[test]
fn a_client_gets_each_map_once() {
    let node = start();
    let served = node.state.bucket("default").unwrap();
    let mut client = listening(&node, Feature::CLUSTERMAP_CHANGE_NOTIFICATION);
    let revision = change(&node.state, &served);
    assert_eq!(client.answer().extras, extras(revision));
    // The same revision for all, once more.
    node.state.connections.map_changed();
    client.expect_silence();
    // A client that was pushed the map gets it neither with `NOT_MY_VBUCKET` nor with `GET_CLUSTER_CONFIG`.
    let wrong = Request::of(Opcode::GET, "x").vbucket(5000);
    let answer = client.call(&wrong).is(Status::NOT_MY_VBUCKET);
    assert_eq!(answer.value, b"");
    let known = Request::new(Opcode::GET_CLUSTER_CONFIG).extras(&extras(revision));
    assert_eq!(client.call(&known).ok().value, b"");
    let later = change(&node.state, &served);
    assert_eq!(client.answer().json()["rev"], later.rev);
    let stale = Request::new(Opcode::GET_CLUSTER_CONFIG).extras(&extras(revision));
    assert_eq!(client.call(&stale).ok().json()["rev"], later.rev);
    node.shutdown().unwrap();
}

#[test]
fn a_changed_map_comes_with_not_my_vbucket() {
    let node = start();
    let served = node.state.bucket("default").unwrap();
    let mut client = Client::ready(node.ports().kv);
    let wrong = Request::of(Opcode::GET, "x").vbucket(5000);
    assert_ne!(client.call(&wrong).value, b"");
    assert_eq!(client.call(&wrong).value, b"");
    let revision = change(&node.state, &served);
    assert_eq!(client.call(&wrong).json()["rev"], revision.rev);
    node.shutdown().unwrap();
}

#[test]
fn waits_end_with_a_temporary_failure() {
    let node = start();
    let mut client = Client::ready(node.ports().kv);
    let wait = Request::new(Opcode::SEQNO_PERSISTENCE).extras(&9_u64.to_be_bytes());
    let began = Instant::now();
    let answer = client.call(&wait).is(Status::ETMPFAIL);
    assert!(began.elapsed() >= SOON, "{:?}", began.elapsed());
    assert!(!answer.context().is_empty());
    let pending = Request::new(Opcode::SET_VBUCKET).vbucket(7).extras(&[3]);
    client.call(&pending).ok();
    let began = Instant::now();
    let get = Request::of(Opcode::GET, "x").vbucket(7);
    client.call(&get).is(Status::ETMPFAIL);
    assert!(began.elapsed() >= SOON, "{:?}", began.elapsed());
    node.shutdown().unwrap();
}
