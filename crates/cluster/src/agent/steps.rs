//! The next step of a copy.

use super::topology::Topology;
use crate::condition::Condition;
use crate::map::{NodeId, Row, Vb};
use crate::message::Message;
use crate::promotion::Position;

/// Role of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes changes from the active copy.
    Replica,
    /// Takes writes from clients.
    Active,
}

/// Whether a copy that is not active has everything that it acknowledged when it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completeness {
    /// It may have lost some of that, was not active, or has taken changes of another node since.
    #[default]
    Unknown,
    /// It was active until it was sealed. Its streams go on, so that another copy can get everything.
    Drains,
    /// It was active, or drained, until its node stopped with everything on disk.
    Kept,
}

/// State of a node's copy of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Role. Every copy is a replica after the start of its node.
    pub role: Role,
    /// Term on disk.
    pub term: u64,
    /// Whether it was sealed at its term since the node started, and has had no stream of that term yet.
    pub sealed: bool,
    /// Whether it has everything that it acknowledged when it was active.
    pub complete: Completeness,
    /// Node from which it takes changes. The stream is of the copy's term.
    pub follows: Option<NodeId>,
    /// Chains of an active copy.
    pub topology: Option<Topology>,
    /// Position in the history.
    pub position: Position,
    /// For an active copy: [`Topology::is_ready`].
    pub ready: bool,
    /// Condition of its data.
    pub condition: Condition,
}

impl Copy {
    /// Whether the copy can be read, except for some rows.
    pub(crate) fn is_readable(&self) -> bool {
        self.condition != Condition::Unreadable
    }
}

/// A change of a copy. It may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Create an empty replica, with its term on disk.
    Create {
        /// The vBucket.
        vb: Vb,
        /// Its term.
        term: u64,
    },
    /// Remove the copy, once consumers have passed its data.
    Remove {
        /// The vBucket.
        vb: Vb,
    },
    /// Make the copy a replica at `term`, and put the term on disk first. The copy serves nothing,
    /// acknowledges nothing and takes no changes from streams of older terms. A former active copy still
    /// sends its data on its open streams, so that a takeover can be drained.
    Seal {
        /// The vBucket.
        vb: Vb,
        /// The new term.
        term: u64,
    },
    /// Make the copy active at its term: write a failover entry of the term, and wait until a majority has it
    /// before anything is acknowledged.
    Activate {
        /// The vBucket.
        vb: Vb,
        /// The copy's term.
        term: u64,
        /// Chains to use.
        topology: Topology,
    },
    /// Change the chains of an active copy.
    SetTopology {
        /// The vBucket.
        vb: Vb,
        /// The chains.
        topology: Topology,
    },
    /// Make the copy a replica: another copy is active at a newer term.
    StepDown {
        /// The vBucket.
        vb: Vb,
    },
    /// Take changes from `from`, the active copy of `term`. Before any change is acknowledged, the term is on
    /// disk, and the copy is rolled back to the point where its failover log leaves that of the active copy.
    /// An older stream ends; no more of its changes are taken.
    Follow {
        /// The vBucket.
        vb: Vb,
        /// The term.
        term: u64,
        /// The node of the active copy.
        from: NodeId,
    },
}

/// Reply to a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealReply {
    /// Make this step, then ask again.
    Make(Step),
    /// Send this answer.
    Answer(Message),
    /// Do nothing: the controller repeats the seal.
    Wait,
}

/// Returns the next step of `copy` on node `me` towards `row`; `None` if it has arrived.
pub(super) fn next(me: NodeId, vb: Vb, row: &Row, copy: Option<&Copy>) -> Option<Step> {
    let Some(copy) = copy else {
        let term = row.term;
        return row.has_copy(me).then_some(Step::Create { vb, term });
    };
    if !row.has_copy(me) {
        // A copy that was sealed for a newer row belongs to that row.
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

/// Whether an election is needed. First case: `copy` of node `me` is active in the row, and can become active
/// only by an election. Second case: the copy was sealed above all terms of the row, and can follow only at a
/// newer one. If the only copy cannot be read, it stays as it is.
pub(super) fn needs_election(me: NodeId, row: &Row, copy: &Copy) -> bool {
    if !copy.is_readable() && row.chain.nodes().len() == 1 {
        return false;
    }
    let elected = copy.sealed && copy.term == row.term;
    let idle = row.intent.is_none() && copy.role == Role::Replica;
    let outgrown = row.chain.holds(me) && copy.term > row.highest_term();
    idle && (outgrown || row.chain.active() == Some(me) && !elected)
}

/// Decides on the reply to a seal of `copy` at `term`.
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
            complete: copy.complete == Completeness::Drains,
            kept: copy.complete == Completeness::Kept,
        });
    }
    if term <= current {
        return SealReply::Answer(Message::SealRefused { vb, term, current });
    }
    // More prepares do not replace plain writes that this copy lacks.
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

    /// A whole copy that is not sealed and follows no node.
    fn replica(term: u64) -> Copy {
        Copy {
            role: Role::Replica,
            term,
            sealed: false,
            complete: Completeness::Unknown,
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
    fn older_row_does_not_remove_a_copy_sealed_for_a_newer_row() {
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
    fn unreadable_copy_answers_stopped_and_makes_no_step_except_remove() {
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
