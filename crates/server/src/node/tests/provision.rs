//! Tests of a node that gets its administrator over HTTP, also over restarts.

use std::path::Path;

use identity::{Grant, UserRecord};
use management::{ClusterChange, NodeView as _};
use registry::StandIn;
use wire::Status;

use super::client::{Client, plain};
use super::{Node, Waits, bucket, config, started};
use crate::config::{NodeConfig, StandInsConfig};

fn node(data_dir: &Path, provisionable: bool) -> Node {
    let stand_ins = StandInsConfig {
        query_port: 0,
        search_port: 0,
    };
    let config = NodeConfig {
        provisionable: provisionable.then_some(stand_ins),
        ..config(Some(data_dir), vec![bucket("default")])
    };
    started(&config, Waits::default())
}

fn maps(node: &Node) -> [String; 2] {
    let of_bucket = node.state.bucket_config("default").unwrap();
    [of_bucket, node.state.global_config()].map(|map| map.to_string())
}

#[test]
fn a_node_is_open_until_it_has_its_administrator_and_never_again() {
    let place = tempfile::tempdir().unwrap();
    let fresh = node(place.path(), true);
    let (query, search) = (fresh.ports().query.unwrap(), fresh.ports().search.unwrap());
    assert_ne!(query, search);
    assert!(fresh.state.is_open());
    assert!(fresh.state.identity.directory().users.all().is_empty());
    // No login over KV succeeds, not even that of the flags.
    let mut client = Client::connect(fresh.ports().kv);
    let by_flags = plain(super::USER, super::PASSWORD);
    client.call(&by_flags).is(Status::AUTH_ERROR);
    assert!(maps(&fresh).iter().all(|map| !map.contains("n1ql")));

    let asked = ClusterChange {
        stands_in_for: Some([StandIn::Query].into()),
        ..ClusterChange::default()
    };
    let before = fresh.state.global_map().revision;
    fresh.state.change_cluster(asked).unwrap();
    assert!(fresh.state.global_map().revision > before);
    let told = format!("\"n1ql\":{query}");
    let tells = |map: &String| map.contains(&told) && !map.contains("fts");
    assert!(maps(&fresh).iter().all(tells));
    let user = UserRecord {
        roles: [Grant::parse("admin").unwrap()].into(),
        password: Some(fresh.state.identity.verifier("ada", b"secret1")),
        ..UserRecord::default()
    };
    let mut edit = |directory: &mut identity::Directory| {
        directory.users.insert("ada", &user);
        true
    };
    fresh.state.change_users(&mut edit).unwrap();
    assert!(
        fresh.state.is_open(),
        "it has a user, and is not told to close"
    );
    let closes = ClusterChange {
        provisioned: true,
        ..ClusterChange::default()
    };
    fresh.state.change_cluster(closes).unwrap();
    assert!(!fresh.state.is_open());
    fresh.shutdown().unwrap();
    drop(fresh);

    let again = node(place.path(), true);
    assert!(!again.state.is_open());
    let told = format!("\"n1ql\":{}", again.ports().query.unwrap());
    assert!(maps(&again).iter().all(|map| map.contains(&told)));
    let mut client = Client::connect(again.ports().kv);
    client.call(&plain("ada", "secret1")).ok();
    again.shutdown().unwrap();
    drop(again);

    let plainly = node(place.path(), false);
    assert_eq!(plainly.ports().query, None);
    assert!(!plainly.state.is_open());
    assert!(maps(&plainly).iter().all(|map| !map.contains("n1ql")));
    let mut client = Client::connect(plainly.ports().kv);
    client.call(&by_flags).ok();
    plainly.shutdown().unwrap();
}

#[test]
fn a_lost_file_of_users_does_not_open_a_node() {
    let place = tempfile::tempdir().unwrap();
    let fresh = node(place.path(), true);
    let closes = ClusterChange {
        provisioned: true,
        ..ClusterChange::default()
    };
    fresh.state.change_cluster(closes).unwrap();
    fresh.shutdown().unwrap();
    drop(fresh);
    assert!(!place.path().join("users.json").exists());
    let again = node(place.path(), true);
    assert!(!again.state.is_open());
    again.shutdown().unwrap();
}
