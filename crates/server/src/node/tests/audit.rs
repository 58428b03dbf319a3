//! Tests of audit events of clients, and of the audit configuration.

use std::fs;
use std::path::Path;

use identity::{Grant, UserRecord};
use registry::{BucketConfig, BucketKind};
use serde_json::{Value, json};
use tempfile::TempDir;
use wire::{Opcode, Status};

use super::client::{Client, Request, SDK, USER, hello, plain};
use super::{Waits, bucket, config, started};
use crate::config::{NodeConfig, StartError};
use crate::node::Node;

const ALL: [u32; 7] = [20485, 20488, 20489, 20490, 20491, 20492, 20493];

/// A node on a directory; its audit log goes to another one.
struct Audited {
    dir: TempDir,
    node: Node,
}

impl Audited {
    fn config(dir: &TempDir) -> NodeConfig {
        let kept = BucketConfig {
            kind: BucketKind::Couchbase,
            ..bucket("default")
        };
        config(Some(&dir.path().join("data")), vec![kept])
    }

    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("log")).unwrap();
        let node = started(&Self::config(&dir), Waits::default());
        Self { dir, node }
    }

    /// Writes a minimal configuration with these additional fields, and makes the node read it.
    fn configure(&self, more: &Value) {
        let states = ALL.map(|id| (id.to_string(), json!("enabled")));
        let mut file = json!({
            "version": 2, "uuid": "u", "auditd_enabled": true, "log_path": self.dir.path().join("log"),
            "event_states": serde_json::Map::from_iter(states),
        });
        for (name, value) in more.as_object().unwrap() {
            file[name] = value.clone();
        }
        self.write(&file.to_string());
        let mut client = Client::logged_in(self.port(), &SDK);
        client.call(&Request::new(Opcode::AUDIT_CONFIG_RELOAD)).ok();
    }

    fn write(&self, text: &str) {
        fs::write(self.dir.path().join("data/audit.json"), text).unwrap();
    }

    fn port(&self) -> u16 {
        self.node.ports().kv
    }

    fn add_user(&self, name: &str, role: &str) {
        let identity = &self.node.state().identity;
        let mut directory = (*identity.directory()).clone();
        let record = UserRecord {
            roles: [Grant::parse(role).unwrap()].into(),
            password: Some(identity.verifier(name, b"password")),
            ..UserRecord::default()
        };
        directory.users.insert(name, &record);
        identity.replace_directory(directory);
    }

    /// Stops the node, and returns its events without those of the audit itself.
    fn events(self) -> Vec<Value> {
        self.node.shutdown().unwrap();
        let mut events = recorded(&self.dir.path().join("log"));
        events.retain(|event| event["id"].as_u64() > Some(4097));
        events
    }
}

pub(super) fn recorded(place: &Path) -> Vec<Value> {
    let entries = fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| !path.is_symlink()).collect();
    files.sort();
    let text: String = files
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns number, user and key of an event.
fn brief(event: &Value) -> (u64, &str, &str) {
    let user = event["real_userid"]["user"].as_str().unwrap();
    (
        event["id"].as_u64().unwrap(),
        user,
        event["key"].as_str().unwrap_or(""),
    )
}

fn set(key: &str) -> Request {
    Request::new(Opcode::SET)
        .key([b"\0", key.as_bytes()].concat())
        .extras(&[0; 8])
        .value("{}")
}

fn of(opcode: Opcode, key: &str) -> Request {
    Request::new(opcode).key([b"\0", key.as_bytes()].concat())
}

#[test]
fn operations_on_documents_are_recorded_when_they_are_done() {
    let audited = Audited::start();
    let mut client = Client::ready(audited.port());
    audited.configure(&json!({}));
    client.call(&set("k")).ok();
    client.call(&of(Opcode::GET, "k")).ok();
    client
        .call(&of(Opcode::GET, "missing"))
        .is(Status::KEY_ENOENT);
    let quiet = [
        of(Opcode::GETQ, "missing"),
        of(Opcode::GETKQ, "k"),
        Request {
            opcode: Opcode::SETQ,
            ..set("q")
        },
    ];
    client.pipeline(&quiet);
    client.answer().ok();
    client
        .call(&of(Opcode::ADD, "k").extras(&[0; 8]))
        .is(Status::KEY_EEXISTS);
    // A durable write is recorded when it is decided. A bucket on one node needs no other node for a majority.
    client.call(&set("d").infos(&[0x11, 1])).ok();
    let parts: [&[u8]; 2] = [b"\xc5\0\0\x01a", b"\xc9\0\0\x01\0\0\0\0a"];
    let partly = client.call(&of(Opcode::SUBDOC_MULTI_LOOKUP, "k").value(parts[0]));
    assert_eq!(partly.status, Status::SUBDOC_MULTI_PATH_FAILURE);
    let partly = client.call(&of(Opcode::SUBDOC_MULTI_MUTATION, "k").value(parts[1]));
    assert_eq!(partly.status, Status::SUBDOC_MULTI_PATH_FAILURE);
    client.call(&of(Opcode::GET_LOCKED, "k")).ok();
    client.call(&of(Opcode::DELETE, "q")).ok();
    drop(client);
    let events = audited.events();
    let mut events: Vec<_> = events.iter().map(brief).collect();
    events.retain(|event| (20488..=20491).contains(&event.0));
    let expected = [
        (20490, USER, "k"),
        (20488, USER, "k"),
        (20488, USER, "k"),
        (20490, USER, "q"),
        (20490, USER, "d"),
        (20488, USER, "k"),
        (20489, USER, "k"),
        (20491, USER, "q"),
    ];
    assert_eq!(events, expected);
}

/// Each document in an answer counts as read, whatever key the request has.
#[test]
fn documents_that_come_unnamed_are_recorded_as_read() {
    let audited = Audited::start();
    let mut client = Client::ready(audited.port());
    client
        .call(&Request::new(Opcode::GET_RANDOM_KEY))
        .is(Status::KEY_ENOENT);
    client.call(&set("k")).ok();
    client.call(&set("l")).ok();
    audited.configure(&json!({}));
    let random = client.call(&Request::new(Opcode::GET_RANDOM_KEY)).ok();
    let random = String::from_utf8(random.key[1..].to_vec()).unwrap();
    for key_only in [true, false] {
        let ask = json!({ "range": { "start": "AA==", "end": "/w==" }, "key_only": key_only });
        let create = Request::new(Opcode::RANGE_SCAN_CREATE).datatype(1);
        let id = client.call(&create.value(ask.to_string())).ok().value;
        let extras = [&id[..], &[0; 12]].concat();
        let rows = Request::new(Opcode::RANGE_SCAN_CONTINUE).extras(&extras);
        assert_eq!(client.call(&rows).status, Status::RANGE_SCAN_COMPLETE);
    }
    drop(client);
    let events = audited.events();
    let read = events.iter().filter(|event| event["id"] == 20488);
    let keys: Vec<_> = read.map(|event| brief(event).2).collect();
    assert_eq!(keys, [&random, "k", "l", "k", "l"]);
}

#[test]
fn conversations_are_recorded_from_the_login_to_the_end() {
    let audited = Audited::start();
    audited.add_user("ada", "data_reader[default]");
    audited.configure(
        &json!({ "event_states": { "20485": "enabled", "20492": "enabled", "20493": "enabled" } }),
    );
    let mut client = Client::connect(audited.port());
    client.hello(&SDK).ok();
    client.call(&plain("ada", "wrong")).is(Status::AUTH_ERROR);
    client.call(&plain("ada", "password")).ok();
    client.select("default").ok();
    client.select("other").is(Status::EACCESS);
    client.call(&set("k")).is(Status::EACCESS);
    client.send(&[0xff; 24]);
    client.expect_end();
    let mut admin = Client::ready(audited.port());
    admin
        .call(
            &Request::new(Opcode::DCP_OPEN)
                .key("stream")
                .extras(&[0, 0, 0, 0, 0, 0, 0, 1]),
        )
        .ok();
    let local = audited.port();
    let events = audited.events();
    let ada = events
        .iter()
        .filter(|event| event["real_userid"]["user"] == "ada");
    let ada: Vec<&Value> = ada.collect();
    let ids: Vec<u64> = ada
        .iter()
        .map(|event| event["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, [20481, 20485, 20492, 20484, 20484, 20483, 20493]);
    assert_eq!(ada[0]["reason"], "authentication failed");
    assert_eq!(ada[2]["bucket"], "default");
    let packet = ada[4]["packet"].as_str().unwrap();
    assert!(
        packet.starts_with("8001") && packet.ends_with("006b7b7d"),
        "{packet}"
    );
    assert_eq!(ada[5]["packet"], "ff".repeat(24));
    assert_eq!(ada[6]["reason_for_termination"], "invalid packet");
    for event in &ada {
        assert_eq!(event["local"], json!({ "ip": "127.0.0.1", "port": local }));
        assert_eq!(event["remote"]["ip"], "127.0.0.1");
        assert_eq!(event["real_userid"]["domain"], "local");
    }
    let opened = events.iter().find(|event| event["id"] == 20480).unwrap();
    assert_eq!(
        (&opened["bucket"], brief(opened).1),
        (&json!("default"), USER)
    );
}

#[test]
fn users_are_left_out_and_both_users_of_an_impersonation_are_named() {
    let audited = Audited::start();
    audited.add_user("ada", "admin");
    audited.add_user("bob", "data_reader[default]");
    let users = json!([{ "domain": "local", "user": USER }]);
    audited.configure(&json!({ "filtering_enabled": true, "disabled_userids": users }));
    let mut admin = Client::ready(audited.port());
    admin.call(&set("k")).ok();
    let mut client = Client::connect(audited.port());
    client.call(&hello(&SDK)).ok();
    client.call(&plain("ada", "password")).ok();
    client.select("default").ok();
    // A frame info of kind 4 with a name of three bytes.
    client
        .call(&of(Opcode::GET, "k").infos(&[0x43, b'b', b'o', b'b']))
        .ok();
    client.call(&of(Opcode::GET, "k")).ok();
    let events = audited.events();
    let reads: Vec<&Value> = events.iter().filter(|event| event["id"] == 20488).collect();
    assert!(
        events.iter().all(|event| event["id"] != 20490),
        "by the one that is left out"
    );
    assert_eq!(reads.len(), 2);
    assert_eq!(brief(reads[0]).1, "ada");
    assert_eq!(
        reads[0]["effective_userid"],
        json!({ "domain": "local", "user": "bob" })
    );
    assert_eq!(reads[1]["effective_userid"], Value::Null);
}

#[test]
fn clients_add_own_events() {
    let audited = Audited::start();
    let mut client = Client::logged_in(audited.port(), &SDK);
    let put = |id: u32, value: &str| {
        Request::new(Opcode::AUDIT_PUT)
            .extras(&id.to_be_bytes())
            .value(value)
    };
    client.call(&put(1, "anything")).ok();
    audited.configure(&json!({}));
    client.call(&put(1, "{}")).is(Status::EINVAL);
    let missing = client.call(&put(20484, "{}")).is(Status::EINVAL);
    assert_eq!(
        missing.context(),
        r#"{"missing_elements":["real_userid","timestamp"]}"#
    );
    let event = json!({ "timestamp": "t", "real_userid": { "domain": "external", "user": "x" }, "more": 1 });
    client.call(&put(20484, &event.to_string())).ok();
    let events = audited.events();
    let brought = events.iter().find(|event| event["id"] == 20484).unwrap();
    assert_eq!(brought["more"], 1);
    assert_eq!(brought["name"], "command access failure");
}

#[test]
fn a_configuration_holds_over_restarts_and_a_wrong_one_is_refused() {
    let audited = Audited::start();
    audited.configure(&json!({ "rotate_size": 12345 }));
    let mut client = Client::logged_in(audited.port(), &SDK);
    audited.write(r#"{"version":2,"odd":1}"#);
    let refused = client
        .call(&Request::new(Opcode::AUDIT_CONFIG_RELOAD))
        .is(Status::EINVAL);
    assert!(
        refused.context().contains("audit.json: unknown field"),
        "{}",
        refused.text()
    );
    let elsewhere = audited.dir.path().join("elsewhere");
    let moved = audit::Settings::new(elsewhere.clone()).to_file();
    audited.write(&moved);
    let refused = client
        .call(&Request::new(Opcode::AUDIT_CONFIG_RELOAD))
        .is(Status::EINVAL);
    let reason = format!(
        "log_path: the directory {} does not exist",
        elsewhere.display()
    );
    assert!(refused.context().contains(&reason), "{}", refused.text());
    assert_eq!(audited.node.state().audit.settings().rotate_size, 12345);
    audited.write(r#"{"version":2,"odd":1}"#);
    let Audited { dir, node } = audited;
    node.shutdown().unwrap();
    match Node::start(Audited::config(&dir)) {
        Err(StartError::DataFormat(line)) => assert!(line.contains("audit.json"), "{line}"),
        other => panic!("{:?}", other.map(|_| ())),
    }
    let settings = audit::Settings {
        enabled: true,
        ..audit::Settings::new(dir.path().join("log"))
    };
    fs::write(dir.path().join("data/audit.json"), settings.to_file()).unwrap();
    let node = started(&Audited::config(&dir), Waits::default());
    assert!(node.state().audit.is_on());
    node.shutdown().unwrap();
    let events = recorded(&dir.path().join("log"));
    let count = |id| events.iter().filter(|event| event["id"] == id).count();
    assert_eq!((count(4096), count(4097)), (2, 2), "begun and ended twice");
}

#[test]
fn an_unwritable_log_counts_lost_events_and_delays_nothing() {
    let audited = Audited::start();
    let mut client = Client::ready(audited.port());
    audited.configure(&json!({ "log_path": "/proc" }));
    for number in 0..100 {
        client.call(&set(&number.to_string())).ok();
    }
    let recorder = std::sync::Arc::clone(&audited.node.state().audit);
    let stats = client.stats("audit");
    assert_eq!(stats["enabled"], "true");
    assert!(stats.contains_key("dropped_events"));
    drop(client);
    audited.node.shutdown().unwrap();
    assert!(recorder.dropped() >= 100, "{}", recorder.dropped());
}
