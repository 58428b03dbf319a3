//! Tests of the statistics of a running node, over its sockets.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use model::VbId;
use registry::cluster::ClusterMember;
use registry::fake_member::FakeMember;
use registry::{BucketConfig, BucketKind};
use serde_json::json;
use stats::{StatScope, collect_part, groups, keys_of, stats_page};
use tempfile::TempDir;

use super::{Node, Waits, bucket, config, started};
use crate::config::NodeConfig;

const STAT: u8 = 0x10;
const SUCCESS: u16 = 0;

struct RunningWorker {
    node: Node,
    _dir: TempDir,
}

impl RunningWorker {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let bucket = BucketConfig {
            quota_bytes: 128 << 20,
            kind: BucketKind::Couchbase,
            eviction: registry::EvictionPolicy::Values,
            ..bucket("default")
        };
        let config = NodeConfig {
            username: "admin".into(),
            password: "secret".into(),
            threads: 2,
            ..config(Some(&dir.path().join("data")), vec![bucket])
        };
        let node = started(&config, Waits::default());
        Self { node, _dir: dir }
    }

    /// Returns a classic client that is logged in and has selected the bucket.
    fn client(&self) -> Client {
        let mut client = Client::connect(self.node.ports().kv);
        assert_eq!(
            client.call(0x21, &[], b"PLAIN", b"\0admin\0secret"),
            SUCCESS
        );
        client
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.node.ports().http)).unwrap();
        let login = base64::engine::general_purpose::STANDARD.encode("admin:secret");
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body.to_owned()
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.node.shutdown().unwrap();
    }
}

struct Client(TcpStream);

struct Answer {
    status: u16,
    key: String,
    value: String,
}

type Rows = BTreeMap<String, String>;

impl Client {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
        Self(stream)
    }

    fn send(&mut self, opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) {
        self.send_to(0, opcode, [extras, key, value]);
    }

    fn send_to(&mut self, vb: u16, opcode: u8, parts: [&[u8]; 3]) {
        self.send_with_cas((vb, 0), opcode, parts);
    }

    fn send_with_cas(&mut self, (vb, cas): (u16, u64), opcode: u8, parts: [&[u8]; 3]) {
        let [extras, key, value] = parts;
        let mut frame = vec![0x80, opcode];
        frame.extend((key.len() as u16).to_be_bytes());
        frame.extend([extras.len() as u8, 0]);
        frame.extend(vb.to_be_bytes());
        frame.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(cas.to_be_bytes());
        for part in parts {
            frame.extend(part);
        }
        self.0.write_all(&frame).unwrap();
    }

    fn receive(&mut self) -> Answer {
        let mut header = [0; 24];
        self.0.read_exact(&mut header).unwrap();
        let word = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let mut body = vec![0; length as usize];
        self.0.read_exact(&mut body).unwrap();
        let key_at = usize::from(header[4]);
        let value_at = key_at + word(2);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Answer {
            status: word(6) as u16,
            key: text(&body[key_at..value_at]),
            value: text(&body[value_at..]),
        }
    }

    fn call(&mut self, opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> u16 {
        self.send(opcode, extras, key, value);
        self.receive().status
    }

    fn set(&mut self, key: &str, value: &str) {
        let status = self.call(0x01, &[0; 8], key.as_bytes(), value.as_bytes());
        assert_eq!(status, SUCCESS, "set {key}");
    }

    /// Returns the rows, or the status of the refusal.
    fn try_rows(&mut self, request: &str) -> Result<Vec<(String, String)>, u16> {
        self.send(STAT, &[], request.as_bytes(), &[]);
        let mut rows = Vec::new();
        loop {
            let answer = self.receive();
            if answer.status != SUCCESS {
                return Err(answer.status);
            }
            if answer.key.is_empty() && answer.value.is_empty() {
                return Ok(rows);
            }
            rows.push((answer.key, answer.value));
        }
    }

    fn rows(&mut self, request: &str) -> Rows {
        let rows = self.try_rows(request).unwrap();
        let count = rows.len();
        let rows: Rows = rows.into_iter().collect();
        assert_eq!(rows.len(), count, "{request}: a key occurs twice");
        rows
    }
}

fn vb_of(key: &str) -> u16 {
    VbId::of_key(key.as_bytes(), 1024).0
}

/// Converts a key to its form in the catalogue: numbers become `N`, names of opcodes `OP`.
fn fold(group: &str, key: &str) -> String {
    let mut folded = String::new();
    for c in key.chars() {
        if !c.is_ascii_digit() {
            folded.push(c);
        } else if !folded.ends_with('N') {
            folded.push('N');
        }
    }
    let folded = folded.replace("Nx", "0x").replace("_vN_", "_v5_");
    if let ("dcpagg", Some(at)) = (group, folded.rfind(':')) {
        return format!("NAME{}", &folded[at..]);
    }
    for state in ["active", "replica", "pending"] {
        if let Some(rest) = folded.strip_prefix(&format!("vb_{state}_")) {
            return format!("vb_STATE_{rest}");
        }
    }
    match folded.find("_cmd_") {
        Some(at) if group == "timings" => format!("OP{}", &folded[at..]),
        _ => folded,
    }
}

#[test]
fn rows_and_the_catalogue_match() {
    let running = RunningWorker::start();
    let mut client = running.client();
    client.set("one", "1");
    let collections = r#"[{"name":"_default","uid":"0"},{"name":"c","uid":"8","maxTTL":9}]"#;
    let manifest = format!(
        r#"{{"uid":"1","scopes":[{{"name":"_default","uid":"0","collections":{collections}}}]}}"#
    );
    assert_eq!(client.call(0xb9, &[], b"", manifest.as_bytes()), SUCCESS);
    let mut consumer = running.client();
    assert_eq!(
        consumer.call(0x50, &[0, 0, 0, 0, 0, 0, 0, 1], b"NAME", b""),
        SUCCESS
    );
    let mut for_ever = [0; 48];
    for_ever[16..24].fill(0xff);
    assert_eq!(consumer.call(0x53, &for_ever, b"", b""), SUCCESS);
    let topology = br#"{"topology":[["NODE"]]}"#;
    assert_eq!(client.call(0x3d, &[1], b"", topology), SUCCESS);
    let mut inbound = running.client();
    assert_eq!(inbound.call(0x1f, &[], b"it", &[0, 0x12]), SUCCESS);
    assert_eq!(inbound.call(0x89, &[], b"default", b""), SUCCESS);
    assert_eq!(inbound.call(0x50, &[0; 8], b"CONSUMER", b""), SUCCESS);
    let one = vb_of("one");
    let member: Arc<dyn ClusterMember> = FakeMember::new(1);
    assert!(running.node.state.registry.cluster.set(member).is_ok());
    // Range scans: `it/scans.rs`.
    let silent = ["reset", "range-scans"];
    for group in groups().filter(|group| !silent.contains(group)) {
        let request = match group {
            "key" | "vkey" => format!("{group} one {one}"),
            "key-byid" | "vkey-byid" => format!("{group} one {one} 0"),
            "collections-byid" => "collections-byid 0x8".to_owned(),
            "scopes-byid" => "scopes-byid 0".to_owned(),
            "dcp-vbtakeover" => "dcp-vbtakeover 0 NAME".to_owned(),
            name => name.to_owned(),
        };
        let known = keys_of(group);
        assert!(!known.is_empty(), "{request}");
        let mut shown: Vec<String> = Vec::new();
        for (key, _) in client.try_rows(&request).unwrap() {
            shown.push(fold(group, &key));
        }
        if group == "diskinfo" {
            let detail = client.try_rows("diskinfo detail").unwrap();
            shown.extend(detail.iter().map(|(key, _)| fold(group, key)));
        }
        for key in &shown {
            assert!(
                known.contains(key),
                "{request}: {key} is not in the catalogue"
            );
        }
        for key in &known {
            assert!(shown.contains(key), "{request}: {key} is not shown");
        }
    }
}

/// An edit of a part of a document is refused as a write of all of it is.
#[test]
fn refused_changes_are_counted_by_their_reason() {
    // Also the answer for a lock, without HELLO.
    let exists = 0x02;
    // Of the edit: length of the path, flags of the path; and flags of the document: it is added.
    let edit: (u8, &[u8], &[u8]) = (0xc8, &[0, 1, 0], b"k1");
    let add_by_edit: (u8, &[u8], &[u8]) = (0xc8, &[0, 1, 0, 0x02], b"k1");
    let set: (u8, &[u8], &[u8]) = (0x01, &[0; 8], b"1");
    let add: (u8, &[u8], &[u8]) = (0x02, &[0; 8], b"1");
    let running = RunningWorker::start();
    let mut client = running.client();
    client.set("a", "{}");
    let mut refused = |cas, (opcode, extras, value), reason| {
        client.send_with_cas((0, cas), opcode, [extras, b"a", value]);
        assert_eq!(client.receive().status, reason, "{opcode:#x}");
    };
    for change in [set, edit] {
        refused(77, change, exists);
    }
    for addition in [add, add_by_edit] {
        refused(0, addition, exists);
    }
    refused(0, (0x94, &[], b""), SUCCESS);
    for change in [set, edit] {
        refused(0, change, exists);
    }
    let rows = client.rows("");
    let counts = ["cas_badval", "lock_errors", "total_resp_errors"].map(|key| &*rows[key]);
    assert_eq!(counts, ["2", "2", "6"]);
}

#[test]
fn totals_match_the_operations() {
    let running = RunningWorker::start();
    let mut client = running.client();
    for key in ["a", "b", "c"] {
        client.set(key, "12345");
    }
    client.set("a", "54321");
    assert_eq!(client.call(0x04, &[], b"b", &[]), SUCCESS, "delete");
    assert_eq!(client.call(0x00, &[], b"a", &[]), SUCCESS, "get");
    assert_eq!(client.call(0x00, &[], b"none", &[]), 0x01, "a miss");
    let rows = client.rows("");
    let expected = [
        ("get_hits", "1"),
        ("get_misses", "1"),
        ("delete_hits", "1"),
        ("total_resp_errors", "1"),
        ("curr_items", "2"),
        ("curr_items_tot", "2"),
        ("ep_num_deleted_items", "1"),
        ("ep_total_new_items", "3"),
        ("ep_total_updated_items", "1"),
        ("ep_total_del_items", "1"),
        ("vb_active_num", "1024"),
        ("vb_replica_num", "0"),
        ("vb_active_perc_mem_resident", "100"),
        ("ep_total_enqueued", "5"),
        ("ep_bucket_type", "persistent"),
        ("ep_flusher_state", "running"),
        ("ep_degraded_mode", "false"),
        ("ep_max_size", "134217728"),
        ("curr_connections", "1"),
        ("threads", "2"),
        ("cmd_set", "4"),
        ("cmd_get", "2"),
        ("cmd_mutation", "5"),
    ];
    for (key, value) in expected {
        assert_eq!(rows.get(key).map(String::as_str), Some(value), "{key}");
    }
    let used: u64 = rows["mem_used"].parse().unwrap();
    let parts: u64 = ["ep_kv_size", "ep_overhead"]
        .map(|key| rows[key].parse::<u64>().unwrap())
        .iter()
        .sum();
    assert!(parts > 0 && used > 0, "{parts} {used}");
    let (numbers, build) = rows["version"].split_once('-').unwrap();
    assert_eq!(numbers.split('.').count(), 3);
    assert!(build.parse::<u32>().is_ok());
}

#[test]
fn vbuckets_are_shown_one_by_one_or_all() {
    let running = RunningWorker::start();
    let mut client = running.client();
    client.set("foo", "bar");
    let vb = vb_of("foo");
    assert_eq!(client.rows("vbucket").len(), 1024);
    let one = client.rows(&format!("vbucket {vb}"));
    assert_eq!(one.len(), 1);
    assert_eq!(one[&format!("vb_{vb}")], "active");
    let seqno = client.rows(&format!("vbucket-seqno {vb}"));
    assert_eq!(seqno[&format!("vb_{vb}:high_seqno")], "1");
    let details = client.rows(&format!("vbucket-details {vb}"));
    assert_eq!(details[&format!("vb_{vb}:num_items")], "1");
    let uuid = &details[&format!("vb_{vb}:uuid")];
    let failovers = client.rows(&format!("failovers {vb}"));
    assert_eq!(&failovers[&format!("vb_{vb}:0:id")], uuid);
    assert_eq!(failovers[&format!("vb_{vb}:num_entries")], "1");
    let checkpoint = client.rows(&format!("checkpoint {vb}"));
    assert_eq!(checkpoint[&format!("vb_{vb}:id_1:snap_end")], "1");
}

#[test]
fn counters_of_vbuckets_and_connections_are_shown() {
    let running = RunningWorker::start();
    let mut client = running.client();
    client.set("foo", "{\"a\":1}");
    let vb = vb_of("foo");
    assert_eq!(client.call(0xc5, &[0, 1, 0], b"foo", b"a"), SUCCESS);
    assert_eq!(client.call(0xca, &[0, 1, 0], b"foo", b"a2"), SUCCESS);
    assert_eq!(client.call(0x04, &[], b"foo", b""), SUCCESS, "delete");
    let details = client.rows(&format!("vbucket-details {vb}"));
    assert_eq!(details[&format!("vb_{vb}:max_deleted_revid")], "3");
    let checkpoint = client.rows(&format!("checkpoint {vb}"));
    assert_eq!(checkpoint[&format!("vb_{vb}:id_1:visible_snap_end")], "3");
    let reads = &checkpoint[&format!("vb_{vb}:persistence:cursor_checkpoint_id")];
    assert_eq!(reads, "1");
    client.send_to(vb, 0x3f, [b"", b"", b""]);
    assert_eq!(client.receive().status, SUCCESS, "the vBucket is deleted");
    assert_eq!(client.call(0x00, &[], b"foo", b""), 0x07, "not my vBucket");
    let rows = client.rows("");
    for (key, value) in [
        ("cmd_subdoc_lookup", "1"),
        ("cmd_subdoc_mutation", "1"),
        ("ep_vbucket_del", "1"),
        ("ep_vbucket_del_fail", "0"),
        ("ep_num_not_my_vbuckets", "1"),
        ("ep_rollback_count", "0"),
        ("rollback_item_count", "0"),
    ] {
        assert_eq!(rows[key], value, "{key}");
    }
    let mut consumer = running.client();
    let opened = consumer.call(0x50, &[0, 0, 0, 0, 0, 0, 0, 1], b"NAME", b"");
    assert_eq!(opened, SUCCESS);
    let dcp = client.rows("dcp");
    let at = |what| -> u64 { dcp[&format!("eq_dcpq:NAME:{what}")].parse().unwrap() };
    assert!(at("created") <= at("last_receive_time"));
    assert!(at("last_receive_time") <= client.rows("")["time"].parse().unwrap());
}

#[test]
fn a_document_is_shown_with_its_stored_state() {
    let running = RunningWorker::start();
    let mut client = running.client();
    client.set("foo", "bar");
    let vb = vb_of("foo");
    let shown = client.rows(&format!("key foo {vb}"));
    assert_eq!(shown["key_is_resident"], "true");
    assert_eq!(shown["key_seqno"], "1");
    // SEQNO_PERSISTENCE names its vBucket in the header.
    let mut frame = vec![0x80, 0xb7, 0, 0, 8, 0];
    frame.extend(vb.to_be_bytes());
    frame.extend([0, 0, 0, 8]);
    frame.extend([0; 12]);
    frame.extend(1_u64.to_be_bytes());
    client.0.write_all(&frame).unwrap();
    assert_eq!(client.receive().status, SUCCESS);
    let verified = client.rows(&format!("vkey foo {vb}"));
    assert_eq!(verified["key_valid"], "valid");
    assert_eq!(verified["key_is_dirty"], "false");
    assert_eq!(
        client.try_rows(&format!("key none {vb}")).unwrap_err(),
        0x01
    );
}

#[test]
fn long_groups_come_in_parts_and_whole() {
    let running = RunningWorker::start();
    let mut client = running.client();
    let mut collections = |uid: u32, first: u32, count: u32| {
        let mut all = vec![json!({ "name": "_default", "uid": "0" })];
        let named = (first..first + count)
            .map(|id| json!({ "name": format!("c{id}"), "uid": format!("{id:x}") }));
        all.extend(named);
        let scopes = json!([{ "name": "_default", "uid": "0", "collections": all }]);
        let manifest = json!({ "uid": uid.to_string(), "scopes": scopes }).to_string();
        assert_eq!(client.call(0xb9, &[], b"", manifest.as_bytes()), SUCCESS);
    };
    collections(1, 8, 5);
    let mut client = running.client();
    let rows = client.rows("collections-details");
    let of = |vb: u32| {
        let prefix = format!("vb_{vb}:");
        rows.keys().filter(|key| key.starts_with(&prefix)).count()
    };
    assert_eq!(rows.len(), of(0) * 1024);
    assert_eq!((of(511), of(1023)), (of(0), of(0)));
    assert_eq!(rows["vb_1023:0xc:name"], "c12");
    let rows = client.rows("scopes-details");
    assert_eq!(rows.len(), 1024 * (2 + 6));
    assert_eq!(client.rows("collections")["0x0:0xc:items"], "0");

    collections(2, 100, 255);
    assert_eq!(client.rows("collections").len(), 1 + 256 * 7);
    assert_eq!(client.rows("scopes").len(), 1 + 7 + 256);
    assert_eq!(client.rows("scopes _default").len(), 7 + 256 * 7);
    // One vBucket fills more than one part; a request behind it is answered behind it.
    client.send(STAT, &[], b"collections-details 7", &[]);
    client.send(0x0a, &[], b"", &[]);
    let mut names = 0;
    loop {
        let answer = client.receive();
        assert_eq!(answer.status, SUCCESS);
        if answer.key.is_empty() {
            break;
        }
        assert!(answer.key.starts_with("vb_7:"));
        names += u32::from(answer.key.ends_with(":name"));
    }
    assert_eq!(names, 256);
    assert!(client.receive().key.is_empty());
}

#[test]
fn disk_bytes_of_a_vbucket_follow_its_rows() {
    let running = RunningWorker::start();
    let mut client = running.client();
    let parts = |client: &mut Client, name: &str| -> Vec<u64> {
        let rows = client.rows("diskinfo detail");
        assert_eq!(rows.len(), 2 * 1024);
        (0..1024)
            .map(|vb| rows[&format!("vb_{vb}:{name}")].parse().unwrap())
            .collect()
    };
    assert_eq!(parts(&mut client, "file_size"), [0; 1024], "no rows yet");
    client.set("one", "1");
    let (one, other) = (vb_of("one"), vb_of("two"));
    let whole = |parts: &[u64]| parts.iter().sum::<u64>();
    let found = parts(&mut client, "file_size");
    assert!(found[usize::from(one)] > 0);
    assert_eq!(whole(&found), found[usize::from(one)], "the only one");
    client.set("two", "2");
    assert_eq!(client.call(0x04, &[], b"two", b""), SUCCESS, "a tombstone");
    let found = parts(&mut client, "file_size");
    assert_eq!(found[usize::from(one)], found[usize::from(other)]);
    assert!(found[usize::from(one)] > 0);
}

#[test]
fn refusals() {
    let running = RunningWorker::start();
    let mut client = running.client();
    let refused = [
        ("nothing", 0x01),
        ("memory 1", 0x01),
        ("hash 0", 0x01),
        ("diskinfo 0", 0x01),
        ("diskinfo detail 0", 0x01),
        ("vbucket x", 0x04),
        ("vbucket 70000", 0x04),
        ("vbucket 1 2", 0x04),
        ("vbucket-details 1024", 0x07),
        ("key foo", 0x04),
        ("collections _default.other", 0x04),
        ("collections other.names", 0x04),
        ("collections-byid 0x9", 0x04),
        ("collections-byid", 0x04),
        ("scopes-byid 9", 0x04),
        ("collections-details 1024", 0x07),
        ("connections x", 0x04),
        ("reset everything", 0x01),
    ];
    for (request, status) in refused {
        assert_eq!(client.try_rows(request).err(), Some(status), "{request}");
    }
}

#[test]
fn a_group_of_a_bucket_needs_one() {
    let running = RunningWorker::start();
    let mut client = Client::connect(running.node.ports().kv);
    let (xerror, plain) = (0x07_u16.to_be_bytes(), b"\0admin\0secret");
    assert_eq!(client.call(0x1f, &[], b"test", &xerror), SUCCESS, "HELLO");
    assert_eq!(client.call(0x21, &[], b"PLAIN", plain), SUCCESS, "login");
    assert_eq!(client.try_rows("").err(), Some(0x08));
    assert_eq!(client.try_rows("vbucket").err(), Some(0x08));
    let itself = client.try_rows("connections self").unwrap();
    let json: serde_json::Value = serde_json::from_str(&itself[0].1).unwrap();
    assert_eq!(json["user"]["name"], "admin");
    let details = client.rows("bucket_details");
    let json: serde_json::Value = serde_json::from_str(&details["bucket details"]).unwrap();
    assert_eq!(json["buckets"][0]["clients"], 1);
    assert_eq!(json["buckets"][1]["name"], "default");
}

#[test]
fn timings_are_kept_and_reset() {
    let running = RunningWorker::start();
    let mut client = running.client();
    client.set("a", "1");
    let counted = |rows: &Rows| -> u64 {
        let buckets = rows.iter().filter(|row| row.0.starts_with("set_cmd_"));
        buckets
            .filter(|row| !row.0.ends_with("mean"))
            .map(|row| row.1.parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!(counted(&client.rows("timings")), 1);
    assert_eq!(client.rows("reset").len(), 0);
    assert_eq!(counted(&client.rows("timings")), 0);
    assert_eq!(client.rows("")["cmd_set"], "0");
}

#[test]
fn metrics_are_documented_and_few() {
    let running = RunningWorker::start();
    let mut client = running.client();
    client.set("a", "1");
    let (page, documented) = (running.metrics(), stats_page());
    assert!(page.ends_with("# EOF\n"));
    let series: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
    let is_command = |line: &&&str| line.starts_with("settee_commands_total{");
    let others = series.len() - series.iter().filter(is_command).count();
    assert!(others <= 126, "{others} series beside one for each command");
    for line in &series {
        let name = line.split(['{', ' ']).next().unwrap();
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| {
                name.strip_suffix(end)
                    .filter(|name| name.ends_with("duration_seconds"))
            })
            .unwrap_or(name);
        assert!(documented.contains(&format!("`{name}`")), "{name}");
    }
    let expected = [
        "settee_bucket_items{bucket=\"default\"} 1.0",
        "settee_bucket_vbuckets{bucket=\"default\",state=\"active\"} 1024.0",
        "settee_commands_total{command=\"set\"} 1",
        "settee_command_duration_seconds_count{kind=\"write\"} 1",
        "settee_command_duration_seconds_bucket{le=\"+Inf\",kind=\"write\"} 1",
        "settee_bucket_memory_quota_bytes{bucket=\"default\"} 134217728.0",
    ];
    for line in expected {
        assert!(series.contains(&line), "{line} in\n{page}");
    }
}

/// Names follow the rules of Prometheus: lower case, no word twice, the unit once and at the end, then `_total` of a
/// counter; a base unit, stated beside the name.
#[test]
fn metrics_have_names_by_the_rules() {
    let running = RunningWorker::start();
    running.client().set("a", "1");
    let page = running.metrics();
    let told = |what: &str, name: &str| {
        let line = format!("# {what} {name} ");
        let mut lines = page.lines().filter_map(|text| text.strip_prefix(&line));
        let first = lines.next();
        assert!(lines.next().is_none(), "{what} of {name} is told twice");
        first
    };
    let mut families = 0;
    for family in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = family.split_once(' ').unwrap();
        families += 1;
        let words: Vec<&str> = name.split('_').collect();
        assert_eq!(words[0], "settee", "{name}");
        let plain = |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
        assert!(words.iter().all(plain), "{name}");
        let mut once = words.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), words.len(), "{name}: a word comes twice");
        let units = ["bytes", "seconds", "ratio", "ms", "us", "ns", "mib", "kib"];
        let found: Vec<usize> = (0..words.len())
            .filter(|at| units.contains(&words[*at]))
            .collect();
        let unit = told("UNIT", name);
        match unit {
            Some(unit) => assert_eq!(words[found[0]..], [unit], "{name}"),
            None => assert!(found.is_empty(), "{name}"),
        }
        assert!(!words.contains(&"total"), "{name}: only a sample has it");
        assert!(
            told("HELP", name).is_some_and(|help| help.ends_with('.')),
            "{name}"
        );
        let sample = match kind {
            "counter" => format!("\n{name}_total"),
            "histogram" => format!("\n{name}_bucket{{"),
            "gauge" => format!("\n{name}"),
            _ => panic!("{name}: {kind}"),
        };
        assert!(page.contains(&sample), "{name} has no sample");
    }
    assert!(families > 60, "{families}");
}

#[test]
fn every_group_comes_in_small_parts() {
    const PART_BYTES_MAX: usize = 24 << 10;
    let running = RunningWorker::start();
    let mut clients: Vec<Client> = (0..40).map(|_| running.client()).collect();
    let producer = &mut clients[0];
    assert_eq!(
        producer.call(0x50, &[0, 0, 0, 0, 0, 0, 0, 1], b"parts", b""),
        SUCCESS
    );
    let mut extras = [0; 48];
    extras[16..24].fill(0xff);
    for vb in 0..100 {
        producer.send_to(vb, 0x53, [&extras, b"", b""]);
        assert_eq!(producer.receive().status, SUCCESS);
    }
    let state = running.node.state();
    let served = state.registry.bucket("default").unwrap();
    let scope = StatScope {
        node: &state.registry,
        bucket: Some(&served),
        connection: None,
        access: None,
    };
    for group in groups().filter(|group| *group != "reset") {
        for arguments in ["", " detail", " 7"] {
            let request = format!("{group}{arguments}");
            let mut walk = None;
            let mut parts = 0;
            loop {
                let mut bytes = 0;
                let mut sink = |key: &str, value: &str| bytes += 24 + key.len() + value.len();
                // Refused arguments do not matter here.
                let Ok(next) = collect_part(&request, &scope, walk, &mut sink) else {
                    break;
                };
                parts += 1;
                assert!(bytes <= PART_BYTES_MAX, "{request}: {bytes} at once");
                walk = next;
                if walk.is_none() {
                    break;
                }
            }
            if request == "vbucket-details" || request == "dcp" {
                assert!(parts > 4, "{request} has {parts} parts");
            }
        }
    }
}

#[test]
fn a_connection_yields_with_each_part_of_a_long_answer() {
    let running = RunningWorker::start();
    let mut client = running.client();
    let yields = |client: &mut Client| {
        let row = client.try_rows("connections self").unwrap().remove(0).1;
        let row: serde_json::Value = serde_json::from_str(&row).unwrap();
        row["yields"].as_u64().unwrap()
    };
    let before = yields(&mut client);
    let rows = client.rows("vbucket-details");
    let bytes: usize = rows
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    let parts = (yields(&mut client) - before) as usize;
    assert!(bytes / parts < 24 << 10, "{bytes} bytes in {parts} parts");
}
