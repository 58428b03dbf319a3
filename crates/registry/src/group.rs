//! The nodes that have a bucket: what is known of them, and what of it outlives the process
//! (`node.json`).

use serde::{Deserialize, Serialize};

use crate::peer::Peer;

/// The other nodes of a bucket, in their order, and where this one stands among them: first is the
/// active node, the others are its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The other nodes, in their order.
    pub peers: Vec<Peer>,
    pub(crate) place: usize,
    /// This node was the active one, and another one was promoted since.
    pub(crate) superseded: bool,
}

impl Group {
    /// Of a replica that follows the first of `peers`.
    pub fn replica(peers: Vec<Peer>) -> Self {
        Self {
            place: peers.len(),
            peers,
            superseded: false,
        }
    }

    /// Of a node that was the active one until one of `peers` was promoted, most likely the first.
    pub fn superseded(peers: Vec<Peer>) -> Self {
        Self {
            superseded: true,
            ..Self::replica(peers)
        }
    }

    /// Whether this node was the active one until another one was promoted.
    pub fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// The node that this one follows.
    pub fn active(&self) -> Option<&Peer> {
        self.peers.first().filter(|_| self.place > 0)
    }

    /// What this node is.
    pub fn role(&self) -> &'static str {
        match (self.peers.len(), self.place) {
            _ if self.superseded => "superseded",
            (0, _) => "alone",
            (_, 0) => "active",
            _ => "replica",
        }
    }
}

/// The node that settings name as the one to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// It, as far as settings tell.
    pub active: Peer,
    /// Whether what only this node has may be given up.
    pub demote: bool,
}

/// What is kept of a bucket's group.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Standing {
    /// A promotion made the bucket active here, and it has followed no node since.
    #[serde(default)]
    pub promoted: bool,
    /// The bucket was active here, and another node was promoted since: it is not active,
    /// whatever the records of its vBuckets say.
    #[serde(default)]
    pub superseded: bool,
    /// The other nodes as last known; of a superseded bucket the promoted node first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Peer>,
}

/// How a bucket starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAs {
    /// As its vBuckets say.
    Itself,
    /// As the active one, although the settings name a node to follow: it was promoted.
    Promoted,
    /// As the replica of the node that the settings name.
    Replica,
    /// As a replica that follows no node: another node was promoted.
    Superseded,
}

impl Standing {
    /// Nothing that must be kept.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// How the bucket starts, if `of` is what it is to follow.
    pub fn start_as(&self, of: Option<&Following>) -> StartAs {
        match of {
            None if self.superseded => StartAs::Superseded,
            None => StartAs::Itself,
            Some(of) if self.promoted && !self.superseded && !of.demote => StartAs::Promoted,
            Some(_) => StartAs::Replica,
        }
    }

    /// The group with which the bucket starts.
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
    fn what_was_decided_wins_over_the_settings() {
        let plain = Standing::default();
        let promoted = Standing {
            promoted: true,
            ..Standing::default()
        };
        let superseded = Standing {
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
        assert_eq!(serde_json::from_str::<Standing>(&kept).unwrap(), superseded);
    }
}
