//! The next step of one copy.

use super::topology::Topology;
use crate::condition::Condition;
use crate::map::{NodeId, Row, Vb};
use crate::message::Message;
use crate::promotion::Position;

/// What a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes changes of the active copy.
    Replica,
    /// Takes writes.
    Active,
}

/// A node's copy of a vBucket, as the node has it at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// What it is. A copy is a replica when its node has started.
    pub role: Role,
    /// Its term, as it is on disk.
    pub term: u64,
    /// It was sealed at its term since the node started, and has had no stream of that term yet.
    pub sealed: bool,
    /// It was active when it was sealed, and has everything that it had as that.
    pub complete: bool,
    /// The node that it takes changes from. The stream is of the copy's term.
    pub follows: Option<NodeId>,
    /// The chains that an active copy works by.
    pub topology: Option<Topology>,
    /// What it has.
    pub position: Position,
    /// Of an active copy: [`Topology::is_ready`].
    pub ready: bool,
    /// Whether it can be read.
    pub condition: Condition,
}

impl Copy {
    /// Whether it can be read, some rows apart.
    pub(crate) fn is_readable(&self) -> bool {
        self.condition != Condition::Unreadable
    }
}

/// A change of a copy. It may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An empty replica, with its term on disk.
    Create {
        /// The vBucket.
        vb: Vb,
        /// Its term.
        term: u64,
    },
    /// The copy goes, when consumers have passed what it has.
    Remove {
        /// The vBucket.
        vb: Vb,
    },
    /// A replica at `term`, which is on disk before anything else; nothing is served, acknowledged or taken from streams of
    /// older terms. What an active copy has is still sent on the streams that it has, so that a takeover can be drained.
    Seal {
        /// The vBucket.
        vb: Vb,
        /// The new term.
        term: u64,
    },
    /// Active at the copy's term: a failover entry of the term is written, and awaited by a majority before anything is
    /// acknowledged.
    Activate {
        /// The vBucket.
        vb: Vb,
        /// The copy's term.
        term: u64,
        /// The chains to work by.
        topology: Topology,
    },
    /// Other chains for an active copy.
    SetTopology {
        /// The vBucket.
        vb: Vb,
        /// The chains.
        topology: Topology,
    },
    /// A replica: another copy is active at a newer term.
    StepDown {
        /// The vBucket.
        vb: Vb,
    },
    /// Takes changes of `from`, the active copy of `term`. The term is on disk, and the copy rolled back to where its
    /// failover log leaves that of the active copy, before any change is acknowledged. An older stream ends;
    /// nothing that was sent on it is taken any more.
    Follow {
        /// The vBucket.
        vb: Vb,
        /// The term.
        term: u64,
        /// The node of the active copy.
        from: NodeId,
    },
}

/// What to do with a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealReply {
    /// Make the step, then ask again.
    Make(Step),
    /// Answer.
    Answer(Message),
    /// Nothing: the controller repeats itself.
    Wait,
}

/// The next step of `copy` on node `me` to what `row` says; `None` when it is there.
pub(super) fn next(me: NodeId, vb: Vb, row: &Row, copy: Option<&Copy>) -> Option<Step> {
    let Some(copy) = copy else {
        let term = row.term;
        return row.has_copy(me).then_some(Step::Create { vb, term });
    };
    if !row.has_copy(me) {
        // A copy that was sealed for a newer row belongs to that one.
        let known = copy.term <= row.highest_term();
        return known.then_some(Step::Remove { vb });
    }
    if !copy.is_readable() {
        return None;
    }
    let first = row.chain.active()?;
    let topology = Topology::of(row);
    if copy.role == Role::Active {
        return if row.term > copy.term {
            Some(Step::StepDown { vb })
        } else {
            let follows = row.term == copy.term && copy.topology != Some(topology);
            follows.then_some(Step::SetTopology { vb, topology })
        };
    }
    if first == me {
        let term = row.term;
        let elected = copy.sealed && copy.term == term && row.intent.is_none();
        return elected.then_some(Step::Activate { vb, term, topology });
    }
    let newer = row.term > copy.term;
    let same = row.term == copy.term && copy.follows != Some(first);
    (row.term > 0 && (newer || same)).then_some(Step::Follow {
        vb,
        term: row.term,
        from: first,
    })
}

/// Whether an election is needed: the row has `copy` of node `me` as active, and it can become that only so; or the copy was
/// sealed above all terms of the row, and can follow at a newer one alone. The only copy stays what it is if it cannot be
/// read.
pub(super) fn needs_election(me: NodeId, row: &Row, copy: &Copy) -> bool {
    if !copy.is_readable() && row.chain.nodes().len() == 1 {
        return false;
    }
    let elected = copy.sealed && copy.term == row.term;
    let idle = row.intent.is_none() && copy.role == Role::Replica;
    let outgrown = row.chain.holds(me) && copy.term > row.highest_term();
    idle && (outgrown || row.chain.active() == Some(me) && !elected)
}

/// What to do with a seal of `copy` at `term`.
pub fn seal(vb: Vb, term: u64, at_least: Option<Position>, copy: Option<&Copy>) -> SealReply {
    let Some(copy) = copy else {
        return SealReply::Wait;
    };
    if !copy.is_readable() {
        return SealReply::Answer(Message::Stopped { vb, term });
    }
    let (current, position) = (copy.term, copy.position);
    if term == current && copy.sealed {
        return SealReply::Answer(Message::Sealed {
            vb,
            term,
            position,
            complete: copy.complete,
        });
    }
    if term <= current {
        return SealReply::Answer(Message::SealRefused { vb, term, current });
    }
    // More prepares do not make up for plain writes that are not here.
    let lacks = |least: Position| {
        position < least || position.branch == least.branch && position.seqno < least.seqno
    };
    if at_least.is_some_and(lacks) {
        return SealReply::Wait;
    }
    SealReply::Make(Step::Seal { vb, term })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::BucketId;

    /// A whole copy that is not sealed and follows none.
    fn replica(term: u64) -> Copy {
        Copy {
            role: Role::Replica,
            term,
            sealed: false,
            complete: false,
            follows: None,
            topology: None,
            position: Position::default(),
            ready: false,
            condition: Condition::Whole,
        }
    }

    #[test]
    fn a_seal_of_a_takeover_waits_for_plain_writes_too() {
        let bucket = BucketId(1);
        let vb = Vb { bucket, number: 0 };
        let at = |prepared, seqno| Position {
            branch: 1,
            prepared,
            seqno,
        };
        let copy = |position| Copy {
            position,
            ..replica(1)
        };
        let least = Some(at(5, 10));
        for behind in [at(5, 9), at(4, 10), at(7, 7)] {
            assert_eq!(seal(vb, 2, least, Some(&copy(behind))), SealReply::Wait);
        }
        for enough in [at(5, 10), at(10, 10), at(6, 12)] {
            let sealed = SealReply::Make(Step::Seal { vb, term: 2 });
            assert_eq!(seal(vb, 2, least, Some(&copy(enough))), sealed);
        }
    }

    #[test]
    fn a_copy_that_a_newer_row_sealed_is_not_removed_by_an_older_one() {
        let bucket = BucketId(1);
        let vb = Vb { bucket, number: 0 };
        let others = crate::map::Chain::new(&[NodeId(2)]).expect("a chain");
        let row = Row {
            intent: Some(5),
            ..Row::new(others, 4)
        };
        let copy = |term| Copy {
            sealed: true,
            ..replica(term)
        };
        let step = |term| next(NodeId(1), vb, &row, Some(&copy(term)));
        assert_eq!(step(5), Some(Step::Remove { vb }));
        assert_eq!(step(6), None);
    }

    #[test]
    fn a_copy_that_cannot_be_read_answers_seals_so_and_makes_no_step_but_to_go() {
        let bucket = BucketId(1);
        let vb = Vb { bucket, number: 0 };
        let copy = Copy {
            condition: Condition::Unreadable,
            ..replica(4)
        };
        for term in [3, 4, 5] {
            let stopped = SealReply::Answer(Message::Stopped { vb, term });
            assert_eq!(seal(vb, term, None, Some(&copy)), stopped);
        }
        let (me, other) = (NodeId(1), NodeId(2));
        let row = |nodes: &[NodeId]| Row::new(crate::map::Chain::new(nodes).expect("a chain"), 4);
        for nodes in [&[me, other][..], &[other, me], &[me]] {
            assert_eq!(next(me, vb, &row(nodes), Some(&copy)), None);
        }
        let removed = Some(Step::Remove { vb });
        assert_eq!(next(me, vb, &row(&[other]), Some(&copy)), removed);
        assert!(needs_election(me, &row(&[me, other]), &copy));
        for (term, needed) in [(4, false), (5, true)] {
            let sealed = Copy {
                sealed: true,
                ..replica(term)
            };
            assert_eq!(needs_election(me, &row(&[other, me]), &sealed), needed);
        }
        assert!(!needs_election(me, &row(&[me]), &copy));
    }
}
