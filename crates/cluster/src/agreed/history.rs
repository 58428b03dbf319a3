//! The history of controllers' transactions in etcd.
//!
//! An etcd that was restored from a backup lacks some transactions, and its revision may have grown again
//! since. So each transaction of a controller has a mark that is unique, also among different histories. A
//! node keeps the newest mark that it followed: an etcd without this mark was restored.

use serde::{Deserialize, Serialize};

use crate::map::{BucketId, NodeId, Version};

/// Number of reigns that are kept.
const REIGNS_MAX: usize = 64;

/// Mark of a controller's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Number of transactions up to this one, inclusive.
    pub number: u64,
    /// Node of the controller.
    pub node: NodeId,
    /// Start of that node.
    pub boot: u64,
    /// Number of transactions that the node issued since its start, this one included, whatever their result.
    pub issued: u64,
}

impl Mark {
    /// Returns the mark of transaction `number` in the reign that begins with this mark.
    fn later(self, number: u64) -> Self {
        let issued = self.issued + (number - self.number);
        Self {
            number,
            issued,
            ..self
        }
    }
}

/// The list of transactions.
///
/// A reign is a run of transactions of one node's start, without one that failed in between. Their marks
/// follow from the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// Number of transactions.
    pub number: u64,
    /// First mark of each reign; only the newest [`REIGNS_MAX`] are kept.
    pub reigns: Vec<Mark>,
    /// Epoch of the newest adoption: transactions that were seen at an older epoch may be missing here.
    pub adopted: u64,
    /// Buckets of which the adoption found only copies. Nodes keep these copies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<BucketId>,
}

impl History {
    /// Returns the newest transaction.
    pub fn newest(&self) -> Option<Mark> {
        Some(self.reigns.last()?.later(self.number))
    }

    /// Whether the history contains a transaction. A transaction older than all kept reigns counts as contained.
    pub fn has(&self, mark: &Mark) -> bool {
        let mut reigns = self.reigns.iter().rev();
        match reigns.find(|first| first.number <= mark.number) {
            Some(first) => mark.number <= self.number && first.later(mark.number) == *mark,
            None => !self.reigns.is_empty(),
        }
    }

    /// Returns the history with one more transaction, which has the number `issued` of a node's start.
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

/// State of etcd that a node has followed; it is on disk before a copy changes because of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Newest version.
    pub version: Version,
    /// Newest transaction of a controller.
    pub mark: Option<Mark>,
}

impl Seen {
    /// Whether an etcd with this revision and history contains it.
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
    fn history_contains_only_marks_of_its_own_transactions() {
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
            // Another node, or the same one later, makes a different transaction in its place.
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
    fn seen_state_is_in_no_other_history_of_any_revision() {
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
