//! Streams of a bucket from a node to another one.

use std::collections::BTreeMap;
use std::sync::Arc;

use bucket::{
    Backfill, BackfillBuffer, BackfillChunk, BackfillNews, Bucket, ChosenRows, ReadySet, WantedRows,
};
use collections::{CollectionChange, SystemEvent};
use engine::dcp::{
    ClaimedPosition, Event, FillResult, OpenedStream, RollbackRules, Snapshot, StoreRows, Stream,
    StreamAsk, StreamEnd, StreamFilter, StreamOptions, StreamRefusal,
};
use engine::{Garbage, VBucket};
use model::{Cas, CollectionId, Document, DurabilityLevel, Kind, ScopeId, SnapshotRange, VbId};
use wire::dcp::{
    Abort, CollectionEvent, Commit, Deletion, EndReason, EventId, Expiration, MarkerFlags,
    MarkerVersion, Mutation, Prepare, SeqnoAcknowledged, SeqnoAdvanced, SnapshotMarker,
    StreamEnd as EndMessage, StreamFlags, StreamRequest, SystemEvent as EventMessage,
};
use wire::response::encode_failover_entries;
use wire::{Envelope, Frame, Message, Opaque, Opcode, Response, Status};

use crate::buckets::{Deaf, KEYS, KEYS_DEFAULT};
use crate::bugs::Bug;
use crate::disk::Disk;

struct ChunkRows(BackfillChunk);

impl StoreRows for ChunkRows {
    fn documents(&self) -> &[Document] {
        &self.0.documents
    }
}

struct Entry {
    stream: Stream,
    opaque: Opaque,
    epoch: u64,
    backfill: Option<Backfill>,
}

/// Part of a bucket that a peer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Everything, with the numbers of collections in keys.
    All,
    /// The same, since there is only one scope, by a filter.
    Scope,
    /// The default collection, by a filter.
    Collection,
    /// The default collection, by a peer that does not know collections.
    Unkeyed,
}

impl Reads {
    pub(crate) fn has_collections(self) -> bool {
        self != Self::Unkeyed
    }

    /// Number of keys that the peer gets.
    pub(crate) fn keys(self) -> u8 {
        match self {
            Self::All | Self::Scope => KEYS,
            Self::Collection | Self::Unkeyed => KEYS_DEFAULT,
        }
    }

    fn filter(self, vbucket: &VBucket) -> Option<StreamFilter> {
        match self {
            Self::All | Self::Unkeyed => None,
            Self::Scope => Some(StreamFilter::scope(ScopeId::DEFAULT, vbucket)),
            Self::Collection => {
                let ids = Box::new([CollectionId::DEFAULT]);
                Some(StreamFilter::Collections(ids))
            }
        }
    }
}

/// Agreement of a producer with its peer.
pub(crate) struct Peer {
    /// Name of the peer's cursors, and of a node in chains.
    pub(crate) name: String,
    /// Whether it is a node, which gets prepares and their decisions.
    pub(crate) sync_writes: bool,
    pub(crate) reads: Reads,
    pub(crate) bug: Option<Bug>,
}

impl Peer {
    pub(crate) fn node(name: String, bug: Option<Bug>) -> Self {
        Self {
            name,
            sync_writes: true,
            reads: Reads::All,
            bug,
        }
    }

    /// Whether it is a client with this planted bug in its streams.
    fn is_client_with(&self, bug: Bug) -> bool {
        !self.sync_writes && self.bug == Some(bug)
    }

    /// Returns the time at which a document expires.
    fn expiry(&self, document: &Document) -> u32 {
        if self.bug == Some(Bug::ExpiryNotSent) {
            return 0;
        }
        document.expiry()
    }

    fn cas(&self, document: &Document) -> Cas {
        if self.sync_writes && self.bug == Some(Bug::CasNotSent) {
            return Cas(document.seqno().0);
        }
        document.cas()
    }

    fn ask(&self, request: &StreamRequest<'_>) -> StreamAsk {
        StreamAsk {
            position: ClaimedPosition {
                uuid: request.uuid,
                seqno: request.start,
                snapshot: request.snapshot,
                purge_seqno: model::Seqno::ZERO,
            },
            end: request.end,
            options: StreamOptions {
                active_only: request.flags.contains(StreamFlags::ACTIVE_ONLY),
                rules: RollbackRules {
                    strict_uuid: false,
                    ignore_purged: self.is_client_with(Bug::PurgeIgnored),
                },
                sync_writes: self.sync_writes,
                wants_advances: self.reads.has_collections(),
                ..StreamOptions::default()
            },
        }
    }

    /// Opens a stream of a vBucket.
    fn open(&self, vbucket: &mut VBucket, ask: StreamAsk) -> Result<OpenedStream, StreamRefusal> {
        let opened = Stream::open(vbucket, &self.name, ask);
        let mut opened = match opened {
            Err(StreamRefusal::Rollback(_)) if self.is_client_with(Bug::RollbackNotTold) => {
                let mut ask = ask;
                let at = ask.position.seqno.min(vbucket.high_seqno());
                ask.position.uuid = vbucket.failover_log().newest().uuid;
                ask.position.seqno = at;
                ask.position.snapshot = SnapshotRange { start: at, end: at };
                ask.options.rules.ignore_purged = true;
                Stream::open(vbucket, &self.name, ask)
            }
            opened => opened,
        };
        if let (Ok(opened), Some(filter)) = (&mut opened, self.reads.filter(vbucket)) {
            opened.stream.limit_to(filter);
        }
        opened
    }
}

/// The streams of one connection.
pub(crate) struct Producer {
    peer: Peer,
    bucket: Arc<Bucket<Disk>>,
    buffer: Arc<BackfillBuffer>,
    streams: BTreeMap<VbId, Entry>,
}

impl Producer {
    pub(crate) fn new(peer: Peer, bucket: Arc<Bucket<Disk>>) -> Self {
        let ready = Arc::new(ReadySet::new(Arc::new(Deaf)));
        Self {
            peer,
            buffer: bucket.backfill_buffer(&ready),
            bucket,
            streams: BTreeMap::new(),
        }
    }

    /// Takes a request of the consumer.
    pub(crate) fn request(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let vb = frame.vbucket();
        match frame.header.opcode {
            Opcode::DCP_STREAM_REQ => {
                let request = StreamRequest::parse(frame).expect("a request");
                self.open(vb, frame.header.opaque, &request, out);
            }
            Opcode::DCP_CLOSE_STREAM => self.close(vb),
            Opcode::DCP_SEQNO_ACKNOWLEDGED if self.streams.contains_key(&vb) => {
                let told = SeqnoAcknowledged::parse(frame).expect("an acknowledgement");
                let acknowledged = self.bucket.run_for_node(vb, |vbucket| {
                    vbucket.seqno_acknowledged(&self.peer.name, told.prepared)
                });
                debug_assert!(acknowledged.is_ok() || self.bucket.epoch(vb) > 0);
            }
            _ => {}
        }
    }

    fn open(&mut self, vb: VbId, opaque: Opaque, request: &StreamRequest<'_>, out: &mut Vec<u8>) {
        let ask = self.peer.ask(request);
        let (bucket, peer) = (&self.bucket, &self.peer);
        let opened = bucket.run(vb, |vbucket| {
            let opened = peer.open(vbucket, ask);
            Ok((opened, vbucket.failover_log().clone(), bucket.epoch(vb)))
        });
        let mut answer = |status: Status, value: &[u8]| {
            let response = Response {
                value,
                ..Response::new(Opcode::DCP_STREAM_REQ, opaque, status)
            };
            response.encode(out);
        };
        if self.streams.contains_key(&vb) {
            return answer(Status::KEY_EEXISTS, b"");
        }
        match opened {
            Ok((Ok(opened), log, epoch)) => {
                let mut value = Vec::new();
                encode_failover_entries(log.entries(), &mut value);
                answer(Status::SUCCESS, &value);
                let entry = Entry {
                    stream: opened.stream,
                    opaque,
                    epoch,
                    backfill: None,
                };
                self.streams.insert(vb, entry);
            }
            Ok((Err(StreamRefusal::Rollback(seqno)), ..)) => {
                answer(Status::ROLLBACK, &seqno.0.to_be_bytes());
            }
            Ok((Err(StreamRefusal::NotMyVbucket), ..)) => answer(Status::NOT_MY_VBUCKET, b""),
            Ok((Err(StreamRefusal::OutOfRange), ..)) => answer(Status::ERANGE, b""),
            Err(_) => answer(Status::ETMPFAIL, b""),
        }
    }

    fn close(&mut self, vb: VbId) {
        if let Some(mut entry) = self.streams.remove(&vb) {
            entry.release(vb, &self.bucket);
        }
    }

    /// Sends pending events, with at most `changes_max` changes per stream.
    pub(crate) fn produce(&mut self, changes_max: usize, out: &mut Vec<u8>) {
        let mut over = Vec::new();
        for (vb, entry) in &mut self.streams {
            let to = (&*self.bucket, &self.buffer, &self.peer);
            if entry.drive(*vb, to, changes_max, out) {
                over.push(*vb);
            }
        }
        for vb in over {
            self.close(vb);
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        for (vb, entry) in &mut self.streams {
            entry.release(*vb, &self.bucket);
        }
    }
}

impl Entry {
    /// Sends events of the stream; returns whether it is over.
    fn drive(
        &mut self,
        vb: VbId,
        (bucket, buffer, peer): (&Bucket<Disk>, &Arc<BackfillBuffer>, &Peer),
        changes_max: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        if bucket.epoch(vb) != self.epoch {
            self.backfill = None;
            self.stream.finish(StreamEnd::StateChanged);
        }
        let mut left = changes_max;
        loop {
            while left > 0 {
                let Some(event) = self.stream.next_event() else {
                    break;
                };
                left -= usize::from(matches!(event, Event::Change(_)));
                encode(&event, (vb, self.opaque), peer, out);
            }
            if self.stream.is_over() {
                return true;
            }
            if left == 0 || !self.look(vb, peer, bucket, buffer) {
                return false;
            }
        }
    }

    /// Looks for more events; returns whether there may be more.
    fn look(
        &mut self,
        vb: VbId,
        peer: &Peer,
        bucket: &Bucket<Disk>,
        buffer: &Arc<BackfillBuffer>,
    ) -> bool {
        let name = &peer.name;
        if let Some(backfill) = &self.backfill {
            match backfill.take() {
                BackfillNews::Nothing => {
                    return bucket.backfill_step() == bucket::Backfilled::Chunk;
                }
                BackfillNews::Opened(mut view) => {
                    if peer.is_client_with(Bug::PartSentAsWhole) {
                        view.snapshot.end = view.high;
                    }
                    self.locked(vb, bucket, |stream, vbucket| {
                        ((), stream.backfill_opened(&view, vbucket, name))
                    });
                }
                BackfillNews::Chunk(chunk) => self.stream.backfill_rows(Box::new(ChunkRows(chunk))),
                BackfillNews::Done => {
                    self.backfill = None;
                    self.stream.backfill_done();
                }
                BackfillNews::Failed => {
                    self.backfill = None;
                    self.stream.finish(StreamEnd::BackfillFailed);
                }
            }
            return true;
        }
        match self.locked(vb, bucket, |stream, vbucket| stream.fill(vbucket, name)) {
            Some(FillResult::Ready | FillResult::Latest) | None => true,
            Some(FillResult::Idle | FillResult::HandOver) => false,
            Some(FillResult::Backfill(range)) => {
                let only = self.stream.only_rows().map(|only| ChosenRows {
                    collections: only.collections,
                    by_key: only.by_key,
                    sparse: 0,
                });
                let rows = WantedRows::Newest(only);
                self.backfill = Some(bucket.backfill(vb, range, rows, buffer));
                true
            }
        }
    }

    fn locked<T>(
        &mut self,
        vb: VbId,
        bucket: &Bucket<Disk>,
        f: impl FnOnce(&mut Stream, &mut VBucket) -> (T, Garbage),
    ) -> Option<T> {
        let (epoch, stream) = (self.epoch, &mut self.stream);
        let done = bucket.with_vbucket(vb, |vbucket| {
            (bucket.epoch(vb) == epoch).then(|| f(stream, vbucket))
        });
        let Some((result, _)) = done.flatten() else {
            self.backfill = None;
            self.stream.finish(StreamEnd::StateChanged);
            return None;
        };
        Some(result)
    }

    fn release(&mut self, vb: VbId, bucket: &Bucket<Disk>) {
        self.backfill = None;
        if let Some(cursor) = self.stream.take_cursor() {
            drop(bucket.with_vbucket(vb, |vbucket| vbucket.remove_cursor(cursor)));
        }
    }
}

fn encode(event: &Event<'_>, (vb, opaque): (VbId, Opaque), peer: &Peer, out: &mut Vec<u8>) {
    let envelope = Envelope {
        vbucket: vb,
        opaque,
        ..Envelope::default()
    };
    let encoded = match event {
        Event::Snapshot(snapshot) => marker(snapshot, peer).encode(&envelope, out),
        Event::Change(document) => return change(document, envelope, peer, out),
        Event::End(end) => {
            let reason = match end {
                StreamEnd::Rollback => EndReason::ROLLBACK,
                StreamEnd::BackfillFailed => EndReason::BACKFILL_FAILED,
                _ => EndReason::STATE_CHANGED,
            };
            EndMessage { reason }.encode(&envelope, out)
        }
        Event::Advanced(_) if peer.is_client_with(Bug::AdvanceNotSent) => return,
        Event::Advanced(seqno) => SeqnoAdvanced { seqno: *seqno }.encode(&envelope, out),
        Event::OutOfOrder { .. } | Event::State(_) => {
            unreachable!("{event:?} was not agreed on")
        }
    };
    encoded.expect("a short message");
}

fn marker(snapshot: &Snapshot, peer: &Peer) -> SnapshotMarker {
    let mut flags = if snapshot.disk {
        MarkerFlags::DISK
    } else {
        MarkerFlags::MEMORY
    };
    if snapshot.checkpoint {
        flags = flags.with(MarkerFlags::CHECKPOINT);
    }
    let visible_end = snapshot.visible_end;
    let high_completed = snapshot.high_completed.unwrap_or_default();
    let version = if !peer.sync_writes {
        MarkerVersion::V1
    } else if snapshot.disk {
        MarkerVersion::V2_2 {
            visible_end,
            high_completed,
            purge_seqno: snapshot.purge_seqno,
            high_prepared: snapshot.high_prepared.unwrap_or_default(),
        }
    } else {
        MarkerVersion::V2_0 {
            visible_end,
            high_completed,
        }
    };
    SnapshotMarker {
        range: snapshot.range,
        flags,
        version,
    }
}

fn event(document: &Document, envelope: &Envelope<'static>, out: &mut Vec<u8>) {
    let event = SystemEvent::parse(document.key(), document.kind(), document.value());
    let event = event.expect("an event of a vBucket");
    let (kind, scope, collection, name) = match event.change {
        CollectionChange::Begun(info) => {
            (EventId::BEGIN_COLLECTION, info.scope, info.id, info.name)
        }
        CollectionChange::Ended { scope, id } => (EventId::END_COLLECTION, scope, id, ""),
        other => unreachable!("no operator orders {other:?}"),
    };
    let mut value = Vec::new();
    CollectionEvent {
        manifest: event.manifest,
        scope: scope.0,
        collection: Some(collection),
        expiry_max_s: None,
    }
    .encode(&mut value);
    let message = EventMessage {
        seqno: document.seqno(),
        event: kind,
        version: 0,
        name: name.as_bytes(),
        value: &value,
    };
    message.encode(envelope, out).expect("a short message");
}

fn change(document: &Document, envelope: Envelope<'static>, peer: &Peer, out: &mut Vec<u8>) {
    let (seqno, key, prepared) = (document.seqno(), document.key(), document.prepare_seqno());
    let (kind, keyed) = (document.kind(), peer.reads.has_collections());
    let (key, kind) = (
        if keyed { key } else { &key[1..] },
        if peer.sync_writes { kind } else { kind.plain() },
    );
    let stamped = Envelope {
        cas: peer.cas(document),
        datatype: document.datatype(),
        ..envelope
    };
    if SystemEvent::is_key(document.key()) {
        return event(document, &stamped, out);
    }
    let encoded = match kind {
        Kind::Mutation => Mutation {
            seqno,
            rev: document.rev(),
            flags: document.flags(),
            expiry: peer.expiry(document),
            lock_time: 0,
            heat: 0,
            key,
            value: document.value(),
        }
        .encode(&stamped, out),
        Kind::Expiration if keyed => Expiration {
            seqno,
            rev: document.rev(),
            delete_time: document.expiry(),
            key,
            value: document.value(),
        }
        .encode(&stamped, out),
        Kind::Deletion | Kind::Expiration => Deletion {
            seqno,
            rev: document.rev(),
            delete_time: Some(document.expiry()),
            key,
            value: document.value(),
        }
        .encode(&stamped, out),
        Kind::Prepare | Kind::PrepareDeletion => Prepare {
            seqno,
            rev: document.rev(),
            flags: document.flags(),
            expiry: peer.expiry(document),
            lock_time: 0,
            heat: 0,
            deleted: kind == Kind::PrepareDeletion,
            level: document.level().unwrap_or(DurabilityLevel::Majority),
            key,
            value: document.value(),
        }
        .encode(&stamped, out),
        Kind::Commit | Kind::CommitDeletion => Commit {
            prepared,
            seqno,
            key,
        }
        .encode(&envelope, out),
        Kind::Abort => Abort {
            prepared,
            seqno,
            key,
        }
        .encode(&envelope, out),
    };
    encoded.expect("a short message");
}
