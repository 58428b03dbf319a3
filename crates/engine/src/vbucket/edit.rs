//! Append and prepend: a new value made of the old one.

use std::borrow::Cow;

use model::{Datatype, Document, Draft, Meta, Now};

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
        let place = self.table.place(concat.key);
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
            ..document.meta()
        };
        let draft = Draft::from_joined(&key_and_value, concat.key.len(), &meta);
        let document = self.commit(place, draft, now);
        self.count_write(true);
        Ok(Outcome::Done(self.mutated(&document)))
    }
}
