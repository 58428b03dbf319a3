//! Parses the messages of a stream into documents and decisions.

use model::{Attributes, Datatype, Document, Kind, Meta};
use wire::dcp::{Abort, Commit, Deletion, Expiration, Mutation, Prepare, SystemEvent};
use wire::{Frame, Message, Opcode, document_key};

use crate::events::event_of;
use crate::passive::Violation;
use crate::target::Resolved;

/// Parses a commit or an abort: the decision about a prepare.
pub(crate) fn resolved_of<'f>(frame: &Frame<'f>) -> Result<Resolved<'f>, Violation> {
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

/// Parses a system event into the document that a vBucket stores for a change of collections.
pub(crate) fn event_document_of(frame: &Frame<'_>) -> Result<Document, Violation> {
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

/// Parses a message into its document. Checks the key, since it becomes part of a hash table.
pub(crate) fn document_of(frame: &Frame<'_>) -> Result<Document, Violation> {
    document_key(frame.key, true).map_err(|_| Violation::Malformed)?;
    let plain = inflated(frame)?;
    let (meta, heat) = meta_of(frame)?;
    let gone = meta.kind.is_tombstone() || meta.kind == Kind::PrepareDeletion;
    let document = if gone || meta.datatype.contains(Datatype::XATTR) {
        attributed(
            frame.key,
            plain.as_deref().unwrap_or(frame.value),
            meta,
            gone,
        )?
    } else {
        Document::from_joined(frame.key_and_value(), frame.key.len(), &meta)
    };
    document.set_heat(heat);
    Ok(document)
}

/// Parses the metadata of a message, and the heat of its document (how often it is used).
fn meta_of(frame: &Frame<'_>) -> Result<(Meta, u8), Violation> {
    let known = Meta {
        cas: frame.header.cas,
        datatype: frame.header.datatype,
        ..Meta::default()
    };
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
    Ok((meta, heat))
}

/// Decompresses a Snappy value; `None` if it is not compressed. This also checks values that are stored compressed.
fn inflated(frame: &Frame<'_>) -> Result<Option<Vec<u8>>, Violation> {
    if !frame.header.datatype.contains(Datatype::SNAPPY) {
        return Ok(None);
    }
    let plain = value::inflate_stored(frame.value).map_err(|_| Violation::Malformed)?;
    Ok(Some(plain))
}

/// Builds a document with extended attributes, or a tombstone, which has no body. Neither is stored compressed.
fn attributed(key: &[u8], plain: &[u8], mut meta: Meta, gone: bool) -> Result<Document, Violation> {
    meta.datatype = meta.datatype.without(Datatype::SNAPPY);
    let mut value = plain;
    if meta.datatype.contains(Datatype::XATTR) {
        let (attributes, body) = Attributes::split(plain).ok_or(Violation::Malformed)?;
        if gone {
            value = &plain[..plain.len() - body.len()];
        }
        if attributes.is_empty() {
            value = if gone { &[] } else { body };
            meta.datatype = meta.datatype.without(Datatype::XATTR);
        }
    } else if gone {
        value = &[];
    }
    if gone {
        meta.datatype = meta.datatype.without(Datatype::JSON);
    }
    Ok(Document::from_parts(key, value, &meta))
}
