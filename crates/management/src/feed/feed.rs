//! A bucket's changes inside the node: streams of a producer that has no socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bucket::{Clock, Purpose, Reservation, Wake};
use changes::{Collections, Position, Streams, VbPosition};
use model::{Now, Seqno, VbId};
use registry::collections::to_json;
use registry::dcp::SharedProducer;
use registry::{Env, SILENCE_MAX, ServedBucket};
use session::Refusal;
use session::dcp::{AskedStream, GuardedProducer, OpenedStream, Opening, Produced, Producer};
use tokio::sync::Notify;
use wire::dcp::{DcpControl, OpenFlags, StreamRequest};
use wire::{Feature, FeatureSet, Opaque, Status};

use super::large::LargeValue;
use super::piece::{LargeLoan, Piece};
use super::reader::{FeedPart, FeedReader};
use super::sink::{FeedEvent, NewsSink};

/// Delay before a stream that is not available is requested again, ns.
const AGAIN_NS: u64 = 500_000_000;

/// Start of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The next change.
    Now,
    /// The oldest change.
    Beginning,
    /// The position where another feed stopped.
    At(Position),
}

/// Selection of changes for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeSelection {
    /// Start of the feed.
    pub start: Start,
    /// True to leave values out.
    pub keys_only: bool,
    /// True for every version where the bucket keeps them.
    pub all_versions: bool,
    /// Scope of the changes; `None` for all scopes.
    pub scope: Option<String>,
    /// Collection of the changes; without a scope, of the default one.
    pub collection: Option<String>,
    /// Ranges of vBuckets, each with its first and last one; empty for all.
    pub vbuckets: Vec<(u16, u16)>,
}

impl ChangeSelection {
    fn wants(&self, vb: VbId) -> bool {
        let mut ranges = self.vbuckets.iter();
        self.vbuckets.is_empty() || ranges.any(|(first, last)| (*first..=*last).contains(&vb.0))
    }

    /// Returns the selected part of the bucket; `None` for the whole bucket.
    fn part(&self) -> Option<FeedPart> {
        let collection = self.collection.clone();
        let default = collection.is_some().then(|| "_default".to_owned());
        let scope = self.scope.clone().or(default)?;
        Some(FeedPart { scope, collection })
    }

    /// Returns the filter of stream requests; `None` if there is no such scope or collection.
    fn filter(&self, collections: &Collections) -> Option<String> {
        match (self.scope.as_deref(), self.collection.as_deref()) {
            (None, None) => Some(String::new()),
            (scope, collection) => collections.filter(scope.unwrap_or("_default"), collection),
        }
    }
}

/// Result of a feed's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedTurn {
    /// There is more.
    More,
    /// There is nothing until a ring, or for half a second.
    Idle,
    /// The feed has ended.
    Over,
}

/// Reason why a feed cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFeed {
    /// The bucket does not exist.
    NoBucket,
    /// The bucket has no such scope or collection.
    NoPart,
    /// The user may not stream these changes.
    Forbidden,
    /// The bucket has no vBucket of this number.
    NoVbucket,
    /// The position belongs to a bucket with another number of vBuckets.
    OtherBucket,
}

struct Doorbell(Arc<Notify>);

impl Wake for Doorbell {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// The changes of one bucket for one reader, which pulls them at its own pace.
///
/// The feed reads nothing ahead. While the reader pulls nothing, the feed holds a cursor for each vBucket and one large
/// value at most.
pub struct Feed {
    served: Arc<ServedBucket>,
    producer: Arc<GuardedProducer>,
    /// Value of each stream request.
    filter: Arc<str>,
    features: FeatureSet,
    clock: Arc<dyn Clock>,
    bell: Arc<Notify>,
    streams: Streams,
    collections: Collections,
    /// Value of the last change, if it is large.
    large: Option<LargeValue>,
    /// Time of the next stream requests, monotonic ns; `None` if none is due.
    ask_at_ns: Option<u64>,
    keys_only: bool,
    /// Part of the bucket; `None` for the whole bucket.
    part: Option<FeedPart>,
    reader: FeedReader,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed")
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

impl Feed {
    /// Opens a feed of a bucket. Statistics list it among the producers.
    pub fn open(
        served: &Arc<ServedBucket>,
        clock: Arc<dyn Clock>,
        env: Arc<dyn Env>,
        wanted: &ChangeSelection,
        mut reader: FeedReader,
    ) -> Result<Self, NoFeed> {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let vbuckets = served.bucket.vbuckets();
        if wanted.vbuckets.iter().any(|range| range.1 >= vbuckets) {
            return Err(NoFeed::NoVbucket);
        }
        let part = wanted.part();
        if !reader.may_read(served.name(), part.as_ref()) {
            return Err(NoFeed::Forbidden);
        }
        let position = match &wanted.start {
            Start::Now => now_of(served),
            Start::Beginning => Position::beginning(vbuckets),
            Start::At(position) if position.places.len() == usize::from(vbuckets) => {
                position.clone()
            }
            Start::At(_) => return Err(NoFeed::OtherBucket),
        };
        let manifest = to_json(&served.bucket.manifest()).to_string();
        let collections = Collections::of_manifest(manifest.as_bytes());
        let collections = collections.unwrap_or_else(Collections::only_default);
        let filter = wanted.filter(&collections).ok_or(NoFeed::NoPart)?;
        let mut streams = Streams::from(position);
        streams.leave_out(|vb| !wanted.wants(vb));
        let bell = Arc::new(Notify::new());
        let name = format!("http-changes:{}", NAMES.fetch_add(1, Ordering::Relaxed));
        let doorbell = Arc::new(Doorbell(Arc::clone(&bell)));
        let now = clock.now();
        let mut features = FeatureSet::EMPTY;
        features.insert(Feature::COLLECTIONS);
        let opening = Opening {
            flags: OpenFlags::PRODUCER,
            now,
            silence_max: SILENCE_MAX,
            env,
        };
        let mut producer = Producer::new(&name, Arc::clone(served), doorbell, opening);
        let versions = wanted.all_versions.then_some(b"change_streams".as_slice());
        let names = [b"enable_noop".as_slice(), b"enable_expiry_opcode"];
        for name in names.into_iter().chain(versions) {
            let value = b"true";
            let set = producer.control(&DcpControl { name, value }, features);
            debug_assert!(set.is_ok(), "the producer knows its own settings");
        }
        let producer = Arc::new(GuardedProducer::new(producer));
        served
            .dcp
            .enter_feed(&name, &(Arc::clone(&producer) as SharedProducer));
        Ok(Self {
            served: Arc::clone(served),
            producer,
            filter: filter.into(),
            features,
            clock,
            bell,
            streams,
            collections,
            large: None,
            ask_at_ns: Some(0),
            keys_only: wanted.keys_only,
            part,
            reader,
        })
    }

    /// Returns the bell that rings after [`FeedTurn::Idle`] when there is something to read.
    pub(crate) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }

    /// Reserves memory for the output of the next turn. If there is none, takes it back from idle readers.
    pub(crate) fn reserve(&self) -> Reservation {
        let served = &self.served;
        let reserve = || served.bucket.reserve(Purpose::Reader, 0, Duration::ZERO);
        let reservation = reserve();
        if reservation.is_granted() {
            return reservation;
        }
        let now_ns = self.clock.mono_ns();
        served.loans.take_back_idle(served.name(), now_ns);
        reserve()
    }

    /// Lends the large value of the last change to the reader.
    pub(crate) fn take_large(&mut self) -> Option<Arc<LargeLoan>> {
        let large = self.large.take()?;
        Some(LargeLoan::new(large, &self.served, self.clock.mono_ns()))
    }

    /// Returns monotonic time, ns.
    pub(crate) fn mono_ns(&self) -> u64 {
        self.clock.mono_ns()
    }

    /// Wraps a text to send; its memory counts until it was sent.
    pub(crate) fn piece(&self, text: Vec<u8>) -> Piece {
        Piece::new(text, &self.served)
    }

    /// Returns the current position.
    pub(crate) fn position(&self) -> Position {
        self.streams.position()
    }

    /// Passes a bounded number of events to `tell`. Does not block.
    pub(crate) fn turn(&mut self, mut tell: impl FnMut(FeedEvent<'_>)) -> FeedTurn {
        let now = self.clock.now();
        if !self.reader.may_read(self.served.name(), self.part.as_ref()) {
            return FeedTurn::Over;
        }
        self.producer.lock().heard(now);
        if !self.ask(now, &mut tell) {
            return FeedTurn::Over;
        }
        let (streams, collections) = (&mut self.streams, &mut self.collections);
        let mut sink = NewsSink::new(streams, collections, self.keys_only, &mut tell);
        let produced = self.producer.lock().produce(now, &mut sink);
        let (large, ask_again, violation) = (sink.large, sink.ask_again, sink.violation);
        self.large = large;
        if ask_again {
            self.ask_after(now, AGAIN_NS);
        }
        if let Some(violation) = violation {
            tracing::error!(violation, "a stream of changes made no sense");
            return FeedTurn::Over;
        }
        match produced {
            _ if self.streams.all_done() => FeedTurn::Over,
            Produced::More => FeedTurn::More,
            Produced::Idle if self.ask_at_ns.is_some_and(|at| at <= now.mono_ns) => FeedTurn::More,
            Produced::Idle => FeedTurn::Idle,
            Produced::Silent => FeedTurn::Over,
        }
    }

    /// Requests the streams that are due; returns `false` if one can never be opened.
    fn ask(&mut self, now: Now, tell: &mut impl FnMut(FeedEvent<'_>)) -> bool {
        if self.ask_at_ns.is_none_or(|at| at > now.mono_ns) {
            return true;
        }
        self.ask_at_ns = None;
        let filter = Arc::clone(&self.filter);
        for (vbucket, request) in self.streams.requests(|_| true) {
            let request = StreamRequest {
                value: filter.as_bytes(),
                ..request
            };
            let opened = {
                let asked = AskedStream {
                    opaque: Opaque::default(),
                    request: &request,
                    features: self.features,
                    // All streams have the same filter, and each turn checks the reader's access to it.
                    may: &|_| Ok(()),
                };
                self.producer.lock().open_stream(vbucket, &asked)
            };
            let noted = match opened {
                Ok(OpenedStream::Accepted(log)) => {
                    self.streams.granted(vbucket, log.entries().iter().copied())
                }
                Ok(OpenedStream::Rollback(to)) => {
                    self.ask_after(now, 0);
                    let noted = self.streams.rolled_back(vbucket, to);
                    noted.map(|to| tell(FeedEvent::Rollback(vbucket, to)))
                }
                Err(refusal) if is_final(&refusal) => Err(format!("{refusal:?}")),
                Err(_) => {
                    self.streams.want_again(vbucket);
                    self.ask_after(now, AGAIN_NS);
                    Ok(())
                }
            };
            if let Err(reason) = noted {
                tracing::warn!(vb = vbucket.0, reason, "cannot stream changes");
                return false;
            }
        }
        true
    }

    fn ask_after(&mut self, now: Now, delay_ns: u64) {
        let at = now.mono_ns.saturating_add(delay_ns);
        self.ask_at_ns = Some(self.ask_at_ns.map_or(at, |before| before.min(at)));
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.producer.leave();
    }
}

/// Checks whether another request would fail again.
fn is_final(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Op(error) => matches!(error, engine::OpError::InvalidArgument(_)),
        Refusal::Status(status, _) => {
            matches!(
                *status,
                Status::EINVAL | Status::ERANGE | Status::NOT_SUPPORTED | Status::KEY_EEXISTS
            )
        }
        Refusal::UnknownCollection | Refusal::MissingPrivileges(_) | Refusal::Last(..) => true,
        Refusal::NoMemoryYet(_) | Refusal::Parked(_) => false,
    }
}

/// Returns the current position of every vBucket.
fn now_of(served: &ServedBucket) -> Position {
    let place = |id| {
        let vbucket = served.bucket.with_vbucket(VbId(id), |vbucket| {
            (vbucket.failover_log().newest().uuid, vbucket.high_seqno())
        });
        match vbucket {
            Some((uuid, seqno)) if seqno > Seqno(0) => VbPosition::at(uuid, seqno),
            _ => VbPosition::default(),
        }
    };
    Position {
        places: (0..served.bucket.vbuckets()).map(place).collect(),
    }
}
