//! Written changes that may still be lost: they are not on the active node's disk, or most copies do not have them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use model::{Seqno, VbId, VbUuid};
use wire::response::ObserveSeqnoReply;

/// Pause between two requests for the seqnos of copies.
const PAUSE: Duration = Duration::from_millis(20);

/// A vBucket and the history of its written changes.
type VbHistory = (VbId, VbUuid);

/// Written changes of a vBucket that the copies are asked about.
#[derive(Debug)]
struct Observed {
    /// Highest seqno of the changes.
    seqno: Seqno,
    /// Active node that has all changes on disk.
    on_disk: Option<usize>,
    /// Nodes that have all changes.
    holders: BTreeSet<usize>,
    /// Nodes with an unanswered request.
    asked: BTreeSet<usize>,
}

/// Changes that may still be lost.
#[derive(Debug, Default)]
pub(super) struct UnpersistedWrites {
    /// Highest seqnos written since [`UnpersistedWrites::begin`].
    touched: BTreeMap<VbHistory, Seqno>,
    observed: BTreeMap<VbHistory, Observed>,
    ask_at: Option<Instant>,
}

impl UnpersistedWrites {
    /// Adds changes of a vBucket, in this history up to this seqno.
    pub(super) fn add(&mut self, vbucket: VbId, history: VbUuid, seqno: Seqno) {
        let known = self.touched.entry((vbucket, history)).or_insert(seqno);
        *known = seqno.max(*known);
    }

    /// Begins to observe all changes that were added so far.
    pub(super) fn begin(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        let observed = touched.into_iter().map(|(place, seqno)| {
            let observed = Observed {
                seqno,
                on_disk: None,
                holders: BTreeSet::new(),
                asked: BTreeSet::new(),
            };
            (place, observed)
        });
        self.observed = observed.collect();
        self.ask_at = Some(Instant::now());
    }

    /// Returns whether all observed changes are kept.
    pub(super) fn is_kept(&self) -> bool {
        self.observed.is_empty()
    }

    /// Returns whether requests are due; the next are due after a pause.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = !self.is_kept() && self.ask_at.is_some_and(|at| at <= now);
        if is_due {
            self.ask_at = Some(now + PAUSE);
        }
        is_due
    }

    /// Returns the observed vBuckets.
    pub(super) fn vbuckets(&self) -> BTreeSet<VbId> {
        self.observed.keys().map(|(vbucket, _)| *vbucket).collect()
    }

    /// Returns the histories of a vBucket to ask a node about, and marks them as asked. The node has a copy.
    pub(super) fn ask(&mut self, vbucket: VbId, node: usize, is_active: bool) -> Vec<VbUuid> {
        let places = self
            .observed
            .range_mut((vbucket, VbUuid(0))..=(vbucket, VbUuid(u64::MAX)));
        let asked = places.filter_map(|((_, history), observed)| {
            let has_it = if is_active {
                observed.on_disk == Some(node)
            } else {
                observed.holders.contains(&node)
            };
            (!has_it && observed.asked.insert(node)).then_some(*history)
        });
        asked.collect()
    }

    /// Forgets the requests that a node does not answer, for one vBucket or for all.
    pub(super) fn unanswered(&mut self, vbucket: Option<VbId>, node: usize) {
        let places = self.observed.iter_mut();
        for ((at, _), observed) in places {
            if vbucket.is_none_or(|vbucket| vbucket == *at) {
                observed.asked.remove(&node);
            }
        }
    }

    /// Applies the answer of a node; returns whether changes are lost.
    #[must_use]
    pub(super) fn answered(
        &mut self,
        reply: &ObserveSeqnoReply,
        node: usize,
        is_active: bool,
    ) -> bool {
        let failover = reply.failover;
        let history = failover.map_or(reply.uuid, |failover| failover.old_uuid);
        let Some(observed) = self.observed.get_mut(&(reply.vbucket, history)) else {
            return false;
        };
        observed.asked.remove(&node);
        if failover.is_some_and(|failover| failover.last_seqno < observed.seqno) {
            return is_active;
        }
        if reply.current >= observed.seqno {
            observed.holders.insert(node);
        }
        if is_active && reply.persisted >= observed.seqno {
            observed.on_disk = Some(node);
        }
        false
    }

    /// Removes the kept changes of a vBucket. `row` has the nodes of its copies, the active one first. Unreachable
    /// copies do not count for the majority.
    pub(super) fn settle(
        &mut self,
        vbucket: VbId,
        row: &[Option<usize>],
        is_reached: impl Fn(usize) -> bool,
    ) {
        let active = row.first().copied().flatten();
        let reached = row.iter().flatten().filter(|node| is_reached(**node));
        let enough = (row.len() / 2 + 1).min(reached.count()).max(1);
        self.observed.retain(|(at, _), observed| {
            let has_it = |node: &&usize| observed.holders.contains(*node);
            let is_kept = active.is_some()
                && observed.on_disk == active
                && row.iter().flatten().filter(has_it).count() >= enough;
            *at != vbucket || !is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use wire::response::Failover;

    use super::*;

    const VB: VbId = VbId(3);
    const HISTORY: VbUuid = VbUuid(7);
    /// Nodes of the copies: active on node 0, replicas on nodes 1 and 2.
    const ROW: [Option<usize>; 3] = [Some(0), Some(1), Some(2)];

    /// Observes a vBucket that was written up to seqno 10, with requests to all nodes.
    fn asked() -> UnpersistedWrites {
        let mut unpersisted = UnpersistedWrites::default();
        unpersisted.add(VB, HISTORY, Seqno(10));
        unpersisted.add(VB, HISTORY, Seqno(9));
        assert!(unpersisted.is_kept(), "nothing is asked yet");
        unpersisted.begin();
        assert!(
            unpersisted.is_due() && !unpersisted.is_due(),
            "once in a while"
        );
        for node in 0..3 {
            assert_eq!(unpersisted.ask(VB, node, node == 0), [HISTORY]);
            assert!(
                unpersisted.ask(VB, node, node == 0).is_empty(),
                "it is asked"
            );
        }
        unpersisted
    }

    fn reply(persisted: u64, current: u64) -> ObserveSeqnoReply {
        ObserveSeqnoReply {
            vbucket: VB,
            uuid: HISTORY,
            persisted: Seqno(persisted),
            current: Seqno(current),
            failover: None,
        }
    }

    fn is_kept(
        unpersisted: &mut UnpersistedWrites,
        row: &[Option<usize>],
        reached: &[usize],
    ) -> bool {
        unpersisted.settle(VB, row, |node| reached.contains(&node));
        unpersisted.is_kept()
    }

    #[test]
    fn changes_are_kept_on_the_active_disk_and_a_majority_of_copies() {
        let mut unpersisted = asked();
        assert!(!unpersisted.answered(&reply(9, 10), 0, true));
        assert!(!unpersisted.answered(&reply(0, 10), 1, false));
        assert!(!is_kept(&mut unpersisted, &ROW, &[0, 1, 2]), "not on disk");
        assert_eq!(unpersisted.ask(VB, 0, true), [HISTORY]);
        assert!(!unpersisted.answered(&reply(10, 12), 0, true));
        assert!(is_kept(&mut unpersisted, &ROW, &[0, 1, 2]));
    }

    #[test]
    fn active_node_alone_keeps_changes_if_no_replica_is_reachable() {
        let mut unpersisted = asked();
        assert!(!unpersisted.answered(&reply(10, 10), 0, true));
        assert!(!unpersisted.answered(&reply(0, 9), 1, false));
        assert!(
            !is_kept(&mut unpersisted, &ROW, &[0, 1, 2]),
            "one copy of three"
        );
        assert!(!is_kept(&mut unpersisted, &ROW, &[0, 2]), "one copy of two");
        assert!(is_kept(&mut unpersisted, &ROW, &[0]));
    }

    #[test]
    fn new_active_node_must_have_the_changes_on_disk() {
        let mut unpersisted = asked();
        assert!(!unpersisted.answered(&reply(10, 10), 0, true));
        assert!(!unpersisted.answered(&reply(0, 10), 1, false));
        let row = [Some(1), None, Some(2)];
        assert!(!is_kept(&mut unpersisted, &row, &[1, 2]), "not on its disk");
        assert_eq!(unpersisted.ask(VB, 1, true), [HISTORY]);
        unpersisted.unanswered(None, 1);
        assert_eq!(
            unpersisted.ask(VB, 1, true),
            [HISTORY],
            "after a lost question"
        );
        unpersisted.unanswered(None, 2);
        assert!(!unpersisted.answered(&reply(10, 10), 1, true));
        assert!(!unpersisted.answered(&reply(0, 10), 2, false));
        assert!(is_kept(&mut unpersisted, &row, &[1, 2]));
    }

    #[test]
    fn history_that_ends_before_written_changes_lost_them() {
        let ended = |last_seqno| ObserveSeqnoReply {
            uuid: VbUuid(8),
            failover: Some(Failover {
                old_uuid: HISTORY,
                last_seqno: Seqno(last_seqno),
            }),
            ..reply(20, 20)
        };
        assert!(asked().answered(&ended(9), 0, true));
        assert!(!asked().answered(&ended(9), 1, false), "it may catch up");
        let mut unpersisted = asked();
        assert!(!unpersisted.answered(&ended(10), 0, true));
        assert!(is_kept(&mut unpersisted, &ROW, &[0]));
    }
}
