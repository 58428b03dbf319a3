//! What the peer of a connection may do.
//!
//! Worked out of the user's grants when a user logs in or a bucket is selected, and again once
//! [`Identity::revision`](identity::Identity::revision) has grown. A command of most users then costs one comparison
//! of two sets; that of a user whose privileges differ between collections, a look-up of the collection's number.

use collections::Manifest;
use identity::{Access, AuthenticatedUser, CollectionPrivileges, Privilege, PrivilegeSet};
use model::{CollectionId, ManifestUid};
use registry::ServedBucket;

use crate::outcome::Refusal;

/// What clients of the memcached port may do that need not log in.
const TRUSTED: PrivilegeSet = PrivilegeSet::of(&[
    Privilege::Read,
    Privilege::Insert,
    Privilege::Upsert,
    Privilege::Delete,
    Privilege::SimpleStats,
]);
/// What is done to documents of system collections needs one of these besides.
const SYSTEM: PrivilegeSet = PrivilegeSet::of(&[
    Privilege::SystemCollectionLookup,
    Privilege::SystemCollectionMutation,
]);
/// Of no use in a system collection without [`Privilege::SystemCollectionLookup`].
const LOOKUPS: PrivilegeSet = PrivilegeSet::of(&[Privilege::Read, Privilege::RangeScan]);
/// Of no use in a system collection without [`Privilege::SystemCollectionMutation`].
const MUTATIONS: PrivilegeSet = PrivilegeSet::of(&[
    Privilege::Insert,
    Privilege::Upsert,
    Privilege::Delete,
    Privilege::MetaWrite,
]);

/// What a user may do on the node and in the selected bucket.
#[derive(Debug, Default)]
pub(crate) struct SessionAccess {
    revision: u64,
    node: PrivilegeSet,
    /// In the whole of the selected bucket; what is given on the node is given there, too.
    bucket: PrivilegeSet,
    /// Anywhere in the selected bucket.
    anywhere: PrivilegeSet,
    /// Of a user whose privileges are not the same in all collections.
    parts: Option<Box<Parts>>,
    /// Whether something is given in the whole of the selected bucket.
    sees_whole: bool,
    /// Whether something is given in the selected bucket.
    sees_bucket: bool,
    /// Given up by the peer for as long as the connection lives.
    dropped: PrivilegeSet,
}

/// The peer itself, while a request runs on behalf of another user.
pub(crate) struct Impersonator {
    pub(crate) user: Option<AuthenticatedUser>,
    pub(crate) access: SessionAccess,
}

/// What is given in the collections in which it is not the same as in the whole bucket.
#[derive(Debug)]
struct Parts {
    manifest: ManifestUid,
    of: CollectionPrivileges,
}

impl Parts {
    fn new(access: &Access, bucket: &str, manifest: &Manifest) -> Self {
        let whole = upserts_insert(access.of_bucket(bucket));
        let of = manifest.collections().map(|(scope, collection)| {
            let given = access.of_part(bucket, &scope.name, Some(&collection.name));
            let given = upserts_insert(given);
            let system = is_system(&collection.name);
            (
                collection.id.0,
                if system { in_system(given) } else { given },
            )
        });
        Self {
            manifest: manifest.uid(),
            of: CollectionPrivileges::new(whole, of),
        }
    }
}

fn is_system(collection: &str) -> bool {
    collection.starts_with('_') && collection != "_default"
}

/// What remains of privileges in a system collection.
fn in_system(given: PrivilegeSet) -> PrivilegeSet {
    let unless = |one: Privilege, useless| {
        if given.has(one) {
            PrivilegeSet::EMPTY
        } else {
            useless
        }
    };
    let lookups = unless(Privilege::SystemCollectionLookup, LOOKUPS);
    let mutations = unless(Privilege::SystemCollectionMutation, MUTATIONS);
    given.without(lookups.with(mutations))
}

/// Whether what is needed is among what is given.
///
/// # Errors
/// Names what is missing.
#[inline]
pub(crate) fn check(needed: PrivilegeSet, given: PrivilegeSet) -> Result<(), Refusal> {
    let missing = needed.without(given);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Refusal::MissingPrivileges(missing))
    }
}

/// The privilege to write a document includes that to make it.
fn upserts_insert(given: PrivilegeSet) -> PrivilegeSet {
    if given.has(Privilege::Upsert) {
        given.with(PrivilegeSet::of(&[Privilege::Insert]))
    } else {
        given
    }
}

impl SessionAccess {
    /// Of a peer without a user; `trusted` if its port asks for none.
    pub(crate) fn without_user(trusted: bool) -> Self {
        let given = if trusted {
            TRUSTED
        } else {
            PrivilegeSet::EMPTY
        };
        Self {
            bucket: given,
            anywhere: given,
            sees_whole: trusted,
            sees_bucket: trusted,
            ..Self::default()
        }
    }

    /// Of a user with a bucket selected, or none.
    pub(crate) fn of_user(user: &Access, served: Option<&ServedBucket>) -> Self {
        let node = user.node();
        let Some(served) = served else {
            return Self {
                node,
                bucket: node,
                anywhere: node,
                ..Self::default()
            };
        };
        let name = served.name();
        let (whole, anywhere) = (user.of_bucket(name), user.within_bucket(name));
        let same = whole.contains(anywhere) && (whole.is_empty() || whole.contains(SYSTEM));
        let parts = || Box::new(Parts::new(user, name, &served.bucket.manifest()));
        Self {
            node,
            bucket: upserts_insert(whole).with(node),
            anywhere: upserts_insert(anywhere).with(node),
            parts: (!same).then(parts),
            sees_whole: !whole.is_empty(),
            sees_bucket: !anywhere.is_empty(),
            ..Self::default()
        }
    }

    /// The same as of a revision, and without what was given up.
    #[must_use]
    pub(crate) fn at(mut self, revision: u64, dropped: PrivilegeSet) -> Self {
        self.revision = revision;
        self.dropped = dropped;
        for given in [&mut self.node, &mut self.bucket, &mut self.anywhere] {
            *given = given.without(dropped);
        }
        self
    }

    /// Whether it was worked out of these users, and of the collections that the bucket has.
    pub(crate) fn is_of(&self, revision: u64, served: Option<&ServedBucket>) -> bool {
        self.revision == revision
            && match (&self.parts, served) {
                (Some(parts), Some(served)) => parts.manifest == served.bucket.manifest_uid(),
                _ => true,
            }
    }

    /// The revision of the users that it was worked out of.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// What was given up for as long as the connection lives.
    pub(crate) fn dropped(&self) -> PrivilegeSet {
        self.dropped
    }

    /// On the node as a whole.
    pub(crate) fn node(&self) -> PrivilegeSet {
        self.node
    }

    /// In the whole of the selected bucket.
    pub(crate) fn bucket(&self) -> PrivilegeSet {
        self.bucket
    }

    /// Anywhere in the selected bucket.
    pub(crate) fn anywhere(&self) -> PrivilegeSet {
        self.anywhere
    }

    /// Whether the peer may know of the selected bucket.
    pub(crate) fn sees_bucket(&self) -> bool {
        self.sees_bucket
    }

    /// In a collection that exists. Cost: a comparison of sets, or a look-up among the collections that differ.
    #[inline]
    pub(crate) fn collection(&self, id: CollectionId) -> PrivilegeSet {
        let part = self.parts.as_ref().and_then(|parts| parts.of.find(id.0));
        match part {
            Some(given) => given.with(self.node).without(self.dropped),
            None => self.bucket,
        }
    }

    /// Whether the peer may know of a collection that exists.
    pub(crate) fn sees_collection(&self, id: CollectionId) -> bool {
        let part = self.parts.as_ref().and_then(|parts| parts.of.find(id.0));
        part.map_or(self.sees_whole, |given| !given.is_empty())
    }
}
