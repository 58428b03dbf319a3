//! The rights of one user, from its grants.

use crate::privilege::PrivilegeSet;
use crate::role::Grant;

/// The rights of a user as grants: with names of collections, not ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    node: PrivilegeSet,
    grants: Vec<Grant>,
    /// Another user whose rights limit these.
    limit: Option<Box<UserLimit>>,
}

/// A limit: the rights of another user.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UserLimit {
    of: Access,
    /// Privileges that the limiting user is treated to have everywhere.
    extra: PrivilegeSet,
}

/// Privileges of a grant on a bucket, or on a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketGrant<'a> {
    /// The scope; `None` for the whole bucket.
    pub scope: Option<&'a str>,
    /// The collection; `None` for the whole scope.
    pub collection: Option<&'a str>,
    /// Privileges in this place.
    pub privileges: PrivilegeSet,
}

impl Access {
    /// Creates the rights of grants.
    pub fn new(grants: impl IntoIterator<Item = Grant>) -> Self {
        let grants: Vec<Grant> = grants.into_iter().collect();
        let node = grants
            .iter()
            .fold(PrivilegeSet::EMPTY, |all, grant| all.with(grant.role.node));
        Self {
            node,
            grants,
            limit: None,
        }
    }

    /// Returns the rights that both users have, where `other` counts as having the `extra` privileges everywhere.
    #[must_use]
    pub fn common(&self, other: &Self, extra: PrivilegeSet) -> Self {
        Self {
            node: self.node.common(other.node.with(extra)),
            grants: self.grants.clone(),
            limit: Some(Box::new(UserLimit {
                of: other.clone(),
                extra,
            })),
        }
    }

    fn limited(&self, given: PrivilegeSet, of: impl FnOnce(&Self) -> PrivilegeSet) -> PrivilegeSet {
        match &self.limit {
            Some(limit) => given.common(of(&limit.of).with(limit.extra)),
            None => given,
        }
    }

    /// Returns the privileges on the whole node.
    pub fn node(&self) -> PrivilegeSet {
        self.node
    }

    /// Checks whether the user is a full administrator.
    pub fn is_admin(&self) -> bool {
        self.node.contains(PrivilegeSet::ALL)
    }

    /// Returns the grants on a bucket and on parts of it.
    pub fn on_bucket<'a>(&'a self, bucket: &'a str) -> impl Iterator<Item = BucketGrant<'a>> {
        let grants = self.grants.iter().filter(|grant| grant.is_for(bucket));
        grants.map(|grant| BucketGrant {
            scope: grant.scope(),
            collection: grant.collection(),
            privileges: grant.role.data,
        })
    }

    /// Returns the privileges on the whole of a bucket.
    pub fn of_bucket(&self, bucket: &str) -> PrivilegeSet {
        let whole = self.on_bucket(bucket).filter(|grant| grant.scope.is_none());
        let given = whole.fold(PrivilegeSet::EMPTY, |all, grant| all.with(grant.privileges));
        self.limited(given, |other| other.of_bucket(bucket))
    }

    /// Returns all privileges anywhere in a bucket; empty if the user may not know that it exists.
    pub fn within_bucket(&self, bucket: &str) -> PrivilegeSet {
        let grants = self.on_bucket(bucket);
        let given = grants.fold(PrivilegeSet::EMPTY, |all, grant| all.with(grant.privileges));
        self.limited(given, |other| other.within_bucket(bucket))
    }

    /// Checks whether a scope, or a collection, is visible to the user: any privilege there is enough.
    pub fn sees(&self, bucket: &str, scope: &str, collection: Option<&str>) -> bool {
        !self.of_part(bucket, scope, collection).is_empty()
    }

    /// Returns the privileges on one scope, or on one collection, by name.
    pub fn of_part(&self, bucket: &str, scope: &str, collection: Option<&str>) -> PrivilegeSet {
        let covers = |grant: &BucketGrant<'_>| {
            grant.scope.is_none_or(|name| name == scope)
                && grant.collection.is_none_or(|name| Some(name) == collection)
        };
        let grants = self.on_bucket(bucket).filter(covers);
        let given = grants.fold(PrivilegeSet::EMPTY, |all, grant| all.with(grant.privileges));
        self.limited(given, |other| other.of_part(bucket, scope, collection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privilege::Privilege;

    fn access(grants: &[&str]) -> Access {
        Access::new(grants.iter().map(|text| Grant::parse(text).unwrap()))
    }

    #[test]
    fn grants_give_their_privileges_in_their_scope_only() {
        let access = access(&["data_reader[b]", "data_writer[b:s:c]", "data_monitoring[*]"]);
        let read = PrivilegeSet::of(&[Privilege::Read]);
        let write = PrivilegeSet::of(&[Privilege::Upsert]);
        assert!(access.of_bucket("b").contains(read));
        assert!(!access.of_bucket("b").contains(write));
        assert!(access.within_bucket("b").contains(write));
        assert!(access.of_part("b", "s", Some("c")).contains(write));
        assert!(!access.of_part("b", "s", Some("d")).contains(write));
        assert!(!access.of_part("b", "s", None).contains(write));
        assert!(!access.within_bucket("other").contains(read));
        assert!(access.of_bucket("other").has(Privilege::SimpleStats));
        assert!(!access.is_admin());
    }

    #[test]
    fn common_rights_of_two_users_are_those_that_both_have() {
        let (mine, theirs) = (access(&["admin"]), access(&["data_reader[b:s:c]"]));
        let common = mine.common(&theirs, PrivilegeSet::of(&[Privilege::Upsert]));
        assert_eq!(common.of_bucket("b").to_string(), "Upsert");
        let part = common.of_part("b", "s", Some("c"));
        assert!(part.has(Privilege::Read) && part.has(Privilege::Upsert));
        assert!(!part.has(Privilege::Delete) && !common.is_admin());
        let common = theirs.common(&mine, PrivilegeSet::ALL);
        assert_eq!(common.of_bucket("b"), theirs.of_bucket("b"));
        let part = common.of_part("b", "s", Some("c"));
        assert_eq!(part, theirs.of_part("b", "s", Some("c")));
    }

    #[test]
    fn an_admin_may_do_everything_everywhere() {
        let access = access(&["admin"]);
        assert!(access.is_admin());
        assert_eq!(access.of_bucket("any"), PrivilegeSet::ALL);
        assert_eq!(access.of_part("any", "s", Some("c")), PrivilegeSet::ALL);
    }

    #[test]
    fn a_role_of_another_service_gives_nothing() {
        let access = access(&["query_select[b]"]);
        assert!(access.node().is_empty());
        assert!(access.within_bucket("b").is_empty());
    }
}
