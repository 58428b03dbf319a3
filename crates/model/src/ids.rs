//! Identifiers: one newtype for each kind of number that must not be mixed up with another.

use std::fmt;

/// Id of a vBucket, `0..1024` by default: the unit of locking, replication and failover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VbId(pub u16);

impl VbId {
    /// Returns the vBucket of a key among `count` vBuckets.
    ///
    /// Shape: `key` is the user's key *without* the collection prefix, `count` is at least 1.
    ///
    /// Source: protocol section 10. Test: `ids::tests::known_vbuckets`.
    pub fn of_key(key: &[u8], count: u16) -> Self {
        let hash = (crc32fast::hash(key) >> 16) & 0x7fff;
        Self((hash % u32::from(count.max(1))) as u16)
    }
}

impl fmt::Display for VbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vb_{}", self.0)
    }
}

/// Sequence number of a change within its vBucket; the first change is 1, zero means "none".
///
/// Shape: 48 bits are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seqno(pub u64);

impl Seqno {
    /// The seqno before the first change.
    pub const ZERO: Self = Self(0);

    /// Returns the next seqno.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seqno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Compare-and-swap value of a document revision: a hybrid logical clock in nanoseconds since
/// the Unix epoch, whose low 16 bits are a logical counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cas(pub u64);

impl Cas {
    /// Wildcard in a request: any revision.
    pub const ANY: Self = Self(0);
    /// The CAS that a locked document shows to all clients except the holder of the lock.
    pub const LOCKED: Self = Self(u64::MAX);
}

/// Identifier of a collection; 0 is `_default`, 1 to 7 are reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub u32);

impl CollectionId {
    /// The collection `_default._default`.
    pub const DEFAULT: Self = Self(0);
    /// The namespace of system events about collections: it has no documents.
    pub const SYSTEM: Self = Self(1);
    /// The lowest id of a user's collection.
    pub const USER_MIN: Self = Self(8);
}

/// Identifier of a scope; 0 is `_default`, 1 to 7 are reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u32);

impl ScopeId {
    /// The scope `_default`.
    pub const DEFAULT: Self = Self(0);
}

/// Revision of a collections manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManifestUid(pub u64);

/// Identifier of one history of a vBucket: random, 48 bits, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VbUuid(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_vbuckets() {
        let long = vec![b'a'; 250];
        let known: [(&[u8], u16); 8] = [
            (b"", 0),
            (b"foo", 115),
            (b"hello", 528),
            (b"Hello", 977),
            (b"user::1", 997),
            (b"airline_10", 361),
            (b"KEY_ABC", 602),
            (&long, 103),
        ];
        for (key, vb) in known {
            assert_eq!(VbId::of_key(key, 1024), VbId(vb), "{key:?}");
        }
        assert_eq!(VbId::of_key(b"foo", 64), VbId(51));
    }
}
