//! What a user may do in the collections of one bucket, by number.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::privilege::PrivilegeSet;

/// What is given in the collections in which it is not what is given in the whole bucket.
///
/// Cost: a look-up hashes a number; 18 bytes for each collection in it.
#[derive(Clone, Debug, Default)]
pub struct CollectionPrivileges(HashMap<u32, PrivilegeSet, FixedState>);

impl CollectionPrivileges {
    /// Of what is given in each collection, by number, those where that is not `whole`.
    pub fn new(whole: PrivilegeSet, each: impl IntoIterator<Item = (u32, PrivilegeSet)>) -> Self {
        let differing = each.into_iter().filter(|(_, given)| *given != whole);
        Self(differing.collect())
    }

    /// What is given in a collection; `None` if that is what is given in the whole bucket.
    #[inline]
    pub fn find(&self, collection: u32) -> Option<PrivilegeSet> {
        self.0.get(&collection).copied()
    }
}
