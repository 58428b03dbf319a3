//! Conflict resolution between versions of a document from different nodes.

use std::cmp::Ordering;

use crate::{Datatype, Meta};

/// Conflict resolution of a bucket, between the local version of a document and one that comes with
/// its own metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConflictResolution {
    /// The version with more changes wins.
    #[default]
    Revision,
    /// The version with the later time wins, by the clocks of the nodes.
    LastWrite,
}

impl ConflictResolution {
    /// Name in settings and in HTTP answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Revision => "seqno",
            Self::LastWrite => "lww",
        }
    }

    /// Returns the variant with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Revision, Self::LastWrite]
            .into_iter()
            .find(|way| way.name() == name)
    }

    /// Whether the incoming version replaces the local one; a version never replaces itself.
    ///
    /// Both sites must reach the same result: of two versions, the same one wins whichever is
    /// incoming. If revision and CAS are equal, expiry and flags decide between two documents; then
    /// the version with attributes wins, then the document over the deletion.
    ///
    /// Source: protocol section 4.3. The last step is ours: without it each site would keep its own
    /// version.
    pub fn accepts(self, incoming: &Meta, there: &Meta) -> bool {
        let revision = incoming.rev.cmp(&there.rev);
        let cas = incoming.cas.cmp(&there.cas);
        let newer = match self {
            Self::Revision => revision.then(cas),
            Self::LastWrite => cas.then(revision),
        };
        let equal = if incoming.kind.is_tombstone() || there.kind.is_tombstone() {
            Ordering::Equal
        } else {
            let fewer_flags = there.flags.cmp(&incoming.flags);
            incoming.expiry.cmp(&there.expiry).then(fewer_flags)
        };
        let has_them = |meta: &Meta| meta.datatype.contains(Datatype::XATTR);
        let attributes = has_them(incoming).cmp(&has_them(there));
        let document = there.kind.is_tombstone().cmp(&incoming.kind.is_tombstone());
        newer.then(equal).then(attributes).then(document) == Ordering::Greater
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cas, Kind};
    use ConflictResolution::{LastWrite, Revision};

    const THERE: Meta = Meta {
        cas: Cas(50),
        seqno: crate::Seqno(1),
        rev: 5,
        flags: 7,
        expiry: 100,
        datatype: Datatype::JSON,
        kind: Kind::Mutation,
        level: None,
        prepare_seqno: crate::Seqno(0),
    };

    fn outcomes(incoming: &Meta) -> (bool, bool) {
        let by = |way: ConflictResolution| way.accepts(incoming, &THERE);
        (by(Revision), by(LastWrite))
    }

    #[test]
    fn revision_and_time_decide_in_the_order_of_the_bucket() {
        let of = |rev, cas| {
            outcomes(&Meta {
                rev,
                cas: Cas(cas),
                ..THERE
            })
        };
        assert_eq!(of(6, 49), (true, false));
        assert_eq!(of(4, 51), (false, true));
        assert_eq!(of(5, 51), (true, true));
        assert_eq!(of(6, 50), (true, true));
        assert_eq!(of(5, 49), (false, false));
        assert_eq!(of(4, 50), (false, false));
    }

    #[test]
    fn equal_versions_compare_expiry_flags_and_attributes() {
        assert_eq!(outcomes(&THERE), (false, false), "the same version");
        let expiry = |expiry| outcomes(&Meta { expiry, ..THERE });
        assert_eq!(expiry(101), (true, true));
        assert_eq!(expiry(99), (false, false));
        let flags = |flags| outcomes(&Meta { flags, ..THERE });
        assert_eq!(flags(6), (true, true), "the smaller ones win");
        assert_eq!(flags(8), (false, false));
        let datatype = Datatype::JSON.with(Datatype::XATTR);
        assert_eq!(outcomes(&Meta { datatype, ..THERE }), (true, true));
        let lesser = Meta {
            flags: 8,
            datatype,
            ..THERE
        };
        assert_eq!(outcomes(&lesser), (false, false));
    }

    #[test]
    fn expiry_and_flags_of_a_deletion_decide_nothing() {
        let deletion = Meta {
            kind: Kind::Deletion,
            expiry: 1000,
            flags: 0,
            datatype: Datatype::RAW,
            ..THERE
        };
        assert_eq!(outcomes(&deletion), (false, false));
        let attributed = Meta {
            datatype: Datatype::XATTR,
            ..deletion
        };
        assert_eq!(outcomes(&attributed), (true, true));
        assert_eq!(outcomes(&Meta { rev: 6, ..deletion }), (true, true));
    }

    /// Otherwise two nodes that exchange their versions would never agree.
    #[test]
    fn exactly_one_of_two_versions_wins() {
        let mut versions = Vec::new();
        for bits in 0..64_u32 {
            let bit = |at: u32| bits >> at & 1;
            versions.push(Meta {
                rev: bit(0).into(),
                cas: Cas(bit(1).into()),
                expiry: bit(2),
                flags: bit(3),
                datatype: if bit(4) == 1 {
                    Datatype::XATTR
                } else {
                    Datatype::RAW
                },
                kind: if bit(5) == 1 {
                    Kind::Deletion
                } else {
                    Kind::Mutation
                },
                ..THERE
            });
        }
        // Expiry and flags of deletions make no difference.
        let differ = |one: &Meta, other: &Meta| {
            let decides = |meta: &Meta| Meta {
                expiry: 0,
                flags: 0,
                ..*meta
            };
            if one.kind.is_tombstone() && other.kind.is_tombstone() {
                decides(one) != decides(other)
            } else {
                one != other
            }
        };
        for way in [Revision, LastWrite] {
            for one in &versions {
                for other in &versions {
                    let replaced = [way.accepts(one, other), way.accepts(other, one)];
                    let wins = replaced.iter().filter(|wins| **wins).count();
                    assert_eq!(wins, usize::from(differ(one, other)), "{one:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for way in [Revision, LastWrite] {
            assert_eq!(ConflictResolution::from_name(way.name()), Some(way));
        }
        assert_eq!(ConflictResolution::from_name("custom"), None);
    }
}
