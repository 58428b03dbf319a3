//! Privileges, in the protocol's words.
//!
//! Source: protocol section 8. The last ones are for management only: no command of the KV protocol names them.

use std::fmt;

/// One privilege.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub enum Privilege {
    Read,
    Insert,
    Upsert,
    Delete,
    SimpleStats,
    Stats,
    NodeSupervisor,
    Administrator,
    Audit,
    DcpConsumer,
    DcpProducer,
    DcpStream,
    MetaWrite,
    IdleConnection,
    SystemXattrRead,
    SystemXattrWrite,
    BucketThrottleManagement,
    Unthrottled,
    Unmetered,
    Impersonate,
    Settings,
    SystemSettings,
    SystemCollectionLookup,
    SystemCollectionMutation,
    RangeScan,
    /// Changes settings of a bucket; compacts and flushes it.
    BucketAdmin,
    /// Creates and drops scopes and collections.
    CollectionAdmin,
    /// Sees users and roles.
    SecurityRead,
    /// Changes users and roles.
    SecurityAdmin,
}

impl Privilege {
    /// All privileges; the number of each is its index.
    pub const ALL: [Self; 29] = [
        Self::Read,
        Self::Insert,
        Self::Upsert,
        Self::Delete,
        Self::SimpleStats,
        Self::Stats,
        Self::NodeSupervisor,
        Self::Administrator,
        Self::Audit,
        Self::DcpConsumer,
        Self::DcpProducer,
        Self::DcpStream,
        Self::MetaWrite,
        Self::IdleConnection,
        Self::SystemXattrRead,
        Self::SystemXattrWrite,
        Self::BucketThrottleManagement,
        Self::Unthrottled,
        Self::Unmetered,
        Self::Impersonate,
        Self::Settings,
        Self::SystemSettings,
        Self::SystemCollectionLookup,
        Self::SystemCollectionMutation,
        Self::RangeScan,
        Self::BucketAdmin,
        Self::CollectionAdmin,
        Self::SecurityRead,
        Self::SecurityAdmin,
    ];

    /// Finds the privilege of a name in the protocol's form.
    pub fn named(name: &[u8]) -> Option<Self> {
        let is = |one: &Self| one.to_string().as_bytes() == name;
        Self::ALL.into_iter().find(is)
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A set of privileges: one bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PrivilegeSet(u32);

impl PrivilegeSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// The set of all privileges.
    pub const ALL: Self = Self((1 << Privilege::ALL.len()) - 1);

    /// Creates the set of a list.
    pub const fn of(privileges: &[Privilege]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < privileges.len() {
            bits |= 1 << privileges[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Checks whether all of `others` are in this set.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Checks whether `one` is in this set.
    pub const fn has(self, one: Privilege) -> bool {
        self.0 >> one as u8 & 1 == 1
    }

    /// Checks whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union with `others`.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns the set without `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns the intersection with `others`.
    #[must_use]
    pub const fn common(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Returns each privilege, in the order of [`Privilege::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Privilege> {
        Privilege::ALL.into_iter().filter(move |one| self.has(*one))
    }
}

impl fmt::Debug for PrivilegeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for PrivilegeSet {
    /// Writes the names, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{one}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_privilege_has_a_bit_and_a_name_of_its_own() {
        for (number, one) in Privilege::ALL.into_iter().enumerate() {
            assert_eq!(one as usize, number);
            assert_eq!(Privilege::named(one.to_string().as_bytes()), Some(one));
            assert_eq!(PrivilegeSet::of(&[one]).iter().collect::<Vec<_>>(), [one]);
        }
        assert_eq!(PrivilegeSet::ALL.iter().count(), Privilege::ALL.len());
        assert_eq!(Privilege::named(b"read"), None);
    }

    #[test]
    fn sets_are_joined_and_parted() {
        let both = PrivilegeSet::of(&[Privilege::Read, Privilege::Upsert]);
        let read = PrivilegeSet::of(&[Privilege::Read]);
        assert!(both.contains(read) && !read.contains(both));
        assert_eq!(both.without(read).to_string(), "Upsert");
        assert_eq!(both.common(read), read);
        assert_eq!(read.with(both).to_string(), "Read, Upsert");
    }
}
