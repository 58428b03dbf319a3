//! A bucket's changes inside of the node: the streams of a producer behind which no socket stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bucket::Wake;
use model::{Now, Seqno, VbId};
use tokio::sync::Notify;
use wire::dcp::{DcpControl, OpenFlags};
use wire::{Decoded, Feature, FeatureSet, Limits, Opaque, Opcode, Status, decode};

use super::{Change, Collections, Place, Position, Streams, Told, take};
use crate::clock::SystemClock;
use crate::collections::to_json;
use crate::served::ServedBucket;
use crate::session::Refusal;
use crate::session::dcp::{OpenedStream, Produced, Producer, SILENCE_MAX};

/// How long a stream waits that cannot be had for the moment.
const AGAIN_NS: u64 = 500_000_000;

/// Where a feed begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the next change.
    Now,
    /// With everything that there is.
    Beginning,
    /// Where another one stopped.
    At(Position),
}

/// Something to tell.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// A document changed.
    Change(Change<'a>),
    /// What was told of a vBucket after a seqno did not last.
    Rollback(VbId, Seqno),
}

/// What a turn of a feed came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// There is more.
    More,
    /// Nothing until a ring, or for half a second.
    Idle,
    /// There will be nothing any more.
    Over,
}

/// Why there is no feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFeed {
    /// There is no such bucket.
    NoBucket,
    /// The position is of a bucket with another number of vBuckets.
    OtherBucket,
}

struct Doorbell(Arc<Notify>);

impl Wake for Doorbell {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// The changes of one bucket for one reader, who takes them at its own pace.
///
/// Nothing is read ahead: a feed that is not asked for more holds a cursor for each vBucket and
/// one turn's frames at most.
pub struct Feed {
    producer: Producer,
    features: FeatureSet,
    clock: Arc<SystemClock>,
    bell: Arc<Notify>,
    streams: Streams,
    collections: Collections,
    frames: Vec<u8>,
    /// When streams that are wanted are asked for.
    ask_at_ns: Option<u64>,
    keys_only: bool,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed")
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

impl Feed {
    /// A feed of a bucket; with `keys_only` it tells no values.
    pub(crate) fn open(
        served: &Arc<ServedBucket>,
        clock: Arc<SystemClock>,
        start: Start,
        keys_only: bool,
    ) -> Result<Self, NoFeed> {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let vbuckets = served.bucket.vbuckets();
        let position = match start {
            Start::Now => now_of(served),
            Start::Beginning => Position::beginning(vbuckets),
            Start::At(position) if position.places.len() == usize::from(vbuckets) => position,
            Start::At(_) => return Err(NoFeed::OtherBucket),
        };
        let manifest = to_json(&served.bucket.manifest()).to_string();
        let collections = Collections::of_manifest(manifest.as_bytes());
        let bell = Arc::new(Notify::new());
        let name = format!("http-changes:{}", NAMES.fetch_add(1, Ordering::Relaxed));
        let mut flags = OpenFlags::PRODUCER.with(OpenFlags::INCLUDE_DELETE_TIMES);
        if keys_only {
            flags = flags.with(OpenFlags::NO_VALUE);
        }
        let doorbell = Arc::new(Doorbell(Arc::clone(&bell)));
        let now = clock.now();
        let mut features = FeatureSet::EMPTY;
        for feature in [Feature::COLLECTIONS, Feature::JSON, Feature::XERROR] {
            features.insert(feature);
        }
        let mut producer = Producer::new(
            &name,
            Arc::clone(served),
            flags,
            doorbell,
            (now, SILENCE_MAX),
        );
        for name in [b"enable_noop".as_slice(), b"enable_expiry_opcode"] {
            let value = b"true";
            let set = producer.control(&DcpControl { name, value }, features);
            debug_assert!(set.is_ok(), "the producer knows its own settings");
        }
        Ok(Self {
            producer,
            features,
            clock,
            bell,
            streams: Streams::from(position),
            collections: collections.unwrap_or_else(Collections::only_default),
            frames: Vec::new(),
            ask_at_ns: Some(0),
            keys_only,
        })
    }

    /// Rings when there is something after [`Fed::Idle`].
    pub(crate) fn bell(&self) -> Arc<Notify> {
        Arc::clone(&self.bell)
    }

    /// Where it is.
    pub(crate) fn position(&self) -> Position {
        self.streams.position()
    }

    /// Tells some of what there is: a bounded amount. Does not block.
    pub(crate) fn turn(&mut self, mut tell: impl FnMut(News<'_>)) -> Fed {
        let now = self.clock.now();
        self.producer.heard(now);
        if !self.ask(now, &mut tell) {
            return Fed::Over;
        }
        let mut frames = std::mem::take(&mut self.frames);
        let produced = self.producer.produce(self.features, now, &mut frames);
        let sound = self.read(&frames, now, &mut tell);
        frames.clear();
        self.frames = frames;
        match produced {
            _ if !sound => Fed::Over,
            Produced::More => Fed::More,
            Produced::Idle if self.ask_at_ns.is_some_and(|at| at <= now.mono_ns) => Fed::More,
            Produced::Idle => Fed::Idle,
            Produced::Silent => Fed::Over,
        }
    }

    /// Takes what the producer sent; `false` if it makes no sense.
    fn read(&mut self, mut frames: &[u8], now: Now, tell: &mut impl FnMut(News<'_>)) -> bool {
        let limits = Limits::AUTHENTICATED;
        while let Ok(Decoded::Frame { frame, consumed }) = decode(frames, limits) {
            frames = &frames[consumed..];
            match take(&frame, &mut self.streams, true) {
                Ok(Told::Change(change)) => {
                    let names = self.collections.names(change.collection());
                    let change = change.named(names);
                    tell(News::Change(if self.keys_only {
                        change.without_value()
                    } else {
                        change
                    }));
                }
                Ok(Told::System(event)) => self.collections.learn(&event),
                Ok(Told::Ended { again, .. }) => {
                    if again {
                        self.ask_after(now, AGAIN_NS);
                    }
                }
                Ok(Told::Noop) => {
                    self.producer
                        .answered(Opcode::DCP_NOOP, Status::SUCCESS, Opaque::default());
                }
                Ok(Told::Nothing) => {}
                Err(violation) => {
                    tracing::error!(violation, "a stream of changes made no sense");
                    return false;
                }
            }
        }
        frames.is_empty()
    }

    /// Asks for the streams that are wanted; `false` if one can never be had.
    fn ask(&mut self, now: Now, tell: &mut impl FnMut(News<'_>)) -> bool {
        if self.ask_at_ns.is_none_or(|at| at > now.mono_ns) {
            return true;
        }
        self.ask_at_ns = None;
        for (vbucket, request) in self.streams.requests() {
            let opened =
                self.producer
                    .open_stream(vbucket, Opaque::default(), &request, self.features);
            let noted = match opened {
                Ok(OpenedStream::Accepted(log)) => {
                    self.streams.granted(vbucket, log.entries().iter().copied())
                }
                Ok(OpenedStream::Rollback(to)) => {
                    self.ask_after(now, 0);
                    let noted = self.streams.rolled_back(vbucket, to);
                    noted.map(|to| tell(News::Rollback(vbucket, to)))
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
        self.producer.close();
    }
}

/// Whether asking again does not help.
fn is_final(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Op(error) => matches!(error, engine::OpError::InvalidArgument(_)),
        Refusal::Status(status, _) => {
            matches!(
                *status,
                Status::EINVAL | Status::ERANGE | Status::NOT_SUPPORTED | Status::KEY_EEXISTS
            )
        }
        Refusal::UnknownCollection => true,
        Refusal::NoRoomYet => false,
    }
}

/// Where every vBucket is now.
fn now_of(served: &ServedBucket) -> Position {
    let place = |id| {
        let vbucket = served.bucket.with_vbucket(VbId(id), |vbucket| {
            (vbucket.failover_log().newest().uuid, vbucket.high_seqno())
        });
        match vbucket {
            Some((uuid, seqno)) if seqno > Seqno(0) => Place::at(uuid, seqno),
            _ => Place::default(),
        }
    };
    Position {
        places: (0..served.bucket.vbuckets()).map(place).collect(),
    }
}
