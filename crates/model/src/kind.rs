//! Kinds of changes, and durability levels.

/// Kind of a change.
///
/// Shape: the numbers are those of stored rows, 4 bits. Prepares and aborts have their own
/// namespace: a key may have a committed document and a prepared one at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The document was written.
    Mutation = 0,
    /// A client deleted the document; a tombstone remains.
    Deletion = 1,
    /// The document expired; a tombstone remains.
    Expiration = 2,
    /// A durable write of the document waits for its decision; `Meta::level` is its durability
    /// level.
    Prepare = 3,
    /// A durable deletion of the document waits for its decision.
    PrepareDeletion = 4,
    /// The document was written: the prepare at `Meta::prepare_seqno` was committed.
    Commit = 5,
    /// The document was deleted: the prepare at `Meta::prepare_seqno` was committed.
    CommitDeletion = 6,
    /// Nothing was written: the prepare at `Meta::prepare_seqno` was aborted.
    Abort = 7,
}

impl Kind {
    /// Returns the kind with this stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Mutation),
            1 => Some(Self::Deletion),
            2 => Some(Self::Expiration),
            3 => Some(Self::Prepare),
            4 => Some(Self::PrepareDeletion),
            5 => Some(Self::Commit),
            6 => Some(Self::CommitDeletion),
            7 => Some(Self::Abort),
            _ => None,
        }
    }

    /// Whether the (committed) document was deleted by a client or expired.
    pub fn is_tombstone(self) -> bool {
        matches!(
            self,
            Self::Deletion | Self::Expiration | Self::CommitDeletion
        )
    }

    /// Whether the change is in the namespace of prepares: a prepare or an abort. Readers never see
    /// such changes; streams get them only on request.
    pub fn is_prepared(self) -> bool {
        matches!(self, Self::Prepare | Self::PrepareDeletion | Self::Abort)
    }

    /// Whether it is an undecided durable write.
    pub fn is_prepare(self) -> bool {
        matches!(self, Self::Prepare | Self::PrepareDeletion)
    }

    /// Whether it commits a prepare.
    pub fn is_commit(self) -> bool {
        matches!(self, Self::Commit | Self::CommitDeletion)
    }

    /// Whether the change is part of a durable write: such changes are never de-duplicated.
    pub fn is_durable(self) -> bool {
        self as u8 >= Self::Prepare as u8
    }

    /// Returns the kind without the trace of a prepare: a commit becomes a mutation or a deletion.
    /// This form is stored, and sent to peers that do not know durable writes or did not get the
    /// prepare.
    #[must_use]
    pub fn plain(self) -> Self {
        match self {
            Self::Commit => Self::Mutation,
            Self::CommitDeletion => Self::Deletion,
            other => other,
        }
    }
}

/// Durability level: the condition under which a durable write is committed and answered.
///
/// Shape: the numbers are those of the protocol, 2 bits; there 0 means "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DurabilityLevel {
    /// In memory on a majority of nodes.
    Majority = 1,
    /// In memory on a majority of nodes, on disk on the active node.
    MajorityAndPersistOnActive = 2,
    /// On disk on a majority of nodes.
    PersistToMajority = 3,
}

impl DurabilityLevel {
    /// Returns the level with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Majority),
            2 => Some(Self::MajorityAndPersistOnActive),
            3 => Some(Self::PersistToMajority),
            _ => None,
        }
    }

    /// Name in settings and in HTTP answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Majority => "majority",
            Self::MajorityAndPersistOnActive => "majorityAndPersistActive",
            Self::PersistToMajority => "persistToMajority",
        }
    }

    /// Returns the level with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        (0..=u8::MAX)
            .map_while(|number| Self::from_number(number + 1))
            .find(|level| level.name() == name)
    }

    /// Whether the active node must persist the prepare before it counts itself.
    pub fn persists_on_active(self) -> bool {
        self >= Self::MajorityAndPersistOnActive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        assert_eq!(DurabilityLevel::from_name("none"), None);
        for number in 0..=u8::MAX {
            if let Some(kind) = Kind::from_number(number) {
                assert_eq!(kind as u8, number);
                assert!(number < 8);
            }
            if let Some(level) = DurabilityLevel::from_number(number) {
                assert_eq!(level as u8, number);
                assert_eq!(DurabilityLevel::from_name(level.name()), Some(level));
            }
        }
    }

    #[test]
    fn kinds_are_sorted_into_namespaces() {
        let all: Vec<Kind> = (0..8).filter_map(Kind::from_number).collect();
        for kind in all {
            let name = format!("{kind:?}");
            assert_eq!(kind.is_prepare(), name.starts_with("Prepare"), "{name}");
            assert_eq!(kind.is_commit(), name.starts_with("Commit"), "{name}");
            assert_eq!(
                kind.is_prepared(),
                kind.is_prepare() || name == "Abort",
                "{name}"
            );
            assert_eq!(
                kind.is_durable(),
                kind.is_prepared() || kind.is_commit(),
                "{name}"
            );
            assert!(!(kind.is_tombstone() && kind.is_prepared()), "{name}");
            assert_eq!(kind.plain().is_tombstone(), kind.is_tombstone(), "{name}");
            assert!(!kind.plain().is_commit(), "{name}");
        }
    }
}
