//! What the messages of a stream say of documents.

use model::{Datatype, Document, Kind, Meta};
use wire::dcp::{Abort, Commit, Deletion, Expiration, Mutation, Prepare, SystemEvent};
use wire::{Frame, Message, Opcode, document_key};

use super::passive::Violation;
use super::target::Resolved;
use crate::session::dcp::event_of;
use crate::value;

/// How a prepare ended.
pub(super) fn resolved_of<'f>(frame: &Frame<'f>) -> Result<Resolved<'f>, Violation> {
    document_key(frame.key, true).map_err(|_| Violation::Malformed)?;
    let malformed = |_| Violation::Malformed;
    let committed = frame.header.opcode == Opcode::DCP_COMMIT;
    let (prepare, at, key) = if committed {
        let message = Commit::parse(frame).map_err(malformed)?;
        (message.prepared, message.seqno, message.key)
    } else {
        let message = Abort::parse(frame).map_err(malformed)?;
        (message.prepared, message.seqno, message.key)
    };
    Ok(Resolved {
        key,
        prepare,
        at,
        committed,
    })
}

/// What a vBucket notes of a change of collections.
pub(super) fn event_document_of(frame: &Frame<'_>) -> Result<Document, Violation> {
    let message = SystemEvent::parse(frame).map_err(|_| Violation::Malformed)?;
    let event = event_of(&message).ok_or(Violation::Malformed)?;
    let meta = Meta {
        cas: frame.header.cas,
        seqno: message.seqno,
        rev: 1,
        kind: event.kind(),
        ..Meta::default()
    };
    let key = event.key();
    Ok(Document::from_parts(&key, &event.value(), &meta))
}

/// The document that a message carries; the key is checked, since it becomes part of a table.
pub(super) fn document_of(frame: &Frame<'_>) -> Result<Document, Violation> {
    document_key(frame.key, true).map_err(|_| Violation::Malformed)?;
    let known = Meta {
        cas: frame.header.cas,
        datatype: frame.header.datatype,
        ..Meta::default()
    };
    if known.datatype.contains(Datatype::SNAPPY) {
        // It is kept as it came, so whoever reads it must be able to.
        value::inflate(frame.value).map_err(|_| Violation::Malformed)?;
    }
    let malformed = |_| Violation::Malformed;
    let mut heat = 0;
    let meta = match frame.header.opcode {
        Opcode::DCP_MUTATION => {
            let message = Mutation::parse(frame).map_err(malformed)?;
            heat = message.heat;
            Meta {
                seqno: message.seqno,
                rev: message.rev,
                flags: message.flags,
                expiry: message.expiry,
                kind: Kind::Mutation,
                ..known
            }
        }
        Opcode::DCP_PREPARE => {
            let message = Prepare::parse(frame).map_err(malformed)?;
            heat = message.heat;
            Meta {
                seqno: message.seqno,
                rev: message.rev,
                flags: message.flags,
                expiry: message.expiry,
                kind: if message.deleted {
                    Kind::PrepareDeletion
                } else {
                    Kind::Prepare
                },
                level: Some(message.level),
                ..known
            }
        }
        Opcode::DCP_DELETION => {
            let message = Deletion::parse(frame).map_err(malformed)?;
            Meta {
                seqno: message.seqno,
                rev: message.rev,
                expiry: message.delete_time.unwrap_or(0),
                kind: Kind::Deletion,
                ..known
            }
        }
        _ => {
            let message = Expiration::parse(frame).map_err(malformed)?;
            Meta {
                seqno: message.seqno,
                rev: message.rev,
                expiry: message.delete_time,
                kind: Kind::Expiration,
                ..known
            }
        }
    };
    let document = Document::from_joined(frame.key_and_value(), frame.key.len(), &meta);
    document.set_heat(heat);
    Ok(document)
}
