//! The nodes that have a bucket: the group in memory, and the part that outlives the process (`node.json`).

use serde::{Deserialize, Serialize};

use crate::peer::Peer;

/// The other nodes of a bucket in order, and the place of this node among them. The first is the active node, the
/// others are its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The other nodes, in their order.
    pub peers: Vec<Peer>,
    pub(crate) place: usize,
    /// True if this node was the active one, and another node was promoted since.
    pub(crate) superseded: bool,
}

impl Group {
    /// Creates the group of a replica that follows the first of `peers`.
    pub fn replica(peers: Vec<Peer>) -> Self {
        Self {
            place: peers.len(),
            peers,
            superseded: false,
        }
    }

    /// Creates the group of a node that was active until one of `peers` was promoted, most likely the first.
    pub fn superseded(peers: Vec<Peer>) -> Self {
        Self {
            superseded: true,
            ..Self::replica(peers)
        }
    }

    /// Checks whether this node was the active one until another one was promoted.
    pub fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// Returns the node that this one follows.
    pub fn active(&self) -> Option<&Peer> {
        self.peers.first().filter(|_| self.place > 0)
    }

    /// Returns the name of this node's role.
    pub fn role(&self) -> &'static str {
        match (self.peers.len(), self.place) {
            _ if self.superseded => "superseded",
            (0, _) => "alone",
            (_, 0) => "active",
            _ => "replica",
        }
    }
}

/// The node to follow, as settings name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// The active node, as far as settings describe it.
    pub active: Peer,
    /// Whether data that only this node has may be given up.
    pub demote: bool,
}

/// The durable part of a bucket's group.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct GroupRecord {
    /// True if a promotion made the bucket active here, and it has followed no node since.
    #[serde(default)]
    pub promoted: bool,
    /// True if the bucket was active here, and another node was promoted since. The bucket is not active then, whatever
    /// its vBucket records contain.
    #[serde(default)]
    pub superseded: bool,
    /// The other nodes as last known; in a superseded bucket the promoted node is first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Peer>,
}

/// Role in which a bucket starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAs {
    /// In the states of its vBuckets.
    Itself,
    /// As the active one, although the settings name a node to follow: it was promoted.
    Promoted,
    /// As the replica of the node that the settings name.
    Replica,
    /// As a replica that follows no node: another node was promoted.
    Superseded,
}

impl GroupRecord {
    /// Checks that nothing must be kept on disk.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the role in which the bucket starts, if the settings name `of` as the node to follow.
    pub fn start_as(&self, of: Option<&Following>) -> StartAs {
        match of {
            None if self.superseded => StartAs::Superseded,
            None => StartAs::Itself,
            Some(of) if self.promoted && !self.superseded && !of.demote => StartAs::Promoted,
            Some(_) => StartAs::Replica,
        }
    }

    /// Returns the group with which the bucket starts.
    pub fn group(&self, of: Option<&Following>) -> Group {
        match (self.start_as(of), of) {
            (StartAs::Replica, Some(of)) => Group::replica(vec![of.active.clone()]),
            (StartAs::Superseded, _) => Group::superseded(self.peers.clone()),
            _ => Group::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(demote: bool) -> Following {
        Following {
            active: Peer::configured("a", 1, false),
            demote,
        }
    }

    #[test]
    fn a_recorded_decision_overrides_the_settings() {
        let plain = GroupRecord::default();
        let promoted = GroupRecord {
            promoted: true,
            ..GroupRecord::default()
        };
        let superseded = GroupRecord {
            superseded: true,
            ..promoted.clone()
        };
        let (follow, demote) = (of(false), of(true));
        for (standing, settings, expected) in [
            (&plain, None, StartAs::Itself),
            (&plain, Some(&follow), StartAs::Replica),
            (&promoted, None, StartAs::Itself),
            (&promoted, Some(&follow), StartAs::Promoted),
            (&promoted, Some(&demote), StartAs::Replica),
            (&superseded, None, StartAs::Superseded),
            (&superseded, Some(&follow), StartAs::Replica),
            (&superseded, Some(&demote), StartAs::Replica),
        ] {
            assert_eq!(standing.start_as(settings), expected, "{standing:?}");
        }
        let kept = serde_json::to_string(&superseded).unwrap();
        assert_eq!(
            serde_json::from_str::<GroupRecord>(&kept).unwrap(),
            superseded
        );
    }
}
