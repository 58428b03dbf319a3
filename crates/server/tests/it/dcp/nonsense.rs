//! Tests of producers that send anything in any state: the node takes it or ends the connection.

use std::io::{Read, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use wire::Opcode;

use super::producer::{Producer, REPLICA};
use crate::client::{Client, Request};
use crate::place::{own, set_vbucket};

/// Number of panics of the nodes' threads.
pub(super) static PANICS: AtomicUsize = AtomicUsize::new(0);

pub(super) fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // A test's own thread has the name of the test.
            let thread = std::thread::current();
            if thread.name().is_some_and(|name| !name.contains("::")) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            usual(panic);
        }));
    });
}

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(super) fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// Returns a seqno that is often right, and may be anything.
    fn seqno(&mut self) -> u64 {
        match self.below(20) {
            0 => u64::MAX - self.below(3),
            1 => (1 << 48) + self.below(3),
            _ => self.below(12),
        }
    }
}

/// Returns a message whose fixed part is mostly right.
fn message(random: &mut Random, streams: &[(u16, u32)]) -> Vec<u8> {
    let (mut vb, mut opaque) = streams[random.below(streams.len() as u64) as usize];
    if random.below(12) == 0 {
        vb = [0, 1023, 1024, u16::MAX][random.below(4) as usize];
    }
    if random.below(12) == 0 {
        opaque = random.below(u64::from(u32::MAX)) as u32;
    }
    let shapes = [
        (0x56, 20),
        (0x56, 20),
        (0x56, 1),
        (0x57, 31),
        (0x57, 31),
        (0x58, 18),
        (0x58, 21),
        (0x59, 20),
        (0x5f, 13),
        (0x60, 31),
        (0x62, 16),
        (0x63, 16),
        (0x55, 4),
        (0x5b, 1),
        (0x5c, 0),
        (0x64, 8),
        (0x65, 4),
        (0x51, 4),
        (0x52, 0),
        (0x5d, 4),
    ];
    let (code, length) = shapes[random.below(shapes.len() as u64) as usize];
    let code = if random.below(15) == 0 {
        0x50 + random.below(0x18) as u8
    } else {
        code
    };
    let mut extras = random.seqno().to_be_bytes().to_vec();
    extras.extend(random.seqno().to_be_bytes());
    extras.extend(1_u32.to_be_bytes());
    extras.resize(31, 0);
    extras.truncate(length);
    if random.below(15) == 0 {
        let length = random.below(40);
        extras = random.bytes(length);
    }
    let key = match random.below(6) {
        0 => random.bytes(5),
        1 => Vec::new(),
        _ => vec![0, b'k', b'0' + random.below(5) as u8],
    };
    let length = random.below(60);
    let value = random.bytes(length);
    let datatype = [0, 0, 0, 1, 2, 4, 7, 0xff][random.below(8) as usize];
    let request = Request::new(Opcode(code)).vbucket(vb).opaque(opaque);
    let request = request.extras(&extras).key(key).value(value);
    let mut bytes = request.datatype(datatype).bytes();
    if random.below(20) == 0 {
        bytes[0] = [0x81, 0x08, 0x18, 0x82, 0x00][random.below(5) as usize];
    }
    bytes
}

#[test]
fn nonsense_from_a_producer_ends_its_connection_at_most() {
    count_panics();
    let node = own();
    let port = node.ports().kv;
    let mut client = Client::ready(port);
    for round in 0..80_u16 {
        let mut random = Random(u64::from(round) + 7);
        let vbs = [2 * round, 2 * round + 1];
        for vb in vbs {
            set_vbucket(&mut client, vb, REPLICA);
        }
        let mut producer = Producer::open(port, "nonsense");
        let streams = vbs.map(|vb| (vb, producer.stream(vb, 0)));
        let mut all = Vec::new();
        for _ in 0..random.below(80) {
            all.extend(message(&mut random, &streams));
        }
        let (mut stream, _) = producer.client.into_parts();
        // The node may close it before all is sent.
        let said = stream.write_all(&all);
        drop(said.and_then(|()| stream.shutdown(std::net::Shutdown::Write)));
        let mut answers = Vec::new();
        match stream.read_to_end(&mut answers) {
            Ok(_) => {}
            Err(error) => {
                let reset = std::io::ErrorKind::ConnectionReset;
                assert_eq!(error.kind(), reset, "round {round}: the node hangs");
            }
        }
        assert!(answers.len() < 1 << 20, "round {round}");
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "round {round}");
        client.expect_silence();
    }
    drop(client);
    node.shutdown().unwrap();
}
