//! Confirmations between nodes: the answers to pings, with the copies that follow the node which pings.
//!
//! ```text
//!   ConfirmationReceiver ------- ping: position ------> ConfirmationSender
//!     |    ^                                              |    ^
//!     v    +---- Confirmation: changes since then --------+    |
//!   BucketCopies::confirm                             BucketCopies::following
//! ```
//!
//! An answer contains only the buckets whose copies changed since the position in the ping; it confirms all others as
//! well. Answers may be lost, doubled and reordered.

use std::collections::BTreeMap;

use cluster::{BucketId, NodeId};
use serde::{Deserialize, Serialize};
use storage::KvStore;

use crate::bucket_copies::{BucketCopies, FollowingCopy, FollowingStamp};

/// A position in the confirmations of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmedPosition {
    /// Number of the start of the node that confirms.
    pub boot: u64,
    /// Number of its last change.
    pub version: u64,
}

/// The copies of a bucket with an open stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The bucket.
    pub bucket: BucketId,
    /// Its copies.
    pub copies: Vec<FollowingCopy>,
}

/// The copies of a node that follow another one, as far as they changed since a position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    /// Version since which changes are included; 0 for all copies.
    #[serde(default)]
    pub since: u64,
    /// Position after these changes.
    #[serde(default)]
    pub at: ConfirmedPosition,
    /// Changed buckets.
    pub buckets: Vec<Confirmed>,
}

/// The copies of a bucket, as another node is told of them.
struct SentBucket {
    /// [`BucketCopies::following_stamp`] of the list; `None` for a list that was made during a change.
    stamp: Option<FollowingStamp>,
    copies: Vec<FollowingCopy>,
    /// Version of the last change.
    version: u64,
}

/// The copies that follow another node, as that node is told of them.
#[derive(Default)]
pub struct ConfirmationSender {
    buckets: BTreeMap<BucketId, SentBucket>,
    version: u64,
    /// Version of the last removal of a bucket: an answer to an older position contains all copies.
    removed: u64,
}

impl ConfirmationSender {
    /// Returns the answer to a ping of `peer`; `None` if none of the node's copies, which are `all`, follows it.
    ///
    /// Cost: a few instructions for a bucket without changes.
    pub fn answer<'a, S: KvStore>(
        &mut self,
        (peer, known): (NodeId, ConfirmedPosition),
        boot: u64,
        all: impl Iterator<Item = &'a BucketCopies<S>>,
    ) -> Option<Confirmation> {
        let mut left = std::mem::take(&mut self.buckets);
        for copies in all {
            let former = left.remove(&copies.id);
            let sent = self.refresh(former, peer, copies);
            self.buckets.insert(copies.id, sent);
        }
        if !left.is_empty() {
            self.version += 1;
            self.removed = self.version;
        }
        let can_follow =
            known.boot == boot && (self.removed..=self.version).contains(&known.version);
        let since = if can_follow { known.version } else { 0 };
        let changed = |(bucket, sent): (&BucketId, &SentBucket)| {
            let is_news = sent.version > since && (since > 0 || !sent.copies.is_empty());
            let (bucket, copies) = (*bucket, &sent.copies);
            is_news.then(|| Confirmed {
                bucket,
                copies: copies.clone(),
            })
        };
        let buckets: Vec<_> = self.buckets.iter().filter_map(changed).collect();
        let follows = self.buckets.values().any(|sent| !sent.copies.is_empty());
        let version = self.version;
        (follows || !buckets.is_empty()).then_some(Confirmation {
            since,
            at: ConfirmedPosition { boot, version },
            buckets,
        })
    }

    fn refresh<S: KvStore>(
        &mut self,
        former: Option<SentBucket>,
        peer: NodeId,
        copies: &BucketCopies<S>,
    ) -> SentBucket {
        let stamp = copies.following_stamp();
        let mut sent = match former {
            Some(sent) if sent.stamp.as_ref() == Some(&stamp) => return sent,
            Some(sent) => sent,
            None => SentBucket {
                stamp: None,
                copies: Vec::new(),
                version: 0,
            },
        };
        let (list, is_whole) = copies.following(peer);
        sent.stamp = is_whole.then_some(stamp);
        if sent.copies != list {
            self.version += 1;
            (sent.copies, sent.version) = (list, self.version);
        }
        sent
    }
}

/// The confirmations of other nodes, as far as a node knows them.
#[derive(Default)]
pub struct ConfirmationReceiver {
    positions: BTreeMap<NodeId, ConfirmedPosition>,
    /// [`BucketCopies::changes`] of each bucket when the positions were last valid.
    changes: Vec<(BucketId, u64)>,
}

impl ConfirmationReceiver {
    /// Returns the position for a ping to `peer`. After a change of a copy of this node, whose copies are `all`, it is
    /// the default one: each copy is judged again.
    pub fn position<'a, S: KvStore>(
        &mut self,
        peer: NodeId,
        all: impl Iterator<Item = &'a BucketCopies<S>>,
    ) -> ConfirmedPosition {
        let changes: Vec<_> = all.map(|copies| (copies.id, copies.changes())).collect();
        if self.changes != changes {
            self.positions.clear();
            self.changes = changes;
        }
        self.positions.get(&peer).copied().unwrap_or_default()
    }

    /// Takes the answer of `peer` to a ping from `sent_ms` for the node's copies, which are `all`. An answer that does
    /// not continue from a known position has no effect.
    pub fn take<'a, S: KvStore>(
        &mut self,
        (peer, sent_ms): (NodeId, u64),
        answer: &Confirmation,
        all: impl Iterator<Item = &'a BucketCopies<S>>,
    ) {
        let (at, since) = (answer.at, answer.since);
        let known = self.positions.get(&peer).copied().unwrap_or_default();
        let continues = known.boot == at.boot && (since..=at.version).contains(&known.version);
        if since > 0 && !continues {
            return;
        }
        let mut is_known = true;
        for copies in all {
            let of_bucket = answer.buckets.iter().find(|of| of.bucket == copies.id);
            let list = of_bucket.map(|of| of.copies.as_slice());
            is_known &= copies.confirm(peer, sent_ms, list.or((since == 0).then_some(&[])));
        }
        if is_known {
            self.positions.insert(peer, at);
        } else {
            self.positions.remove(&peer);
        }
    }
}
