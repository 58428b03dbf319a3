//! The streams of all vBuckets: their positions, and the requests to send next. No I/O.

use model::{FailoverEntry, Seqno, SnapshotRange, VbId, VbUuid};
use wire::dcp::{EndReason, StreamFlags, StreamRequest};

use crate::position::Position;
use crate::vb_position::VbPosition;
use crate::whole_points::WholePoints;

/// End of a stream that never ends.
const NO_END: Seqno = Seqno(u64::MAX);

/// State of the stream of one vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StreamState {
    /// The stream must be requested.
    Wanted,
    /// The stream was requested, or is open.
    Open,
    /// The stream reached its end.
    Done,
}

#[derive(Clone, Debug)]
struct VbStream {
    place: VbPosition,
    end: Seqno,
    standing: StreamState,
    failover_log: Vec<FailoverEntry>,
    whole: WholePoints,
}

/// The streams of a bucket.
#[derive(Clone, Debug)]
pub struct Streams {
    streams: Vec<VbStream>,
    done: usize,
}

/// A violation of the protocol by the producer; one line.
pub type Violation = String;

impl Streams {
    /// Creates streams that continue from a position, without an end.
    pub fn from(position: Position) -> Self {
        let streams = position.places.into_iter().map(|place| VbStream {
            whole: WholePoints::of(&place),
            place,
            end: NO_END,
            standing: StreamState::Wanted,
            failover_log: Vec::new(),
        });
        Self {
            streams: streams.collect(),
            done: 0,
        }
    }

    /// Number of vBuckets.
    pub fn vbuckets(&self) -> usize {
        self.streams.len()
    }

    /// Sets the last seqno of each stream. A stream that is already there is done.
    pub fn end_at(&mut self, high: impl IntoIterator<Item = (VbId, Seqno)>) {
        for stream in &mut self.streams {
            stream.end = Seqno(0);
        }
        for (vbucket, seqno) in high {
            if let Some(stream) = self.streams.get_mut(usize::from(vbucket.0)) {
                stream.end = seqno;
            }
        }
        for stream in &mut self.streams {
            if stream.place.seqno >= stream.end {
                stream.standing = StreamState::Done;
                self.done += 1;
            }
        }
    }

    /// Excludes vBuckets from the requests. Their positions stay.
    pub fn leave_out(&mut self, of: impl Fn(VbId) -> bool) {
        for (index, stream) in self.streams.iter_mut().enumerate() {
            if stream.standing != StreamState::Done && of(VbId(index as u16)) {
                stream.standing = StreamState::Done;
                self.done += 1;
            }
        }
    }

    /// Whether all streams are done.
    pub fn all_done(&self) -> bool {
        self.done == self.streams.len()
    }

    /// vBuckets whose streams must be requested.
    pub fn missing_streams(&self) -> impl Iterator<Item = VbId> {
        let all = self.streams.iter().enumerate();
        let wanted = all.filter(|(_, stream)| stream.standing == StreamState::Wanted);
        wanted.map(|(index, _)| VbId(index as u16))
    }

    /// Returns the requests for the wanted streams of some vBuckets, and marks them as requested.
    pub fn requests(&mut self, of: impl Fn(VbId) -> bool) -> Vec<(VbId, StreamRequest<'static>)> {
        let wanted: Vec<VbId> = self
            .missing_streams()
            .filter(|vbucket| of(*vbucket))
            .collect();
        let streams = &mut self.streams;
        let asked = wanted.into_iter().filter_map(|vbucket| {
            let stream = streams.get_mut(usize::from(vbucket.0))?;
            stream.standing = StreamState::Open;
            Some((vbucket, stream.request()))
        });
        asked.collect()
    }

    /// Notes that the producer granted a stream.
    ///
    /// # Errors
    /// The vBucket has no stream.
    pub fn granted(
        &mut self,
        vbucket: VbId,
        log: impl IntoIterator<Item = FailoverEntry>,
    ) -> Result<(), Violation> {
        let stream = self.open(vbucket)?;
        stream.failover_log = log.into_iter().collect();
        if stream.failover_log.is_empty() {
            return Err(format!("vBucket {} has no failover log", vbucket.0));
        }
        Ok(())
    }

    /// Notes a rollback. Returns the seqno after which changes are void: the last one, up to `to`, at which the
    /// received changes were a consistent state. The stream must be requested again.
    ///
    /// # Errors
    /// The rollback does not lead to an earlier seqno.
    pub fn rolled_back(&mut self, vbucket: VbId, to: Seqno) -> Result<Seqno, Violation> {
        let stream = self.open(vbucket)?;
        if to >= stream.place.seqno {
            let at = stream.place.seqno.0;
            return Err(format!(
                "vBucket {}: rollback from {at} to {}",
                vbucket.0, to.0
            ));
        }
        let to = stream.whole.back_to(to);
        stream.place = stream.resume_position();
        stream.place.roll_back(to);
        stream.failover_log.clear();
        stream.standing = StreamState::Wanted;
        Ok(to)
    }

    /// Notes that a stream is not available; it must be requested again.
    pub fn want_again(&mut self, vbucket: VbId) {
        if let Some(stream) = self.streams.get_mut(usize::from(vbucket.0))
            && stream.standing == StreamState::Open
        {
            stream.standing = StreamState::Wanted;
        }
    }

    /// Processes a snapshot marker.
    ///
    /// # Errors
    /// The marker does not fit the position.
    pub fn snapshot(&mut self, vbucket: VbId, range: SnapshotRange) -> Result<(), Violation> {
        let place = &mut self.open(vbucket)?.place;
        let at = place.seqno.0;
        let (start, end) = (range.start.0, range.end.0);
        let fits = place.announce(range);
        fits.then_some(())
            .ok_or_else(|| format!("vBucket {}: snapshot {start}..{end} at {at}", vbucket.0))
    }

    /// Processes a change, or a message that there is none up to `seqno`.
    ///
    /// # Errors
    /// The seqno is repeated, or outside of the snapshot.
    pub fn reached(&mut self, vbucket: VbId, seqno: Seqno) -> Result<(), Violation> {
        let stream = self.open(vbucket)?;
        let place = &mut stream.place;
        let (at, end) = (place.seqno.0, place.snapshot.end.0);
        let fits = place.reach(seqno);
        if fits && place.is_whole() {
            stream.whole.add(seqno);
        }
        fits.then_some(())
            .ok_or_else(|| format!("vBucket {}: seqno {} at {at} of {end}", vbucket.0, seqno.0))
    }

    /// Processes the end of a stream; returns whether it must be requested again.
    ///
    /// # Errors
    /// The vBucket has no stream, or the stream ended before its last seqno.
    pub fn ended(&mut self, vbucket: VbId, reason: EndReason) -> Result<bool, Violation> {
        let stream = self.open(vbucket)?;
        match reason {
            EndReason::OK if stream.place.seqno < stream.end && stream.end != NO_END => {
                let (at, end) = (stream.place.seqno.0, stream.end.0);
                Err(format!("vBucket {}: ended at {at} of {end}", vbucket.0))
            }
            EndReason::OK | EndReason::CLOSED | EndReason::FILTER_EMPTY => {
                stream.standing = StreamState::Done;
                self.done += 1;
                Ok(false)
            }
            _ => {
                stream.standing = StreamState::Wanted;
                Ok(true)
            }
        }
    }

    /// UUID of the history to which the newest change of a vBucket belongs.
    pub fn history(&self, vbucket: VbId) -> VbUuid {
        let stream = self.streams.get(usize::from(vbucket.0));
        stream.map_or(VbUuid(0), |stream| stream.resume_position().uuid)
    }

    /// Position of all streams.
    pub fn position(&self) -> Position {
        Position {
            places: self.streams.iter().map(VbStream::resume_position).collect(),
        }
    }

    fn open(&mut self, vbucket: VbId) -> Result<&mut VbStream, Violation> {
        self.streams
            .get_mut(usize::from(vbucket.0))
            .filter(|stream| stream.standing == StreamState::Open)
            .ok_or_else(|| format!("a message of vBucket {}, which has no stream", vbucket.0))
    }
}

impl VbStream {
    fn request(&self) -> StreamRequest<'static> {
        let place = match self.place.seqno {
            Seqno(0) => VbPosition::default(),
            _ => self.resume_position(),
        };
        StreamRequest {
            flags: StreamFlags::ACTIVE_ONLY,
            start: place.seqno,
            end: self.end,
            uuid: place.uuid,
            snapshot: place.snapshot,
            value: &[],
        }
    }

    fn resume_position(&self) -> VbPosition {
        let mut place = self.place;
        place.belong(self.failover_log.iter().copied());
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VB: VbId = VbId(1);

    fn range(start: u64, end: u64) -> SnapshotRange {
        SnapshotRange {
            start: Seqno(start),
            end: Seqno(end),
        }
    }

    fn log(uuid: u64, seqno: u64) -> [FailoverEntry; 1] {
        [FailoverEntry {
            uuid: VbUuid(uuid),
            seqno: Seqno(seqno),
        }]
    }

    /// Three vBuckets with granted streams.
    fn granted() -> Streams {
        let mut streams = Streams::from(Position::beginning(3));
        for (vbucket, _) in streams.requests(|_| true) {
            streams.granted(vbucket, log(7, 0)).unwrap();
        }
        streams
    }

    #[test]
    fn broken_stream_continues_from_its_position() {
        let mut streams = granted();
        assert!(streams.requests(|_| true).is_empty(), "all are open");
        streams.snapshot(VB, range(1, 10)).unwrap();
        streams.reached(VB, Seqno(4)).unwrap();
        streams.want_again(VB);
        streams.want_again(VbId(2));
        assert_eq!(streams.missing_streams().collect::<Vec<_>>(), [VB, VbId(2)]);
        let requests = streams.requests(|vbucket| vbucket == VB);
        assert_eq!(requests.len(), 1);
        let (vbucket, request) = requests[0];
        assert_eq!(vbucket, VB);
        assert_eq!(
            (request.start, request.uuid),
            (Seqno(4), VbUuid(7)),
            "of the history that it was granted in"
        );
        assert_eq!(request.snapshot, range(0, 10));
        let (vbucket, request) = streams.requests(|_| true)[0];
        assert_eq!((vbucket, request.snapshot), (VbId(2), range(0, 0)));
        assert_eq!(streams.position().places[1].uuid, VbUuid(7));
    }

    #[test]
    fn rollback_requests_the_stream_in_the_history_that_was_granted() {
        let mut streams = granted();
        for seqno in [500, 600] {
            streams.snapshot(VB, range(seqno - 9, seqno)).unwrap();
            streams.reached(VB, Seqno(seqno)).unwrap();
        }
        streams.want_again(VB);
        streams.requests(|_| true);
        assert_eq!(streams.rolled_back(VB, Seqno(500)), Ok(Seqno(500)));
        let (_, request) = streams.requests(|_| true)[0];
        assert_eq!((request.start, request.uuid), (Seqno(500), VbUuid(7)));
        assert_eq!(streams.rolled_back(VB, Seqno(0)), Ok(Seqno(0)));
        let (_, request) = streams.requests(|_| true)[0];
        assert_eq!((request.start, request.uuid), (Seqno(0), VbUuid(0)));
        assert!(streams.rolled_back(VB, Seqno(0)).is_err(), "no way forward");
    }

    #[test]
    fn rollback_leads_to_a_whole_snapshot() {
        let mut streams = granted();
        for (start, end) in [(1, 10), (11, 20), (21, 30)] {
            streams.snapshot(VB, range(start, end)).unwrap();
            streams.reached(VB, Seqno(start + 5)).unwrap();
            streams.reached(VB, Seqno(end)).unwrap();
        }
        let mut stored = Streams::from(streams.position());
        streams.want_again(VB);
        streams.requests(|_| true);
        // The change of a document up to 26 is not sent if the document changed again up to 30.
        assert_eq!(streams.rolled_back(VB, Seqno(26)), Ok(Seqno(20)));
        streams.requests(|_| true);
        assert_eq!(streams.rolled_back(VB, Seqno(19)), Ok(Seqno(10)));
        stored.requests(|_| true);
        assert_eq!(stored.rolled_back(VB, Seqno(29)), Ok(Seqno(0)));
        let mut partial = VbPosition::at(VbUuid(7), Seqno(450));
        assert!(partial.announce(range(451, 500)) && partial.reach(Seqno(460)));
        let mut position = Position::beginning(3);
        position.places[1] = partial;
        let mut stored = Streams::from(position);
        stored.requests(|_| true);
        assert_eq!(stored.rolled_back(VB, Seqno(455)), Ok(Seqno(450)));
    }

    #[test]
    fn streams_end_at_given_seqnos() {
        let mut streams = Streams::from(Position::beginning(3));
        streams.end_at([(VbId(0), Seqno(0)), (VB, Seqno(5))]);
        assert!(!streams.all_done());
        let requests = streams.requests(|_| true);
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].1.end, Seqno(5));
        streams.granted(VB, log(7, 0)).unwrap();
        assert!(streams.ended(VB, EndReason::OK).is_err(), "too early");
        streams.snapshot(VB, range(1, 5)).unwrap();
        streams.reached(VB, Seqno(5)).unwrap();
        assert_eq!(streams.ended(VB, EndReason::OK), Ok(false));
        assert!(streams.all_done());
        streams.want_again(VB);
        assert!(streams.requests(|_| true).is_empty());
    }

    #[test]
    fn stream_is_requested_again_after_state_change() {
        let mut streams = granted();
        assert_eq!(streams.ended(VB, EndReason::STATE_CHANGED), Ok(true));
        assert_eq!(streams.requests(|_| true).len(), 1);
        streams.want_again(VB);
        assert_eq!(streams.requests(|_| true).len(), 1);
    }

    #[test]
    fn streams_refuse_protocol_violations() {
        let mut streams = granted();
        assert!(streams.reached(VB, Seqno(1)).is_err(), "no snapshot");
        streams.snapshot(VB, range(1, 3)).unwrap();
        streams.reached(VB, Seqno(2)).unwrap();
        assert!(streams.reached(VB, Seqno(2)).is_err(), "twice");
        assert!(streams.reached(VB, Seqno(4)).is_err(), "beyond");
        assert!(streams.snapshot(VB, range(1, 2)).is_err(), "back");
        assert!(streams.granted(VB, []).is_err(), "no history");
        assert!(
            streams.reached(VbId(3), Seqno(1)).is_err(),
            "no such vBucket"
        );
        streams.ended(VB, EndReason::OK).unwrap();
        assert!(streams.reached(VB, Seqno(3)).is_err(), "after the end");
    }
}
