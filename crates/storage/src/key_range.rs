//! Ranges of keys.

use std::ops::Bound;

use model::{CollectionId, collection_key};

/// A range of keys with their collection's prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// First key (inclusive).
    pub from: Box<[u8]>,
    /// End (exclusive); `None` for no end.
    pub to: Option<Box<[u8]>>,
}

impl KeyRange {
    /// Creates a range from bounds of any kind.
    pub fn new(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Self {
        let after = |key: &[u8]| [key, &[0]].concat().into_boxed_slice();
        Self {
            from: match from {
                Bound::Included(key) => key.into(),
                Bound::Excluded(key) => after(key),
                Bound::Unbounded => Box::default(),
            },
            to: match to {
                Bound::Included(key) => Some(after(key)),
                Bound::Excluded(key) => Some(key.into()),
                Bound::Unbounded => None,
            },
        }
    }

    /// Returns the range of a collection's keys. They are adjacent, and end before the prefix whose
    /// last byte is one higher.
    pub fn of_collection(id: CollectionId) -> Self {
        let from = collection_key(id, &[]);
        let mut to = from.clone();
        // The top bit of the last byte is clear, so adding one does not overflow.
        if let Some(last) = to.last_mut() {
            *last += 1;
        }
        Self {
            from: from.into(),
            to: Some(to.into()),
        }
    }

    /// Returns the non-empty parts below and above another range, ascending.
    pub(crate) fn without(&self, other: &Self) -> impl Iterator<Item = Self> {
        let to = self.to.as_deref();
        let below = Self {
            from: self.from.clone(),
            to: Some(to.map_or(&*other.from, |to| to.min(&other.from)).into()),
        };
        let above = other.to.as_ref().map(|end| Self {
            from: self.from.clone().max(end.clone()),
            to: self.to.clone(),
        });
        let is_some = |part: &Self| part.to.as_ref().is_none_or(|to| part.from < *to);
        [Some(below), above].into_iter().flatten().filter(is_some)
    }

    /// Whether the range contains a key.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &*self.from && self.to.as_deref().is_none_or(|to| key < to)
    }
}
