//! A thread that streams the vBucket; it is woken, driven and sends like a connection of a node.

use std::io::{self, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Instant;

use bucket::{Bucket, ReadBatching, ReadySet, Wake};
use engine::VBucket;
use engine::dcp::{ClaimedPosition, Event, FillResult, Stream, StreamAsk, StreamOptions};
use model::Seqno;
use storage::MemStore;

use crate::{NAME, VB};

/// Maximum bytes that a connection sends in one turn, and one stream in one visit.
const TURN_BYTES: usize = 128 << 10;
const SHARE_BYTES: usize = 64 << 10;

/// Wakes the follower's thread, as a connection's waker wakes its worker.
#[derive(Default)]
pub(crate) struct Unpark {
    pub(crate) thread: OnceLock<Thread>,
    pub(crate) wakes: AtomicU64,
}

impl Wake for Unpark {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A socket and its peer, which reads everything at once: the sending cost of a node, and its duration.
struct Loopback {
    near: TcpStream,
    far: TcpStream,
    read: Vec<u8>,
}

impl Loopback {
    fn new() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nonblocking(true)?;
        near.set_nodelay(true)?;
        far.set_nonblocking(true)?;
        Ok(Self {
            near,
            far,
            read: vec![0; TURN_BYTES],
        })
    }

    /// A connection checks for requests between two turns, and its worker for other connections.
    fn look_for_input(&mut self) {
        let nothing = self.near.read(&mut self.read);
        assert!(nothing.is_err(), "the peer says nothing");
        std::thread::yield_now();
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let moved = |result: io::Result<usize>| match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        };
        let (mut sent, mut read) = (0, 0);
        while read < bytes.len() {
            if sent < bytes.len() {
                sent += moved(self.near.write(&bytes[sent..]))?;
            }
            read += moved(self.far.read(&mut self.read))?;
        }
        Ok(())
    }
}

/// Totals of a follower.
#[derive(Default)]
pub(crate) struct Followed {
    pub(crate) changes: u64,
    pub(crate) pulls: u64,
    pub(crate) turns: u64,
}

/// One stream, driven as a node drives the streams of a connection.
pub(crate) struct Follower {
    bucket: Arc<Bucket<MemStore>>,
    ready: Arc<ReadySet>,
    stream: Stream,
    batching: ReadBatching,
    started: Instant,
    output: Vec<u8>,
    peer: Option<Loopback>,
    followed: Followed,
}

impl Follower {
    pub(crate) fn new(bucket: &Arc<Bucket<MemStore>>, ready: &Arc<ReadySet>, sends: bool) -> Self {
        let ask = StreamAsk {
            position: ClaimedPosition::default(),
            end: Seqno(u64::MAX),
            options: StreamOptions::default(),
        };
        let opened = bucket.with_vbucket(VB, |vbucket| Stream::open(vbucket, NAME, ask));
        let opened = opened.expect("it is there").expect("from nothing");
        Self {
            bucket: Arc::clone(bucket),
            ready: Arc::clone(ready),
            stream: opened.stream,
            batching: ReadBatching::default(),
            started: Instant::now(),
            output: Vec::new(),
            peer: sends.then(|| Loopback::new().expect("loopback")),
            followed: Followed::default(),
        }
    }

    /// Encodes available events, up to the stream's share.
    fn encode(&mut self, limit: usize) {
        while self.output.len() < limit {
            let Some(event) = self.stream.next_event() else {
                return;
            };
            if let Event::Change(document) = event {
                self.followed.changes += 1;
                self.output.extend_from_slice(&[0; 24]);
                self.output
                    .extend_from_slice(&document.seqno().0.to_be_bytes());
                self.output
                    .extend_from_slice(&document.cas().0.to_be_bytes());
                self.output.extend_from_slice(&[0; 15]);
                self.output.extend_from_slice(document.key_and_value());
            }
        }
    }

    /// Visits the vBucket once. Returns whether it has more.
    fn visit(&mut self) -> bool {
        let limit = TURN_BYTES.min(self.output.len() + SHARE_BYTES);
        let mut latest = false;
        loop {
            self.encode(limit);
            if self.output.len() >= limit {
                return true;
            }
            if latest {
                return false;
            }
            let stream = &mut self.stream;
            let fill = |vbucket: &mut VBucket| stream.fill(vbucket, NAME);
            let filled = self.bucket.with_vbucket_spinning(VB, fill);
            let (filled, garbage) = filled.expect("it is there");
            drop(garbage);
            self.followed.pulls += 1;
            latest = filled != FillResult::Ready;
        }
    }

    /// Does the work of a woken connection. Returns whether there is more to do at once.
    fn turn(&mut self) -> bool {
        self.followed.turns += 1;
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let mut seen = false;
        while self.output.len() < TURN_BYTES {
            let Some(vb) = self.ready.next(VB) else {
                break;
            };
            if seen || !self.batching.is_due(|| self.bucket.newest(vb), now_ns) {
                self.ready.mark_quietly(vb);
                break;
            }
            if self.visit() {
                self.ready.mark_quietly(vb);
            } else {
                seen = true;
            }
        }
        if let Some(peer) = &mut self.peer {
            peer.send(&self.output).expect("loopback");
            peer.look_for_input();
        } else {
            std::thread::yield_now();
        }
        std::hint::black_box(&self.output);
        self.output.clear();
        !self.ready.is_empty()
    }

    pub(crate) fn follow(mut self, stop: &AtomicBool) -> Followed {
        while !stop.load(Ordering::Relaxed) {
            if !self.turn() {
                std::thread::park();
            }
        }
        while self.turn() {}
        self.followed
    }
}
