//! Management at a node that follows another one.

use std::io::{Read, Write};
use std::net::TcpStream;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use server::Node;

use crate::client::{Client, PASSWORD, USER};
use crate::place::{own, replica_of};
use crate::promotion::until;

/// The status and the body of an answer to a user, told as NAME:PASSWORD.
fn asked(port: u16, method: &str, path: &str, form: &str, user: &str) -> (u16, String) {
    sent(port, method, path, form, &login(user))
}

fn login(user: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(user))
}

/// The same with these lines in the head.
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

const BUCKETS: &str = "/pools/default/buckets";
const ANA: &str = "/settings/rbac/users/local/ana";

/// A node and one that follows it and knows where its management is, which it learns with the first map.
fn pair() -> (Node, Node) {
    let active = own();
    let follower = replica_of(active.ports().kv, None);
    let port = follower.ports().http;
    until("it knows where", || {
        asked(port, "GET", ANA, "", &admin()).0 == 404
    });
    (active, follower)
}

fn admin() -> String {
    format!("{USER}:{PASSWORD}")
}

#[test]
fn a_follower_hands_management_on_and_answers_as_the_active_node_did() {
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

    // Of the bucket that both have: settings, and collections without a redirect.
    let default = format!("{BUCKETS}/default");
    assert_eq!(ask("POST", &default, "flushEnabled=1").0, 200);
    assert!(active_node_tells(&default).1.contains("doFlush"));
    let scopes = format!("{default}/scopes");
    assert_eq!(ask("POST", &scopes, "name=goods").0, 200);
    assert!(active_node_tells(&scopes).1.contains("goods"));
    // What is the node's own stays here.
    assert_eq!(ask("POST", "/settings/audit", "auditdEnabled=false").0, 200);

    active.shutdown().unwrap();
    let (status, why) = ask("POST", BUCKETS, "name=late&ramQuotaMB=100");
    assert_eq!(status, 503, "{why}");
    assert!(why.contains("follows another one"), "{why}");
    assert_eq!(ask("GET", BUCKETS, "").0, 200, "its own list");
    follower.shutdown().unwrap();
}

/// With the caller's credentials, as the active node judges them.
#[test]
fn users_that_are_made_at_a_follower_log_in_at_both_nodes() {
    let (active, follower) = pair();
    let (here, both) = (follower.ports().http, [&follower, &active]);
    let put = "password=secret&roles=data_reader[default]";
    assert_eq!(asked(here, "PUT", ANA, put, &admin()).0, 200);
    let status = |port, user: &str| asked(port, "GET", "/whoami", "", user).0;
    let as_ana = |path, form| asked(here, "POST", path, form, "ana:secret").0;
    assert_eq!(as_ana(BUCKETS, "name=mine&ramQuotaMB=100"), 403);
    assert_eq!(as_ana("/controller/changePassword", "password=sesame"), 200);
    for node in both {
        assert_eq!(status(node.ports().http, "ana:sesame"), 200);
        assert_eq!(status(node.ports().http, "ana:secret"), 401);
    }
    assert_eq!(asked(here, "DELETE", ANA, "", &admin()).0, 200);
    for node in both {
        assert_eq!(status(node.ports().http, "ana:sesame"), 401);
    }
    assert_eq!(asked(here, "POST", BUCKETS, "name=x", "ben:x").0, 401);
    follower.shutdown().unwrap();
    active.shutdown().unwrap();
}

/// Nodes that take each other for the active one do not send requests round: the second one decides.
#[test]
fn a_request_that_was_handed_on_stays_where_it_arrives() {
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
