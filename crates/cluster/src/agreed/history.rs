//! Which transactions of controllers are in etcd.
//!
//! etcd that is restored from a backup lacks some, and its revisions may have grown again since. So each transaction of a
//! controller has a mark that no other one has, also not one of another history. A node keeps the mark of the newest one
//! that it followed: an etcd without it was restored.

use serde::{Deserialize, Serialize};

use crate::map::{BucketId, NodeId, Version};

/// Reigns that are kept.
const REIGNS_MAX: usize = 64;

/// A transaction of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// How many there are up to it, it included.
    pub number: u64,
    /// The controller's node.
    pub node: NodeId,
    /// The start of that node.
    pub boot: u64,
    /// How many the node had made ready since its start, it included, whatever became of them.
    pub issued: u64,
}

impl Mark {
    /// The mark of transaction `number` of the reign that begins with this one.
    fn later(self, number: u64) -> Self {
        let issued = self.issued + (number - self.number);
        Self {
            number,
            issued,
            ..self
        }
    }
}

/// The transactions that there are.
///
/// A reign is a row of transactions of one node, none of which was without effect. Their marks follow from that of the
/// first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// How many.
    pub number: u64,
    /// The first of each reign, the newest [`REIGNS_MAX`] of them.
    pub reigns: Vec<Mark>,
    /// The epoch of the newest adoption: what was seen at an older one may not be here.
    pub adopted: u64,
    /// Buckets of which it found copies and nothing else. Nodes keep these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<BucketId>,
}

impl History {
    /// The newest transaction.
    pub fn newest(&self) -> Option<Mark> {
        Some(self.reigns.last()?.later(self.number))
    }

    /// Whether a transaction is among these. One that is older than all reigns that are kept is taken for one of them.
    pub fn has(&self, mark: &Mark) -> bool {
        let mut reigns = self.reigns.iter().rev();
        match reigns.find(|first| first.number <= mark.number) {
            Some(first) => mark.number <= self.number && first.later(mark.number) == *mark,
            None => !self.reigns.is_empty(),
        }
    }

    /// With one more transaction, which is the one numbered `issued` of a start of a node.
    #[must_use]
    pub fn with(&self, (node, boot): (NodeId, u64), issued: u64) -> Self {
        let number = self.number + 1;
        let mark = Mark {
            number,
            node,
            boot,
            issued,
        };
        let goes_on = self.reigns.last().map(|first| first.later(number)) == Some(mark);
        let mut reigns = self.reigns.clone();
        if !goes_on {
            reigns.push(mark);
            reigns.drain(..reigns.len().saturating_sub(REIGNS_MAX));
        }
        Self {
            number,
            reigns,
            ..self.clone()
        }
    }
}

/// What a node has followed of etcd; it is on disk before a copy is changed by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The newest version.
    pub version: Version,
    /// The newest transaction of a controller.
    pub mark: Option<Mark>,
}

impl Seen {
    /// Whether it is in an etcd of this revision and history.
    pub(super) fn is_in(&self, revision: u64, history: &History) -> bool {
        revision >= self.version.revision && self.mark.is_none_or(|mark| history.has(&mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: (NodeId, u64) = (NodeId(1), 11);
    const B: (NodeId, u64) = (NodeId(2), 22);

    fn of(made: &[((NodeId, u64), u64)]) -> History {
        let add = |history: History, (by, issued): &(_, u64)| history.with(*by, *issued);
        made.iter().fold(History::default(), add)
    }

    #[test]
    fn a_history_has_the_marks_that_led_to_it_and_no_others() {
        let made = [(A, 1), (A, 2), (A, 4), (B, 1), (A, 5), (A, 6)];
        let all = of(&made);
        assert_eq!((all.number, all.reigns.len()), (6, 4));
        for count in 1..=made.len() {
            let before = of(&made[..count]);
            let mark = before.newest().unwrap();
            assert!(all.has(&mark), "{count}");
            for fewer in 0..count {
                assert!(!of(&made[..fewer]).has(&mark), "{count} in {fewer}");
            }
            // What another one, or the same node later, makes in its place.
            for (by, issued) in [(B, 2), (A, 7)] {
                let other = of(&made[..count - 1]).with(by, issued).with(A, 8);
                assert!(!other.has(&mark), "{count} {by:?}");
            }
        }
    }

    #[test]
    fn the_newest_reigns_are_kept() {
        let made: Vec<_> = (1..=100).map(|issued| (A, 2 * issued)).collect();
        let all = of(&made);
        assert_eq!(all.reigns.len(), REIGNS_MAX);
        let (old, new) = (of(&made[..10]).newest(), of(&made[..90]).newest());
        assert!(all.has(&old.unwrap()) && all.has(&new.unwrap()));
    }

    #[test]
    fn what_was_seen_is_in_no_other_history_however_far_its_revision_is() {
        let (epoch, revision) = (1, 50);
        let seen = Seen {
            version: Version { epoch, revision },
            mark: of(&[(A, 1)]).newest(),
        };
        assert!(seen.is_in(50, &of(&[(A, 1), (B, 1)])));
        assert!(!seen.is_in(49, &of(&[(A, 1)])));
        assert!(!seen.is_in(60, &of(&[(B, 1)])));
    }
}
