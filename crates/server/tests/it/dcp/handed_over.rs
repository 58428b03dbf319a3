//! Tests of two nodes and a proxy between them, which connects a producer's connection with a consumer's: so a cluster
//! manager replicates and moves vBuckets.

use std::io::{Chain, Cursor, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::{Opcode, Status};

use super::consumer::{DELETE_TIMES, PRODUCER, XATTRS, open};
use super::producer::{REPLICA, add_stream};
use crate::client::{Client, Request, set};
use crate::place::{on_disk, own, set_vbucket};

const LIMIT: Duration = Duration::from_secs(30);
const TAKEOVER: u32 = 1;
const ACTIVE: u8 = 1;
const DEAD: u8 = 4;

type Incoming = Chain<Cursor<Vec<u8>>, TcpStream>;

/// Reads one whole frame; `None` at the end.
fn read_frame(from: &mut Incoming) -> Option<Vec<u8>> {
    let mut frame = vec![0; 24];
    from.read_exact(&mut frame).ok()?;
    let body = u32::from_be_bytes(frame[8..12].try_into().unwrap());
    frame.resize(24 + body as usize, 0);
    from.read_exact(&mut frame[24..]).ok()?;
    Some(frame)
}

/// The proxy between the two nodes. It keeps the answers to its own requests.
struct Manager {
    consumer: Arc<Mutex<TcpStream>>,
    producer: Arc<Mutex<TcpStream>>,
    answers: Receiver<Vec<u8>>,
    pumps: Vec<JoinHandle<()>>,
}

fn is_for_the_manager(frame: &[u8]) -> bool {
    let asked = [Opcode::DCP_ADD_STREAM, Opcode::DCP_CLOSE_STREAM];
    frame[0] & 1 == 1 && asked.contains(&Opcode(frame[1]))
}

fn pump(mut from: Incoming, to: Arc<Mutex<TcpStream>>, answers: Sender<Vec<u8>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while let Some(frame) = read_frame(&mut from) {
            if is_for_the_manager(&frame) {
                if answers.send(frame).is_err() {
                    break;
                }
            } else if to.lock().unwrap().write_all(&frame).is_err() {
                break;
            }
        }
        let _gone = to.lock().unwrap().shutdown(Shutdown::Both);
    })
}

impl Manager {
    fn pair(from: u16, to: u16, name: &str) -> Self {
        let side = |port, flags| {
            let mut client = Client::ready(port);
            let request = open(name, flags).value(r#"{"consumer_name":"b"}"#);
            client.call(&request).ok();
            let (stream, read) = client.into_parts();
            let writer = Arc::new(Mutex::new(stream.try_clone().unwrap()));
            (writer, Cursor::new(read).chain(stream))
        };
        let (producer, from_producer) = side(from, PRODUCER | XATTRS | DELETE_TIMES);
        let (consumer, from_consumer) = side(to, 0);
        let (told, answers) = channel();
        let pumps = vec![
            pump(from_producer, Arc::clone(&consumer), told.clone()),
            pump(from_consumer, Arc::clone(&producer), told),
        ];
        Self {
            consumer,
            producer,
            answers,
            pumps,
        }
    }

    fn ask(side: &Mutex<TcpStream>, requests: &[Request]) {
        let bytes: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
        side.lock().unwrap().write_all(&bytes).unwrap();
    }

    fn statuses(&self, count: usize) -> Vec<u16> {
        let answer = |_| self.answers.recv_timeout(LIMIT).expect("an answer");
        let answers = (0..count).map(answer);
        answers
            .map(|frame| u16::from_be_bytes([frame[6], frame[7]]))
            .collect()
    }

    fn add(&self, vbs: impl Iterator<Item = u16>, flags: u32) {
        let requests: Vec<Request> = vbs.map(|vb| add_stream(vb, flags)).collect();
        Self::ask(&self.consumer, &requests);
        let refused = self.statuses(requests.len());
        let refused: Vec<u16> = refused.into_iter().filter(|status| *status != 0).collect();
        assert!(refused.is_empty(), "{refused:x?}");
    }

    /// Ends a stream on both sides.
    fn close(&self, vb: u16) {
        let close = [Request::new(Opcode::DCP_CLOSE_STREAM).vbucket(vb)];
        Self::ask(&self.consumer, &close);
        assert_eq!(self.statuses(1), [0]);
        Self::ask(&self.producer, &close);
        // The consumer may have told the producer already.
        let status = self.statuses(1)[0];
        assert!(status == 0 || status == Status::KEY_ENOENT.0, "{status:x}");
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for side in [&self.consumer, &self.producer] {
            let _gone = side.lock().unwrap().shutdown(Shutdown::Both);
        }
        for pump in self.pumps.drain(..) {
            let ended = pump.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

fn seqnos(client: &mut Client) -> Vec<u8> {
    client
        .call(&Request::new(Opcode::GET_ALL_VB_SEQNOS))
        .ok()
        .value
}

fn eventually(what: &str, mut probe: impl FnMut() -> bool) {
    let since = Instant::now();
    while !probe() {
        assert!(since.elapsed() < LIMIT, "{what}");
        std::thread::yield_now();
    }
}

fn state_of(client: &mut Client, vb: u16) -> Vec<u8> {
    let request = Request::new(Opcode::GET_VBUCKET).vbucket(vb);
    client.call(&request).ok().value
}

fn failover_log(client: &mut Client, vb: u16) -> Vec<u8> {
    let request = Request::new(Opcode::GET_FAILOVER_LOG).vbucket(vb);
    client.call(&request).ok().value
}

#[test]
fn every_vbucket_is_replicated_also_after_a_reconnect() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (own(), on_disk(place.path()));
    let mut writer = Client::ready(from.ports().kv);
    let mut reader = Client::ready(to.ports().kv);
    let keys: Vec<String> = (0..3000).map(|number| format!("key-{number}")).collect();
    let write = |writer: &mut Client, keys: &[String]| {
        let requests: Vec<Request> = keys.iter().map(|key| set(key, "v")).collect();
        writer.pipeline(&requests);
        for answer in writer.answers(requests.len()) {
            answer.ok();
        }
    };
    write(&mut writer, &keys[..1000]);
    let to_replica = |vb| {
        Request::new(Opcode::SET_VBUCKET)
            .vbucket(vb)
            .extras(&[REPLICA])
    };
    reader.pipeline(&(0..1024).map(to_replica).collect::<Vec<_>>());
    for answer in reader.answers(1024) {
        answer.ok();
    }
    for (round, name) in [(1, "first"), (2, "second")] {
        let manager = Manager::pair(from.ports().kv, to.ports().kv, name);
        manager.add(0..1024, 0);
        write(&mut writer, &keys[round * 1000..][..1000]);
        eventually("the replica has everything", || {
            seqnos(&mut writer) == seqnos(&mut reader)
        });
    }
    for key in &keys {
        reader.call(&Request::of(Opcode::GET_REPLICA, key)).ok();
    }
    for vb in [0, 511, 1023] {
        assert_eq!(failover_log(&mut writer, vb), failover_log(&mut reader, vb));
    }
    to.shutdown().expect("everything becomes durable");
}

#[test]
fn a_vbucket_is_taken_over_while_it_is_written_to() {
    const VB: u16 = 9;
    let (from, to) = (own(), own());
    let (from_port, to_port) = (from.ports().kv, to.ports().kv);
    let (mut here, mut there) = (Client::ready(from_port), Client::ready(to_port));
    set_vbucket(&mut there, VB, REPLICA);
    let manager = Manager::pair(from_port, to_port, "move");
    manager.add(std::iter::once(VB), 0);
    let writer = std::thread::spawn(move || {
        let mut client = Client::ready(from_port);
        for number in 0.. {
            let answer = client.call(&set(&format!("k{number}"), "v").vbucket(VB));
            match answer.status {
                Status::SUCCESS | Status::ETMPFAIL => {}
                status => {
                    assert_eq!(status, Status::NOT_MY_VBUCKET);
                    return number;
                }
            }
        }
        0
    });
    eventually("some is replicated", || {
        let request = Request::of(Opcode::GET_REPLICA, "k50").vbucket(VB);
        there.call(&request).status == Status::SUCCESS
    });
    let log = failover_log(&mut here, VB);
    manager.close(VB);
    manager.add(std::iter::once(VB), TAKEOVER);
    eventually("it is handed over", || {
        state_of(&mut there, VB)[3] == ACTIVE
    });
    let written = writer.join().unwrap();
    assert_eq!(state_of(&mut here, VB)[3], DEAD);
    assert_eq!(failover_log(&mut there, VB), log, "the history goes on");
    assert!(written > 50);
    for number in 0..written {
        let get = Request::of(Opcode::GET, &format!("k{number}")).vbucket(VB);
        there.call(&get).ok();
    }
    there.call(&set("after", "v").vbucket(VB)).ok();
    // The stream is over, so its name can be used again.
    set_vbucket(&mut there, VB, REPLICA);
    set_vbucket(&mut here, VB, ACTIVE);
    manager.add(std::iter::once(VB), 0);
}
