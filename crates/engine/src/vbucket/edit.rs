//! Append and prepend.

use model::{Attributes, Draft, Now};

use super::VBucket;
use super::attributes::{Plain, behind, plain_meta};
use crate::codec::Codec;
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::types::{Concat, ConcatPlace, Outcome};

impl VBucket {
    /// Appends or prepends bytes. Flags, expiry and attributes stay; the joined value is stored
    /// uncompressed.
    ///
    /// # Errors
    /// `NotStored` without a document; `Locked`; `KeyExists` if the CAS differs; `TooBig` for the
    /// joined value; `InvalidArgument` if the stored value cannot be read; `NotMyVbucket`,
    /// `WouldBlockPending`.
    ///
    /// Cost: copies the value once, and classifies it.
    pub fn concat(
        &mut self,
        concat: Concat<'_>,
        codec: &dyn Codec,
        now: Now,
    ) -> Result<Outcome<Mutated>, OpError> {
        self.check_key(concat.key)?;
        let durable = self.requirement(concat.durability, now)?;
        let place = seek!(self, concat.key);
        self.check_undecided(place, concat.key)?;
        let document = self.live(place, now).cloned().ok_or(OpError::NotStored)?;
        self.check_writer(place, concat.cas, now)?;
        if !document.is_resident() {
            return Ok(self.needs_fetch(&document));
        }
        let plain = Plain::of(&document, codec)?;
        let (section, body) = (plain.section(), plain.body());
        let users = Attributes::of(section, document.datatype()).bytes().user;
        let bytes = body.len().saturating_add(concat.bytes.len());
        if bytes.saturating_add(users) > self.config.value_bytes_max {
            return Err(OpError::TooBig);
        }
        let (first, second): (&[u8], &[u8]) = match concat.place {
            ConcatPlace::Append => (body, concat.bytes),
            ConcatPlace::Prepend => (concat.bytes, body),
        };
        let meta = plain_meta(&document);
        let mut draft = Draft::of_parts(concat.key, &[section, first, second], &meta);
        let datatype = codec.classify(&draft.document().value()[section.len()..]);
        draft.set_datatype(behind(section, datatype));
        let outcome = self.write(place, draft, durable, now);
        self.count_write(concat.key, true);
        Ok(outcome)
    }
}
