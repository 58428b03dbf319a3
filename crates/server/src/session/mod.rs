//! One connection's conversation: bytes in, bytes out. No socket, no waiting.

mod admission;
mod aside;
mod crowd;
pub(crate) mod dcp;
mod dispatch;
mod features;
mod foresight;
mod key;
mod login;
mod owed;
mod park;
mod reply;
mod status;

use std::sync::Arc;
use std::time::Duration;

use bucket::Wake;
use identity::{AuthenticatedUser, Role, SaslSession};
use model::Datatype;
use registry::cluster_map::{MapRevision, localize};
use registry::timings::Timings;
use registry::{ConnectionInfo, Registry, ServedBucket};
use stats::Walk;
use wire::push::{ClusterMapNotification, ConfigRev};
use wire::{Decoded, Feature, FeatureSet, Limits};

use crate::commands::Scanning;
use crate::net::Door;
use crate::replication::Inbound;
use crowd::Crowd;
use dcp::{GuardedProducer, Produced};

pub(crate) use dispatch::{Context, Done, Refusal, value_refusal};
pub(crate) use features::grant;
pub(crate) use key::StoredKey;
pub(crate) use login::{LoginAttempts, LoginStep};
pub(crate) use owed::Owed;
pub(crate) use park::Park;
pub(crate) use reply::Reply;

/// Output beyond which nothing more is run until the peer took some of it.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The same while connections hold much altogether.
const OUTPUT_BYTES_CROWDED: usize = 64 << 10;
/// Commands run in one turn before other connections get theirs.
const COMMANDS_PER_TURN: u64 = 2048;

fn output_max(crowd: Crowd) -> usize {
    match crowd {
        Crowd::Little => OUTPUT_BYTES_MAX,
        Crowd::Much | Crowd::Full => OUTPUT_BYTES_CROWDED,
    }
}

/// What became of a piece of input.
pub(crate) struct Received {
    /// Bytes of it that are done with.
    pub(crate) consumed: usize,
    pub(crate) verdict: Verdict,
}

/// How the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// What is left of the input is no whole frame: at least so many bytes are missing.
    NeedInput(usize),
    /// Send the output, then call again with what is left.
    OutputFull,
    /// A request waits for something: call again with what is left once woken, or after this
    /// long.
    Parked(Duration),
    /// Send the output, then close.
    Close,
}

/// The state of one conversation.
pub(crate) struct Session {
    pub(crate) node: Arc<Registry>,
    pub(crate) info: Arc<ConnectionInfo>,
    pub(crate) timings: Arc<Timings>,
    pub(crate) features: FeatureSet,
    pub(crate) sasl: SaslSession,
    pub(crate) login: LoginAttempts,
    pub(crate) user: Option<AuthenticatedUser>,
    pub(crate) bucket: Option<Arc<ServedBucket>>,
    /// The peer speaks plain memcached: it knows neither buckets nor vBuckets.
    pub(crate) classic: bool,
    /// What the port lets its clients do, whoever they log in as.
    pub(crate) role: Role,
    /// The port asks for no credentials.
    pub(crate) trusted: bool,
    /// The newest revision of the selected bucket's map that the peer has from us.
    pub(crate) known_map: Option<MapRevision>,
    /// Host that maps must name for this peer; `None` to leave it to the peer.
    pub(crate) map_host: Option<Box<str>>,
    pub(crate) park: Option<Park>,
    /// Where the request stands whose long answer is given in parts.
    pub(crate) walk: Option<Walk>,
    /// The range scan that the request at the front of the input is about.
    pub(crate) scan: Option<Box<Scanning>>,
    /// Set once the connection streams changes.
    pub(crate) dcp: Option<Arc<GuardedProducer>>,
    /// Set once the connection brings changes here.
    pub(crate) inbound: Option<Box<Inbound>>,
    /// Durable writes that wait to be decided, in the order of their requests.
    pub(crate) owed: Vec<Owed>,
    /// Until then, monotonic, writes that find no room do not wait for it.
    pub(crate) no_room_until_ns: u64,
    /// How long to rest after what was written last.
    pub(crate) rest: Option<Duration>,
    woken: bool,
}

impl Session {
    pub(crate) fn new(
        node: Arc<Registry>,
        info: Arc<ConnectionInfo>,
        timings: Arc<Timings>,
        door: Door,
    ) -> Self {
        let memcached = node.memcached.as_ref().filter(|_| door == Door::Classic);
        let bucket = memcached.and_then(|port| node.bucket(&port.bucket));
        let role = memcached.map_or(Role::Admin, |_| Role::Memcached);
        let trusted = memcached.is_some_and(|port| !port.login);
        let mut session = Self {
            node,
            info,
            timings,
            features: FeatureSet::EMPTY,
            sasl: SaslSession::default(),
            login: LoginAttempts::default(),
            user: None,
            bucket: None,
            classic: door == Door::Classic,
            role,
            trusted,
            known_map: None,
            map_host: None,
            park: None,
            walk: None,
            scan: None,
            dcp: None,
            inbound: None,
            owed: Vec::new(),
            no_room_until_ns: 0,
            rest: None,
            woken: false,
        };
        session.select(bucket);
        session
    }

    /// Runs every whole frame at the start of `input`, and appends the answers to `output`.
    pub(crate) fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> Received {
        let mut consumed = 0;
        let mut commands = 0;
        let mut now = self.node.clock.now();
        if self.owes() && !self.settle(now, output) {
            return Received {
                consumed,
                verdict: Verdict::Close,
            };
        }
        let crowd = Crowd::of(&self.node.buffers, self.bucket.as_deref());
        if crowd == Crowd::Full && self.is_authenticated() {
            let verdict = Verdict::Parked(crowd::LOOK);
            return Received { consumed, verdict };
        }
        let output_max = output_max(crowd);
        let mut foreseen = 0;
        let verdict = loop {
            if consumed >= foreseen {
                foreseen = consumed + self.foresee(&input[consumed..]);
            }
            if output.len() >= output_max || commands >= COMMANDS_PER_TURN {
                self.info.count_yield();
                break Verdict::OutputFull;
            }
            match wire::decode(&input[consumed..], self.limits()) {
                Ok(Decoded::Incomplete { more }) => break Verdict::NeedInput(more),
                Ok(Decoded::Frame {
                    frame,
                    consumed: length,
                }) => {
                    if self.owes() && !self.may_overtake(&frame) {
                        break Verdict::Parked(self.owed_limit(now));
                    }
                    let started_ns = now.mono_ns;
                    let done = if crowd == Crowd::Little {
                        self.execute(&frame, now, output)
                    } else {
                        self.execute_in_crowd(&frame, now, output)
                    };
                    now.mono_ns = self.node.clock.mono_ns();
                    match done {
                        Done::Parked(limit) => break Verdict::Parked(limit),
                        Done::More => {
                            self.info.count_yield();
                            break Verdict::OutputFull;
                        }
                        _ => {}
                    }
                    self.park = None;
                    if done != Done::Owed {
                        self.timings
                            .record(frame.header.opcode.0, now.mono_ns - started_ns);
                    }
                    consumed += length;
                    commands += 1;
                    if done == Done::Close {
                        break Verdict::Close;
                    }
                }
                Err(error) => {
                    tracing::debug!(connection = self.info.id, %error, "closing");
                    break Verdict::Close;
                }
            }
        };
        if commands > 0 {
            self.info.count_commands(commands);
        }
        Received { consumed, verdict }
    }

    fn limits(&self) -> Limits {
        if self.is_authenticated() {
            Limits::AUTHENTICATED
        } else {
            Limits::UNAUTHENTICATED
        }
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.user.is_some() || self.trusted
    }

    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.features.contains(feature)
    }

    /// Makes `bucket` the one that commands of this connection run on.
    pub(crate) fn select(&mut self, bucket: Option<Arc<ServedBucket>>) {
        self.known_map = None;
        self.info
            .note(|about| about.bucket = bucket.as_ref().map(|b| b.name().to_owned()));
        // Noted first: who removes the bucket either finds the note, or was seen here.
        if bucket.as_ref().is_some_and(|served| served.is_gone()) {
            self.info.mailbox.shut_down();
        }
        self.bucket = bucket;
    }

    /// Whether the request at the front of the input has a long answer, of which a part comes next.
    pub(crate) fn is_in_long_answer(&self) -> bool {
        self.walk.is_some()
    }

    /// How long to rest before the next request, for others to make room for what was written.
    pub(crate) fn take_rest(&mut self) -> Option<Duration> {
        self.rest.take()
    }

    /// The parked request is worth another try.
    pub(crate) fn wake(&mut self) {
        self.woken = true;
    }

    /// Whether [`Session::wake`] was called since the last question.
    pub(crate) fn was_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// Who wakes this session when a parked request is worth another try.
    pub(crate) fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.info.mailbox) as Arc<dyn Wake>
    }

    /// Appends what the connection's streams have to send: a bounded amount.
    pub(crate) fn produce(&mut self, output: &mut Vec<u8>) -> Produced {
        if let Some(inbound) = &mut self.inbound {
            let goes_on = inbound.tick(self.node.clock.now(), output);
            return if goes_on {
                Produced::Idle
            } else {
                Produced::Silent
            };
        }
        let Some(producer) = &self.dcp else {
            return Produced::Idle;
        };
        let now = self.node.clock.now();
        producer.lock().produce(self.features, now, output)
    }

    /// Whether the connection streams changes, from here or to here.
    pub(crate) fn is_dcp(&self) -> bool {
        self.dcp.is_some() || self.inbound.is_some()
    }

    /// Whether the connection brings changes here.
    pub(crate) fn is_consumer(&self) -> bool {
        self.inbound.is_some()
    }

    /// How long it is until [`Session::produce`] must be called, even if nobody wakes it.
    pub(crate) fn produce_within(&mut self) -> Option<Duration> {
        if let Some(inbound) = &mut self.inbound {
            return Some(inbound.within());
        }
        let deadline_ns = self.dcp.as_ref()?.lock().deadline_ns()?;
        let now_ns = self.node.clock.mono_ns();
        Some(Duration::from_nanos(deadline_ns.saturating_sub(now_ns)))
    }

    /// The conversation is over.
    pub(crate) fn end(&mut self) {
        if let Some(producer) = self.dcp.take() {
            producer.leave();
        }
        drop(self.inbound.take());
        drop(self.scan.take());
        self.owed.clear();
        if let (Some(_), Some(bucket)) = (self.park.take(), &self.bucket) {
            bucket.bucket.forget_waiter(&self.waker());
        }
    }

    /// A cluster map as this peer can use it: mostly as it is, for the peer knows best by which
    /// name it reaches the node.
    pub(crate) fn map_text(&self, json: &Arc<str>) -> Arc<str> {
        match &self.map_host {
            Some(host) => localize(json, Some(host)).into(),
            None => Arc::clone(json),
        }
    }

    /// Sends a notice of a new cluster map, if the peer wants them and does not know it yet.
    pub(crate) fn push_map(&mut self, output: &mut Vec<u8>) {
        let brief = self.has(Feature::CLUSTERMAP_CHANGE_NOTIFICATION_BRIEF);
        if !brief && !self.has(Feature::CLUSTERMAP_CHANGE_NOTIFICATION) {
            return;
        }
        let Some(bucket) = &self.bucket else { return };
        let map = bucket.map();
        if self.known_map >= Some(map.revision) {
            return;
        }
        let text = self.map_text(&map.json);
        let change = ClusterMapNotification {
            revision: ConfigRev {
                epoch: map.revision.epoch,
                rev: map.revision.rev,
            },
            bucket: bucket.name().as_bytes(),
            map: if brief { None } else { Some(text.as_bytes()) },
            datatype: Datatype::RAW,
        };
        change.encode(wire::Opaque::default(), output);
        if !brief {
            self.known_map = Some(map.revision);
        }
    }
}
