//! Tests of users from management: over a restart, and their changes during open connections.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use identity::{Directory, Grant, UserRecord};
use management::NodeView as _;
use wire::{Opcode, Status};

use super::client::{Client, Request, SDK, hello, plain, set};
use super::{Node, Waits, bucket, config, started};
use crate::config::StartError;

const USER: &str = "ada";

fn node(data_dir: Option<&Path>) -> Node {
    started(&config(data_dir, vec![bucket("default")]), Waits::default())
}

fn change(node: &Node, mut edit: impl FnMut(&mut Directory)) {
    let mut edit = |directory: &mut Directory| {
        edit(directory);
        true
    };
    node.state.change_users(&mut edit).unwrap();
}

/// Creates the user, or replaces its roles and password.
fn make_user(node: &Node, password: &str, role: &str) {
    let verifier = node.state.identity.verifier(USER, password.as_bytes());
    change(node, |directory| {
        let user = UserRecord {
            roles: [Grant::parse(role).unwrap()].into(),
            password: Some(verifier.clone()),
            ..UserRecord::default()
        };
        directory.users.insert(USER, &user);
    });
}

fn logged_in(node: &Node, password: &str) -> Client {
    let mut client = Client::connect(node.ports().kv);
    client.call(&hello(&SDK)).ok();
    client.call(&plain(USER, password)).ok();
    client.select("default").ok();
    client
}

fn get(key: &str) -> Request {
    Request::of(Opcode::GET, key)
}

#[test]
fn users_outlive_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let node_a = node(Some(place.path()));
    assert!(!place.path().join("users.json").exists());
    make_user(&node_a, "secret1", "data_reader[default]");
    node_a.shutdown().unwrap();
    drop(node_a);
    let node_b = node(Some(place.path()));
    let mut client = logged_in(&node_b, "secret1");
    client.call(&get("a")).is(Status::KEY_ENOENT);
    client.call(&set("a", "1")).is(Status::EACCESS);
    node_b.shutdown().unwrap();
}

#[test]
fn a_damaged_file_of_users_refuses_the_start() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("users.json");
    let node_a = node(Some(place.path()));
    make_user(&node_a, "secret1", "admin");
    node_a.shutdown().unwrap();
    drop(node_a);
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let config = config(Some(place.path()), vec![bucket("default")]);
    match Node::start_with(&config, Waits::default()) {
        Err(StartError::DataFormat(line)) => {
            assert!(line.contains("users.json: damaged"), "{line}");
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
    std::fs::write(&file, whole).unwrap();
    node(Some(place.path())).shutdown().unwrap();
}

#[test]
fn a_role_that_is_taken_away_counts_on_open_connections() {
    let node = node(None);
    make_user(&node, "secret1", "data_writer[default]");
    let mut client = logged_in(&node, "secret1");
    client.call(&set("a", "1")).ok();
    client.call(&get("a")).is(Status::EACCESS);
    make_user(&node, "secret1", "data_reader[default]");
    client.call(&set("a", "2")).is(Status::EACCESS);
    assert_eq!(client.call(&get("a")).ok().value, b"1");
    change(&node, |directory| {
        directory.users = identity::Users::default();
    });
    client.call(&get("a")).is(Status::EACCESS);
    let mut again = Client::connect(node.ports().kv);
    again.call(&plain(USER, "secret1")).is(Status::AUTH_ERROR);
    node.shutdown().unwrap();
}

#[test]
fn a_password_that_is_changed_counts_for_the_next_login() {
    let node = node(None);
    make_user(&node, "secret1", "data_reader[default]");
    let mut client = logged_in(&node, "secret1");
    make_user(&node, "secret2", "data_reader[default]");
    client.call(&get("a")).is(Status::KEY_ENOENT);
    let mut again = Client::connect(node.ports().kv);
    again.call(&plain(USER, "secret1")).is(Status::AUTH_ERROR);
    logged_in(&node, "secret2");
    node.shutdown().unwrap();
}

#[test]
fn a_stream_of_changes_ends_with_the_right_to_it() {
    let node = node(None);
    make_user(&node, "secret1", "data_reader[default]");
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", node.ports().http)).unwrap();
        let login = STANDARD.encode(format!("{USER}:secret1"));
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let all = |mut stream: TcpStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let refused = all(ask("/changes/default"));
    assert!(refused.contains("403 Forbidden"), "{refused}");
    make_user(&node, "secret1", "data_dcp_reader[default:_default]");
    let refused = all(ask("/changes/default"));
    assert!(refused.contains("403 Forbidden"), "{refused}");
    let mut stream = ask("/changes/default?scope=_default");
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.0 200");
    change(&node, |directory| {
        directory.users = identity::Users::default();
    });
    all(stream);
    node.shutdown().unwrap();
}

/// Password verifiers leave the node only for users that may become any other user anyway.
#[test]
fn only_full_administrators_get_the_roster() {
    let node = node(None);
    make_user(&node, "secret1", "cluster_admin");
    let asked = |client: &mut Client, edition: u64| {
        let question = Request::new(Opcode::IOCTL_SET).key("replication.users");
        client.call(&question.value(edition.to_string()))
    };
    let mut client = logged_in(&node, "secret1");
    let refused = asked(&mut client, 0);
    assert!(refused.context().contains("Administrator"));
    refused.is(Status::EACCESS);

    make_user(&node, "secret1", "admin");
    let told = asked(&mut client, 0).ok();
    let told: identity::Roster = serde_json::from_slice(&told.value).unwrap();
    assert_eq!(told, node.state.identity.roster());
    assert!(told.directory.users.get(USER).is_some());
    assert!(asked(&mut client, told.edition).ok().value.is_empty());
    let question = Request::new(Opcode::IOCTL_SET).key("replication.users");
    client.call(&question.value("new")).is(Status::EINVAL);
    node.shutdown().unwrap();
}
