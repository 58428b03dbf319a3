//! The state of one conversation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bucket::Wake;
use consumer::Inbound;
use identity::{AuthenticatedUser, SaslSession};
use model::{Datatype, Now, VbId};
use registry::cluster::CLUSTER_USER;
use registry::cluster_map::{MapRevision, localize};
use registry::timings::Timings;
use registry::{ConnectionInfo, Registry, ServedBucket, awaits_bucket};
use stats::Walk;
use wire::push::{ClusterMapNotification, ConfigRev};
use wire::{Feature, FeatureSet, Frame, Limits};

use crate::access::{Impersonator, SessionAccess};
use crate::audit_lines::PendingAuditLines;
use crate::dcp::{FrameSink, GuardedProducer, Produced};
use crate::incoming_value::IncomingValue;
use crate::key::StoredKey;
use crate::login::LoginAttempts;
use crate::owed::OwedAnswer;
use crate::park::Park;
use crate::pending_value::PendingValue;
use crate::scanning::{OpeningScan, Scanning};
use crate::text::TextConversation;

/// Kind of port through which a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// KV protocol.
    Plain,
    /// KV protocol over TLS.
    Tls,
    /// Classic memcached protocols.
    Classic,
}

/// Purpose of a connection's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// Everything that the user may do.
    Couchbase,
    /// Documents and statistics of one bucket, after a login.
    MemcachedWithLogin,
    /// Documents and statistics of one bucket, without a login.
    Memcached,
}

/// The state of one conversation.
pub struct Session {
    pub(crate) node: Arc<Registry>,
    pub(crate) info: Arc<ConnectionInfo>,
    pub(crate) timings: Arc<Timings>,
    pub(crate) features: FeatureSet,
    pub(crate) sasl: SaslSession,
    pub(crate) login: LoginAttempts,
    pub(crate) user: Option<AuthenticatedUser>,
    pub(crate) bucket: Option<Arc<ServedBucket>>,
    /// The peer's own identity, while a request runs on behalf of another user.
    pub(crate) impersonator: Option<Box<Impersonator>>,
    /// Whether the peer speaks plain memcached: it knows neither buckets nor vBuckets.
    pub(crate) classic: bool,
    /// Privileges of the peer, as last computed.
    pub(crate) access: SessionAccess,
    pub(crate) port: Port,
    /// Whether the first byte will decide the peer's protocol.
    pub(crate) undecided: bool,
    /// Set once the peer speaks in text.
    pub(crate) text: Option<Box<TextConversation>>,
    /// Newest revision of the selected bucket's map that this node sent to the peer.
    pub(crate) known_map: Option<MapRevision>,
    /// Host that maps must name for this peer; `None` to leave the placeholder.
    pub(crate) map_host: Option<Box<str>>,
    pub(crate) park: Option<Park>,
    /// Value of the frame at the front of the input, if it is received into its document.
    pub(crate) incoming: Option<IncomingValue>,
    /// Progress of a long answer that is sent in parts.
    pub(crate) walk: Option<Walk>,
    /// Value of the last answer, while the output has only a part of it.
    pub(crate) pending_value: Option<PendingValue>,
    /// Range scan of the request at the front of the input.
    pub(crate) scan: Option<Box<Scanning>>,
    /// Range scans that are being opened, in the order of their requests; they are answered in this order.
    pub(crate) opening: VecDeque<OpeningScan>,
    /// Set once the connection streams changes.
    pub(crate) dcp: Option<Arc<GuardedProducer>>,
    /// Set once the connection brings changes to this node.
    pub(crate) inbound: Option<Box<Inbound>>,
    /// Durable writes that are not decided, in the order of their requests.
    pub(crate) owed: Vec<OwedAnswer>,
    /// Until this monotonic time, writes without free memory are refused at once.
    pub(crate) no_wait_until_ns: u64,
    /// Back-off after the last write.
    pub(crate) write_backoff: Option<Duration>,
    /// Audit events of the conversation.
    pub(crate) audit_lines: PendingAuditLines,
    woken: bool,
}

impl Session {
    /// Creates the session of a new connection.
    pub fn new(
        node: Arc<Registry>,
        info: Arc<ConnectionInfo>,
        timings: Arc<Timings>,
        door: Door,
    ) -> Self {
        let memcached = node.memcached.as_ref().filter(|_| door == Door::Classic);
        let bucket = memcached.and_then(|port| node.bucket(&port.bucket));
        let port = match memcached {
            None => Port::Couchbase,
            Some(port) if port.login => Port::MemcachedWithLogin,
            Some(_) => Port::Memcached,
        };
        let mut session = Self {
            node,
            info,
            timings,
            features: FeatureSet::EMPTY,
            sasl: SaslSession::default(),
            login: LoginAttempts::default(),
            user: None,
            bucket: None,
            impersonator: None,
            classic: door == Door::Classic,
            access: SessionAccess::default(),
            port,
            undecided: door == Door::Classic,
            text: None,
            known_map: None,
            map_host: None,
            park: None,
            incoming: None,
            walk: None,
            pending_value: None,
            scan: None,
            opening: VecDeque::new(),
            dcp: None,
            inbound: None,
            owed: Vec::new(),
            no_wait_until_ns: 0,
            write_backoff: None,
            audit_lines: PendingAuditLines::default(),
            woken: false,
        };
        session.select(bucket);
        session
    }

    /// Returns the limits of the peer's frames.
    pub(crate) fn limits(&self) -> Limits {
        if self.is_authenticated() {
            Limits::AUTHENTICATED
        } else {
            Limits::UNAUTHENTICATED
        }
    }

    /// Whether the peer may do more than log in.
    pub fn is_authenticated(&self) -> bool {
        self.user.is_some() || self.port == Port::Memcached
    }

    /// Whether the peer is a node of this node's cluster.
    pub(crate) fn is_of_a_node(&self) -> bool {
        let user = self.user.as_ref();
        user.is_some_and(|user| *user.name == *CLUSTER_USER)
    }

    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.features.contains(feature)
    }

    /// See [`Context::vbucket`].
    pub(super) fn vbucket_of(&self, frame: &Frame<'_>, key: &StoredKey<'_>) -> VbId {
        if !self.classic {
            return frame.vbucket();
        }
        let bucket = self.bucket.as_ref();
        let count = bucket.map_or(1, |bucket| bucket.bucket.vbuckets());
        VbId::of_key(key.user_key(), count)
    }

    /// Records that the request waits; returns since when, and how often it was run.
    pub(crate) fn note_park(&mut self, now: Now) -> &mut Park {
        let park = self.park.get_or_insert(Park::since(now.mono_ns));
        park.runs += 1;
        park
    }

    /// Returns the time for which the request waits for a bucket of the cluster that this node is about to make; `None`
    /// if there is no such bucket, or after the time limit. Wakes when the bucket is made.
    pub(crate) fn bucket_wait(&mut self, name: &str, now: Now) -> Option<Duration> {
        if !awaits_bucket(&self.node, name) {
            return None;
        }
        let waited_ns = now.mono_ns.saturating_sub(self.note_park(now).since_ns);
        let left = self
            .node
            .waits
            .bucket
            .checked_sub(Duration::from_nanos(waited_ns));
        left.filter(|left| !left.is_zero())
    }

    /// Returns the selected bucket.
    pub fn bucket(&self) -> Option<&Arc<ServedBucket>> {
        self.bucket.as_ref()
    }

    /// Moves the session to another thread, which has timings of its own.
    pub fn move_to(&mut self, timings: &Arc<Timings>) {
        self.timings = Arc::clone(timings);
    }

    /// Selects the bucket of this connection's commands.
    pub(crate) fn select(&mut self, bucket: Option<Arc<ServedBucket>>) {
        self.known_map = None;
        self.info
            .note(|about| about.bucket = bucket.as_ref().map(|b| b.name().to_owned()));
        // The note comes first: a removal of the bucket either finds the note, or is seen here.
        if bucket.as_ref().is_some_and(|served| served.is_gone()) {
            self.info.mailbox.shut_down();
        }
        self.bucket = bucket;
        self.work_out_access();
    }

    /// Whether a part of an answer was sent, and more follow.
    pub fn is_in_long_answer(&self) -> bool {
        self.walk.is_some() || self.pending_value.is_some()
    }

    /// Takes the back-off to wait before the next request; it gives the flusher time to free quota.
    pub fn take_write_backoff(&mut self) -> Option<Duration> {
        self.write_backoff.take()
    }

    /// Marks the parked request for another run.
    pub fn wake(&mut self) {
        self.woken = true;
    }

    /// Whether [`Session::wake`] was called since the last call of this function.
    pub fn was_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// Returns a waker that runs a parked request again.
    pub(crate) fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.info.mailbox) as Arc<dyn Wake>
    }

    /// Appends a bounded amount of messages of the connection's streams.
    pub fn produce(&mut self, output: &mut Vec<u8>) -> Produced {
        self.refresh_access();
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
        let mut features = self.features;
        if !self.keeps_compressed() {
            features.remove(Feature::SNAPPY);
            features.remove(Feature::SNAPPY_EVERYWHERE);
        }
        let mut sink = FrameSink { features, output };
        producer.lock().produce(now, &mut sink)
    }

    /// Whether the connection streams changes, in either direction.
    pub fn is_dcp(&self) -> bool {
        self.dcp.is_some() || self.inbound.is_some()
    }

    /// Whether the connection brings changes to this node.
    pub fn is_consumer(&self) -> bool {
        self.inbound.is_some()
    }

    /// Returns the time until [`Session::produce`] must be called without a wake.
    pub fn produce_within(&mut self) -> Option<Duration> {
        if let Some(inbound) = &mut self.inbound {
            return Some(inbound.within());
        }
        let deadline_ns = self.dcp.as_ref()?.lock().deadline_ns()?;
        let now_ns = self.node.clock.mono_ns();
        Some(Duration::from_nanos(deadline_ns.saturating_sub(now_ns)))
    }

    /// Whether answers are owed.
    pub fn owes(&self) -> bool {
        !self.owed.is_empty() || !self.opening.is_empty()
    }

    /// Ends the conversation.
    pub fn end(&mut self) {
        self.record_end();
        if let Some(producer) = self.dcp.take() {
            producer.leave();
        }
        drop(self.inbound.take());
        drop(self.scan.take());
        self.owed.clear();
        self.opening.clear();
        if let (Some(_), Some(bucket)) = (self.park.take(), &self.bucket) {
            bucket.bucket.forget_waiter(&self.waker());
        }
    }

    /// Returns a cluster map for this peer. Mostly unchanged: the peer knows best under which name it reaches
    /// the node.
    pub(crate) fn map_text(&self, json: &Arc<str>) -> Arc<str> {
        match &self.map_host {
            Some(host) => localize(json, Some(host)).into(),
            None => Arc::clone(json),
        }
    }

    /// Sends a notice of a new cluster map, if the peer negotiated it and does not have this map.
    pub fn push_map(&mut self, output: &mut Vec<u8>) {
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
