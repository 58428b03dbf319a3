//! State of a bucket's streams: it handles received frames and selects the next stream requests. No I/O of its own.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use changes::{Collections, DocumentChange, Names, StreamMessage, Streams};
use client::{Nodes, Outgoing, map_in};
use model::{Seqno, VbId, VbUuid};
use wire::dcp::{EndReason, StreamRequest, parse_rollback};
use wire::response::FailoverEntries;
use wire::{Envelope, Frame, Opaque, Opcode, Response, Status};

use super::broken::{Unread, malformed, refused, unserved, violation};
use crate::exit::{Failure, Sysexit};

/// Delay before a stream is requested again.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest time in which a node may continue a stream after a map gave its vBucket to another node. The node ends the
/// stream itself, unless it is cut off from the others.
pub(crate) const MOVE_PATIENCE: Duration = Duration::from_secs(2);

/// An event for the command.
pub(crate) enum StreamEvent<'a> {
    /// A document changed.
    Change {
        change: DocumentChange<'a>,
        names: Names<'a>,
        /// History of its vBucket.
        history: VbUuid,
        /// The message.
        frame: &'a Frame<'a>,
    },
    /// A collection or a scope changed.
    System,
    /// Changes of a vBucket after this seqno are void.
    Rollback(VbId, Seqno),
}

/// Location of a vBucket's stream.
#[derive(Clone, Copy, Debug, Default)]
struct StreamPlace {
    /// Node at which the stream is open or requested.
    node: Option<usize>,
    /// Time since which no node grants the stream.
    lost_at: Option<Instant>,
    /// Time since which the map gives the vBucket to another node than `node`.
    moved_at: Option<Instant>,
}

/// Streams of a bucket, and the nodes that send them.
pub(super) struct Reading {
    pub(super) nodes: Nodes,
    pub(super) streams: Streams,
    pub(super) collections: Collections,
    /// Whether keys carry the identifier of their collection.
    pub(super) keyed: bool,
    places: Vec<StreamPlace>,
    /// Time of the next requests for wanted streams.
    ask_at: Option<Instant>,
    /// Time of the next check for nodes that do not end streams of moved vBuckets.
    look_at: Option<Instant>,
    /// Last reason why a stream is missing.
    trouble: Option<Failure>,
}

impl Reading {
    /// Creates the state; all wanted streams are to be requested.
    pub(super) fn new(nodes: Nodes, streams: Streams) -> Self {
        Self {
            nodes,
            places: vec![StreamPlace::default(); streams.vbuckets()],
            streams,
            collections: Collections::only_default(),
            keyed: false,
            ask_at: Some(Instant::now()),
            look_at: None,
            trouble: None,
        }
    }

    /// Returns whether requests for wanted streams are due.
    pub(super) fn is_due(&self) -> bool {
        self.ask_at.is_some_and(|at| at <= Instant::now())
    }

    /// Returns the nodes that have the vBuckets of wanted streams.
    ///
    /// # Errors
    /// No node granted a stream for `patience`.
    pub(super) fn wanted_nodes(&mut self, patience: Duration) -> Result<BTreeSet<usize>, Failure> {
        self.ask_at = None;
        for vbucket in self.streams.missing_streams() {
            let lost_at = self.places[usize::from(vbucket.0)].lost_at;
            if lost_at.is_some_and(|at| at.elapsed() >= patience) {
                return Err(self.trouble.take().unwrap_or_else(|| unserved(vbucket)));
            }
        }
        let owners = self
            .streams
            .missing_streams()
            .filter_map(|vb| self.nodes.owner(vb));
        Ok(owners.collect())
    }

    /// Returns the requests for wanted streams at connected nodes, each with its node. Other streams remain wanted.
    pub(super) fn requests(
        &mut self,
        is_connected: impl Fn(usize) -> bool,
    ) -> Vec<(usize, VbId, StreamRequest<'static>)> {
        let nodes = &self.nodes;
        let at = |vbucket| nodes.owner(vbucket).filter(|node| is_connected(*node));
        let requests = self.streams.requests(|vbucket| at(vbucket).is_some());
        let placed = requests
            .into_iter()
            .filter_map(|(vbucket, request)| Some((at(vbucket)?, vbucket, request)));
        let placed: Vec<_> = placed.collect();
        for (node, vbucket, _) in &placed {
            let place = &mut self.places[usize::from(vbucket.0)];
            (place.node, place.moved_at) = (Some(*node), None);
        }
        let mut is_unserved = false;
        for VbId(vbucket) in self.streams.missing_streams() {
            is_unserved = true;
            let place = &mut self.places[usize::from(vbucket)];
            place.lost_at.get_or_insert_with(Instant::now);
        }
        if is_unserved {
            self.ask_after(AGAIN);
        }
        placed
    }

    /// Returns whether a stream is open or requested at a node.
    pub(super) fn has_streams(&self, node: usize) -> bool {
        self.places.iter().any(|place| place.node == Some(node))
    }

    /// Marks the streams of a lost connection as wanted again.
    pub(super) fn leave(&mut self, node: usize, failure: Failure) {
        for (vbucket, place) in (0..).zip(&mut self.places) {
            if place.node == Some(node) {
                place.node = None;
                place.lost_at.get_or_insert_with(Instant::now);
                self.streams.want_again(VbId(vbucket));
            }
        }
        self.trouble = Some(failure);
        self.ask_after(Duration::ZERO);
    }

    /// Notes the reason why streams are missing.
    pub(super) fn note(&mut self, trouble: Failure) {
        self.trouble = Some(trouble);
    }

    /// Returns the nodes that continue streams for [`MOVE_PATIENCE`] after the map gave their vBuckets to other nodes.
    pub(super) fn cut_off(&mut self) -> BTreeSet<usize> {
        let now = Instant::now();
        if self.look_at.is_none_or(|at| at > now) {
            return BTreeSet::new();
        }
        let open = self.places.iter().filter(|place| place.node.is_some());
        let moved = open.filter_map(|place| Some((place.node?, place.moved_at?)));
        self.look_at = moved
            .clone()
            .map(|(_, at)| at + MOVE_PATIENCE)
            .filter(|at| *at > now)
            .min();
        let overdue = moved.filter(|(_, at)| *at + MOVE_PATIENCE <= now);
        overdue.map(|(node, _)| node).collect()
    }

    /// Handles a frame of a node; returns whether the command wants more.
    ///
    /// # Errors
    /// The server refuses or violates the protocol, or the error of `on`.
    pub(super) fn take(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Outgoing,
        node: usize,
        on: &mut impl FnMut(StreamEvent<'_>) -> Result<bool, Unread>,
    ) -> Result<bool, Unread> {
        if let Some(map) = map_in(frame) {
            self.learn(map, node);
        }
        match frame.header.magic {
            magic if magic.is_client_response() => self.on_answer(frame, on),
            magic if magic.is_client_request() => self.on_message(frame, out, on),
            _ => Ok(true),
        }
    }

    fn learn(&mut self, map: &[u8], named_by: usize) {
        if !self.nodes.learn(map, named_by) {
            return;
        }
        let now = Instant::now();
        for (vbucket, place) in (0..).zip(&mut self.places) {
            let owner = self.nodes.owner(VbId(vbucket));
            let has_moved = owner.is_some() && place.node.is_some() && owner != place.node;
            place.moved_at = has_moved.then(|| place.moved_at.unwrap_or(now));
            if has_moved && self.look_at.is_none() {
                self.look_at = Some(now + MOVE_PATIENCE);
            }
        }
        self.ask_after(Duration::ZERO);
    }

    /// Handles the answer to a stream request.
    fn on_answer(
        &mut self,
        frame: &Frame<'_>,
        on: &mut impl FnMut(StreamEvent<'_>) -> Result<bool, Unread>,
    ) -> Result<bool, Unread> {
        if frame.header.opcode != Opcode::DCP_STREAM_REQ {
            return Ok(true);
        }
        let vbucket = vbucket_of(frame.header.opaque);
        let Some(place) = self.places.get_mut(usize::from(vbucket.0)) else {
            return Err(violation("an answer to no request").into());
        };
        if frame.status() == Status::SUCCESS {
            place.lost_at = None;
            let log = FailoverEntries::parse(frame.value).map_err(malformed)?;
            self.streams
                .granted(vbucket, log.iter())
                .map_err(violation)?;
            return Ok(true);
        }
        place.node = None;
        match frame.status() {
            Status::ROLLBACK => {
                let to = parse_rollback(frame.value).map_err(malformed)?;
                let to = self.streams.rolled_back(vbucket, to).map_err(violation)?;
                self.ask_after(Duration::ZERO);
                return on(StreamEvent::Rollback(vbucket, to));
            }
            Status::ETMPFAIL | Status::ENOMEM | Status::EBUSY => {}
            Status::NOT_MY_VBUCKET => {
                place.lost_at.get_or_insert_with(Instant::now);
                self.note(refused(vbucket, Status::NOT_MY_VBUCKET));
            }
            status => return Err(refused(vbucket, status).into()),
        }
        self.streams.want_again(vbucket);
        self.ask_after(AGAIN);
        Ok(true)
    }

    /// Handles a message of a stream.
    fn on_message(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Outgoing,
        on: &mut impl FnMut(StreamEvent<'_>) -> Result<bool, Unread>,
    ) -> Result<bool, Unread> {
        match changes::take(frame, &mut self.streams, self.keyed).map_err(violation)? {
            StreamMessage::Change(change) => {
                let history = self.streams.history(change.vbucket());
                let names = self.collections.names(change.collection);
                on(StreamEvent::Change {
                    change,
                    names,
                    history,
                    frame,
                })
            }
            StreamMessage::System(event) => {
                self.collections.learn(&event);
                on(StreamEvent::System)
            }
            StreamMessage::Ended { reason, again } => {
                if reason == EndReason::LOST_PRIVILEGES {
                    let lost = "the user may no longer read this bucket";
                    return Err(Failure::new(Sysexit::NoPerm, lost).into());
                }
                self.ended(frame.vbucket(), again);
                Ok(true)
            }
            StreamMessage::Noop => {
                let answer = Response::new(Opcode::DCP_NOOP, frame.header.opaque, Status::SUCCESS);
                out.answer(&answer);
                Ok(true)
            }
            StreamMessage::Nothing => Ok(true),
        }
    }

    fn ended(&mut self, vbucket: VbId, again: bool) {
        let place = self.places.get_mut(usize::from(vbucket.0));
        let node = place.and_then(|place| place.node.take());
        if again {
            // If the map has another owner, the vBucket has moved there.
            let has_moved = self.nodes.owner(vbucket) != node;
            self.ask_after(if has_moved { Duration::ZERO } else { AGAIN });
        }
    }

    /// Makes the next requests due after `delay`, unless they are due earlier.
    fn ask_after(&mut self, delay: Duration) {
        let at = Instant::now() + delay;
        self.ask_at = Some(self.ask_at.map_or(at, |before| before.min(at)));
    }
}

/// Returns the envelope of a stream request; the answer has the same opaque.
pub(super) fn stream_envelope(vbucket: VbId) -> Envelope<'static> {
    let [high, low] = vbucket.0.to_be_bytes();
    Envelope {
        vbucket,
        opaque: Opaque([0, 0, high, low]),
        ..Envelope::default()
    }
}

/// Returns the vBucket of a stream request by its opaque.
fn vbucket_of(Opaque([_, _, high, low]): Opaque) -> VbId {
    VbId(u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use changes::{Position, VbPosition};
    use client::testing::{FakeServer, Fault};
    use model::SnapshotRange;
    use wire::{ClusterMapNotification, Decoded, Limits};

    use super::*;

    const VBUCKETS: u16 = 64;
    const VB: VbId = VbId(1);

    /// Requests all streams of a server that has all vBuckets.
    fn asked() -> Reading {
        let server = FakeServer::start(true, Fault::None);
        let (nodes, _) = Nodes::connect(&server.options()).unwrap();
        let mut reading = Reading::new(nodes, Streams::from(Position::beginning(VBUCKETS)));
        assert_eq!(reading.wanted_nodes(PATIENCE).unwrap(), BTreeSet::from([0]));
        assert_eq!(reading.requests(|node| node == 0).len(), 64);
        assert!(!reading.is_due());
        reading
    }

    const PATIENCE: Duration = Duration::from_mins(1);

    /// Returns a map in which another node has all vBuckets except `unserved`, which no node has.
    fn moved(unserved: VbId) -> String {
        let row = |vbucket| if vbucket == unserved.0 { "[-1]" } else { "[1]" };
        let rows: Vec<_> = (0..VBUCKETS).map(row).collect();
        format!(
            r#"{{"rev":9,"nodesExt":[{{"services":{{}},"thisNode":true}},{{"services":{{"kv":9}}}}],
                "vBucketServerMap":{{"vBucketMap":[{}]}}}}"#,
            rows.join(",")
        )
    }

    fn take(reading: &mut Reading, frame: &[u8]) -> Vec<(VbId, Seqno)> {
        let Ok(Decoded::Frame { frame, .. }) = wire::decode(frame, Limits::AUTHENTICATED) else {
            panic!("no frame");
        };
        let mut rollbacks = Vec::new();
        let mut on = |told: StreamEvent<'_>| {
            if let StreamEvent::Rollback(vbucket, to) = told {
                rollbacks.push((vbucket, to));
            }
            Ok(true)
        };
        let taken = reading.take(&frame, &mut Outgoing::default(), 0, &mut on);
        assert!(matches!(taken, Ok(true)), "{taken:?}");
        rollbacks
    }

    /// Returns the answer to a stream request.
    fn answer(vbucket: VbId, status: Status, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let opaque = stream_envelope(vbucket).opaque;
        let answer = Response::new(Opcode::DCP_STREAM_REQ, opaque, status);
        Response { value, ..answer }.encode(&mut out);
        out
    }

    /// Returns a failover log of one history.
    fn log() -> Vec<u8> {
        [7_u64.to_be_bytes(), 0_u64.to_be_bytes()].concat()
    }

    /// Returns a map notification.
    fn push(map: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let notice = ClusterMapNotification {
            revision: wire::ConfigRev::default(),
            bucket: b"travel",
            map: Some(map.as_bytes()),
            datatype: model::Datatype::RAW,
        };
        notice.encode(Opaque::default(), &mut out);
        out
    }

    #[test]
    fn refused_stream_is_requested_at_the_node_of_the_sent_map() {
        let mut reading = asked();
        take(
            &mut reading,
            &answer(VB, Status::NOT_MY_VBUCKET, moved(VbId(5)).as_bytes()),
        );
        assert!(reading.is_due());
        assert_eq!(reading.wanted_nodes(PATIENCE).unwrap(), BTreeSet::from([1]));
        assert!(reading.requests(|node| node == 0).is_empty());
        let asked = reading.requests(|_| true);
        assert_eq!(
            asked
                .iter()
                .map(|asked| (asked.0, asked.1))
                .collect::<Vec<_>>(),
            [(1, VB)]
        );
        assert!(reading.has_streams(0) && reading.has_streams(1));
    }

    #[test]
    fn streams_of_a_lost_connection_are_wanted_until_the_time_limit() {
        let mut reading = asked();
        take(&mut reading, &answer(VB, Status::SUCCESS, &log()));
        take(&mut reading, &push(&moved(VB)));
        reading.leave(0, Failure::new(Sysexit::Unavailable, "lost"));
        assert!(!reading.has_streams(0) && reading.is_due());
        assert_eq!(reading.wanted_nodes(PATIENCE).unwrap(), BTreeSet::from([1]));
        assert_eq!(reading.requests(|_| true).len(), 63);
        let ended = reading.wanted_nodes(Duration::ZERO).unwrap_err();
        assert_eq!(ended.to_string(), "lost");
        let ended = reading.wanted_nodes(Duration::ZERO).unwrap_err();
        assert_eq!(ended.to_string(), "vBucket 1 is active on no node");
    }

    #[test]
    fn node_that_does_not_end_streams_of_moved_vbuckets_is_cut_off() {
        let mut reading = asked();
        take(&mut reading, &push(&moved(VB)));
        assert!(reading.cut_off().is_empty(), "it may be about to end them");
        let long_ago = Instant::now().checked_sub(MOVE_PATIENCE).unwrap();
        reading.look_at = Some(long_ago);
        assert!(reading.cut_off().is_empty());
        assert!(reading.look_at.is_some(), "it is looked at again");
        reading.look_at = Some(long_ago);
        reading.places[2].moved_at = Some(long_ago);
        assert_eq!(reading.cut_off(), BTreeSet::from([0]));
        reading.leave(0, Failure::new(Sysexit::Unavailable, "cut off"));
        reading.look_at = Some(long_ago);
        assert!(reading.cut_off().is_empty());
    }

    #[test]
    fn stream_is_requested_again_after_a_rollback() {
        let mut position = Position::beginning(VBUCKETS);
        let place = &mut position.places[1];
        *place = VbPosition::at(VbUuid(9), Seqno(500));
        let end = Seqno(700);
        place.announce(SnapshotRange {
            start: Seqno(501),
            end,
        });
        place.reach(Seqno(600));
        let mut reading = asked();
        reading.streams = Streams::from(position);
        reading.streams.requests(|_| true);
        let to = 500_u64.to_be_bytes();
        let told = take(&mut reading, &answer(VB, Status::ROLLBACK, &to));
        assert_eq!(told, [(VB, Seqno(500))]);
        assert!(reading.is_due());
        let (node, vbucket, request) = reading.requests(|_| true)[0];
        assert_eq!((node, vbucket, request.start), (0, VB, Seqno(500)));
    }

    #[test]
    fn opaque_of_a_stream_request_is_its_vbucket() {
        for vbucket in [0, 1, 255, 256, 1023, 65535].map(VbId) {
            assert_eq!(vbucket_of(stream_envelope(vbucket).opaque), vbucket);
        }
    }
}
