//! From a frame to its command: the checks that all commands share, in the protocol's order.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bucket::MemoryRefusal;
use engine::OpError;
use identity::Role;
use model::{Cas, Datatype, Now, VbId};
use registry::ServedBucket;
use registry::timings::Answer;
use value::InflateError;
use wire::response::ErrorBody;
use wire::{
    Feature, Frame, Header, InfoError, Magic, Malformed, RequestInfos, Response, ServerOpcode,
    Standing, Status, encode_server_duration,
};

use super::{Park, Reply, Session, StoredKey, admission, status};
use crate::commands::{self, Command, Scope, UNKNOWN_COLLECTION_CONTEXT};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// It was answered, or needs no answer.
    Next,
    /// It waits: run it again once woken, or after this long.
    Parked(Duration),
    /// A part of its answer is there: run it again once that is sent, for the next one.
    More,
    /// It is done with, and its answer is owed.
    Owed,
    /// The connection is to be closed once its output is sent.
    Close,
}

/// Why a command was refused.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// By the engine.
    Op(OpError),
    /// By the server, with a text for the error context.
    Status(Status, Option<Cow<'static, str>>),
    /// The same, and the connection ends with the answer.
    Last(Status, &'static str),
    /// The collection is not known here.
    UnknownCollection,
    /// There is no room in memory at this moment: the request waits a little for it.
    NoRoomYet,
}

impl Refusal {
    /// A status with a text.
    pub(crate) fn because(status: Status, context: impl Into<Cow<'static, str>>) -> Self {
        Self::Status(status, Some(context.into()))
    }
}

impl From<OpError> for Refusal {
    fn from(error: OpError) -> Self {
        if error == OpError::UnknownCollection {
            return Self::UnknownCollection;
        }
        Self::Op(error)
    }
}

impl From<MemoryRefusal> for Refusal {
    fn from(refusal: MemoryRefusal) -> Self {
        Self::because(status::of_op_error(refusal.error), refusal.to_string())
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status, None)
    }
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::because(malformed.status(), malformed.reason)
    }
}

impl From<InfoError> for Refusal {
    fn from(error: InfoError) -> Self {
        Self::because(error.status(), error.reason())
    }
}

/// A command at work: the conversation, the request's envelope, and where answers go.
pub(crate) struct Context<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) output: &'a mut Vec<u8>,
    pub(crate) now: Now,
    pub(crate) infos: RequestInfos<'a>,
    /// Set when a successful answer is not sent.
    pub(crate) quiet: bool,
}

impl Session {
    /// Runs one frame and appends its answer, if it has one.
    pub(super) fn execute(&mut self, frame: &Frame<'_>, now: Now, output: &mut Vec<u8>) -> Done {
        match frame.header.magic {
            Magic::ClientRequest | Magic::AltClientRequest => {}
            // An answer to a notice of ours: nothing waits for it.
            Magic::ServerResponse => return Done::Next,
            Magic::ServerRequest => return self.refuse_server_request(frame, now, output),
            Magic::ClientResponse | Magic::AltClientResponse => {
                return self.take_answer(frame, now, output);
            }
        }
        if let Some(producer) = &self.dcp {
            producer.lock().heard(now);
        }
        if let Some(inbound) = &mut self.inbound {
            inbound.heard(now);
        }
        let before = output.len();
        let done = match self.judge(frame) {
            Ok((command, infos)) => {
                let quiet = frame
                    .header
                    .opcode
                    .info()
                    .is_some_and(|info| info.quiet.is_some());
                let mut context = Context {
                    session: self,
                    output,
                    now,
                    infos,
                    quiet,
                };
                (command.run)(&mut context, frame)
            }
            Err(refusal) => {
                if let Some(inbound) = &mut self.inbound {
                    inbound.missed(frame, output);
                }
                Err(refusal)
            }
        };
        match done {
            Ok(done @ (Done::Parked(_) | Done::More | Done::Owed)) => done,
            Ok(done) => {
                let answer = Answer::of_done(frame.header.opcode, output.len() > before);
                self.timings.answered(frame.header.opcode.0, answer);
                done
            }
            Err(Refusal::Op(OpError::WouldBlockPending)) => self.await_active(frame, now, output),
            Err(Refusal::NoRoomYet) => Done::Parked(admission::ROOM_LOOK),
            Err(refusal) => self.refuse(frame, damaged_value_first(frame, refusal), now, output),
        }
    }

    /// An answer of the peer: only who streams changes asked for any.
    fn take_answer(&mut self, frame: &Frame<'_>, now: Now, output: &mut Vec<u8>) -> Done {
        if let Some(inbound) = &mut self.inbound {
            inbound.heard(now);
            if inbound.answered(frame, output) {
                return Done::Next;
            }
            // Its streams may be added elsewhere at once.
            self.inbound = None;
            return Done::Close;
        }
        let Some(producer) = &self.dcp else {
            return Done::Close;
        };
        let header = &frame.header;
        let mut producer = producer.lock();
        producer.heard(now);
        if producer.answered(header.opcode, frame.status(), header.opaque) {
            return Done::Next;
        }
        tracing::debug!(connection = self.info.id, opcode = %header.opcode, "refused; closing");
        Done::Close
    }

    /// As [`Context::vbucket`].
    pub(super) fn vbucket_of(&self, frame: &Frame<'_>, key: &StoredKey<'_>) -> VbId {
        if !self.classic {
            return frame.vbucket();
        }
        let bucket = self.bucket.as_ref();
        let count = bucket.map_or(1, |bucket| bucket.bucket.vbuckets());
        VbId::of_key(key.user_key(), count)
    }

    /// Parks a request for a vBucket that is pending until the vBucket is active. Whoever
    /// changes the state of a vBucket wakes all sessions.
    fn await_active(&mut self, frame: &Frame<'_>, now: Now, output: &mut Vec<u8>) -> Done {
        let limit = self.node.waits.pending;
        let park = self.note_park(now);
        let waited = Duration::from_nanos(now.mono_ns.saturating_sub(park.since_ns));
        if waited < limit {
            return Done::Parked(limit.saturating_sub(waited));
        }
        let refusal = Refusal::because(Status::ETMPFAIL, "the vBucket is pending");
        self.refuse(frame, refusal, now, output)
    }

    /// Notes that the request waits; gives how long it has waited and how often it was run.
    fn note_park(&mut self, now: Now) -> Park {
        let since_ns = now.mono_ns;
        let park = self.park.get_or_insert(Park { since_ns, runs: 0 });
        park.runs += 1;
        *park
    }

    /// The checks before any command runs.
    fn judge<'f>(
        &self,
        frame: &Frame<'f>,
    ) -> Result<(&'static Command, RequestInfos<'f>), Refusal> {
        let opcode = frame.header.opcode;
        let command = commands::find(opcode);
        if !self.is_authenticated() && command.is_none_or(|command| !command.before_login) {
            return Err(Status::EACCESS.into());
        }
        if self.role != Role::Admin && !command.is_some_and(|row| row.allows(self.role)) {
            return Err(Refusal::because(
                Status::EACCESS,
                "the memcached port serves documents and statistics of one bucket",
            ));
        }
        let info = opcode.info().ok_or(Status::UNKNOWN_COMMAND)?;
        if info.standing == Standing::Removed {
            return Err(Status::NOT_SUPPORTED.into());
        }
        let command = command.ok_or_else(|| {
            Refusal::because(
                Status::NOT_SUPPORTED,
                "this command is not served by this node",
            )
        })?;
        if command.scope != Scope::Node && self.bucket.is_none() {
            return Err(Status::NO_BUCKET.into());
        }
        info.check(frame)?;
        self.check_negotiated(frame.header.datatype)?;
        let infos = RequestInfos::parse(frame.frame_infos)?;
        infos.check(info)?;
        if infos.impersonate.is_some() || infos.auth_token_id.is_some() {
            return Err(Refusal::because(
                Status::EACCESS,
                "impersonation is not served",
            ));
        }
        if infos.durability.is_some() && !commands::writes_durably(opcode) {
            return Err(Refusal::because(
                Status::NOT_SUPPORTED,
                "this command does not write durably",
            ));
        }
        Ok((command, infos))
    }

    fn check_negotiated(&self, datatype: Datatype) -> Result<(), Refusal> {
        let bits = [
            (
                Datatype::JSON,
                Feature::JSON,
                "JSON datatype was not negotiated",
            ),
            (
                Datatype::SNAPPY,
                Feature::SNAPPY,
                "Snappy datatype was not negotiated",
            ),
            (
                Datatype::XATTR,
                Feature::XATTR,
                "extended attributes were not negotiated",
            ),
        ];
        for (bit, feature, context) in bits {
            let negotiated = self.has(feature)
                || (bit == Datatype::SNAPPY && self.has(Feature::SNAPPY_EVERYWHERE));
            if datatype.contains(bit) && !negotiated {
                return Err(Refusal::because(Status::EINVAL, context));
            }
        }
        Ok(())
    }

    fn refuse_server_request(&self, frame: &Frame<'_>, now: Now, output: &mut Vec<u8>) -> Done {
        let known = ServerOpcode(frame.header.opcode.0).name().is_some();
        let status = if known {
            Status::NOT_SUPPORTED
        } else {
            Status::UNKNOWN_COMMAND
        };
        self.answer(
            frame,
            &Reply {
                status,
                ..Reply::EMPTY
            },
            now,
            output,
        );
        Done::Next
    }

    /// Answers with what was wrong; closes where a peer would not understand it.
    pub(super) fn refuse(
        &mut self,
        frame: &Frame<'_>,
        why: Refusal,
        now: Now,
        output: &mut Vec<u8>,
    ) -> Done {
        let ends = matches!(why, Refusal::Last(..));
        let manifest_uid = || Some(self.bucket.as_ref()?.bucket.manifest().uid());
        let (status, context, manifest) = match why {
            Refusal::Op(OpError::NotMyVbucket) | Refusal::Status(Status::NOT_MY_VBUCKET, _) => {
                let Some(reason) = self.quarantined(frame) else {
                    self.timings
                        .answered(frame.header.opcode.0, Answer::Refused);
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
            Refusal::NoRoomYet => (Status::ETMPFAIL, None, None),
            Refusal::UnknownCollection => (
                Status::UNKNOWN_COLLECTION,
                Some(UNKNOWN_COLLECTION_CONTEXT.into()),
                manifest_uid(),
            ),
        };
        self.timings
            .answered(frame.header.opcode.0, Answer::of(status));
        let Some(shown) = status::for_peer(status, self.features, self.is_authenticated()) else {
            return Done::Close;
        };
        let body = if self.has(Feature::XERROR) && (context.is_some() || manifest.is_some()) {
            let context = context.as_deref();
            ErrorBody {
                context,
                reference: None,
                manifest,
            }
            .to_json()
        } else {
            String::new()
        };
        let datatype = if body.is_empty() {
            Datatype::RAW
        } else {
            Datatype::JSON
        };
        let value = body.as_bytes();
        self.answer(
            frame,
            &Reply {
                status: shown,
                datatype,
                value,
                ..Reply::EMPTY
            },
            now,
            output,
        );
        if ends { Done::Close } else { Done::Next }
    }

    /// The answer that carries the cluster map, unless the peer has it already.
    /// Why the request's vBucket is not served, where it is damaged: no other node has it, so a client must not
    /// look for one.
    fn quarantined(&self, frame: &Frame<'_>) -> Option<String> {
        let id = frame.vbucket();
        let known = self.bucket.as_ref()?.bucket.quarantined(id)?;
        let reason = &known.reason;
        Some(format!(
            "{id} is damaged and in quarantine: {reason}; settee salvage copies what can be read"
        ))
    }

    fn not_my_vbucket(&mut self, frame: &Frame<'_>, now: Now, output: &mut Vec<u8>) -> Done {
        let map = self.bucket.as_ref().map(|bucket| bucket.map());
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
            _ => self.answer(
                frame,
                &Reply {
                    status,
                    ..Reply::EMPTY
                },
                now,
                output,
            ),
        }
        Done::Next
    }

    /// Appends an answer in the form that the connection negotiated. Nothing is compressed
    /// here; a datatype bit that was not negotiated is left out.
    pub(crate) fn answer(
        &self,
        frame: &Frame<'_>,
        reply: &Reply<'_>,
        now: Now,
        output: &mut Vec<u8>,
    ) {
        self.answer_to(&frame.header, reply, now.mono_ns, output);
    }

    /// The same for a request that is gone but for its header; it was run at `since_ns`.
    pub(super) fn answer_to(
        &self,
        header: &Header,
        reply: &Reply<'_>,
        since_ns: u64,
        output: &mut Vec<u8>,
    ) {
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
        response.encode(output);
        self.timings.responded(reply.status);
    }

    /// How long a request took that was run at `since_ns`, for a peer that asked to be told.
    pub(crate) fn server_duration(&self, since_ns: u64) -> Option<u16> {
        self.has(Feature::TRACING).then(|| {
            let ns = self.node.clock.mono_ns().saturating_sub(since_ns);
            // Never 0: a client takes that for a duration that was not told.
            encode_server_duration(ns.div_ceil(1000).max(1))
        })
    }

    /// Whether values may be sent compressed to this peer.
    pub(crate) fn takes_snappy(&self) -> bool {
        self.has(Feature::SNAPPY) || self.has(Feature::SNAPPY_EVERYWHERE)
    }
}

impl Context<'_> {
    /// The selected bucket. Commands whose scope is not the node always have one.
    pub(crate) fn bucket(&self) -> Result<Arc<ServedBucket>, Refusal> {
        self.session
            .bucket
            .clone()
            .ok_or_else(|| Status::NO_BUCKET.into())
    }

    /// The key in its stored form, in a collection that exists.
    pub(crate) fn key<'k>(&self, key: &'k [u8]) -> Result<StoredKey<'k>, Refusal> {
        let (collection, stored) = StoredKey::of(key, self.session.has(Feature::COLLECTIONS))?;
        let bucket = self.session.bucket.as_ref();
        if bucket.is_some_and(|served| !served.bucket.knows_collection(collection)) {
            return Err(Refusal::UnknownCollection);
        }
        Ok(stored)
    }

    /// The vBucket that a request is for: the one it names, or the key's own for a peer that
    /// knows no vBuckets.
    pub(crate) fn vbucket(&self, frame: &Frame<'_>, key: &StoredKey<'_>) -> VbId {
        self.session.vbucket_of(frame, key)
    }

    /// Answers, unless the command is a quiet one.
    pub(crate) fn reply(&mut self, frame: &Frame<'_>, reply: &Reply<'_>) -> Done {
        if !self.quiet {
            self.session.answer(frame, reply, self.now, self.output);
        }
        Done::Next
    }

    /// Answers even if the command is a quiet one.
    pub(crate) fn reply_loudly(&mut self, frame: &Frame<'_>, reply: &Reply<'_>) -> Done {
        self.session.answer(frame, reply, self.now, self.output);
        Done::Next
    }

    /// Success with a revision.
    pub(crate) fn reply_cas(&mut self, frame: &Frame<'_>, cas: Cas) -> Done {
        self.reply(frame, &Reply::cas(cas))
    }

    /// Notes that the request waits; gives how long it has waited and how often it was run.
    pub(crate) fn park(&mut self) -> Park {
        self.session.note_park(self.now)
    }
}

/// What is wrong with a compressed value comes before what is wrong with frame infos and key.
///
/// Source: protocol section 2. Test: `order::snappy_comes_before_frame_infos_and_keys`.
fn damaged_value_first(frame: &Frame<'_>, refusal: Refusal) -> Refusal {
    let later = match &refusal {
        Refusal::UnknownCollection => true,
        Refusal::Status(status, _) => matches!(
            *status,
            Status::UNKNOWN_FRAME_INFO | Status::DURABILITY_INVALID_LEVEL | Status::NOT_SUPPORTED
        ),
        Refusal::Op(_) | Refusal::Last(..) | Refusal::NoRoomYet => false,
    };
    let served = commands::find(frame.header.opcode).is_some();
    if !later || !served || !frame.header.datatype.contains(Datatype::SNAPPY) {
        return refusal;
    }
    match value::inflate(frame.value) {
        Ok(_) => refusal,
        Err(error) => value_refusal(error),
    }
}

/// The answer to a compressed value that is not stored.
pub(crate) fn value_refusal(error: InflateError) -> Refusal {
    match error {
        InflateError::Damaged => Refusal::because(Status::EINVAL, "the value is no valid Snappy"),
        InflateError::TooBig => OpError::TooBig.into(),
    }
}
