//! Benchmark: the rate at which a node streams changes over one connection. Output: one JSON object per line.
//!
//! `dcp_drain/{memory,store}/N`: N documents of 82 bytes (key and value) over all vBuckets, to a client on the same
//! machine that only counts frames. `memory`: the streams were open before the writes, and had no room to send;
//! `store`: the documents are in the store and not in the checkpoints. The processor time is that of the whole process,
//! with the client.

#![expect(clippy::unwrap_used, reason = "a benchmark fails where it unwraps")]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use benchkit::{Figures, REPETITIONS, Rows, Summary, per, process_cpu_ns, timed};
use common::frame;
use model::VbId;
use server::Node;

const VBUCKETS: u16 = 1024;
const VALUE: [u8; 70] = [b'v'; 70];

/// A connection that counts frames by their opcode, without parsing them.
struct Counter {
    stream: TcpStream,
    input: Vec<u8>,
    filled: usize,
}

impl Counter {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self {
            stream,
            input: vec![0; 1 << 20],
            filled: 0,
        };
        let mut login = Vec::new();
        let password = b"\0Administrator\0password";
        frame(0x21, 0, [b"", b"PLAIN", password], &mut login);
        client.send(&login);
        client.expect(0x21, 1);
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads until `count` frames of `opcode` have arrived.
    fn expect(&mut self, opcode: u8, count: u64) {
        let mut seen = 0;
        while seen < count {
            let read = self.stream.read(&mut self.input[self.filled..]).unwrap();
            assert_ne!(read, 0, "the node closed the connection");
            self.filled += read;
            let mut at = 0;
            while let Some(header) = self.input[at..self.filled].first_chunk::<24>() {
                let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
                let length = 24 + body as usize;
                if self.filled - at < length {
                    break;
                }
                seen += u64::from(header[1] == opcode);
                at += length;
            }
            self.input.copy_within(at..self.filled, 0);
            self.filled -= at;
        }
    }
}

fn load(port: u16, documents: u64) {
    let mut client = Counter::connect(port);
    let mut out = Vec::new();
    for number in 0..documents {
        let key = format!("k{number:011}");
        let vb = VbId::of_key(key.as_bytes(), VBUCKETS).0;
        frame(0x11, vb, [&[0; 8], key.as_bytes(), &VALUE], &mut out);
        if out.len() > 1 << 20 {
            client.send(&out);
            out.clear();
        }
    }
    frame(0x0a, 0, [&[]; 3], &mut out);
    client.send(&out);
    client.expect(0x0a, 1);
}

/// A producer's connection with all streams open.
fn consumer(port: u16, window: &str) -> Counter {
    let mut client = Counter::connect(port);
    let mut out = Vec::new();
    frame(
        0x50,
        0,
        [&[0, 0, 0, 0, 0, 0, 0, 1], b"drain", b""],
        &mut out,
    );
    frame(
        0x5e,
        0,
        [b"", b"connection_buffer_size", window.as_bytes()],
        &mut out,
    );
    client.send(&out);
    client.expect(0x5e, 1);
    client
}

fn open_streams(client: &mut Counter) {
    let mut extras = [0; 48];
    extras[16..24].fill(0xff);
    let mut out = Vec::new();
    for vb in 0..VBUCKETS {
        frame(0x53, vb, [&extras, b"", b""], &mut out);
    }
    client.send(&out);
}

/// Returns wall-clock and processor time of some work, in nanoseconds.
fn measure(work: impl FnOnce()) -> (f64, u64) {
    let cpu = process_cpu_ns();
    let ((), wall_ns) = timed(work);
    (wall_ns, process_cpu_ns() - cpu)
}

fn from_memory(documents: u64) -> (f64, u64) {
    let node = common::node(None, 4 << 30);
    let port = node.ports().kv;
    let mut client = consumer(port, "1");
    open_streams(&mut client);
    client.expect(0x53, u64::from(VBUCKETS));
    load(port, documents);
    let took = measure(|| {
        let mut out = Vec::new();
        frame(0x5e, 0, [b"", b"connection_buffer_size", b"0"], &mut out);
        client.send(&out);
        client.expect(0x57, documents);
    });
    node.shutdown().unwrap();
    took
}

fn from_store(documents: u64) -> (f64, u64) {
    let node = common::node(None, 4 << 30);
    let port = node.ports().kv;
    load(port, documents);
    while !is_flushed(&node) {
        std::thread::yield_now();
    }
    let mut client = consumer(port, "0");
    let took = measure(|| {
        open_streams(&mut client);
        client.expect(0x57, documents);
    });
    node.shutdown().unwrap();
    took
}

fn is_flushed(node: &Node) -> bool {
    let mut flushed = false;
    let mut sink = |key: &str, value: &str| flushed |= key == "ep_queue_size" && value == "0";
    assert!(node.statistics("default", "", &mut sink));
    flushed
}

fn figures(documents: u64, drain: fn(u64) -> (f64, u64)) -> Figures {
    let samples: Vec<_> = (0..REPETITIONS).map(|_| drain(documents)).collect();
    let wall: Vec<f64> = samples.iter().map(|sample| sample.0).collect();
    let cpu: Vec<f64> = samples
        .iter()
        .map(|sample| per(sample.1, documents))
        .collect();
    Figures::of_times(&wall)
        .and(
            "items_per_second",
            per(documents, 1) * 1e9 / Summary::of(&wall).median,
        )
        .and("cpu_ns_per_item", Summary::of(&cpu).median)
}

fn main() {
    const DOCUMENTS: u64 = 500_000;
    let mut rows = Rows::default();
    rows.add(format!("dcp_drain/memory/{DOCUMENTS}"), || {
        figures(DOCUMENTS, from_memory)
    });
    rows.add(format!("dcp_drain/store/{DOCUMENTS}"), || {
        figures(DOCUMENTS, from_store)
    });
    rows.run();
}
