//! State of the modelled cluster: etcd's rows, the nodes' copies, and every message that was ever sent.
//!
//! Messages are never removed from the network. Each may be delivered at any later time, any number of times,
//! or never. So a partition needs no state of its own: it is a period in which some messages are not
//! delivered.

use std::hash::{Hash, Hasher};

use cluster::Phase;

pub(crate) const NODES: usize = 3;
pub(crate) const VBUCKETS: usize = 2;
/// Number of terms plus one: terms are 1 to `TERMS` - 1.
pub(crate) const TERMS: usize = 6;
/// Number of durable writes in a run, over all vBuckets.
pub(crate) const WRITES: usize = 3;

/// Nodes of a chain, the active one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Chain {
    len: u8,
    members: [u8; NODES],
}

impl Chain {
    pub(crate) fn new(nodes: &[usize]) -> Self {
        let mut chain = Self::default();
        for node in nodes {
            chain.members[usize::from(chain.len)] = *node as u8;
            chain.len += 1;
        }
        chain
    }

    pub(crate) fn nodes(self) -> impl Iterator<Item = usize> {
        let members = self.members;
        (0..self.len()).map(move |at| usize::from(members[at]))
    }

    pub(crate) fn len(self) -> usize {
        usize::from(self.len)
    }

    pub(crate) fn active(self) -> usize {
        usize::from(self.members[0])
    }

    pub(crate) fn holds(self, node: usize) -> bool {
        self.nodes().any(|member| member == node)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Move {
    pub(crate) to: Chain,
    pub(crate) phase: Phase,
}

/// Row of a vBucket in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Row {
    pub(crate) revision: u8,
    pub(crate) chain: Chain,
    pub(crate) term: u8,
    /// Term at which copies are being sealed; 0 for none.
    pub(crate) intent: u8,
    pub(crate) change: Option<Move>,
}

impl Row {
    pub(crate) fn has_copy(&self, node: usize) -> bool {
        self.chain.holds(node) || self.change.is_some_and(|change| change.to.holds(node))
    }

    /// Returns the highest term for which seals may have been sent.
    pub(crate) fn highest_term(&self) -> u8 {
        self.term.max(self.intent)
    }

    pub(crate) fn is_in(&self, phase: Phase) -> bool {
        self.change.is_some_and(|change| change.phase == phase)
    }
}

/// Writes in the order of their seqnos, and the failover log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Log {
    writes: [u8; WRITES],
    pub(crate) len: u8,
    /// For each term with a failover entry: the entry's seqno plus 1.
    entries: [u8; TERMS],
}

/// Branch (newest term with a failover entry) and high prepared seqno of a log; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Position {
    pub(crate) branch: u8,
    pub(crate) seqno: u8,
}

impl From<Position> for cluster::Position {
    fn from(position: Position) -> Self {
        Self {
            branch: position.branch.into(),
            prepared: position.seqno.into(),
            seqno: position.seqno.into(),
        }
    }
}

impl Log {
    pub(crate) fn writes(&self) -> &[u8] {
        &self.writes[..usize::from(self.len)]
    }

    pub(crate) fn push(&mut self, write: u8) {
        self.writes[usize::from(self.len)] = write;
        self.len += 1;
    }

    pub(crate) fn add_failover_entry(&mut self, term: u8) {
        self.entries[usize::from(term)] = self.len + 1;
    }

    /// Returns the seqno of `term`'s failover entry.
    pub(crate) fn failover_seqno(&self, term: u8) -> u8 {
        self.entries[usize::from(term)].saturating_sub(1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn position(&self) -> Position {
        let branch = self.entries.iter().rposition(|entry| *entry > 0);
        Position {
            branch: branch.unwrap_or(0) as u8,
            seqno: self.len,
        }
    }

    pub(crate) fn truncate(&mut self, len: u8) {
        for at in usize::from(len)..WRITES {
            self.writes[at] = 0;
        }
        self.len = self.len.min(len);
        for entry in &mut self.entries {
            *entry = if *entry > len + 1 { 0 } else { *entry };
        }
    }

    /// Removes writes that `of` does not have, and takes over its failover log as far as this log reaches.
    pub(crate) fn roll_back_to(&mut self, of: &Log) {
        let pairs = self.writes().iter().zip(of.writes());
        let common = pairs.take_while(|(ours, theirs)| ours == theirs).count() as u8;
        self.truncate(common);
        self.entries = of.entries;
        self.truncate(common);
    }

    /// Takes the next change of `of`; this log is a prefix of it.
    pub(crate) fn follow(&mut self, of: &Log) {
        self.push(of.writes[usize::from(self.len)]);
        self.entries = of.entries;
        self.truncate(self.len);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) enum CopyState {
    #[default]
    Replica,
    Active,
}

/// A node's copy of a vBucket.
#[expect(
    clippy::struct_excessive_bools,
    reason = "what holds of a copy, each by itself"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Copy {
    pub(crate) state: CopyState,
    pub(crate) term: u8,
    /// Term after a restart. It differs from `term` only if seals are forgotten.
    pub(crate) stored_term: u8,
    pub(crate) log: Log,
    /// Seqno up to which the log is on disk.
    pub(crate) persisted: u8,
    /// Whether it has a stream of its term.
    pub(crate) streams: bool,
    /// Whether it was sealed at its term since its start, and has had no stream of that term yet.
    pub(crate) sealed: bool,
    /// Whether it was active when it was sealed, and has lost nothing since.
    pub(crate) complete: bool,
    /// Whether W - 1 replicas confirmed the term within the last L ms.
    pub(crate) confirmed: bool,
    /// Whether it could not be read at the start of its node.
    pub(crate) unreadable: bool,
    /// Row that an active copy follows.
    pub(crate) row: Row,
    /// Revision of the newest applied row.
    pub(crate) revision: u8,
}

impl Copy {
    pub(crate) fn is_active(&self) -> bool {
        self.state == CopyState::Active
    }

    /// Ends the active role.
    pub(crate) fn step_down(&mut self) {
        self.state = CopyState::Replica;
        self.streams = false;
        self.confirmed = false;
        self.row = Row::default();
    }
}

/// Highest seqnos that a copy acknowledged at a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Acknowledged {
    pub(crate) memory: u8,
    pub(crate) disk: u8,
}

/// A vBucket: its row in etcd, its messages by term, its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct VBucket {
    pub(crate) row: Row,
    /// Previous row, which may be delivered late.
    pub(crate) previous: Row,
    /// Log that the active copy of each term sent; the next field is its node.
    pub(crate) sent: [Log; TERMS],
    pub(crate) sender: [u8; TERMS],
    pub(crate) acknowledged: [[Acknowledged; NODES]; TERMS],
    /// Answers to seals.
    pub(crate) answers: [[Position; NODES]; TERMS],
    /// Answers of copies that were active when they were sealed, and have all of their data.
    pub(crate) complete: [[bool; NODES]; TERMS],
    /// Copies that cannot be read, and said so in answer to a seal.
    pub(crate) stopped: [[bool; NODES]; TERMS],
    pub(crate) copies: [Copy; NODES],
}

impl Hash for VBucket {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Most cases have one vBucket, and few terms.
        if self.row.revision > 0 {
            (self.row, self.previous, self.copies).hash(hasher);
            for term in 0..=usize::from(self.row.highest_term()) {
                (self.sent[term], self.sender[term]).hash(hasher);
                (self.acknowledged[term], self.answers[term]).hash(hasher);
                (self.complete[term], self.stopped[term]).hash(hasher);
            }
        }
    }
}

impl VBucket {
    pub(crate) fn new(chain: &[usize]) -> Self {
        let mut vb = Self::default();
        if chain.is_empty() {
            return vb;
        }
        vb.row = Row {
            revision: 1,
            chain: Chain::new(chain),
            term: 1,
            ..Row::default()
        };
        vb.previous = vb.row;
        vb.sent[1].add_failover_entry(1);
        vb.sender[1] = vb.row.chain.active() as u8;
        for node in vb.row.chain.nodes() {
            vb.copies[node] = Copy {
                term: 1,
                stored_term: 1,
                log: vb.sent[1],
                streams: true,
                revision: 1,
                ..Copy::default()
            };
        }
        let active = &mut vb.copies[vb.row.chain.active()];
        active.state = CopyState::Active;
        active.row = vb.row;
        vb
    }

    /// Returns the answer of `node` to the seal at `term`.
    pub(crate) fn answer(&self, node: usize, term: u8) -> Option<Position> {
        let answer = self.answers[usize::from(term)][node];
        (answer.branch > 0).then_some(answer)
    }
}

/// Events that may still happen in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) writes: u8,
    pub(crate) crashes: u8,
    pub(crate) failovers: u8,
    pub(crate) moves: u8,
    pub(crate) controllers: u8,
    pub(crate) damages: u8,
    pub(crate) stops: u8,
}

/// An acknowledged write; term 0 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Promise {
    pub(crate) vb: u8,
    pub(crate) term: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) vbs: [VBucket; VBUCKETS],
    /// Nodes whose lease is valid by their own clock.
    pub(crate) leases: [bool; NODES],
    /// Nodes marked as failed in etcd: their lease is not renewed.
    pub(crate) failed: [bool; NODES],
    /// View of a replaced controller.
    pub(crate) old_view: Option<[Row; VBUCKETS]>,
    pub(crate) left: Budget,
    /// Acknowledged writes, by number minus 1.
    pub(crate) promises: [Promise; WRITES],
    /// Nodes that crashed, or whose active copy was replaced without an answer to its seal.
    pub(crate) lost: [bool; NODES],
    /// Whether a row with an older revision was applied, or the term of a row in etcd fell.
    pub(crate) went_back: bool,
}
