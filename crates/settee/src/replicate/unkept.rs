//! Changes that were written and may still be lost, until they are on disk where their vBucket is active, and most of its
//! copies have them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use model::{Seqno, VbId, VbUuid};
use wire::response::ObserveSeqnoReply;

/// Pause between two questions whether everything is kept.
const PAUSE: Duration = Duration::from_millis(20);

/// A vBucket and the history in which it was written.
type Place = (VbId, VbUuid);

/// What was written to a vBucket.
#[derive(Debug)]
struct Observed {
    /// Everything up to here.
    seqno: Seqno,
    /// The active node that has it on disk.
    on_disk: Option<usize>,
    /// The nodes that have it.
    holders: BTreeSet<usize>,
    /// The nodes that have yet to answer.
    asked: BTreeSet<usize>,
}

/// Changes that may still be lost.
#[derive(Debug, Default)]
pub(super) struct Unkept {
    /// Written since the last questions.
    touched: BTreeMap<Place, Seqno>,
    observed: BTreeMap<Place, Observed>,
    ask_at: Option<Instant>,
}

impl Unkept {
    /// A vBucket was written, in this history up to this seqno.
    pub(super) fn add(&mut self, vbucket: VbId, history: VbUuid, seqno: Seqno) {
        let known = self.touched.entry((vbucket, history)).or_insert(seqno);
        *known = seqno.max(*known);
    }

    /// Begins to ask about everything that was written so far.
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

    /// Whether everything is kept that was asked about.
    pub(super) fn is_kept(&self) -> bool {
        self.observed.is_empty()
    }

    /// Whether it is time for questions; the next time comes after a pause.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = !self.is_kept() && self.ask_at.is_some_and(|at| at <= now);
        if is_due {
            self.ask_at = Some(now + PAUSE);
        }
        is_due
    }

    /// The vBuckets that are asked about.
    pub(super) fn vbuckets(&self) -> BTreeSet<VbId> {
        self.observed.keys().map(|(vbucket, _)| *vbucket).collect()
    }

    /// The histories about which a node is asked now, of a vBucket of which it has a copy.
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

    /// A node does not answer for a vBucket, or for any.
    pub(super) fn unanswered(&mut self, vbucket: Option<VbId>, node: usize) {
        let places = self.observed.iter_mut();
        for ((at, _), observed) in places {
            if vbucket.is_none_or(|vbucket| vbucket == *at) {
                observed.asked.remove(&node);
            }
        }
    }

    /// Takes the answer of a node; returns whether changes are lost.
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

    /// Forgets what is kept of a vBucket whose copies are at these nodes, the active one first. Copies that cannot be
    /// reached do not count.
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
    /// The copies: active on node 0, replicas on the nodes 1 and 2.
    const ROW: [Option<usize>; 3] = [Some(0), Some(1), Some(2)];

    /// A vBucket that was written up to seqno 10, and is asked about at all nodes.
    fn asked() -> Unkept {
        let mut unkept = Unkept::default();
        unkept.add(VB, HISTORY, Seqno(10));
        unkept.add(VB, HISTORY, Seqno(9));
        assert!(unkept.is_kept(), "nothing is asked yet");
        unkept.begin();
        assert!(unkept.is_due() && !unkept.is_due(), "once in a while");
        for node in 0..3 {
            assert_eq!(unkept.ask(VB, node, node == 0), [HISTORY]);
            assert!(unkept.ask(VB, node, node == 0).is_empty(), "it is asked");
        }
        unkept
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

    fn is_kept(unkept: &mut Unkept, row: &[Option<usize>], reached: &[usize]) -> bool {
        unkept.settle(VB, row, |node| reached.contains(&node));
        unkept.is_kept()
    }

    #[test]
    fn changes_are_kept_on_the_disk_of_the_active_node_and_at_most_copies() {
        let mut unkept = asked();
        assert!(!unkept.answered(&reply(9, 10), 0, true));
        assert!(!unkept.answered(&reply(0, 10), 1, false));
        assert!(!is_kept(&mut unkept, &ROW, &[0, 1, 2]), "not on disk");
        assert_eq!(unkept.ask(VB, 0, true), [HISTORY]);
        assert!(!unkept.answered(&reply(10, 12), 0, true));
        assert!(is_kept(&mut unkept, &ROW, &[0, 1, 2]));
    }

    #[test]
    fn the_active_node_alone_is_enough_only_where_no_other_can_be_reached() {
        let mut unkept = asked();
        assert!(!unkept.answered(&reply(10, 10), 0, true));
        assert!(!unkept.answered(&reply(0, 9), 1, false));
        assert!(!is_kept(&mut unkept, &ROW, &[0, 1, 2]), "one copy of three");
        assert!(!is_kept(&mut unkept, &ROW, &[0, 2]), "one copy of two");
        assert!(is_kept(&mut unkept, &ROW, &[0]));
    }

    #[test]
    fn another_active_node_has_to_have_it_on_disk() {
        let mut unkept = asked();
        assert!(!unkept.answered(&reply(10, 10), 0, true));
        assert!(!unkept.answered(&reply(0, 10), 1, false));
        let row = [Some(1), None, Some(2)];
        assert!(!is_kept(&mut unkept, &row, &[1, 2]), "not on its disk");
        assert_eq!(unkept.ask(VB, 1, true), [HISTORY]);
        unkept.unanswered(None, 1);
        assert_eq!(unkept.ask(VB, 1, true), [HISTORY], "after a lost question");
        unkept.unanswered(None, 2);
        assert!(!unkept.answered(&reply(10, 10), 1, true));
        assert!(!unkept.answered(&reply(0, 10), 2, false));
        assert!(is_kept(&mut unkept, &row, &[1, 2]));
    }

    #[test]
    fn a_history_that_ended_before_what_was_written_lost_it() {
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
        let mut unkept = asked();
        assert!(!unkept.answered(&ended(10), 0, true));
        assert!(is_kept(&mut unkept, &ROW, &[0]));
    }
}
