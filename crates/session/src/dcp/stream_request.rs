//! Stream requests: their checks, and the opening of their streams.

use std::sync::Arc;

use bucket::ReadBatching;
use engine::dcp::{
    ClaimedPosition, RollbackRules, Stream, StreamAsk, StreamOptions, StreamRefusal,
};
use model::{FailoverLog, VbId};
use registry::dcp::StreamKey;
use wire::dcp::{OpenFlags, StreamFlags, StreamRequest};
use wire::{Feature, FeatureSet, Opaque, Status};

use super::filter::{Filter, Limit};
use super::producer::{Producer, StreamCheck, cursor_name};
use super::streams::OpenStream;
use crate::outcome::Refusal;

/// Maximum number of streams of a connection.
const STREAMS_MAX: usize = 16 << 10;

/// A requested stream.
pub struct AskedStream<'a> {
    /// Opaque of its messages.
    pub opaque: Opaque,
    /// The request.
    pub request: &'a StreamRequest<'a>,
    /// Features that the connection negotiated.
    pub features: FeatureSet,
    /// Check of the peer's privileges.
    pub may: &'a StreamCheck<'a>,
}

/// Answer to a stream request.
pub enum OpenedStream {
    /// Accepted, with the failover log.
    Accepted(FailoverLog),
    /// Seqno to which the consumer must roll back.
    Rollback(model::Seqno),
}

impl Producer {
    /// Opens a stream; its first messages are sent in the next turn.
    pub fn open_stream(
        &mut self,
        vb: VbId,
        asked: &AskedStream<'_>,
    ) -> Result<OpenedStream, Refusal> {
        let AskedStream {
            opaque,
            request,
            features,
            ..
        } = *asked;
        if self.closed {
            return Err(Status::ETMPFAIL.into());
        }
        // A client that asks for a vBucket that is not here gets a newer map, even if its request has other errors.
        if self.bucket().with_vbucket(vb, |_| ()).is_none() {
            return Err(Status::NOT_MY_VBUCKET.into());
        }
        self.check_noop(features)?;
        let known = StreamFlags::ALL.without(StreamFlags::CACHE_TRANSFER);
        if request.flags.without(known).0 != 0 {
            return Err(Refusal::invalid("these flags are not served"));
        }
        let filter = Filter::read(request.value, &self.bucket().manifest())?;
        (asked.may)(filter.limit.as_ref())?;
        let key = self.key(vb, filter.stream_id)?;
        if filter.limit.is_some() && self.settings.sync_writes {
            return Err(Refusal::because(
                Status::NOT_SUPPORTED,
                "a filter does not go with sync writes",
            ));
        }
        if self.streams.contains_key(&key) {
            return Err(Status::KEY_EEXISTS.into());
        }
        let memory = self.bucket().memory();
        let full = memory.used() > memory.backfill_limit();
        if full || self.streams.len() >= STREAMS_MAX {
            return Err(Status::ENOMEM.into());
        }
        let ask = self.ask(request, &filter, features);
        self.slot(key, opaque, ask, filter.limit)
    }

    fn check_noop(&self, features: FeatureSet) -> Result<(), Refusal> {
        let newer = features.contains(Feature::COLLECTIONS)
            || self.settings.flags.contains(OpenFlags::INCLUDE_XATTRS);
        let mandatory = self.served.dcp.settings.read().noops_mandatory;
        if newer && mandatory && !self.keepalive.is_enabled() {
            return Err(Refusal::because(
                Status::NOT_SUPPORTED,
                "noops must be enabled first",
            ));
        }
        Ok(())
    }

    fn ask(&self, request: &StreamRequest<'_>, filter: &Filter, features: FeatureSet) -> StreamAsk {
        let flag = |flag| request.flags.contains(flag);
        StreamAsk {
            position: ClaimedPosition {
                uuid: request.uuid,
                seqno: request.start,
                snapshot: request.snapshot,
                purge_seqno: filter.purge_seqno,
            },
            end: request.end,
            options: StreamOptions {
                takeover: flag(StreamFlags::TAKEOVER),
                disk_only: flag(StreamFlags::DISK_ONLY),
                to_latest: flag(StreamFlags::TO_LATEST),
                from_latest: flag(StreamFlags::FROM_LATEST),
                active_only: flag(StreamFlags::ACTIVE_ONLY),
                skip_deletes: self
                    .settings
                    .flags
                    .contains(OpenFlags::SKIP_DELETES_IN_INITIAL_BACKFILL),
                rules: RollbackRules {
                    strict_uuid: flag(StreamFlags::STRICT_VBUUID),
                    ignore_purged: flag(StreamFlags::IGNORE_PURGED_TOMBSTONES),
                },
                sync_writes: self.settings.sync_writes,
                wants_advances: features.contains(Feature::COLLECTIONS),
                out_of_order: self.settings.out_of_order,
                change_streams: self.settings.change_streams,
            },
        }
    }

    fn slot(
        &mut self,
        key: StreamKey,
        opaque: Opaque,
        ask: StreamAsk,
        limit: Option<Limit>,
    ) -> Result<OpenedStream, Refusal> {
        let name = cursor_name(&self.name, key);
        let bucket = Arc::clone(&self.served.bucket);
        // Subscribe before the cursor is placed: a change after the cursor must mark the vBucket.
        bucket.subscribe(key.vb, &self.ready);
        let opened = bucket.run(key.vb, |vbucket| {
            let mut opened = Stream::open(vbucket, &name, ask);
            if let (Ok(opened), Some(limit)) = (&mut opened, limit.clone()) {
                opened.stream.limit_to(limit.for_stream(vbucket));
            }
            let log = vbucket.failover_log().clone();
            Ok((opened, log, bucket.epoch(key.vb)))
        });
        let refusal: Refusal = match opened {
            Ok((Ok(opened), log, epoch)) => {
                drop(opened.garbage);
                let entry = OpenStream {
                    stream: opened.stream,
                    opaque,
                    epoch,
                    limit: limit.map(Box::new),
                    backfill: None,
                    batching: ReadBatching::default(),
                };
                self.streams.insert(key, Box::new(entry));
                self.ready.mark(key.vb);
                return Ok(OpenedStream::Accepted(log));
            }
            Ok((Err(StreamRefusal::Rollback(seqno)), ..)) => {
                self.unsubscribe_unless_used(key.vb);
                return Ok(OpenedStream::Rollback(seqno));
            }
            Ok((Err(StreamRefusal::NotMyVbucket), ..)) => Status::NOT_MY_VBUCKET.into(),
            Ok((Err(StreamRefusal::OutOfRange), ..)) => Status::ERANGE.into(),
            Err(error) => error.into(),
        };
        self.unsubscribe_unless_used(key.vb);
        Err(refusal)
    }
}
