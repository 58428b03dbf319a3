//! Encoder from the events of a stream to messages.

use std::borrow::Cow;

use collections::SystemEvent;
use engine::dcp::{Event, Snapshot, StreamEnd, Versions};
use model::{Datatype, Document, Kind, body_at, split_key, system_section};
use registry::dcp::{MarkerVersion, NegotiatedSettings};
use wire::dcp::{
    Abort, Commit, Deletion, EndReason, Expiration, MarkerFlags, MarkerVersion as Version,
    Mutation, OpenFlags, OsoSnapshot, Prepare, SeqnoAdvanced, SetVbucketState, SnapshotMarker,
    StreamEnd as EndMessage, flow_bytes,
};
use wire::{Envelope, Feature, FeatureSet, Message, Opcode, RawParts, TooLong, encode_raw};

use super::events::EventParts;
use super::sink::{EventSink, EventStream};

/// Access frequency of a document for readers that get no finer value.
const HEAT: u8 = 2;
/// Values shorter than this are not worth compressing.
const COMPRESS_BYTES_MIN: usize = 32;

/// Appends the message of each event to a connection's output.
pub(crate) struct FrameSink<'a> {
    /// Features that the connection negotiated.
    pub(crate) features: FeatureSet,
    pub(crate) output: &'a mut Vec<u8>,
}

impl EventSink for FrameSink<'_> {
    fn bytes(&self) -> usize {
        self.output.len()
    }

    fn event(
        &mut self,
        event: &Event<'_>,
        of: EventStream,
        agreed: &NegotiatedSettings,
    ) -> Option<usize> {
        let before = self.output.len();
        let form = MessageForm {
            settings: agreed,
            features: self.features,
        };
        match form.event(event, of, self.output) {
            Ok(opcode) => Some(flow_bytes(opcode, self.output.len() - before)),
            Err(error) => {
                // No document that can be stored leads to a message that cannot be encoded.
                self.output.truncate(before);
                tracing::error!(vb = of.vb.0, ?error, "a change could not be sent");
                None
            }
        }
    }

    fn noop(&mut self) -> bool {
        let encoded = encode_raw(
            Opcode::DCP_NOOP,
            &Envelope::default(),
            RawParts::default(),
            self.output,
        );
        debug_assert!(
            encoded.is_ok(),
            "an empty message has no part that is too long"
        );
        false
    }
}

/// Form in which a connection gets its messages.
struct MessageForm<'a> {
    settings: &'a NegotiatedSettings,
    features: FeatureSet,
}

impl MessageForm<'_> {
    /// Appends the message of `event`.
    fn event(
        &self,
        event: &Event<'_>,
        to: EventStream,
        out: &mut Vec<u8>,
    ) -> Result<Opcode, TooLong> {
        let plain = || plain_envelope(to);
        match *event {
            Event::Change(document) => self.change(document, to, out),
            Event::Snapshot(snapshot) => encode(&self.marker(&snapshot), &plain(), out),
            Event::OutOfOrder { begins: true } => encode(&OsoSnapshot::Start, &plain(), out),
            Event::OutOfOrder { begins: false } => encode(&OsoSnapshot::End, &plain(), out),
            Event::Advanced(seqno) => encode(&SeqnoAdvanced { seqno }, &plain(), out),
            Event::State(state) => encode(&SetVbucketState { state }, &plain(), out),
            Event::End(end) => {
                let reason = match end_reason(end) {
                    EndReason::FILTER_EMPTY if !self.features.contains(Feature::COLLECTIONS) => {
                        EndReason::OK
                    }
                    reason => reason,
                };
                encode(&EndMessage { reason }, &plain(), out)
            }
        }
    }

    fn marker(&self, snapshot: &Snapshot) -> SnapshotMarker {
        let flag = |on: bool, flag: MarkerFlags| if on { flag } else { MarkerFlags(0) };
        let source = if snapshot.disk {
            MarkerFlags::DISK
        } else {
            MarkerFlags::MEMORY
        };
        let flags = source
            .with(flag(snapshot.checkpoint, MarkerFlags::CHECKPOINT))
            .with(flag(snapshot.acknowledge, MarkerFlags::ACK))
            .with(match snapshot.versions {
                Versions::Newest => MarkerFlags(0),
                Versions::Single => MarkerFlags::HISTORY,
                Versions::Repeated => {
                    MarkerFlags::HISTORY.with(MarkerFlags::MAY_CONTAIN_DUPLICATES)
                }
            });
        let visible_end = snapshot.visible_end;
        let high_completed = snapshot.high_completed.unwrap_or_default();
        let version = match self.settings.marker {
            MarkerVersion::V2_2 if snapshot.disk => Version::V2_2 {
                visible_end,
                high_completed,
                purge_seqno: snapshot.purge_seqno,
                high_prepared: snapshot.high_prepared.unwrap_or_default(),
            },
            MarkerVersion::V2_0 | MarkerVersion::V2_2 if self.settings.sync_writes => {
                Version::V2_0 {
                    visible_end,
                    high_completed,
                }
            }
            _ => Version::V1,
        };
        SnapshotMarker {
            range: snapshot.range,
            flags,
            version,
        }
    }

    fn change(
        &self,
        document: &Document,
        to: EventStream,
        out: &mut Vec<u8>,
    ) -> Result<Opcode, TooLong> {
        if SystemEvent::is_key(document.key()) {
            let flat = self.settings.flat_events;
            return system_event(document, flat, to, out);
        }
        let key = if self.features.contains(Feature::COLLECTIONS) {
            document.key()
        } else {
            split_key(document.key()).map_or(document.key(), |(_, key)| key)
        };
        let kind = document.kind();
        let kind = if self.settings.sync_writes {
            kind
        } else {
            kind.plain()
        };
        let (seqno, rev) = (document.seqno(), document.rev());
        let prepared = document.prepare_seqno();
        let about = |datatype| Envelope {
            cas: document.cas(),
            datatype,
            ..plain_envelope(to)
        };
        let plain = || about(Datatype::RAW);
        match kind {
            Kind::Mutation => self.mutation(document, key, &about, out),
            Kind::Deletion | Kind::Expiration => {
                let (value, datatype) = self.deleted_value(document);
                let envelope = about(datatype);
                let (value, delete_time) = (&*value, document.expiry());
                if kind == Kind::Expiration && self.settings.expiry_opcode {
                    let expiration = Expiration {
                        seqno,
                        rev,
                        delete_time,
                        key,
                        value,
                    };
                    return encode(&expiration, &envelope, out);
                }
                let timed = self.settings.delete_times;
                let deletion = Deletion {
                    seqno,
                    rev,
                    delete_time: timed.then_some(delete_time),
                    key,
                    value,
                };
                encode(&deletion, &envelope, out)
            }
            Kind::Prepare | Kind::PrepareDeletion => self.prepare(document, key, &about, out),
            Kind::Commit | Kind::CommitDeletion => {
                let commit = Commit {
                    prepared,
                    seqno,
                    key,
                };
                encode(&commit, &plain(), out)
            }
            Kind::Abort => {
                let given_up = Abort {
                    prepared,
                    seqno,
                    key,
                };
                encode(&given_up, &plain(), out)
            }
        }
    }

    fn mutation(
        &self,
        document: &Document,
        key: &[u8],
        about: &dyn Fn(Datatype) -> Envelope<'static>,
        out: &mut Vec<u8>,
    ) -> Result<Opcode, TooLong> {
        let (value, datatype) = self.value(document);
        let mutation = Mutation {
            seqno: document.seqno(),
            rev: document.rev(),
            flags: document.flags(),
            expiry: document.expiry(),
            lock_time: 0,
            heat: self.heat(document),
            key,
            value: &value,
        };
        encode(&mutation, &about(datatype), out)
    }

    fn prepare(
        &self,
        document: &Document,
        key: &[u8],
        about: &dyn Fn(Datatype) -> Envelope<'static>,
        out: &mut Vec<u8>,
    ) -> Result<Opcode, TooLong> {
        let deleted = document.kind() == Kind::PrepareDeletion;
        let (value, datatype) = if deleted {
            self.deleted_value(document)
        } else {
            self.value(document)
        };
        let prepare = Prepare {
            seqno: document.seqno(),
            rev: document.rev(),
            flags: document.flags(),
            expiry: document.expiry(),
            lock_time: 0,
            heat: self.heat(document),
            deleted,
            level: document.level().unwrap_or(model::DurabilityLevel::Majority),
            key,
            value: &value,
        };
        encode(&prepare, &about(datatype), out)
    }

    fn heat(&self, document: &Document) -> u8 {
        if self.settings.hifi_mfu {
            document.heat()
        } else {
            HEAT
        }
    }

    /// Returns the value in the form for which the connection was opened.
    fn value<'d>(&self, document: &'d Document) -> (Cow<'d, [u8]>, Datatype) {
        let stored = document.datatype();
        let keyed = self
            .settings
            .flags
            .contains(OpenFlags::NO_VALUE_WITH_UNDERLYING_DATATYPE);
        let bare = keyed || self.settings.flags.contains(OpenFlags::NO_VALUE);
        let xattrs = self.tells_attributes();
        if bare && !(xattrs && stored.contains(Datatype::XATTR)) {
            let shown = if keyed { stored } else { Datatype::RAW };
            return (Cow::Borrowed(&[]), self.known(shown));
        }
        let mut value = document.value();
        let mut datatype = stored;
        if stored.contains(Datatype::XATTR) && (bare || !xattrs) {
            let (section, body) = value.split_at(body_at(value, stored));
            if bare {
                value = section;
                datatype = if keyed { stored } else { Datatype::XATTR };
            } else {
                value = body;
                datatype = datatype.without(Datatype::XATTR);
            }
        }
        let (value, datatype) = self.packed(Cow::Borrowed(value), datatype);
        (value, self.known(datatype))
    }

    /// Returns the value of a deletion: extended attributes if the consumer asked for them, user attributes
    /// if it asked for those as well.
    fn deleted_value<'d>(&self, document: &'d Document) -> (Cow<'d, [u8]>, Datatype) {
        let datatype = document.datatype();
        if !self.tells_attributes() || !datatype.contains(Datatype::XATTR) {
            return (Cow::Borrowed(&[]), Datatype::RAW);
        }
        let of_users = self.settings.deleted_user_xattrs
            || self
                .settings
                .flags
                .contains(OpenFlags::INCLUDE_DELETED_USER_XATTRS);
        let value = if of_users {
            Cow::Borrowed(document.value())
        } else {
            Cow::Owned(system_section(document.value(), datatype))
        };
        if value.is_empty() {
            return (value, Datatype::RAW);
        }
        let (value, datatype) = self.packed(value, datatype);
        (value, self.known(datatype))
    }

    /// Whether the peer asked for extended attributes and negotiated them.
    fn tells_attributes(&self) -> bool {
        self.settings.flags.contains(OpenFlags::INCLUDE_XATTRS)
            && self.features.contains(Feature::XATTR)
    }

    /// Compresses or inflates a value, as negotiated.
    fn packed<'d>(&self, value: Cow<'d, [u8]>, datatype: Datatype) -> (Cow<'d, [u8]>, Datatype) {
        let takes_snappy = self.features.contains(Feature::SNAPPY)
            || self.features.contains(Feature::SNAPPY_EVERYWHERE);
        let packed = datatype.contains(Datatype::SNAPPY);
        if packed && !takes_snappy {
            return value::inflated(value, datatype);
        }
        if !packed && takes_snappy && self.settings.compress && value.len() >= COMPRESS_BYTES_MIN {
            let smaller = snap::raw::Encoder::new().compress_vec(&value);
            if let Some(smaller) = smaller.ok().filter(|smaller| smaller.len() < value.len()) {
                return (Cow::Owned(smaller), datatype.with(Datatype::SNAPPY));
            }
        }
        (value, datatype)
    }

    /// Clears datatype bits that the peer did not negotiate.
    fn known(&self, datatype: Datatype) -> Datatype {
        let mut known = datatype;
        for (bit, feature) in [
            (Datatype::JSON, Feature::JSON),
            (Datatype::XATTR, Feature::XATTR),
        ] {
            if !self.features.contains(feature) {
                known = known.without(bit);
            }
        }
        known
    }
}

/// Returns the envelope of a message without a document.
fn plain_envelope(to: EventStream) -> Envelope<'static> {
    Envelope::of_stream(to.vb, to.opaque, to.id)
}

fn system_event(
    document: &Document,
    flat: bool,
    to: EventStream,
    out: &mut Vec<u8>,
) -> Result<Opcode, TooLong> {
    if let Some((parts, name)) = EventParts::of(document, flat) {
        return encode(&parts.message(document, name), &plain_envelope(to), out);
    }
    // The event cannot be read; this message at least moves the consumer past it.
    let seqno = document.seqno();
    encode(&SeqnoAdvanced { seqno }, &plain_envelope(to), out)
}

fn encode<'a>(
    message: &impl Message<'a>,
    envelope: &Envelope<'_>,
    out: &mut Vec<u8>,
) -> Result<Opcode, TooLong> {
    message.encode(envelope, out)?;
    Ok(message.opcode())
}

/// Maps ends of streams to the protocol's numbers, for all callers.
pub fn end_reason(end: StreamEnd) -> EndReason {
    match end {
        StreamEnd::Finished => EndReason::OK,
        StreamEnd::Closed => EndReason::CLOSED,
        StreamEnd::StateChanged => EndReason::STATE_CHANGED,
        StreamEnd::BackfillFailed => EndReason::BACKFILL_FAILED,
        StreamEnd::Rollback => EndReason::ROLLBACK,
        StreamEnd::FilterEmpty => EndReason::FILTER_EMPTY,
        StreamEnd::LostPrivileges => EndReason::LOST_PRIVILEGES,
    }
}
