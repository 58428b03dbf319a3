//! A client of change streams. It follows each vBucket from its active copy, with the positions of `settee tail`,
//! and keeps what it received.

use std::collections::BTreeMap;
use std::sync::Arc;

use bucket::Clock as _;
use changes::{Position, StreamMessage, Streams, take};
use cluster::{BucketId, Vb};
use engine::Mutated;
use model::{Cas, FailoverEntry, Seqno, VbId, VbUuid};
use wire::dcp::{CollectionEvent, EventId, parse_rollback};
use wire::response::FailoverEntries;
use wire::{Envelope, Frame, Magic, Message as _, Status};

use crate::buckets::{KEYS_DEFAULT, Read, VBUCKETS, key};
use crate::link::frames;
use crate::producer::{Peer, Producer, Reads};
use crate::rng::Rng;
use crate::world::World;

/// Probability that a client asks for a stream that it lacks.
const ASKS_PER_MILLE: u64 = 300;
/// Probability that it asks a node that does not serve the vBucket.
const ASTRAY_PER_MILLE: u64 = 100;
/// Probability that the connection of a stream breaks.
const BREAKS_PER_MILLE: u64 = 30;
/// Probability that a client reads its position from a file before it asks.
const RESUMES_PER_MILLE: u64 = 200;
/// Probability that a client goes away.
const LEAVES_PER_MILLE: u64 = 5;
/// Probability that what it has is compared with a copy in the midst of writes.
const COMPARES_PER_MILLE: u64 = 100;

/// A change that a stream brought.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Brought {
    /// A document with a key has the number of a write, or was deleted, with a CAS.
    Document(Vec<u8>, Option<u64>, Cas),
    Begun(u32),
    Dropped(u32),
}

/// Connection of a stream: the node, the number of its start, and the number of the connection.
#[derive(Clone, Copy, Debug)]
struct Connection {
    node: usize,
    boot: u64,
    number: u64,
}

struct Followed {
    /// Positions of the product's own clients; only the place of this vBucket is used.
    streams: Streams,
    /// Failover log of the granted stream.
    log: Vec<FailoverEntry>,
    changes: Vec<(Seqno, Brought)>,
    connection: Option<Connection>,
}

impl Followed {
    fn new() -> Self {
        Self {
            streams: Streams::from(Position::beginning(VBUCKETS)),
            log: Vec::new(),
            changes: Vec::new(),
            connection: None,
        }
    }

    fn seqno(&self, vb: Vb) -> Seqno {
        self.streams.position().places[usize::from(vb.number)].seqno
    }

    fn is_whole(&self, vb: Vb) -> bool {
        self.streams.position().places[usize::from(vb.number)].is_whole()
    }

    /// Returns the seqnos of the documents and the numbers of their writes, by their keys.
    fn documents(&self) -> BTreeMap<&[u8], (Seqno, u64)> {
        let mut all: BTreeMap<&[u8], (Seqno, u64)> = BTreeMap::new();
        for (seqno, change) in &self.changes {
            match change {
                Brought::Document(key, Some(number), _) => {
                    all.insert(key, (*seqno, *number));
                }
                Brought::Document(key, None, _) => {
                    all.remove(&**key);
                }
                Brought::Begun(_) => {}
                Brought::Dropped(id) => all.retain(|key, _| u32::from(key[0]) != *id),
            }
        }
        all
    }

    /// Returns an earlier change of the document with a CAS that is not lower.
    fn newer(&self, change: &Brought) -> Option<&Brought> {
        let Brought::Document(key, _, cas) = change else {
            return None;
        };
        let mut earlier = self.changes.iter().rev().map(|(_, earlier)| earlier);
        earlier.find(|earlier| matches!(earlier, Brought::Document(of, _, before) if of == key && before >= cas))
    }

    /// Returns the history to which a change belongs.
    fn history(&self, seqno: Seqno) -> VbUuid {
        let entry = self.log.iter().find(|entry| entry.seqno < seqno);
        entry.map_or(VbUuid(0), |entry| entry.uuid)
    }

    /// The connection is lost, or the stream was refused.
    fn breaks(&mut self, vb: Vb) {
        self.connection = None;
        self.streams.want_again(VbId(vb.number));
    }
}

pub(crate) struct Subscriber {
    reads: Reads,
    rng: Rng,
    away_until_ms: u64,
    followed: BTreeMap<Vb, Followed>,
    /// Changes by vBucket, history and seqno.
    seen: BTreeMap<(Vb, VbUuid, Seqno), Brought>,
    /// Changes of each key of the default collection.
    changed: BTreeMap<(Vb, [u8; 3]), Vec<Mutated>>,
    connections: u64,
}

impl Subscriber {
    pub(crate) fn new(seed: u64, reads: Reads) -> Self {
        Self {
            reads,
            rng: Rng::new(seed ^ 0x5ab5_c71b),
            away_until_ms: 0,
            followed: BTreeMap::new(),
            seen: BTreeMap::new(),
            changed: BTreeMap::new(),
            connections: 0,
        }
    }

    /// Records a change of a key that a client made.
    pub(crate) fn changed(&mut self, (vb, number): (Vb, u8), mutated: Mutated) {
        if let Some(key) = key(number, None) {
            let changes = self.changed.entry((vb, key)).or_default();
            changes.push(mutated);
        }
    }

    /// Returns a document of a complete snapshot that was changed in the snapshot or before it, after the change that
    /// the client has.
    fn outdated(&self, vb: Vb) -> Option<String> {
        let followed = self.followed.get(&vb).filter(|one| one.is_whole(vb))?;
        let at = followed.seqno(vb);
        let documents = followed.documents();
        (0..KEYS_DEFAULT).find_map(|number| {
            let key = key(number, None)?;
            let (has, _) = *documents.get(&key[..])?;
            let changes = self.changed.get(&(vb, key))?;
            let missed = changes.iter().find(|change| {
                (has.next()..=at).contains(&change.seqno)
                    && followed.history(change.seqno) == change.vb_uuid
            })?;
            let missed = missed.seqno;
            Some(format!(
                "{vb:?} at {at:?} has {key:?} of {has:?}, not of {missed:?}"
            ))
        })
    }

    pub(crate) fn forget(&mut self, bucket: BucketId) {
        self.followed.retain(|vb, _| vb.bucket != bucket);
    }

    /// Takes a frame of a producer; returns a violation of its promises.
    fn take(&mut self, vb: Vb, frame: &Frame<'_>) -> Result<(), String> {
        let Some(followed) = self.followed.get_mut(&vb) else {
            return Ok(());
        };
        let id = VbId(vb.number);
        if frame.header.magic == Magic::ClientResponse {
            match frame.status() {
                Status::SUCCESS => {
                    let log = FailoverEntries::parse(frame.value).expect("a failover log");
                    followed.log = log.iter().collect();
                    followed.streams.granted(id, log.iter())?;
                }
                Status::ROLLBACK => {
                    let to = parse_rollback(frame.value).expect("a seqno");
                    let to = followed.streams.rolled_back(id, to)?;
                    followed.changes.retain(|(seqno, _)| *seqno <= to);
                    followed.connection = None;
                }
                Status::NOT_MY_VBUCKET | Status::ETMPFAIL => followed.breaks(vb),
                status => return Err(format!("{vb:?}: a stream is refused with {status:?}")),
            }
            return Ok(());
        }
        let (seqno, change) =
            match take(frame, &mut followed.streams, self.reads.has_collections())? {
                StreamMessage::Nothing | StreamMessage::Noop => return Ok(()),
                StreamMessage::Ended { again, .. } => {
                    assert!(again, "no stream has an end");
                    followed.connection = None;
                    return Ok(());
                }
                StreamMessage::System(event) => {
                    let parsed = CollectionEvent::parse(event.value).expect("an event");
                    let id = parsed.collection.expect("a collection").0;
                    let begun = event.event == EventId::BEGIN_COLLECTION;
                    let change = if begun {
                        Brought::Begun(id)
                    } else {
                        Brought::Dropped(id)
                    };
                    (event.seqno, change)
                }
                StreamMessage::Change(change) => {
                    let collection = change.collection.0 as u8;
                    let change = change.named(changes::Names::default());
                    let key = [&[collection], change.key].concat();
                    let number = change.value.map(|value| {
                        let text = std::str::from_utf8(value).ok();
                        let number = text.and_then(|text| text.parse().ok());
                        number.expect("the number of a write")
                    });
                    (change.seqno, Brought::Document(key, number, change.cas))
                }
            };
        let place = (vb, followed.history(seqno), seqno);
        let first = self.seen.entry(place).or_insert_with(|| change.clone());
        if *first != change {
            return Err(format!("{place:?} is {first:?} and {change:?}"));
        }
        if let Some(newer) = followed.newer(&change) {
            return Err(format!("{place:?} is {change:?} after {newer:?}"));
        }
        followed.changes.push((seqno, change));
        Ok(())
    }
}

impl World {
    /// Lets the client of change streams read, if there is one.
    pub(crate) fn subscribe(&mut self) {
        let Some(mut subscriber) = self.subscriber.take() else {
            return;
        };
        if !self.quiet && subscriber.rng.per_mille(LEAVES_PER_MILLE) {
            subscriber.away_until_ms = self.now_ms + subscriber.rng.range(1_000, 30_000);
            self.tell(|| format!("subscriber is away until {}", subscriber.away_until_ms));
            for (vb, followed) in &mut subscriber.followed {
                self.disconnect(*vb, followed);
            }
        }
        if self.quiet || self.now_ms >= subscriber.away_until_ms {
            for vb in self.vbs.clone() {
                if let Err(what) = self.follow(&mut subscriber, vb) {
                    self.checks.fail(format!("subscriber: {what}"));
                }
            }
        }
        self.subscriber = Some(subscriber);
    }

    fn disconnect(&mut self, vb: Vb, followed: &mut Followed) {
        if let Some(connection) = followed.connection {
            let buckets = &mut self.nodes[connection.node].vbs.buckets;
            if let Some(bucket) = buckets.get_mut(&vb.bucket) {
                bucket.subscribed.remove(&connection.number);
            }
            followed.breaks(vb);
        }
    }

    /// Reads the stream of a vBucket, or asks for it.
    fn follow(&mut self, subscriber: &mut Subscriber, vb: Vb) -> Result<(), String> {
        let followed = subscriber.followed.entry(vb).or_insert_with(Followed::new);
        let Some(connection) = followed.connection else {
            if subscriber.rng.per_mille(ASKS_PER_MILLE) {
                return self.ask(subscriber, vb);
            }
            return Ok(());
        };
        let node = &mut self.nodes[connection.node];
        if node.paused_until_ms > self.now_ms && node.up {
            return Ok(());
        }
        let bucket = node.vbs.buckets.get_mut(&vb.bucket);
        let producer = bucket.and_then(|bucket| bucket.subscribed.get_mut(&connection.number));
        let Some(producer) = producer.filter(|_| node.up && node.boot == connection.boot) else {
            followed.breaks(vb);
            return Ok(());
        };
        let mut bytes = Vec::new();
        let changes_max = [1, 3, 100][subscriber.rng.index(3)];
        producer.produce(changes_max, &mut bytes);
        let breaks = subscriber.rng.per_mille(BREAKS_PER_MILLE);
        let frames: Vec<Frame<'_>> = frames(&bytes).collect();
        let received = if breaks {
            subscriber.rng.index(frames.len() + 1)
        } else {
            frames.len()
        };
        for frame in &frames[..received] {
            subscriber.take(vb, frame)?;
            if let Some(outdated) = subscriber.outdated(vb) {
                return Err(outdated);
            }
        }
        if let Some(followed) = subscriber.followed.get_mut(&vb)
            && (breaks || followed.connection.is_none())
        {
            followed.connection = Some(connection);
            self.disconnect(vb, followed);
        } else if subscriber.rng.per_mille(COMPARES_PER_MILLE) {
            self.compare(subscriber, vb, connection.node)?;
        }
        Ok(())
    }

    /// Asks for the stream of a vBucket at the node that serves it, or at another one.
    fn ask(&mut self, subscriber: &mut Subscriber, vb: Vb) -> Result<(), String> {
        let astray = subscriber.rng.per_mille(ASTRAY_PER_MILLE);
        let nodes = (0..self.nodes.len()).filter(|node| {
            self.nodes[*node].runs(self.now_ms)
                && self.nodes[*node].vbs.buckets.contains_key(&vb.bucket)
                && (astray || self.nodes[*node].serves(vb, self.now_ms))
        });
        let nodes: Vec<usize> = nodes.collect();
        if nodes.is_empty() {
            return Ok(());
        }
        let index = nodes[subscriber.rng.index(nodes.len())];
        let resumes = subscriber.rng.per_mille(RESUMES_PER_MILLE);
        let followed = subscriber.followed.get_mut(&vb).expect("it is followed");
        if resumes {
            let text = followed.streams.position().to_string();
            followed.streams = Streams::from(text.parse().expect("a position"));
        }
        subscriber.connections += 1;
        let node = &mut self.nodes[index];
        let connection = Connection {
            node: index,
            boot: node.boot,
            number: subscriber.connections,
        };
        let peer = Peer {
            name: format!("subscriber {}", connection.number),
            sync_writes: false,
            reads: subscriber.reads,
            bug: self.bug,
        };
        let bucket = node.vbs.buckets.get_mut(&vb.bucket).expect("a bucket");
        let mut producer = Producer::new(peer, Arc::clone(&bucket.copies.bucket));
        let (mut asked, mut answer) = (Vec::new(), Vec::new());
        for (id, request) in followed.streams.requests(|id| id.0 == vb.number) {
            let envelope = Envelope {
                vbucket: id,
                ..Envelope::default()
            };
            let encoded = request.encode(&envelope, &mut asked);
            encoded.expect("a short message");
        }
        for frame in frames(&asked) {
            producer.request(&frame, &mut answer);
        }
        bucket.subscribed.insert(connection.number, producer);
        followed.connection = Some(connection);
        for frame in frames(&answer) {
            subscriber.take(vb, &frame)?;
            let status = frame.status();
            self.tell(|| format!("subscriber asks n{index} for {vb:?}: {status:?}"));
        }
        let followed = subscriber.followed.get_mut(&vb).expect("it is followed");
        if followed.connection.is_none() {
            followed.connection = Some(connection);
            self.disconnect(vb, followed);
        }
        Ok(())
    }

    /// Compares what the client has with the copy that it follows, if it has all changes.
    fn compare(&self, subscriber: &Subscriber, vb: Vb, index: usize) -> Result<(), String> {
        let node = &self.nodes[index];
        let Some(followed) = subscriber.followed.get(&vb) else {
            return Ok(());
        };
        let is_there = followed.is_whole(vb) && node.vbs.high_seqno(vb) == followed.seqno(vb);
        if !is_there || !node.serves(vb, self.now_ms) {
            return Ok(());
        }
        let now_s = node.clock.now().unix_s();
        let documents = followed.documents();
        for number in 0..KEYS_DEFAULT {
            let key = key(number, None).expect("a key of the default collection");
            let has = documents.get(&key[..]).map(|(_, number)| *number);
            let had = match node.vbs.read(vb, number) {
                Read::Number(number) => Some(number),
                Read::Nothing => None,
                Read::Undecided => continue,
            };
            let expired = has.is_some_and(|number| self.checks.is_expired(number, now_s));
            if has != had && !(expired && had.is_none()) {
                let at = followed.seqno(vb);
                return Err(format!(
                    "{vb:?} at {at:?}: {has:?} of key {number}, n{index} has {had:?}"
                ));
            }
        }
        Ok(())
    }

    /// Returns a difference between what the client and the active copies have, while other clients are quiet.
    pub(crate) fn subscriber_differs(&mut self) -> Option<String> {
        let view = self.agreed();
        let subscriber = self.subscriber.as_ref()?;
        for (vb, _, row) in view.rows() {
            let active = usize::from(row.chain.active().expect("copies").0);
            let node = &self.nodes[active];
            let Some(followed) = subscriber.followed.get(&vb) else {
                return Some(format!("subscriber: {vb:?} has no stream"));
            };
            let high = node.vbs.high_seqno(vb);
            if subscriber.reads.has_collections() && high != followed.seqno(vb)
                || !followed.is_whole(vb)
            {
                let at = followed.streams.position().places[usize::from(vb.number)];
                return Some(format!(
                    "subscriber: {vb:?} is at {at:?}, n{active} at {high:?}"
                ));
            }
            let mut documents = followed.documents();
            for number in 0..subscriber.reads.keys() {
                let key = key(number, node.vbs.collection(vb.bucket));
                let has = key.and_then(|key| documents.remove(&key[..]));
                let has = has.map(|(_, number)| number);
                let had = match node.vbs.read(vb, number) {
                    Read::Number(number) => Some(number),
                    Read::Nothing => None,
                    Read::Undecided => continue,
                };
                if has != had {
                    let at = followed.seqno(vb);
                    return Some(format!(
                        "subscriber: {vb:?} at {at:?} has {has:?} of key {number}, n{active} at {high:?} {had:?}"
                    ));
                }
            }
            if !documents.is_empty() {
                return Some(format!("subscriber: {vb:?} has {documents:?} as well"));
            }
        }
        None
    }
}
