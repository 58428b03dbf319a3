//! Tests of readers of `GET /changes` with large documents.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::client::{Client, PASSWORD, USER, until};
use super::{Node, Waits, bucket, config, started};

const PATIENCE: Duration = Duration::from_mins(1);
const QUOTA: u64 = 160 << 20;
/// Size of a large document, bytes: more than the sockets of both ends take.
const LARGE_BYTES: usize = 20 << 20;

fn node() -> Node {
    let mut bucket = bucket("default");
    bucket.quota_bytes = QUOTA;
    started(&config(None, vec![bucket]), Waits::default())
}

/// Opens a reader of all changes that has read nothing yet.
fn reader(node: &Node) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", node.ports().http)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let login = base64(format!("{USER}:{PASSWORD}").as_bytes());
    let request = format!(
        "GET /changes/default?since=beginning HTTP/1.0\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    BufReader::new(stream)
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Reads the next event with data; `None` at the end.
fn event(reader: &mut BufReader<TcpStream>) -> Option<Value> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).unwrap() == 0 {
            return None;
        }
        if let Some(data) = line.strip_prefix(b"data: ") {
            return Some(serde_json::from_slice(data).unwrap());
        }
    }
}

#[test]
fn large_values_are_streamed_like_small_ones() {
    let node = node();
    let mut client = Client::ready(node.ports().kv);
    let text = "a\u{20ac}\u{1f6cb}\n\"".repeat(30_000);
    let json = format!(" {{ \"text\" : [ {} ] }} ", serde_json::json!(text));
    let bytes: Vec<u8> = (0..300_001_u32)
        .map(|i| (i * 7 % 251) as u8 | 0x80)
        .collect();
    for (key, value) in [
        ("json", json.as_bytes()),
        ("text", text.as_bytes()),
        ("bytes", &bytes),
    ] {
        for kept in [value.len(), 10] {
            let value = if key == "json" && kept == 10 {
                b"{ \"a\" : 1 }"
            } else {
                &value[..kept]
            };
            client.set(&format!("{key}{}", kept == 10), value).ok();
        }
    }
    let mut told = reader(&node);
    for _ in 0..6 {
        let event = event(&mut told).unwrap();
        let (name, expected) = match event["key"].as_str().unwrap() {
            "jsonfalse" => ("value", serde_json::from_str(&json).unwrap()),
            "jsontrue" => ("value", serde_json::json!({"a": 1})),
            "textfalse" => ("value", Value::from(text.as_str())),
            "texttrue" => ("value", Value::from(&text[..10])),
            "bytesfalse" => ("value_base64", Value::from(base64(&bytes))),
            "bytestrue" => ("value_base64", Value::from(base64(&bytes[..10]))),
            other => panic!("{other}"),
        };
        assert!(event[name] == expected, "{}", event["key"]);
        assert!(event["seqno"].is_u64() && event["flags"].is_u64());
    }
    node.shutdown().unwrap();
}

#[test]
fn idle_readers_hold_part_of_the_quota_and_small_writes_continue() {
    let node = node();
    let mut client = Client::ready(node.ports().kv);
    for key in ["a", "b"] {
        client.set(key, vec![b'l'; LARGE_BYTES]).ok();
    }
    let served = node.state.bucket("default").unwrap();
    let readers: Vec<_> = (0..12).map(|_| reader(&node)).collect();
    until("no reader gets anything", || {
        served.bucket.memory().lent() >= LARGE_BYTES as u64
    });
    for round in 0..500 {
        client.set("small", format!("{round}")).ok();
        let held = served.bucket.memory().lent();
        // Each of two threads may have found room at the same moment.
        assert!(held <= QUOTA / 8 + 2 * LARGE_BYTES as u64, "{held}");
        assert!(served.bucket.memory().backfills() >= held.min(1));
    }
    drop(readers);
    until("all of it is given back", || {
        served.bucket.memory().lent() == 0
    });
    until("of the account, too", || {
        served.bucket.memory().backfills() == 0
    });
    node.shutdown().unwrap();
}

#[test]
fn a_waiting_reader_gets_the_memory_of_an_idle_one() {
    let node = node();
    let mut client = Client::ready(node.ports().kv);
    client.set("a", vec![b'l'; LARGE_BYTES]).ok();
    let served = node.state.bucket("default").unwrap();
    let mut deaf = reader(&node);
    until("nothing is lent", || {
        served.bucket.memory().lent() >= LARGE_BYTES as u64
    });
    let mut late = reader(&node);
    served.loans.grant_nothing();
    until("nothing is taken back", || served.loans.taken_back() > 0);
    let event = event(&mut late);
    let told = event.as_ref().and_then(|event| event["value"].as_str());
    // No idle time is allowed, so the value of the late reader may be taken back as well.
    assert!(told.is_none_or(|told| told.len() == LARGE_BYTES));
    let mut rest = Vec::new();
    let read = deaf.read_to_end(&mut rest);
    assert!(read.is_err() || rest.len() < LARGE_BYTES, "{}", rest.len());
    node.shutdown().unwrap();
}
