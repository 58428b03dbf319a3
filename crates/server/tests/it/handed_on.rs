//! Tests of management at a node that follows another one.

use std::io::{Read, Write};
use std::net::TcpStream;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use server::Node;

use wire::Opcode;

use crate::client::{Client, PASSWORD, Request, USER, until};
use crate::place::{on_disk, own, replica_of};

/// Sends a request as a user, given as NAME:PASSWORD. Returns status and body.
pub(crate) fn asked(port: u16, method: &str, path: &str, form: &str, user: &str) -> (u16, String) {
    sent(port, method, path, form, &login(user))
}

fn login(user: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(user))
}

/// Sends a request with these lines in the head.
fn sent(port: u16, method: &str, path: &str, form: &str, lines: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = form.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{lines}\
         Connection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {length}\r\n\r\n{form}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

pub(crate) const BUCKETS: &str = "/pools/default/buckets";
const ANA: &str = "/settings/rbac/users/local/ana";

/// Starts a node and a follower. The follower learns the management address with the first map.
fn pair() -> (Node, Node) {
    let active = own();
    let follower = replica_of(active.ports().kv, None);
    let port = follower.ports().http;
    until("it knows where", || {
        asked(port, "GET", ANA, "", &admin()).0 == 404
    });
    (active, follower)
}

pub(crate) fn admin() -> String {
    format!("{USER}:{PASSWORD}")
}

#[test]
fn a_follower_forwards_management_and_returns_the_answer() {
    let (active, follower) = pair();
    let ports = (follower.ports().http, active.ports().http);
    let ask = |method: &str, path: &str, form: &str| asked(ports.0, method, path, form, &admin());
    let active_node_tells = |path: &str| asked(ports.1, "GET", path, "", &admin());

    let shop = format!("{BUCKETS}/shop");
    let form = "name=shop&ramQuotaMB=100&flushEnabled=1&bucketType=ephemeral";
    assert_eq!(ask("POST", BUCKETS, form).0, 202);
    for port in [ports.0, ports.1] {
        assert_eq!(asked(port, "GET", &shop, "", &admin()).0, 200);
        let list = asked(port, "GET", BUCKETS, "", &admin()).1;
        assert!(list.contains("\"shop\""), "{list}");
    }
    Client::ready(active.ports().kv).select("shop").ok();
    assert_eq!(ask("POST", &shop, "maxTTL=77").0, 200);
    assert!(active_node_tells(&shop).1.contains("\"maxTTL\":77"));
    let (status, why) = ask("POST", &shop, "maxTTL=-1");
    assert_eq!(status, 400);
    assert!(why.contains("maxTTL"), "{why}");
    let scopes = format!("{shop}/scopes");
    assert_eq!(ask("POST", &scopes, "name=goods").0, 200);
    assert_eq!(ask("GET", &scopes, "").1, active_node_tells(&scopes).1);
    assert_eq!(
        ask("POST", &format!("{shop}/controller/doFlush"), "").0,
        200
    );
    assert_eq!(ask("DELETE", &shop, "").0, 200);
    assert_eq!(active_node_tells(&shop).0, 404);

    // For a bucket that both have: settings, and collections without a redirect.
    let default = format!("{BUCKETS}/default");
    assert_eq!(ask("POST", &default, "flushEnabled=1").0, 200);
    assert!(active_node_tells(&default).1.contains("doFlush"));
    let scopes = format!("{default}/scopes");
    assert_eq!(ask("POST", &scopes, "name=goods").0, 200);
    assert!(active_node_tells(&scopes).1.contains("goods"));
    // Collections that the active node created are visible here at once.
    assert_eq!(
        asked(ports.1, "POST", &scopes, "name=there", &admin()).0,
        200
    );
    let told = ask("GET", &scopes, "");
    assert!(told.0 == 200 && told.1.contains("there"), "{told:?}");
    // Settings of the node itself are not forwarded.
    assert_eq!(ask("POST", "/settings/audit", "auditdEnabled=false").0, 200);

    active.shutdown().unwrap();
    let (status, why) = ask("POST", BUCKETS, "name=late&ramQuotaMB=100");
    assert_eq!(status, 503, "{why}");
    assert!(why.contains("follows another one"), "{why}");
    assert_eq!(ask("GET", BUCKETS, "").0, 200, "its own list");
    assert_eq!(ask("GET", &scopes, "").0, 200, "those that it has");
    let elsewhere = format!("{shop}/scopes");
    assert_eq!(
        ask("GET", &elsewhere, "").0,
        503,
        "of a bucket that it has not"
    );
    let wrong = asked(ports.0, "GET", &scopes, "", "ben:x");
    assert_eq!(wrong.0, 401);
    follower.shutdown().unwrap();
}

/// The active node checks the caller's credentials.
#[test]
fn users_created_at_a_follower_log_in_at_both_nodes() {
    let (active, follower) = pair();
    let (here, both) = (follower.ports().http, [&follower, &active]);
    let put = "password=secret&roles=data_reader[default]";
    assert_eq!(asked(here, "PUT", ANA, put, &admin()).0, 200);
    let as_ana = |path, form| asked(here, "POST", path, form, "ana:secret").0;
    assert_eq!(as_ana(BUCKETS, "name=mine&ramQuotaMB=100"), 403);
    assert_eq!(as_ana("/controller/changePassword", "password=sesame"), 200);
    for node in both {
        assert_eq!(whoami(node, "ana:sesame"), 200);
        assert_eq!(whoami(node, "ana:secret"), 401);
    }
    assert_eq!(asked(here, "DELETE", ANA, "", &admin()).0, 200);
    for node in both {
        assert_eq!(whoami(node, "ana:sesame"), 401);
    }
    assert_eq!(asked(here, "POST", BUCKETS, "name=x", "ben:x").0, 401);
    follower.shutdown().unwrap();
    active.shutdown().unwrap();
}

/// Returns the status of a request that needs nothing but a login at this node.
fn whoami(node: &Node, user: &str) -> u16 {
    asked(node.ports().http, "GET", "/whoami", "", user).0
}

/// Covers users, groups, roles and passwords; over a restart of the follower without its active node, and a promotion.
#[test]
fn users_of_the_active_node_are_those_of_its_followers() {
    let place = tempfile::tempdir().unwrap();
    let active = own();
    let there = active.ports().http;
    let change = |method, path: &str, form| asked(there, method, path, form, &admin()).0;
    let put = "password=secret&roles=data_reader[default]&groups=writers";
    let group = "/settings/rbac/groups/writers";
    assert_eq!(change("PUT", group, "roles=data_reader[default]"), 200);
    assert_eq!(change("PUT", ANA, put), 200);
    // A follower that had users of its own before.
    let before = on_disk(place.path());
    let old = "/settings/rbac/users/local/old";
    let port = before.ports().http;
    assert_eq!(
        asked(port, "PUT", old, "password=secret&roles=admin", &admin()).0,
        200
    );
    before.shutdown().unwrap();
    drop(before);
    let follower = replica_of(active.ports().kv, Some(place.path()));
    until("ana is there", || whoami(&follower, "ana:secret") == 200);
    assert_eq!(whoami(&follower, "old:secret"), 401);

    assert_eq!(change("PUT", group, "roles=admin"), 200);
    until("ana is an administrator", || {
        asked(
            follower.ports().http,
            "GET",
            "/settings/audit",
            "",
            "ana:secret",
        )
        .0 == 200
    });
    assert_eq!(change("PUT", ANA, "password=sesame&roles=admin"), 200);
    until("the password is the new one", || {
        whoami(&follower, "ana:sesame") == 200
    });
    assert_eq!(whoami(&follower, "ana:secret"), 401);

    let port = active.ports().kv;
    active.shutdown().unwrap();
    follower.shutdown().unwrap();
    drop(follower);
    let follower = replica_of(port, Some(place.path()));
    assert_eq!(
        whoami(&follower, "ana:sesame"),
        200,
        "kept without the active node"
    );
    let promote = Request::new(Opcode::IOCTL_SET).key("replication.promote");
    Client::ready(follower.ports().kv).call(&promote).ok();
    let here = follower.ports().http;
    let edit = |method, path, form| asked(here, method, path, form, "ana:sesame").0;
    assert_eq!(edit("PUT", "/settings/rbac/users/local/ben", put), 200);
    assert_eq!(whoami(&follower, "ben:secret"), 200);
    follower.shutdown().unwrap();
}

/// Nodes that take each other for the active one do not forward requests in a circle: the second one answers.
#[test]
fn a_forwarded_request_is_not_forwarded_again() {
    let active = own();
    let follower = replica_of(active.ports().kv, None);
    let here = follower.ports().http;
    let admin = admin();
    let mine = format!("{BUCKETS}/mine");
    let form = "name=mine&ramQuotaMB=100&bucketType=ephemeral";
    let marked = format!("{}Settee-Handed-On: 1\r\n", login(&admin));
    assert_eq!(sent(here, "POST", BUCKETS, form, &marked).0, 202);
    // A bucket of the follower's own is changed there.
    assert_eq!(asked(here, "POST", &mine, "maxTTL=9", &admin).0, 200);
    assert!(
        asked(here, "GET", &mine, "", &admin)
            .1
            .contains("\"maxTTL\":9")
    );
    assert_eq!(asked(active.ports().http, "GET", &mine, "", &admin).0, 404);
    follower.shutdown().unwrap();
    active.shutdown().unwrap();
}
