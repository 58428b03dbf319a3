//! Durable writes of the active vBucket: both vBuckets together are a majority.

use std::collections::VecDeque;

use engine::{
    Applied, Decided, Decision, OpError, Outcome, Requirement, StoreMode, VBucket, Write,
};
use model::{Cas, Document, Draft, DurabilityLevel, Kind, Meta, VbState, VbUuid};

use super::history::{Change, id_of};
use super::node::Node;
use super::{Op, World};

const REPLICA: &str = "r";

/// Makes durable writes wait for the other vBucket.
pub(super) fn follow_each_other(active: &mut Node) {
    let topology = format!("[[\"a\",\"{REPLICA}\"]]");
    active
        .vbucket
        .set_state(VbState::Active, Some(topology), VbUuid(1));
    active.flush(usize::MAX);
}

/// Applies a change as a connection brings it: of a decision, it brings only the seqnos.
pub(super) fn apply(vbucket: &mut VBucket, document: &Document) -> Applied {
    let (prepare, at) = (document.prepare_seqno(), document.seqno());
    let applied = match document.kind() {
        Kind::Commit | Kind::CommitDeletion => vbucket.apply_commit(document.key(), prepare, at),
        Kind::Abort => vbucket.apply_abort(document.key(), prepare, at),
        _ => vbucket.apply(document),
    };
    applied.unwrap()
}

impl World {
    pub(super) fn run_durable(&mut self, op: &Op) {
        match *op {
            Op::Prepare {
                key,
                level,
                delete,
                patience,
            } => self.prepare(key, level, delete, patience.into()),
            Op::Acknowledge => self.acknowledge(),
            Op::Wait(ns) => {
                self.now.mono_ns += u64::from(ns);
                self.active.vbucket.abort_overdue(self.now);
            }
            _ => unreachable!("{op:?}"),
        }
    }

    /// Returns the refusal for a key with an undecided durable write.
    pub(super) fn waits(&self, key: &[u8]) -> Option<OpError> {
        let prepare = *self.state.prepared.get(key)?;
        Some(if prepare <= self.hidden_to {
            OpError::SyncWriteReCommitInProgress
        } else {
            OpError::SyncWriteInProgress
        })
    }

    /// Returns the expiry of a document written at this time.
    pub(super) fn expiry(&self, ttl: Option<u32>) -> u32 {
        match ttl.unwrap_or(0) {
            0 => 0,
            ttl => self.now.unix_s() + ttl,
        }
    }

    fn prepare(&mut self, key: u8, level: u8, gone: bool, patience_ns: u64) {
        let key = self.key(key);
        let durability = DurabilityLevel::from_number(level).map(|level| Requirement {
            level,
            deadline_ns: self.now.mono_ns + patience_ns,
        });
        let vbucket = &mut self.active.vbucket;
        let outcome = if gone {
            vbucket.delete(&key, Cas::ANY, durability, self.now)
        } else {
            let mut write = Write {
                mode: StoreMode::Set,
                draft: Some(Draft::new(&key, b"durable", &Meta::default())),
                cas: Cas::ANY,
                preserve_expiry: false,
                durability,
            };
            vbucket.store(&mut write, self.now)
        };
        let Some(open) = self.state.open.get(&id_of(&key)) else {
            return assert_eq!(outcome.err(), Some(OpError::UnknownCollection));
        };
        if gone && !self.state.documents.contains_key(&key) {
            return assert!(outcome.is_err(), "{outcome:?}");
        }
        if let Some(refusal) = self.waits(&key) {
            return assert_eq!(outcome.err(), Some(refusal));
        }
        let expiry = self.expiry(open.ttl);
        self.note(Change::Prepared { key, gone, expiry });
        let Ok(Outcome::Prepared(mutated)) = outcome else {
            panic!("{outcome:?}: nobody else has it")
        };
        assert_eq!(mutated.seqno, self.state_high());
    }

    fn acknowledge(&mut self) {
        let prepared = self.replica.vbucket.acknowledges();
        let told = self.active.vbucket.seqno_acknowledged(REPLICA, prepared);
        assert_eq!(told, Ok(()));
        self.acked = self.acked.max(prepared);
    }

    /// Records the decisions of the active vBucket, each with the next seqno.
    pub(super) fn note_decided(&mut self) {
        for one in self.active.vbucket.take_outbox().decided {
            self.note_decision(one);
        }
    }

    fn note_decision(&mut self, one: Decided) {
        let change = self.history.changes.get(&one.prepare);
        let Some(Change::Prepared { key, gone, expiry }) = change.cloned() else {
            panic!("{one:?} is no prepare")
        };
        assert_eq!(self.state.prepared.get(&key), Some(&one.prepare));
        match one.decision {
            Decision::Committed(mutated) => {
                let oldest = self.state.prepared.values().min();
                assert_eq!(oldest, Some(&one.prepare), "in order");
                assert!(self.acked >= one.prepare, "the replica has it");
                self.note(Change::Document { key, gone, expiry });
                assert_eq!(mutated.seqno, self.state_high());
            }
            Decision::Ambiguous => self.note(Change::GivenUp { key }),
        }
    }

    /// Records the next `most` of `steps`, each with the durable writes that it aborts. Returns the
    /// number of these.
    pub(super) fn note_steps(&mut self, steps: Vec<Change>, most: usize) -> u64 {
        let mut given_up = VecDeque::from(self.active.vbucket.take_outbox().decided);
        let count = given_up.len() as u64;
        for step in steps.into_iter().take(most) {
            if let Change::Ended(id) = step {
                let of_it = |world: &Self, one: &Decided| {
                    let change = world.history.changes.get(&one.prepare);
                    change.and_then(Change::key).map(id_of) == Some(id)
                };
                while let Some(one) = given_up.pop_front_if(|one| of_it(self, one)) {
                    assert_eq!(one.decision, Decision::Ambiguous);
                    self.note_decision(one);
                }
            }
            self.note(step);
        }
        assert!(given_up.is_empty(), "{given_up:?}");
        count
    }

    /// Syncs both vBuckets until every durable write is decided.
    pub(super) fn decide_all(&mut self) {
        for _ in 0..4 {
            self.active.flush(7);
            self.note_decided();
            while self.replicate() {}
            self.replica.flush(5);
            self.acknowledge();
            self.note_decided();
        }
        assert!(self.state.prepared.is_empty(), "{:?}", self.state.prepared);
        assert_eq!(self.active.vbucket.high_seqno(), self.state_high());
    }
}
