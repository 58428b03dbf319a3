//! Privileges of a connection's peer.
//!
//! They are computed from the user's grants at login and at the selection of a bucket, and again after a
//! change of [`Identity::revision`](identity::Identity::revision). For most users a check is one comparison
//! of two sets. For a user with different privileges in different collections it also looks up the
//! collection.

use collections::Manifest;
use identity::{Access, AuthenticatedUser, CollectionPrivileges, Privilege, PrivilegeSet};
use model::{CollectionId, ManifestUid};
use registry::ServedBucket;

use crate::outcome::Refusal;

/// Privileges that clients of the memcached port have without a login.
const TRUSTED: PrivilegeSet = PrivilegeSet::of(&[
    Privilege::Read,
    Privilege::Insert,
    Privilege::Upsert,
    Privilege::Delete,
    Privilege::SimpleStats,
]);
/// A command on documents of a system collection needs one of these as well.
const SYSTEM: PrivilegeSet = PrivilegeSet::of(&[
    Privilege::SystemCollectionLookup,
    Privilege::SystemCollectionMutation,
]);
/// Privileges without effect in a system collection unless [`Privilege::SystemCollectionLookup`] is granted.
const LOOKUPS: PrivilegeSet = PrivilegeSet::of(&[Privilege::Read, Privilege::RangeScan]);
/// Privileges without effect in a system collection unless [`Privilege::SystemCollectionMutation`] is granted.
const MUTATIONS: PrivilegeSet = PrivilegeSet::of(&[
    Privilege::Insert,
    Privilege::Upsert,
    Privilege::Delete,
    Privilege::MetaWrite,
]);

/// Privileges of a user on the node and in the selected bucket.
#[derive(Debug, Default)]
pub(crate) struct SessionAccess {
    revision: u64,
    node: PrivilegeSet,
    /// Privileges in the whole of the selected bucket; they include those of the node.
    bucket: PrivilegeSet,
    /// Privileges that the user has somewhere in the selected bucket.
    anywhere: PrivilegeSet,
    /// Privileges per collection; only for a user whose privileges differ between collections.
    parts: Option<Box<PartPrivileges>>,
    /// Whether the user has any privilege in the whole of the selected bucket.
    sees_whole: bool,
    /// Whether the user has any privilege in the selected bucket.
    sees_bucket: bool,
    /// Privileges that the peer dropped for the lifetime of the connection.
    dropped: PrivilegeSet,
}

/// The peer's own identity, while a request runs on behalf of another user.
pub(crate) struct Impersonator {
    pub(crate) user: Option<AuthenticatedUser>,
    pub(crate) access: SessionAccess,
}

/// Privileges in the collections where they differ from those of the whole bucket.
#[derive(Debug)]
struct PartPrivileges {
    manifest: ManifestUid,
    of: CollectionPrivileges,
}

impl PartPrivileges {
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

/// Returns the privileges that remain in a system collection.
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

/// Checks whether `given` contains all of `needed`.
///
/// # Errors
/// `MissingPrivileges` with those that are missing.
#[inline]
pub(crate) fn check(needed: PrivilegeSet, given: PrivilegeSet) -> Result<(), Refusal> {
    let missing = needed.without(given);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Refusal::MissingPrivileges(missing))
    }
}

/// Adds the privilege to insert where the privilege to upsert is given: upsert includes insert.
fn upserts_insert(given: PrivilegeSet) -> PrivilegeSet {
    if given.has(Privilege::Upsert) {
        given.with(PrivilegeSet::of(&[Privilege::Insert]))
    } else {
        given
    }
}

impl SessionAccess {
    /// Privileges of a peer without a login; `trusted` if its port requires none.
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

    /// Privileges of a user, with a selected bucket or without one.
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
        let parts = || Box::new(PartPrivileges::new(user, name, &served.bucket.manifest()));
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

    /// Sets the revision of the users, and removes the dropped privileges.
    #[must_use]
    pub(crate) fn at(mut self, revision: u64, dropped: PrivilegeSet) -> Self {
        self.revision = revision;
        self.dropped = dropped;
        for given in [&mut self.node, &mut self.bucket, &mut self.anywhere] {
            *given = given.without(dropped);
        }
        self
    }

    /// Whether these privileges are up to date: same revision of the users, same manifest of collections.
    pub(crate) fn is_of(&self, revision: u64, served: Option<&ServedBucket>) -> bool {
        self.revision == revision
            && match (&self.parts, served) {
                (Some(parts), Some(served)) => parts.manifest == served.bucket.manifest_uid(),
                _ => true,
            }
    }

    /// Returns the revision of the users from which the privileges were computed.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the privileges that were dropped for the lifetime of the connection.
    pub(crate) fn dropped(&self) -> PrivilegeSet {
        self.dropped
    }

    /// Returns the privileges on the node as a whole.
    pub(crate) fn node(&self) -> PrivilegeSet {
        self.node
    }

    /// Returns the privileges in the whole of the selected bucket.
    pub(crate) fn bucket(&self) -> PrivilegeSet {
        self.bucket
    }

    /// Returns the privileges that the user has somewhere in the selected bucket.
    pub(crate) fn anywhere(&self) -> PrivilegeSet {
        self.anywhere
    }

    /// Whether the peer may know that the selected bucket exists.
    pub(crate) fn sees_bucket(&self) -> bool {
        self.sees_bucket
    }

    /// Returns the privileges in a collection that exists. Cost: a comparison of sets, or a look-up among the
    /// collections that differ.
    #[inline]
    pub(crate) fn collection(&self, id: CollectionId) -> PrivilegeSet {
        let part = self.parts.as_ref().and_then(|parts| parts.of.find(id.0));
        match part {
            Some(given) => given.with(self.node).without(self.dropped),
            None => self.bucket,
        }
    }

    /// Whether the peer may know that an existing collection exists.
    pub(crate) fn sees_collection(&self, id: CollectionId) -> bool {
        let part = self.parts.as_ref().and_then(|parts| parts.of.find(id.0));
        part.map_or(self.sees_whole, |given| !given.is_empty())
    }
}
