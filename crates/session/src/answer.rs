//! Answers in the form that a connection negotiated.

use std::borrow::Cow;

use engine::OpError;
use model::{Datatype, Document, ManifestUid, Now};
use registry::timings::CountedResult;
use wire::response::ErrorBody;
use wire::{Feature, Frame, Header, Response, Status, encode_server_duration};

use crate::incoming_value::IncomingValue;
use crate::outcome::{CommandOutcome, Refusal, UNKNOWN_COLLECTION_CONTEXT};
use crate::pending_value::PendingValue;
use crate::reply::Reply;
use crate::session::Session;
use crate::status;

impl Session {
    /// Answers a refusal; closes the connection where a peer would not understand the answer.
    pub(super) fn refuse(
        &mut self,
        frame: &Frame<'_>,
        why: Refusal,
        now: Now,
        output: &mut Vec<u8>,
    ) -> CommandOutcome {
        let mut closes = false;
        let ends = matches!(why, Refusal::Last(..));
        let manifest_uid = || Some(self.bucket.as_ref()?.bucket.manifest().uid());
        let (status, context, manifest) = match why {
            Refusal::Op(OpError::NotMyVbucket) | Refusal::Status(Status::NOT_MY_VBUCKET, _) => {
                let Some(reason) = self.quarantined(frame) else {
                    self.timings
                        .answered(frame.header.opcode.0, CountedResult::Refused);
                    return self.not_my_vbucket(frame, now, output);
                };
                (Status::CHECKSUM_MISMATCH, Some(Cow::Owned(reason)), None)
            }
            Refusal::Op(error) => {
                let context = match error {
                    OpError::InvalidArgument(reason) => Some(Cow::Borrowed(reason)),
                    _ => None,
                };
                (status::of_op_error(error), context, None)
            }
            Refusal::Status(
                status @ (Status::UNKNOWN_COLLECTION | Status::UNKNOWN_SCOPE),
                context,
            ) => (status, context, manifest_uid()),
            Refusal::Status(status, context) => (status, context, None),
            Refusal::Last(status, context) => (status, Some(context.into()), None),
            Refusal::MissingPrivileges(missing) => {
                closes = !self.has(Feature::XERROR);
                let text = if missing.is_empty() {
                    "no privilege in this bucket".into()
                } else {
                    format!("a privilege is missing: {missing}")
                };
                (Status::EACCESS, Some(text.into()), None)
            }
            Refusal::NoMemoryYet(_) | Refusal::Parked(_) => (Status::ETMPFAIL, None, None),
            Refusal::UnknownCollection => (
                Status::UNKNOWN_COLLECTION,
                Some(UNKNOWN_COLLECTION_CONTEXT.into()),
                manifest_uid(),
            ),
        };
        let counted = CountedResult::of(status, frame.header.cas);
        self.timings.answered(frame.header.opcode.0, counted);
        if let Some(text) = &self.text {
            text.refuse(status, context.as_deref(), output);
            self.timings.responded(status);
            return if ends {
                CommandOutcome::Close
            } else {
                CommandOutcome::Next
            };
        }
        let shown = status::for_peer(status, self.features, self.is_authenticated());
        let Some(shown) = shown.filter(|_| !closes) else {
            return CommandOutcome::Close;
        };
        let body = self.error_body(context.as_deref(), manifest);
        self.answer(frame, &Reply::error(shown, &body), now, output);
        if ends {
            CommandOutcome::Close
        } else {
            CommandOutcome::Next
        }
    }

    /// Body of a refusal: JSON for a peer that negotiated it, else empty.
    pub(super) fn error_body(
        &self,
        context: Option<&str>,
        manifest: Option<ManifestUid>,
    ) -> String {
        if !self.has(Feature::XERROR) || context.is_none() && manifest.is_none() {
            return String::new();
        }
        let body = ErrorBody {
            context,
            reference: None,
            manifest,
        };
        body.to_json()
    }

    /// Returns the reason why the request's vBucket is not served, if it is damaged and no other node has a
    /// copy: a client must not look for another node.
    fn quarantined(&self, frame: &Frame<'_>) -> Option<String> {
        let id = frame.vbucket();
        let served = self.bucket.as_ref()?;
        let known = served.bucket.quarantined(id)?;
        if !registry::is_only_copy(&self.node, served, id) {
            return None;
        }
        let reason = &known.reason;
        Some(format!(
            "{id} is damaged and in quarantine: {reason}; settee salvage copies what can be read"
        ))
    }

    /// Answers NOT_MY_VBUCKET with the cluster map, unless the peer has that map already. A connection of change streams gets
    /// no map that lists other nodes only: `gocbcore` closes it in the loop that reads the map, and waits for that loop.
    fn not_my_vbucket(
        &mut self,
        frame: &Frame<'_>,
        now: Now,
        output: &mut Vec<u8>,
    ) -> CommandOutcome {
        let bucket = self.bucket.as_ref();
        let bucket = bucket
            .filter(|bucket| !self.is_dcp() || registry::sends_clients_here(&self.node, bucket));
        let map = bucket.map(|bucket| bucket.map());
        let known = self.has(Feature::DEDUPE_NOT_MY_VBUCKET_CLUSTERMAP)
            && map
                .as_ref()
                .is_some_and(|map| self.known_map >= Some(map.revision));
        let status = Status::NOT_MY_VBUCKET;
        match map {
            Some(map) if !known => {
                self.known_map = Some(map.revision);
                let text = self.map_text(&map.json);
                let reply = Reply {
                    status,
                    ..Reply::json(&text)
                };
                self.answer(frame, &reply, now, output);
            }
            _ => self.answer(frame, &Reply::status(status), now, output),
        }
        CommandOutcome::Next
    }

    /// Lets `value` follow the next answer piece by piece, if it can. Returns whether it does.
    pub(crate) fn send_apart(&mut self, document: &Document, value: &[u8]) -> bool {
        if self.text.is_none() && !self.is_dcp() {
            self.pending_value = PendingValue::of(document, value);
        }
        self.pending_value.is_some()
    }

    /// Appends the next piece of the pending value. Returns whether nothing more is pending.
    pub(crate) fn append_pending(&mut self, output: &mut Vec<u8>) -> bool {
        self.pending_value
            .take_if(|pending| pending.append_piece(output));
        self.pending_value.is_none()
    }

    /// Returns the memory of the documents whose values are not received or not sent completely.
    pub fn pending_bytes(&self) -> usize {
        let incoming = self.incoming.as_ref();
        let pending = self.pending_value.as_ref();
        incoming.map_or(0, IncomingValue::memory_bytes)
            + pending.map_or(0, PendingValue::memory_bytes)
    }

    /// Appends an answer in the form that the connection negotiated. It does not compress, and clears
    /// datatype bits that were not negotiated.
    pub(crate) fn answer(
        &self,
        frame: &Frame<'_>,
        reply: &Reply<'_>,
        now: Now,
        output: &mut Vec<u8>,
    ) {
        self.answer_to(&frame.header, reply, now.mono_ns, output);
    }

    /// Like [`Session::answer`], for a request of which only the header is left. The request was run at `since_ns`.
    pub(super) fn answer_to(
        &self,
        header: &Header,
        reply: &Reply<'_>,
        since_ns: u64,
        output: &mut Vec<u8>,
    ) {
        if let Some(text) = &self.text {
            let recaching = self.bucket.as_ref().map(|bucket| &bucket.recaching);
            text.answer(reply, &*self.node.clock, recaching, output);
            return self.timings.responded(reply.status);
        }
        let mut datatype = reply.datatype;
        if !self.has(Feature::JSON) {
            datatype = datatype.without(Datatype::JSON);
        }
        let response = Response {
            opcode: reply.opcode.unwrap_or(header.opcode),
            status: reply.status,
            opaque: header.opaque,
            cas: reply.cas,
            datatype,
            server_duration: self.server_duration(since_ns),
            extras: reply.extras,
            key: reply.key,
            value: reply.value,
        };
        if reply.apart {
            response.encode_head(reply.value.len(), output);
        } else {
            response.encode(output);
        }
        self.timings.responded(reply.status);
    }

    /// Returns the duration of a request that was run at `since_ns`, if the peer negotiated it.
    pub(crate) fn server_duration(&self, since_ns: u64) -> Option<u16> {
        self.has(Feature::TRACING).then(|| {
            let ns = self.node.clock.mono_ns().saturating_sub(since_ns);
            // Never 0: a client reads that as "no duration".
            encode_server_duration(ns.div_ceil(1000).max(1))
        })
    }

    /// Whether this peer may be sent compressed values.
    pub(crate) fn takes_snappy(&self) -> bool {
        (self.has(Feature::SNAPPY) || self.has(Feature::SNAPPY_EVERYWHERE))
            && self.keeps_compressed()
    }

    /// Whether the bucket sends values compressed at all.
    pub(crate) fn keeps_compressed(&self) -> bool {
        let bucket = self.bucket.as_ref();
        bucket.is_none_or(|bucket| bucket.bucket.keeps_compressed())
    }
}
