//! What a bucket is among the nodes that have it, as far as that must outlive the process
//! (`node.json`).

use serde::{Deserialize, Serialize};

use super::ReplicaOf;
use super::group::{Group, Peer};

/// What is kept of a bucket's group.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Standing {
    /// A promotion made the bucket active here, and it has followed no node since.
    #[serde(default)]
    pub(crate) promoted: bool,
    /// The bucket was active here, and another node was promoted since: it is not active,
    /// whatever the records of its vBuckets say.
    #[serde(default)]
    pub(crate) superseded: bool,
    /// The other nodes as last known; of a superseded bucket the promoted node first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) peers: Vec<Peer>,
}

/// How a bucket starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartAs {
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
    pub(crate) fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// How the bucket starts, if `of` is what it is to follow.
    pub(crate) fn start_as(&self, of: Option<&ReplicaOf>) -> StartAs {
        match of {
            None if self.superseded => StartAs::Superseded,
            None => StartAs::Itself,
            Some(of) if self.promoted && !self.superseded && !of.demote => StartAs::Promoted,
            Some(_) => StartAs::Replica,
        }
    }

    /// The group with which the bucket starts.
    pub(crate) fn group(&self, of: Option<&ReplicaOf>) -> Group {
        match (self.start_as(of), of) {
            (StartAs::Replica, Some(of)) => Group::following(of),
            (StartAs::Superseded, _) => Group::superseded(self.peers.clone()),
            _ => Group::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(demote: bool) -> ReplicaOf {
        ReplicaOf {
            host: "a".into(),
            port: 1,
            username: String::new(),
            password: String::new(),
            bucket: "default".into(),
            tls: None,
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
