//! Tests of producers that send nearly valid streams: snapshots, documents, collections and durable writes in order,
//! with a wrong or damaged message here and there. The node keeps, serves, streams and loads all that it accepted.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use wire::dcp::{EventId, FlatEvent};
use wire::{Feature, Opcode, Status};

use super::consumer::{Ask, Consumer, PRODUCER, open};
use super::nonsense::{PANICS, Random, count_panics};
use super::producer::{Producer, REPLICA};
use crate::client::{Client, Request, sdk_and};
use crate::place::{on_disk, set_vbucket};

/// The state of one vBucket's stream, as a producer has sent it.
struct Story {
    vb: u16,
    opaque: u32,
    last: u64,
    /// Start of the newest snapshot.
    begun: u64,
    end: u64,
    prepared: Vec<(Vec<u8>, u64)>,
    /// Collections that have begun.
    open: Vec<u8>,
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

/// Returns a value with its datatype.
fn value(random: &mut Random) -> (u8, Vec<u8>) {
    // One system attribute, `_s`, in front of a body.
    let attributed = b"\0\0\0\x0a\0\0\0\x06_s\0{}\0{\"a\":1}".to_vec();
    let packed = |plain: &[u8]| snap::raw::Encoder::new().compress_vec(plain).unwrap();
    match random.below(9) {
        0 => (0, Vec::new()),
        1 => (1, b"{\"a\":[1,2]}".to_vec()),
        2 => (2, packed(b"some text, some text, some text")),
        3 => (4, attributed),
        4 => (6, packed(&attributed)),
        5 => {
            let length = random.below(60);
            let strange = random.below(10) == 0;
            let datatype = if strange { random.below(8) as u8 } else { 0 };
            (datatype, random.bytes(length))
        }
        _ => (0, b"value".to_vec()),
    }
}

impl Story {
    fn request(&self, code: u8) -> Request {
        Request::new(Opcode(code))
            .vbucket(self.vb)
            .opaque(self.opaque)
    }

    /// Returns a key of an existing collection that no durable write holds, nearly always.
    fn key(&self, random: &mut Random) -> Vec<u8> {
        loop {
            let collection = [0, 0, 0, 8, 9][random.below(5) as usize];
            let key = vec![collection, b'k', b'0' + random.below(9) as u8];
            let there = collection == 0 || self.open.contains(&collection);
            let held = self.prepared.iter().any(|(held, _)| *held == key);
            if there && !held || random.below(100) == 0 {
                return key;
            }
        }
    }

    fn marker(&mut self, random: &mut Random) -> Request {
        let start = self.last + 1;
        self.begun = start;
        self.end = self.last + 1 + random.below(8);
        let flags = [5, 5, 5, 5, 6, 6, 13, 1, 2, 0x35][random.below(10) as usize];
        let low = random.below(self.end + 1);
        let mut value = numbers(&[start, self.end]);
        value.extend(u32::to_be_bytes(flags));
        let request = self.request(0x56);
        let (version, more) = match random.below(3) {
            0 => return request.extras(&value),
            1 => (0, numbers(&[self.end, low])),
            _ => (2, numbers(&[self.end, low, low.min(start), low])),
        };
        value.extend(more);
        request.extras(&[version]).value(value)
    }

    fn document(&mut self, random: &mut Random) -> Request {
        let seqno = self.last;
        let (code, extras) = match random.below(5) {
            0 => (0x58, [numbers(&[seqno, 2]), vec![0; 2]].concat()),
            1 => (0x58, [numbers(&[seqno, 2]), vec![0; 5]].concat()),
            2 => (0x59, [numbers(&[seqno, 2]), vec![0; 4]].concat()),
            _ => (0x57, [numbers(&[seqno, 1]), vec![0; 15]].concat()),
        };
        let (datatype, value) = value(random);
        let plain = code != 0x57 && datatype & 4 == 0;
        let request = self.request(code).extras(&extras).key(self.key(random));
        let request = request.cas(0x1000 + seqno);
        if plain {
            return request;
        }
        request.datatype(datatype).value(value)
    }

    fn event(&mut self, random: &mut Random) -> Request {
        let id = 8 + random.below(2) as u8;
        let known = self.open.contains(&id);
        let event = match (known, random.below(3)) {
            _ if random.below(60) == 0 => random.below(7) as u32,
            (false, 0) => 3,
            (false, _) => 0,
            (true, 0) => 1,
            (true, _) => 5,
        };
        match event {
            0 => self.open.push(id),
            1 => {
                self.open.retain(|open| *open != id);
                self.prepared.retain(|(key, _)| key[0] != id);
            }
            _ => {}
        }
        let id = u32::from(id);
        let version = random.below(3) as u8;
        let strange = random.below(60) == 0;
        let name = if strange {
            "\u{e9}"
        } else {
            ["c", "d"][id as usize - 8]
        };
        let mut extras = numbers(&[self.last]);
        extras.extend(u32::to_be_bytes(event));
        extras.push(version);
        let mut value = Vec::new();
        let scope = if event == 3 || strange { 8 } else { 0 };
        if version == 2 {
            let told = FlatEvent {
                manifest: model::ManifestUid(self.last),
                scope,
                collection: Some(model::CollectionId(id)),
                expiry_max_s: (id == 8).then_some(9),
                name,
                history: random.below(2) == 0,
            };
            told.encode(EventId(event), &mut value);
        } else {
            value.extend(numbers(&[self.last]));
            let ids = match event {
                3 | 4 => vec![scope],
                5 => vec![id, 7, scope],
                _ if version == 1 => vec![scope, id, 7],
                _ => vec![scope, id],
            };
            value.extend(ids.iter().flat_map(|id| id.to_be_bytes()));
        }
        self.request(0x5f).extras(&extras).key(name).value(value)
    }

    fn durable(&mut self, random: &mut Random) -> Request {
        let decided = random.below(self.prepared.len() as u64 + 2) as usize;
        // Nearly always, it is not decided in the snapshot of its prepare.
        let early = random.below(100) == 0;
        let may = |(_, at): &(Vec<u8>, u64)| *at < self.begun || early;
        if self.prepared.get(decided).is_some_and(may) {
            let (key, prepared) = self.prepared.swap_remove(decided);
            let code = 0x62 + random.below(2) as u8;
            return self
                .request(code)
                .extras(&numbers(&[prepared, self.last]))
                .key(key);
        }
        let key = self.key(random);
        let mut extras = numbers(&[self.last, 1]);
        extras.extend([0; 13]);
        let gone = random.below(5) == 0;
        extras.extend([u8::from(gone), 1 + random.below(3) as u8]);
        self.prepared.push((key.clone(), self.last));
        let request = self
            .request(0x60)
            .extras(&extras)
            .key(key)
            .cas(0x2000 + self.last);
        if gone {
            return request;
        }
        let (datatype, value) = value(random);
        request.datatype(datatype).value(value)
    }

    /// Returns the next message of a valid stream.
    fn next(&mut self, random: &mut Random) -> Vec<u8> {
        if self.last >= self.end {
            return self.marker(random).bytes();
        }
        // Seqnos may be left out.
        self.last = (self.last + 1 + random.below(2)).min(self.end);
        let request = match random.below(100) {
            0..20 => self.event(random),
            20..50 => self.durable(random),
            50 => self.request(0x64).extras(&numbers(&[self.last])),
            _ => self.document(random),
        };
        request.bytes()
    }
}

/// Returns a damaged copy: its lengths stay, so that the next messages are understood.
fn damaged(mut frame: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let kept = if random.below(10) == 0 { 1 } else { 12 };
    if frame.len() > kept {
        for _ in 0..=random.below(3) {
            let at = kept + random.below((frame.len() - kept) as u64) as usize;
            frame[at] = match random.below(3) {
                0 => 0xff,
                1 => frame[at] ^ 1,
                _ => random.below(256) as u8,
            };
        }
    }
    frame
}

fn tell(port: u16, vbs: [u16; 2], random: &mut Random) {
    let opened = open("story", 0).value(r#"{"consumer_name":"me"}"#);
    let client = Client::with(port, &sdk_and(&[Feature::SNAPPY]));
    let mut producer = Producer::on(client, &opened);
    let mut stories = vbs.map(|vb| Story {
        vb,
        opaque: producer.stream(vb, 0),
        last: 0,
        begun: 0,
        end: 0,
        prepared: Vec::new(),
        open: Vec::new(),
    });
    let (mut all, mut earlier) = (Vec::new(), Vec::new());
    for _ in 0..random.below(120) {
        let story = &mut stories[random.below(2) as usize];
        let frame = story.next(random);
        match random.below(60) {
            0 => all.extend(damaged(frame.clone(), random)),
            1 => all.extend(&earlier),
            2 => {}
            _ => all.extend(&frame),
        }
        earlier = frame;
    }
    let (mut stream, _) = producer.client.into_parts();
    // The node may close it before all is sent.
    let said = stream.write_all(&all);
    drop(said.and_then(|()| stream.shutdown(std::net::Shutdown::Write)));
    let mut answers = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answers) {
        let reset = std::io::ErrorKind::ConnectionReset;
        assert_eq!(error.kind(), reset, "the node hangs");
    }
}

/// Streams the current state of a vBucket to a further consumer, in a form chosen at random.
fn pass_on(port: u16, vb: u16, high: u64, random: &mut Random) {
    let mut consumer = Consumer::open(port, "further", PRODUCER | 4);
    consumer.control("enable_noop", "true").ok();
    if random.below(2) == 0 {
        consumer.control("enable_sync_writes", "true").ok();
        consumer.control("consumer_name", "further").ok();
    }
    if random.below(2) == 0 {
        consumer.control("flatbuffers_system_events", "true").ok();
    }
    consumer.stream(&Ask::all(vb).until(high));
    let mut last = 0;
    loop {
        let frame = consumer.frame();
        match frame.opcode {
            Opcode::DCP_STREAM_END => break,
            Opcode::DCP_SNAPSHOT_MARKER => {}
            _ => {
                let at = usize::from(matches!(frame.opcode.0, 0x62 | 0x63)) * 8;
                let seqno = u64::from_be_bytes(frame.extras[at..at + 8].try_into().unwrap());
                assert!(seqno > last, "{frame:?} after {last}");
                last = seqno;
            }
        }
    }
}

fn high_of(client: &mut Client, vb: u16) -> u64 {
    let stat = Request::new(Opcode::STAT).key(format!("vbucket-seqno {vb}"));
    client.send(&stat.bytes());
    let mut high = None;
    loop {
        let row = client.answer();
        if row.key.is_empty() {
            return high.expect("the vBucket is there");
        }
        if row.key.ends_with(b":high_seqno") {
            high = row.text().parse().ok();
        }
    }
}

/// Each round has its own vBuckets. `SETTEE_STORIES` sets the number of rounds, `SETTEE_STORIES_FROM` the first one.
#[test]
fn nearly_valid_streams_are_kept_and_streamed_on() {
    count_panics();
    let rounds = std::env::var("SETTEE_STORIES").ok();
    let rounds: u64 = rounds.and_then(|text| text.parse().ok()).unwrap_or(8);
    let place = tempfile::tempdir().unwrap();
    let mut node = on_disk(place.path());
    let from = std::env::var("SETTEE_STORIES_FROM").ok();
    let from: u64 = from.and_then(|text| text.parse().ok()).unwrap_or(0);
    for round in from..from + rounds {
        if round % 6 == 5 {
            node.shutdown().expect("everything becomes durable");
            node = on_disk(place.path());
        }
        let port = node.ports().kv;
        let mut client = Client::ready(port);
        let mut random = Random::new(round + 1);
        let first = 2 * (round % 500) as u16;
        let vbs = [first, first + 1];
        for vb in vbs {
            client
                .call(&Request::new(Opcode::DEL_VBUCKET).vbucket(vb))
                .ok();
            set_vbucket(&mut client, vb, REPLICA);
        }
        tell(port, vbs, &mut random);
        for vb in vbs {
            set_vbucket(&mut client, vb, 1);
            let high = high_of(&mut client, vb);
            let write = Request::new(Opcode::SET).vbucket(vb).key(b"\0new");
            let status = client.call(&write.extras(&[0; 8]).value("v")).status;
            let full = high > (1 << 48) || status == Status::UNKNOWN_COLLECTION;
            assert!(
                status == Status::SUCCESS || full,
                "round {round}: {status:?}"
            );
            pass_on(port, vb, high_of(&mut client, vb), &mut random);
        }
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "round {round}");
    }
    node.shutdown().expect("everything becomes durable");
}
