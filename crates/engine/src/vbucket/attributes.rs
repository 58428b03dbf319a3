//! Extended attributes of a document when the whole document changes.

use std::borrow::Cow;

use model::{
    Attributes, Datatype, Document, Draft, Kind, Meta, Now, Seqno, body_at, section_behind,
    system_section,
};

use crate::codec::Codec;
use crate::error::OpError;

/// Returns the uncompressed bytes of a stored value.
pub(super) fn plain_value<'a>(
    document: &'a Document,
    codec: &dyn Codec,
) -> Result<Cow<'a, [u8]>, OpError> {
    let datatype = document.datatype();
    if !datatype.contains(Datatype::SNAPPY) {
        return Ok(Cow::Borrowed(document.value()));
    }
    let plain = codec.inflate(document.value());
    plain.map(Cow::Owned).ok_or(OpError::InvalidArgument(
        "the stored value does not inflate",
    ))
}

/// Returns the metadata of a document for a change derived from it: without the traces of a durable
/// write.
pub(super) fn plain_meta(document: &Document) -> Meta {
    let meta = document.meta();
    Meta {
        kind: meta.kind.plain(),
        prepare_seqno: Seqno::ZERO,
        ..meta
    }
}

/// An uncompressed value, split into attributes and body.
pub(super) struct Plain<'a> {
    value: Cow<'a, [u8]>,
    body_at: usize,
}

impl<'a> Plain<'a> {
    /// Splits the value of a resident document.
    pub(super) fn of(document: &'a Document, codec: &dyn Codec) -> Result<Self, OpError> {
        let value = plain_value(document, codec)?;
        let body_at = body_at(&value, document.datatype());
        Ok(Self { value, body_at })
    }

    /// The encoded attributes before the body.
    pub(super) fn section(&self) -> &[u8] {
        &self.value[..self.body_at]
    }

    /// The body.
    pub(super) fn body(&self) -> &[u8] {
        &self.value[self.body_at..]
    }
}

/// Returns the datatype of a value with this attribute section and this body.
pub(super) fn behind(section: &[u8], body: Datatype) -> Datatype {
    if section.is_empty() {
        body
    } else {
        body.with(Datatype::XATTR)
    }
}

/// Makes the tombstone of a document: it keeps the system attributes, has no flags, and its expiry
/// is the time of the deletion. `None` if the value must be fetched first.
pub(super) fn tombstone_of(document: &Document, kind: Kind, now: Now) -> Option<Draft> {
    let section = if document.datatype().contains(Datatype::XATTR) {
        if !document.is_resident() {
            return None;
        }
        system_section(document.value(), document.datatype())
    } else {
        Vec::new()
    };
    let meta = Meta {
        kind,
        expiry: now.unix_s(),
        datatype: behind(&section, Datatype::RAW),
        ..Meta::default()
    };
    Some(Draft::new(document.key(), &section, &meta))
}

/// Returns `asked` with the attributes of `old` before its value, uncompressed. Leaves out the
/// attribute that marks the old value as stale.
///
/// # Errors
/// `TooBig` if body and user attributes exceed the limit; `InvalidArgument` for a value that cannot
/// be read.
pub(super) fn with_attributes_of(
    old: &Document,
    asked: &Document,
    codec: &dyn Codec,
    value_bytes_max: usize,
) -> Result<Draft, OpError> {
    let (old, new) = (Plain::of(old, codec)?, Plain::of(asked, codec)?);
    let section = section_behind(old.section());
    let users = Attributes::of(&section, behind(&section, Datatype::RAW))
        .bytes()
        .user;
    if new.body().len().saturating_add(users) > value_bytes_max {
        return Err(OpError::TooBig);
    }
    let meta = Meta {
        datatype: behind(&section, asked.datatype().without(Datatype::SNAPPY)),
        ..plain_meta(asked)
    };
    let joined = [asked.key(), &section, new.body()].concat();
    Ok(Draft::from_joined(&joined, asked.key().len(), &meta))
}
