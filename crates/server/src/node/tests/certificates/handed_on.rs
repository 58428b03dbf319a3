//! Tests of callers with certificates at a node that follows another one over TLS, and of requests on behalf of others.

use super::super::audit::recorded;
use super::super::client::until;
use super::super::client::{PASSWORD, USER as ADMINISTRATOR};
use super::http::https;
use super::*;

const BUCKETS: &str = "/pools/default/buckets";
const SHOP: &str = "name=shop&ramQuotaMB=100&bucketType=ephemeral";

fn request(method: &str, path: &str, form: &str, more: &str) -> String {
    let length = form.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
    )
}

/// Starts a node over TLS, and a follower that has an authority of clients and logs in with a password.
fn pair(password: &str) -> (Node, Certified) {
    let active = NodeConfig {
        kv_tls_port: Some(0),
        https_port: Some(0),
        ..config(None, vec![bucket("default")])
    };
    let active = started(&active, Waits::default());
    let place = tempfile::tempdir().unwrap();
    let authority = Authority::new("clients");
    std::fs::write(place.path().join("clients.pem"), authority.pem()).unwrap();
    let ca = place.path().join("active.pem");
    std::fs::write(&ca, &*active.authority().unwrap()).unwrap();
    let mut follower = settings(place.path(), Some(CertificateState::Enable));
    follower.replica_of = Some(crate::ReplicaOf {
        host: "127.0.0.1".into(),
        port: active.ports().kv_tls.unwrap(),
        username: ADMINISTRATOR.into(),
        password: password.into(),
        bucket: "default".into(),
        tls: Some(tls::Trust {
            ca: Some(ca),
            ..tls::Trust::default()
        }),
        demote: false,
    });
    let node = started(&follower, Waits::default());
    let follower = Certified {
        place,
        authority,
        node,
    };
    (active, follower)
}

fn make_user(node: &Node, name: &str, role: &str) {
    let user = UserRecord {
        roles: [Grant::parse(role).unwrap()].into(),
        ..UserRecord::default()
    };
    let mut edit = |directory: &mut Directory| {
        directory.users.insert(name, &user);
        true
    };
    node.state.change_users(&mut edit).unwrap();
}

/// Both nodes apply the rights of the certificate's user to its caller.
#[test]
fn a_caller_with_a_certificate_is_handed_on_as_its_user() {
    let (active, follower) = pair(PASSWORD);
    make_user(&active, "boss", "admin");
    make_user(&active, "ada", "data_reader[default]");
    let edition = active.state.identity.edition();
    until("it has the users", || {
        follower.node.state.identity.edition() == edition
    });
    let (boss, ada) = (follower.of("boss"), follower.ada());
    let ask = |made: Option<&Made>, request: &str| https(&follower, made, request).unwrap();
    let shop = request("POST", BUCKETS, SHOP, "");
    assert_eq!(ask(Some(&ada), &shop).0, 403);
    let (status, why) = ask(Some(&boss), &shop);
    assert_eq!(status, 202, "{why}");
    assert!(active.state.bucket("shop").is_some());
    // Without a certificate the credentials are forwarded, over TLS as well.
    let login = STANDARD.encode(format!("{ADMINISTRATOR}:{PASSWORD}"));
    let login = format!("Authorization: Basic {login}\r\n");
    let (status, list) = ask(None, &request("GET", BUCKETS, "", &login));
    assert!(status == 200 && list.contains("\"shop\""), "{list}");
    let put = request(
        "PUT",
        "/settings/rbac/users/local/ben",
        "password=secret&roles=admin",
        "",
    );
    assert_eq!(ask(Some(&ada), &put).0, 403);
    assert_eq!(ask(Some(&boss), &put).0, 200);
    for node in [&active, &follower.node] {
        assert!(node.state.identity.authenticate("ben", b"secret").is_some());
    }
    active.shutdown().unwrap();
    let (status, why) = ask(Some(&boss), &shop);
    assert!(
        status == 503 && why.contains("follows another one"),
        "{why}"
    );
    follower.node.shutdown().unwrap();
}

/// Only full administrators may do so; audit events name both users.
#[test]
fn administrators_ask_on_behalf_of_others() {
    let served = Certified::start(CertificateState::Enable);
    let log = served.place.path().join("log");
    std::fs::create_dir(&log).unwrap();
    let mut audit = served.node.state.audit().settings().as_ref().clone();
    audit.enabled = true;
    audit.log_path.clone_from(&log);
    served.node.state.change_audit(audit).unwrap();
    let (boss, ada) = (served.of("boss"), served.ada());
    make_user(&served.node, "boss", "admin");
    make_user(&served.node, "chief", "admin");
    let ask = |made: &Made, behalf: &str, (method, path, form): (&str, &str, &str)| {
        let behalf = format!("cb-on-behalf-of: {}\r\n", STANDARD.encode(behalf));
        https(&served, Some(made), &request(method, path, form, &behalf)).unwrap()
    };
    let whoami = ("GET", "/whoami", "");
    let (status, told) = ask(&boss, "ada:local", whoami);
    assert!(status == 200 && told.contains("\"ada\""), "{told}");
    let group = ("PUT", "/settings/rbac/groups/g", "roles=admin");
    assert_eq!(ask(&boss, "ada:local", group).0, 403);
    assert_eq!(ask(&boss, "chief:local", group).0, 200);
    assert_eq!(ask(&ada, "boss:local", whoami).0, 403);
    assert_eq!(ask(&boss, "none:local", whoami).0, 403);
    assert_eq!(ask(&boss, "ada:external", whoami).0, 400);
    served.node.shutdown().unwrap();
    let events = recorded(&log);
    let set = events
        .iter()
        .find(|event| event["group_name"] == "g")
        .unwrap();
    let users = ["real_userid", "effective_userid"].map(|which| &set[which]["user"]);
    assert_eq!(users, ["boss", "chief"]);
}
