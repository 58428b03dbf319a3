//! What becomes of a document's extended attributes when the document changes as a whole.

use std::borrow::Cow;

use model::{
    Attributes, Datatype, Document, Draft, Kind, Meta, Now, Seqno, body_at, section_behind,
    system_section,
};

use crate::codec::Codec;
use crate::error::OpError;

/// The bytes of a stored value without compression.
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

/// Metadata of a document for a change made of it: how it came about is forgotten.
pub(super) fn plain_meta(document: &Document) -> Meta {
    let meta = document.meta();
    Meta {
        kind: meta.kind.plain(),
        prepare_seqno: Seqno::ZERO,
        ..meta
    }
}

/// A value in its plain form, and where its body begins.
pub(super) struct Plain<'a> {
    value: Cow<'a, [u8]>,
    body_at: usize,
}

impl<'a> Plain<'a> {
    /// The value of a document that is in memory.
    pub(super) fn of(document: &'a Document, codec: &dyn Codec) -> Result<Self, OpError> {
        let value = plain_value(document, codec)?;
        let body_at = body_at(&value, document.datatype());
        Ok(Self { value, body_at })
    }

    /// The attributes as they lie in front of the body.
    pub(super) fn section(&self) -> &[u8] {
        &self.value[..self.body_at]
    }

    /// The body.
    pub(super) fn body(&self) -> &[u8] {
        &self.value[self.body_at..]
    }
}

/// The datatype of a body behind this section.
pub(super) fn behind(section: &[u8], body: Datatype) -> Datatype {
    if section.is_empty() {
        body
    } else {
        body.with(Datatype::XATTR)
    }
}

/// What remains of a document: of its value the attributes of the system, no flags; the expiry
/// tells when it went. `None` if that cannot be told before the value was fetched.
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

/// `asked` with the attributes of `old` in front of its value, uncompressed; without the one that says that the old
/// value was stale.
///
/// # Errors
/// `TooBig` if body and attributes of users are; `InvalidArgument` for a value that cannot be
/// read.
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
