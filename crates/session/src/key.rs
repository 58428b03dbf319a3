//! The stored form of a document's key.

use model::{CollectionId, KEY_BYTES_MAX};
use wire::{Malformed, document_key};

#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack of one command; a box would be an allocation per key"
)]
/// A key with its collection prefix, as the engine needs it. Needs no allocation.
pub(crate) enum StoredKey<'a> {
    /// Sent with its prefix.
    Sent(&'a [u8]),
    /// Sent without a prefix; it is in the default collection.
    Prefixed([u8; KEY_BYTES_MAX], u8),
}

impl<'a> StoredKey<'a> {
    /// Checks a key as it was sent; returns its collection and its stored form.
    ///
    /// # Errors
    /// The length or the prefix is invalid.
    pub(crate) fn of(key: &'a [u8], collections: bool) -> Result<(CollectionId, Self), Malformed> {
        let (collection, user_key) = document_key(key, collections)?;
        if collections {
            return Ok((collection, Self::Sent(key)));
        }
        let mut bytes = [0; KEY_BYTES_MAX];
        let length = user_key.len() + 1;
        bytes[1..length].copy_from_slice(user_key);
        Ok((collection, Self::Prefixed(bytes, length as u8)))
    }

    /// Returns prefix and user's key.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Sent(key) => key,
            Self::Prefixed(bytes, length) => &bytes[..usize::from(*length)],
        }
    }

    /// Returns the user's key.
    pub(crate) fn user_key(&self) -> &[u8] {
        model::split_key(self.bytes()).map_or(&[], |(_, key)| key)
    }
}
