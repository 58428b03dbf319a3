//! The reference server's benchmarks of statistics, under the same names. Output: one JSON object per line. The
//! argument after `--` filters by name.
//!
//! Each benchmark collects the rows of a group for a sink that drops them: without network and encoding.
//! `StatsBench/CollectionStats/N`: one vBucket, N collections. `EngineStatsBench/*`: the general group and `uuid`.
//! `MultiVBEngineStatsBench/VBucketDetailsStats/N`: the general group with N vBuckets, which is the content of the
//! reference's benchmark. `VBucketDetailsBench/VBucketDurabilityState`: one vBucket.
//! `DcpStatsBench/ProducerStreamStats/Json0/Streams/N`: a connection that streams N vBuckets; Settee has no JSON form
//! of streams. The bucket is on disk, and has no documents.

#![expect(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]

mod common;

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use benchkit::{Figures, REPETITIONS, Rows, per, timed};
use server::Node;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VBUCKETS: u16 = 1024;
/// Length of one repetition, ns: it collects the group as often as fits into this time.
const BATCH_NS: f64 = 20e6;

/// A node with a disk, and a connection to it.
struct Running {
    node: Node,
    client: TcpStream,
    _place: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let node = common::node(Some(place.path().join("data")), 100 << 20);
        let port = node.ports().kv;
        let mut running = Self {
            client: TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap(),
            node,
            _place: place,
        };
        let password = b"\0Administrator\0password";
        running.call(0x21, 0, [b"", b"PLAIN", password]);
        running
    }

    /// Sends a request, and waits for a success; other messages are ignored.
    fn call(&mut self, opcode: u8, vb: u16, [extras, key, value]: [&[u8]; 3]) {
        let mut out = Vec::new();
        common::frame(opcode, vb, [extras, key, value], &mut out);
        self.client.write_all(&out).unwrap();
        loop {
            let mut header = [0; 24];
            self.client.read_exact(&mut header).unwrap();
            let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
            let mut body = vec![0; length as usize];
            self.client.read_exact(&mut body).unwrap();
            if header[..2] == [0x81, opcode] {
                let text = String::from_utf8_lossy(&body);
                assert_eq!(header[6..8], [0, 0], "opcode {opcode:#x}: {text}");
                return;
            }
        }
    }

    /// Measures the time to collect a group, and counts its rows.
    fn measure(&self, group: &str) -> Figures {
        let gather = || {
            let mut rows = 0u64;
            let mut sink = |key: &str, value: &str| {
                black_box((key, value));
                rows += 1;
            };
            assert!(self.node.statistics("default", group, &mut sink), "{group}");
            rows
        };
        let (mut calls, mut spent_ns, mut rows) = (0, 0.0, 0);
        while spent_ns < BATCH_NS {
            let (found, took_ns) = timed(gather);
            (calls, spent_ns, rows) = (calls + 1, spent_ns + took_ns, found);
        }
        let batch = |_| {
            let all = || (0..calls).map(|_| gather()).sum::<u64>();
            timed(|| black_box(all())).1 * per(1, calls)
        };
        let samples: Vec<f64> = (0..REPETITIONS).map(batch).collect();
        Figures::of_times(&samples).and("rows", per(rows, 1))
    }

    /// Creates collections with one request: `count`, including the default one.
    fn make_collections(&mut self, count: u32) {
        let mut others = String::new();
        for number in 1..count {
            let id = number + 7;
            write!(
                others,
                ",{{\"name\":\"collection-{number}\",\"uid\":\"{id:x}\"}}"
            )
            .unwrap();
        }
        let manifest = format!(
            "{{\"uid\":\"{count:x}\",\"scopes\":[{{\"name\":\"_default\",\"uid\":\"0\",\"collections\":\
             [{{\"name\":\"_default\",\"uid\":\"0\"}}{others}]}}]}}"
        );
        self.call(0xb9, 0, [b"", b"", manifest.as_bytes()]);
    }

    /// Deletes all vBuckets but the first `count`.
    fn keep_vbuckets(&mut self, count: u16) {
        for vb in count..VBUCKETS {
            self.call(0x3f, vb, [b"", b"", b""]);
        }
    }

    /// Opens a producer with `count` streams, from seqno 0 on.
    fn stream(&mut self, count: u16) {
        self.call(0x50, 0, [&[0, 0, 0, 0, 0, 0, 0, 1], b"bench", b""]);
        let mut extras = [0; 48];
        extras[16..24].fill(0xff);
        for vb in 0..count {
            self.call(0x53, vb, [&extras, b"", b""]);
        }
    }
}

fn main() {
    let mut rows = Rows::default();
    for count in [1, 8, 64, 512, 1000] {
        rows.add(format!("StatsBench/CollectionStats/{count}"), move || {
            let mut node = Running::start();
            node.make_collections(count);
            node.measure("collections-details 0")
        });
    }
    for (name, group) in [
        ("EngineStatsBench/EngineStats", ""),
        ("EngineStatsBench/Uuid", "uuid"),
        (
            "VBucketDetailsBench/VBucketDurabilityState",
            "vbucket-durability-state 0",
        ),
    ] {
        rows.add(name, move || {
            let mut node = Running::start();
            node.keep_vbuckets(1);
            node.measure(group)
        });
    }
    for count in [1, 8, 64, 512, 1024] {
        let name = format!("MultiVBEngineStatsBench/VBucketDetailsStats/{count}");
        rows.add(name, move || {
            let mut node = Running::start();
            node.keep_vbuckets(count);
            node.measure("")
        });
    }
    for count in [1, 10, 100, 1000] {
        let name = format!("DcpStatsBench/ProducerStreamStats/Json0/Streams/{count}");
        rows.add(name, move || {
            let mut node = Running::start();
            node.stream(count);
            node.measure("dcp")
        });
    }
    rows.run();
}
