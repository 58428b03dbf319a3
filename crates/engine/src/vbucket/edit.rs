//! Append and prepend: a new value made of the old one.

use std::borrow::Cow;

use model::{Datatype, Document, Draft, Meta, Now, Seqno};

use super::VBucket;
use crate::codec::Codec;
use crate::error::OpError;
use crate::types::{Concat, ConcatPlace, Mutated, Outcome};

/// The bytes of a stored value as its clients mean them.
pub(super) fn plain_value<'a>(
    document: &'a Document,
    codec: &dyn Codec,
) -> Result<Cow<'a, [u8]>, OpError> {
    let datatype = document.datatype();
    if datatype.contains(Datatype::XATTR) {
        return Err(OpError::InvalidArgument(
            "the document has extended attributes",
        ));
    }
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

impl VBucket {
    /// Appends or prepends. Flags and expiry stay; the joined value is stored uncompressed.
    ///
    /// # Errors
    /// `NotStored` without a document; `Locked`; `KeyExists` for another CAS; `TooBig` when the
    /// joined value is; `InvalidArgument` when the stored value cannot be read;
    /// `NotMyVbucket`, `WouldBlockPending`.
    ///
    /// Cost: copies the value once, and has it classified.
    pub fn concat(
        &mut self,
        concat: Concat<'_>,
        codec: &dyn Codec,
        now: Now,
    ) -> Result<Outcome<Mutated>, OpError> {
        self.check_active()?;
        self.check_collection(concat.key)?;
        let durable = self.requirement(concat.durability, now)?;
        let place = match self.seek(concat.key) {
            Ok(place) => place,
            Err(fetch) => return Ok(Outcome::NeedsFetch(fetch)),
        };
        self.check_undecided(place, concat.key)?;
        let document = self.live(place, now).cloned().ok_or(OpError::NotStored)?;
        self.check_writer(place, concat.cas, now)?;
        if !document.is_resident() {
            return Ok(self.needs_fetch(&document));
        }
        let value = plain_value(&document, codec)?;
        if value.len().saturating_add(concat.bytes.len()) > self.config.value_bytes_max {
            return Err(OpError::TooBig);
        }
        let (first, second): (&[u8], &[u8]) = match concat.place {
            ConcatPlace::Append => (&value, concat.bytes),
            ConcatPlace::Prepend => (concat.bytes, &value),
        };
        let key_and_value = [concat.key, first, second].concat();
        let datatype = codec.classify(&key_and_value[concat.key.len()..]);
        let meta = Meta {
            datatype,
            ..plain_meta(&document)
        };
        let draft = Draft::from_joined(&key_and_value, concat.key.len(), &meta);
        let outcome = self.write(place, draft, durable, now);
        self.count_write(concat.key, true);
        Ok(outcome)
    }
}
