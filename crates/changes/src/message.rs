//! Parses the messages of a producer for a follower of changes.

use model::{CollectionId, Datatype, Seqno, VbId, body_at, split_key};
use wire::dcp::{
    Deletion, EndReason, Expiration, Mutation, SeqnoAdvanced, SnapshotMarker, StreamEnd,
    SystemEvent,
};
use wire::{Frame, Message as _, Opcode};

use crate::record::{Change, ChangeKind, Names};
use crate::streams::{Streams, Violation};

/// A parsed message; the streams are already advanced.
#[derive(Clone, Copy, Debug)]
pub enum StreamMessage<'a> {
    /// The message needs no action.
    Nothing,
    /// A document changed.
    Change(DocumentChange<'a>),
    /// A collection or a scope changed.
    System(SystemEvent<'a>),
    /// A stream ended.
    Ended {
        /// The reason.
        reason: EndReason,
        /// Whether the stream must be requested again.
        again: bool,
    },
    /// The producer checks that the consumer is alive.
    Noop,
}

/// A change of a document, still without the name of its collection.
#[derive(Clone, Copy, Debug)]
pub struct DocumentChange<'a> {
    /// Collection of the document.
    pub collection: CollectionId,
    unnamed: Change<'a>,
}

impl<'a> DocumentChange<'a> {
    /// The vBucket of the document.
    pub fn vbucket(&self) -> VbId {
        self.unnamed.vbucket
    }

    /// Returns the change with the names of its collection.
    pub fn named(&self, names: Names<'a>) -> Change<'a> {
        Change {
            names,
            ..self.unnamed
        }
    }
}

/// Parses a message of a producer and advances `streams`. `keyed`: keys start with the id of their collection.
///
/// # Errors
/// The message violates the protocol.
pub fn take<'a>(
    frame: &Frame<'a>,
    streams: &mut Streams,
    keyed: bool,
) -> Result<StreamMessage<'a>, Violation> {
    let vbucket = frame.vbucket();
    let malformed = |error: wire::Malformed| error.to_string();
    match frame.header.opcode {
        Opcode::DCP_NOOP => Ok(StreamMessage::Noop),
        Opcode::DCP_SNAPSHOT_MARKER => {
            let marker = SnapshotMarker::parse(frame).map_err(malformed)?;
            streams.snapshot(vbucket, marker.range)?;
            Ok(StreamMessage::Nothing)
        }
        Opcode::DCP_MUTATION | Opcode::DCP_DELETION | Opcode::DCP_EXPIRATION => {
            let change = document_change(frame, keyed)?;
            streams.reached(vbucket, change.unnamed.seqno)?;
            Ok(StreamMessage::Change(change))
        }
        Opcode::DCP_SYSTEM_EVENT => {
            let event = SystemEvent::parse(frame).map_err(malformed)?;
            streams.reached(vbucket, event.seqno)?;
            Ok(StreamMessage::System(event))
        }
        Opcode::DCP_SEQNO_ADVANCED => {
            let advanced = SeqnoAdvanced::parse(frame).map_err(malformed)?;
            streams.reached(vbucket, advanced.seqno)?;
            Ok(StreamMessage::Nothing)
        }
        Opcode::DCP_STREAM_END => {
            let reason = StreamEnd::parse(frame).map_err(malformed)?.reason;
            let again = streams.ended(vbucket, reason)?;
            Ok(StreamMessage::Ended { reason, again })
        }
        other => Err(format!("an unexpected {}", other.name())),
    }
}

fn document_change<'a>(frame: &Frame<'a>, keyed: bool) -> Result<DocumentChange<'a>, Violation> {
    let change = parse_change(frame).map_err(|error| error.to_string())?;
    let (collection, key) = if keyed {
        split_key(change.key).ok_or("a key without a collection")?
    } else {
        (CollectionId::DEFAULT, change.key)
    };
    let unnamed = Change { key, ..change };
    Ok(DocumentChange {
        collection,
        unnamed,
    })
}

/// Parses a mutation, deletion or expiration. The key stays unchanged.
fn parse_change<'a>(frame: &Frame<'a>) -> Result<Change<'a>, wire::Malformed> {
    let datatype = frame.header.datatype;
    let known = Change {
        event: ChangeKind::Mutation,
        names: Names::default(),
        vbucket: frame.vbucket(),
        seqno: Seqno(0),
        cas: frame.header.cas,
        rev: 0,
        flags: 0,
        time_s: 0,
        key: &[],
        value: None,
        datatype,
    };
    Ok(match frame.header.opcode {
        Opcode::DCP_DELETION => {
            let parsed = Deletion::parse(frame)?;
            Change {
                event: ChangeKind::Deletion,
                seqno: parsed.seqno,
                rev: parsed.rev,
                time_s: parsed.delete_time.unwrap_or(0),
                key: parsed.key,
                ..known
            }
        }
        Opcode::DCP_EXPIRATION => {
            let parsed = Expiration::parse(frame)?;
            Change {
                event: ChangeKind::Expiration,
                seqno: parsed.seqno,
                rev: parsed.rev,
                time_s: parsed.delete_time,
                key: parsed.key,
                ..known
            }
        }
        _ => {
            let parsed = Mutation::parse(frame)?;
            Change {
                seqno: parsed.seqno,
                rev: parsed.rev,
                flags: parsed.flags,
                time_s: parsed.expiry,
                key: parsed.key,
                value: Some(body(parsed.value, datatype)),
                ..known
            }
        }
    })
}

/// Returns the value without its extended attributes.
fn body(value: &[u8], datatype: Datatype) -> &[u8] {
    &value[body_at(value, datatype)..]
}

#[cfg(test)]
mod tests {
    use model::{Cas, FailoverEntry, SnapshotRange, VbUuid};
    use wire::dcp::{MarkerFlags, MarkerVersion};
    use wire::{Decoded, Envelope, Limits, Message};

    use super::*;
    use crate::position::Position;

    const VB: VbId = VbId(1);

    fn streams() -> Streams {
        let mut streams = Streams::from(Position::beginning(2));
        streams.requests(|_| true);
        let log = [FailoverEntry {
            uuid: VbUuid(7),
            seqno: Seqno(0),
        }];
        streams.granted(VB, log).unwrap();
        streams
    }

    /// Returns the meaning of a message; of a change its key and value.
    fn meaning<'m>(
        streams: &mut Streams,
        message: &impl Message<'m>,
        datatype: Datatype,
    ) -> Result<String, Violation> {
        let mut bytes = Vec::new();
        let envelope = Envelope {
            vbucket: VB,
            cas: Cas(9),
            datatype,
            ..Envelope::default()
        };
        message.encode(&envelope, &mut bytes).unwrap();
        let Ok(Decoded::Frame { frame, .. }) = wire::decode(&bytes, Limits::AUTHENTICATED) else {
            panic!("no frame");
        };
        take(&frame, streams, true).map(|parsed| match parsed {
            StreamMessage::Change(change) => {
                let names = Names {
                    scope: "s",
                    collection: "c",
                };
                let change = change.named(names);
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                format!(
                    "{} {} {}",
                    change.event.name(),
                    text(change.key),
                    text(change.value.unwrap_or_default())
                )
            }
            other => format!("{other:?}"),
        })
    }

    fn marker(start: u64, end: u64) -> SnapshotMarker {
        SnapshotMarker {
            range: SnapshotRange {
                start: Seqno(start),
                end: Seqno(end),
            },
            flags: MarkerFlags::MEMORY,
            version: MarkerVersion::V1,
        }
    }

    fn mutation(seqno: u64, key: &'static [u8], value: &'static [u8]) -> Mutation<'static> {
        Mutation {
            seqno: Seqno(seqno),
            rev: 1,
            flags: 0,
            expiry: 0,
            lock_time: 0,
            heat: 0,
            key,
            value,
        }
    }

    #[test]
    fn changes_need_open_snapshot() {
        let mut streams = streams();
        let early = meaning(&mut streams, &mutation(1, b"\0k", b"v"), Datatype::RAW);
        assert!(early.is_err(), "no snapshot");
        let announced = meaning(&mut streams, &marker(1, 3), Datatype::RAW);
        assert_eq!(announced.as_deref(), Ok("Nothing"));
        let with_attributes = b"\0\0\0\x02xxv";
        let parsed = meaning(
            &mut streams,
            &mutation(1, b"\0k", with_attributes),
            Datatype::XATTR,
        );
        assert_eq!(parsed.as_deref(), Ok("mutation k v"));
        let gone = Deletion {
            seqno: Seqno(2),
            rev: 2,
            delete_time: None,
            key: b"\0k",
            value: b"xattrs",
        };
        let parsed = meaning(&mut streams, &gone, Datatype::RAW);
        assert_eq!(parsed.as_deref(), Ok("deletion k "));
        assert!(
            meaning(&mut streams, &gone, Datatype::RAW).is_err(),
            "twice"
        );
        let no_collection = mutation(3, b"\x80", b"v");
        assert!(meaning(&mut streams, &no_collection, Datatype::RAW).is_err());
        let advanced = SeqnoAdvanced { seqno: Seqno(3) };
        let parsed = meaning(&mut streams, &advanced, Datatype::RAW);
        assert_eq!(parsed.as_deref(), Ok("Nothing"));
        assert_eq!(streams.position().places[1].seqno, Seqno(3));
    }

    #[test]
    fn wrong_attribute_length_yields_valid_body() {
        assert_eq!(body(b"\0\0\0\x09xx", Datatype::XATTR), b"");
        assert_eq!(body(b"ab", Datatype::XATTR), b"ab");
        assert_eq!(body(b"\0\0\0\x01x", Datatype::JSON), b"\0\0\0\x01x");
    }

    #[test]
    fn parser_refuses_invalid_producer_messages() {
        let mut streams = streams();
        let request = wire::dcp::BufferAck { bytes: 1 };
        assert!(meaning(&mut streams, &request, Datatype::RAW).is_err());
        let end = StreamEnd {
            reason: EndReason::CLOSED,
        };
        assert!(meaning(&mut streams, &end, Datatype::RAW).is_ok());
        assert!(meaning(&mut streams, &end, Datatype::RAW).is_err(), "ended");
    }
}
