//! Tests of a node in a fake cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::agreed::{Address, Alive, NodeState};
use cluster::coordinator::{FailoverBlock, Progress};
use cluster::{BucketId, NodeId, Order, Phase, Row};
use collections::Manifest;
use registry::cluster::MemberStatus;
use registry::cluster_map::MapRevision;
use registry::collections::to_bytes;
use registry::fake_member::{FakeMember, row, written};
use registry::{BucketSettings, MemcachedPort, Waits, manifest_changed, publish_cluster};
use serde_json::{Value, json};
use wire::{Feature, Opcode, Status};

use super::client::{Client, Request, SDK, until};
use super::{Node, SOON, bucket, config, extras, listening, start, started};
use crate::config::NodeConfig;

const BUCKET: u128 = 0xb0;

/// Starts node 2 of three, with the bucket `default` on all of them.
pub(super) fn clustered() -> (Node, Arc<FakeMember>) {
    in_cluster(start())
}

fn in_cluster(node: Node) -> (Node, Arc<FakeMember>) {
    let member = FakeMember::new(2);
    for id in 1..=3 {
        member.put_node(id, NodeState::Active);
    }
    member.put_bucket(BUCKET, "default", 1024, &[row(&[2, 1]), row(&[3, 2])]);
    let known = node.state.registry.cluster.set(Arc::clone(&member) as _);
    assert!(known.is_ok());
    publish(&node);
    (node, member)
}

fn publish(node: &Node) {
    let served = node.state.bucket("default").unwrap();
    publish_cluster(&node.state.registry, &served);
}

fn told(node: &Node) -> Value {
    let served = node.state.bucket("default").unwrap();
    serde_json::from_str(&served.map().json).unwrap()
}

fn servers(map: &Value) -> Vec<&str> {
    let list = map["vBucketServerMap"]["serverList"].as_array().unwrap();
    list.iter().map(|server| server.as_str().unwrap()).collect()
}

#[test]
fn clients_get_the_maps_that_the_cluster_agreed_on() {
    let (node, member) = clustered();
    let map = told(&node);
    assert_eq!((&map["revEpoch"], &map["rev"]), (&json!(2), &json!(5)));
    assert_eq!(map["uuid"], format!("{BUCKET:032x}"));
    // Node 1 has no active copy: it comes before the nodes that have some.
    let expected = ["10.0.0.1:11210", "10.0.0.2:11210", "10.0.0.3:11210"];
    assert_eq!(servers(&map), expected);
    let rows = &map["vBucketServerMap"]["vBucketMap"];
    assert_eq!([&rows[0], &rows[1023]], [&json!([1, 0]), &json!([2, 1])]);
    let this = |at: usize| map["nodesExt"][at]["thisNode"].as_bool().unwrap();
    assert_eq!([this(0), this(1), this(2)], [false, true, false]);
    let global: Value = serde_json::from_str(&node.state.global_map().json).unwrap();
    assert_eq!(global["nodesExt"], map["nodesExt"]);

    // A later node is listed once it is a member; zones and alternate addresses are shown.
    member.put_node(4, NodeState::New);
    publish(&node);
    assert_eq!(servers(&told(&node)).len(), 3);
    member.edit(|view, revision| {
        let mut added = view.nodes[&NodeId(4)].value.clone();
        (added.state, added.zone) = (NodeState::Active, 7);
        added.outside = Some(Address {
            host: "far".into(),
            kv: 1,
            http: 2,
            ..Address::default()
        });
        view.nodes.insert(NodeId(4), written(revision, added));
    });
    publish(&node);
    let map = told(&node);
    assert_eq!(servers(&map)[1], "10.0.0.4:11210");
    assert_eq!(map["nodesExt"][1]["serverGroup"], "Zone 7");
    assert_eq!(map["nodesExt"][0]["serverGroup"], "Zone 0");
    let external = json!({ "external": { "hostname": "far", "ports": { "kv": 1, "mgmt": 2 } } });
    assert_eq!(map["nodesExt"][1]["alternateAddresses"], external);
    node.shutdown().unwrap();
}

#[test]
fn a_member_has_figures_of_the_cluster() {
    let (node, member) = clustered();
    member.put_alive(&[1, 2]);
    let figure = |name: &str| {
        let page = stats::metrics(&node.state.registry);
        let mut rows = page.lines().filter_map(|line| line.split_once(' '));
        let named = format!("settee_cluster_{name}");
        let found = rows.find(|(of, _)| of.trim_end_matches("{}") == named);
        found.map(|(_, value)| value.to_owned())
    };
    let is = |name: &str, value: &str| assert_eq!(figure(name).as_deref(), Some(value), "{name}");
    // Every second vBucket is active on node 3, which is gone.
    for (name, value) in [
        ("nodes", "3.0"),
        ("nodes_alive", "2.0"),
        ("vbuckets_unserved", "512.0"),
    ] {
        is(name, value);
    }
    is("copies_missing", "0.0");
    member.put_node(3, NodeState::Failed);
    is("nodes_failed", "1.0");
    is("copies_missing", "512.0");
    member.status.lock().etcd_silent_ms = 1_500;
    is("etcd_silence_seconds", "1.5");
    let mut client = Client::ready(node.ports().kv);
    assert_eq!(client.stats("cluster")["copies_missing"], "512");
    node.shutdown().unwrap();
}

#[test]
fn a_failed_node_is_in_maps_only_while_it_is_active() {
    let (node, member) = clustered();
    member.put_node(3, NodeState::Failed);
    publish(&node);
    let map = told(&node);
    assert_eq!(servers(&map)[2], "10.0.0.3:11210");
    member.put_bucket(
        BUCKET,
        "default",
        1024,
        &[row(&[2, 1]), row(&[2, 3]), row(&[])],
    );
    publish(&node);
    let map = told(&node);
    assert_eq!(servers(&map), ["10.0.0.1:11210", "10.0.0.2:11210"]);
    let rows = &map["vBucketServerMap"]["vBucketMap"];
    let expected = [json!([1, 0]), json!([1, -1]), json!([-1, -1])];
    assert_eq!(rows.as_array().unwrap()[..3], expected);
    assert_eq!(map["nodesExt"].as_array().map(Vec::len), Some(2));
    node.shutdown().unwrap();
}

#[test]
fn a_map_names_the_sending_node_even_without_copies() {
    let (node, member) = clustered();
    let rows = [row(&[1, 3]), row(&[3, 1])];
    for state in [NodeState::Failed, NodeState::New] {
        member.put_node(2, state);
        member.put_bucket(BUCKET, "default", 1024, &rows);
        publish(&node);
        let map = told(&node);
        // Clients send it no requests, and the indexes of the other nodes are those of their own maps.
        assert_eq!(servers(&map), ["10.0.0.1:11210", "10.0.0.3:11210"]);
        assert_eq!(map["nodes"].as_array().map(Vec::len), Some(2));
        let named = map["nodesExt"].as_array().unwrap();
        let this: Vec<_> = named.iter().map(|one| one["thisNode"] == true).collect();
        assert_eq!(this, [false, false, true]);
        assert_eq!(named[2]["hostname"], "10.0.0.2");
        assert_eq!(named[2]["services"], json!({ "mgmt": 8091 }));
    }
    // One that was removed is listed by itself alone.
    member.edit(|view, _| drop(view.nodes.remove(&NodeId(2))));
    publish(&node);
    let map = told(&node);
    assert_eq!(servers(&map), ["10.0.0.1:11210", "10.0.0.3:11210"]);
    let global: Value = serde_json::from_str(&node.state.global_map().json).unwrap();
    for (map, place) in [(&map, 2), (&global, 1)] {
        let named = &map["nodesExt"][place];
        assert_eq!(
            (&named["thisNode"], &named["hostname"]),
            (&json!(true), &json!("10.0.0.2"))
        );
        assert_eq!(named["services"], json!({ "mgmt": 8091 }));
    }
    node.shutdown().unwrap();
}

#[test]
fn the_phases_of_a_move_are_not_published() {
    let (node, member) = clustered();
    let told_now = || node.state.bucket("default").unwrap().map().revision;
    let (before, all) = (told_now(), node.state.global_map().revision);
    let to = |phase| Row {
        change: Some((row(&[3, 1]).chain, phase)),
        ..row(&[2, 1])
    };
    for phase in [Phase::Build, Phase::CatchUp, Phase::TwoChains] {
        member.put_bucket(BUCKET, "default", 1024, &[to(phase), row(&[3, 2])]);
        publish(&node);
        assert_eq!(
            (told_now(), node.state.global_map().revision),
            (before, all)
        );
    }
    member.put_bucket(BUCKET, "default", 1024, &[row(&[3, 1]), row(&[3, 2])]);
    publish(&node);
    assert!(told_now() > before);
    assert_eq!(node.state.global_map().revision, all);
    node.shutdown().unwrap();
}

#[test]
fn a_removed_node_leaves_the_maps() {
    let (node, member) = clustered();
    member.put_node(4, NodeState::Active);
    publish(&node);
    let before = told(&node)["rev"].as_i64().unwrap();
    assert_eq!(servers(&told(&node)).len(), 4);
    member.edit(|view, _| drop(view.nodes.remove(&NodeId(4))));
    publish(&node);
    let map = told(&node);
    assert_eq!(servers(&map).len(), 3);
    assert!(map["rev"].as_i64().unwrap() > before);
    let global: Value = serde_json::from_str(&node.state.global_map().json).unwrap();
    assert_eq!(global["nodesExt"].as_array().map(Vec::len), Some(3));
    let served = node.state.bucket("default").unwrap();
    let revision = served.map().revision;
    publish(&node);
    assert_eq!(served.map().revision, revision);
    node.shutdown().unwrap();
}

#[test]
fn operators_see_the_cluster_and_give_it_orders() {
    let (node, member) = clustered();
    let mut client = Client::ready(node.ports().kv);
    let order = |text: &str| {
        Request::new(Opcode::IOCTL_SET)
            .key("cluster.order")
            .value(text)
    };
    let answer = client.call(&order(r#""rebalance""#)).is(Status::ETMPFAIL);
    assert_eq!(answer.context(), "there is no controller now");
    let progress = Progress {
        moves_left: 7,
        held: vec![(NodeId(3), FailoverBlock::Quota)],
        ..Progress::default()
    };
    *member.status.lock() = MemberStatus {
        controller: Some(NodeId(1)),
        etcd_silent_ms: 12,
        lease_left_ms: 4000,
        ..MemberStatus::default()
    };
    for (text, expected) in [
        (r#""rebalance""#, Some(Order::Rebalance)),
        (r#"{"drain":3}"#, Some(Order::Drain(NodeId(3)))),
        (r#"{"remove":9}"#, None),
        ("{}", None),
    ] {
        let status = match expected {
            Some(_) => Status::SUCCESS,
            None => Status::EINVAL,
        };
        client.call(&order(text)).is(status);
        let came: Vec<_> = member.orders.lock().drain(..).collect();
        assert_eq!(came, Vec::from_iter(expected), "{text}");
    }
    let mut status = |member: &FakeMember, progress| {
        member.status.lock().progress = progress;
        let rows = client.stats("cluster");
        serde_json::from_str::<Value>(&rows["status"]).unwrap()
    };
    member.put_node(3, NodeState::Failed);
    member.put_alive(&[2]);
    let seen = status(&member, None);
    assert_eq!(seen["node"], "n2");
    assert_eq!(seen["controller"], "n1");
    assert_eq!([&seen["moves_left"], &seen["waiting"]], [&Value::Null; 2]);
    let counts = json!({ "n1": { "active": 0, "replicas": 512 },
        "n2": { "active": 512, "replicas": 512 }, "n3": { "active": 512, "replicas": 0 } });
    let bucket = &seen["buckets"][0];
    assert_eq!(bucket["nodes"], counts);
    assert_eq!([&bucket["served"], &bucket["lacking"]], [512, 512]);
    assert_eq!(seen["nodes"][2]["state"], "failed");
    let controller = status(&member, Some(progress));
    assert_eq!(controller["moves_left"], 7);
    let why = controller["nodes"][2]["held"].as_str().unwrap();
    assert!(why.contains("settee cluster recover"), "{why}");
    node.shutdown().unwrap();
}

#[test]
fn a_node_alone_reports_no_cluster() {
    let node = start();
    let mut client = Client::ready(node.ports().kv);
    let ask = Request::new(Opcode::STAT).key("cluster");
    let answer = client.call(&ask);
    assert_eq!(answer.context(), "the node is in no cluster");
    let order = Request::new(Opcode::IOCTL_SET)
        .key("cluster.order")
        .value(r#""pause""#);
    let answer = client.call(&order).is(Status::EINVAL);
    assert_eq!(answer.context(), "the node is in no cluster");
    node.shutdown().unwrap();
}

#[test]
fn the_revision_of_a_clusters_map_only_grows() {
    let (node, member) = clustered();
    let revision = |node: &Node| node.state.bucket("default").unwrap().map().revision;
    let first = revision(&node);
    assert_eq!(first, MapRevision { epoch: 2, rev: 5 });
    publish(&node);
    assert_eq!(revision(&node), first);
    // An older view, as after a restore of etcd.
    let before = member.view.lock().clone();
    member.put_bucket(BUCKET, "default", 1024, &[row(&[1, 2])]);
    publish(&node);
    let second = revision(&node);
    assert_eq!(second, MapRevision { epoch: 2, rev: 6 });
    let after = std::mem::replace(&mut *member.view.lock(), before);
    publish(&node);
    assert_eq!(revision(&node), second);
    *member.view.lock() = after;
    // The collections are those of the node.
    let served = node.state.bucket("default").unwrap();
    member.edit(|view, _| view.revision = 20);
    publish(&node);
    assert_eq!(revision(&node), second);
    let more = |now: &Manifest| now.with_scope("more");
    let changed = served.bucket.change_manifest(more, to_bytes);
    assert!(changed.is_ok());
    manifest_changed(&node.state.registry, &served);
    assert_eq!(revision(&node).rev, 20);
    // An operator raised the epoch.
    member.edit(|view, _| view.meta.as_mut().unwrap().value.epoch = 2);
    publish(&node);
    assert_eq!(revision(&node).epoch, 3);
    node.shutdown().unwrap();
}

#[test]
fn cluster_changes_are_pushed_and_sent_with_not_my_vbucket() {
    let (node, member) = clustered();
    let served = node.state.bucket("default").unwrap();
    let mut listening = listening(&node, Feature::CLUSTERMAP_CHANGE_NOTIFICATION);
    let mut silent = Client::ready(node.ports().kv);
    member.put_bucket(BUCKET, "default", 1024, &[row(&[3, 2])]);
    publish(&node);
    let revision = served.map().revision;
    let push = listening.answer();
    assert_eq!(push.extras, extras(revision));
    assert_eq!(
        push.json()["vBucketServerMap"]["vBucketMap"][0],
        json!([2, 1])
    );
    let wrong = Request::of(Opcode::GET, "x").vbucket(5000);
    let answer = silent.call(&wrong).is(Status::NOT_MY_VBUCKET);
    assert_eq!(answer.json()["rev"], revision.rev);
    assert_eq!(silent.call(&wrong).value, b"", "it has the map");
    publish(&node);
    listening.expect_silence();
    node.shutdown().unwrap();
}

const SHOP: u128 = 0xb1;

/// Makes the bucket `shop` that the cluster has.
fn make_shop(node: &Node) {
    let settings = BucketSettings::from(bucket("shop"));
    let id = format!("{SHOP:032x}");
    node.state
        .make_bucket_as(settings, Some(&id), None)
        .unwrap();
}

/// Sends bytes, and waits until the node has looked for the bucket of the request.
fn send(client: &mut Client, bytes: &[u8], member: &FakeMember) {
    let before = member.reads.load(Ordering::Relaxed);
    client.send(bytes);
    until("the request waits", || {
        member.reads.load(Ordering::Relaxed) > before
    });
}

#[test]
fn a_client_waits_for_a_bucket_that_this_node_is_about_to_make() {
    let waits = Waits {
        bucket: Duration::from_hours(1),
        ..Waits::default()
    };
    let buckets = vec![bucket("default")];
    let (node, member) = in_cluster(started(&config(None, buckets), waits));
    let select = Request::new(Opcode::SELECT_BUCKET).key("shop");
    let mut client = Client::logged_in(node.ports().kv, &SDK);
    client.call(&select).is(Status::EACCESS);
    member.put_bucket(SHOP, "shop", 1024, &[row(&[2, 1]), row(&[3, 2])]);
    send(&mut client, &select.bytes(), &member);
    make_shop(&node);
    client.answer().ok();
    let map = client.call(&Request::new(Opcode::GET_CLUSTER_CONFIG));
    let all = ["10.0.0.1:11210", "10.0.0.2:11210", "10.0.0.3:11210"];
    assert_eq!(servers(&map.json()), all, "the map of the cluster");
    drop(client);
    node.shutdown().unwrap();
}

#[test]
fn no_client_waits_for_a_bucket_that_this_node_cannot_make() {
    let waits = Waits {
        bucket: Duration::from_hours(1),
        ..Waits::default()
    };
    let buckets = vec![bucket("default")];
    let (node, member) = in_cluster(started(&config(None, buckets), waits));
    member.put_bucket(SHOP, "shop", 1024, &[row(&[2, 1])]);
    let mut alive = Alive::default();
    alive.health.unmade.insert(BucketId(SHOP));
    member.edit(|view, revision| {
        view.alive.insert(NodeId(2), written(revision, alive));
    });
    let mut client = Client::logged_in(node.ports().kv, &SDK);
    client.select("shop").is(Status::EACCESS);
    drop(client);
    node.shutdown().unwrap();
}

#[test]
fn the_wait_for_a_bucket_of_the_cluster_ends() {
    let waits = Waits {
        bucket: SOON,
        ..Waits::default()
    };
    let buckets = vec![bucket("default")];
    let (node, member) = in_cluster(started(&config(None, buckets), waits));
    member.put_bucket(SHOP, "shop", 1024, &[row(&[2, 1])]);
    let mut client = Client::logged_in(node.ports().kv, &SDK);
    client.select("shop").is(Status::EACCESS);
    client.select("default").ok();
    drop(client);
    node.shutdown().unwrap();
}

#[test]
fn a_connection_of_the_memcached_port_gets_a_bucket_that_is_made_after_it() {
    let waits = Waits {
        bucket: Duration::from_hours(1),
        ..Waits::default()
    };
    let config = NodeConfig {
        memcached: Some(MemcachedPort {
            port: 0,
            bucket: "shop".into(),
            login: false,
        }),
        ..config(None, vec![bucket("default")])
    };
    let (node, member) = in_cluster(started(&config, waits));
    let mut client = Client::open(node.ports().memcached.unwrap());
    let get = Request::new(Opcode::GET).key("a");
    member.put_bucket(SHOP, "shop", 1024, &[row(&[2, 1])]);
    send(&mut client, &get.bytes(), &member);
    make_shop(&node);
    client.answer().is(Status::KEY_ENOENT);
    drop(client);
    node.shutdown().unwrap();
}
