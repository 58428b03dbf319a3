//! The controller's key while an adoption holds it.
//!
//! The key names the adoption that may write, and the term at which copies are sealed for it. Each
//! transaction of an adoption compares the revision of the key's last write, and writes the key again. So
//! other adoptions see that it makes progress. The adoption that was ordered last takes the key. An adoption
//! that lost the key waits, and takes it back if the key is not written for the length of a lease.

use crate::agreed::{ClusterId, Controller, Key, View};
use crate::coord::{Compare, LeaseId, Op, Txn};

/// State of the key as an adoption finds it.
#[derive(Debug)]
pub(super) enum KeyState {
    /// This adoption has the key.
    Ours,
    /// This adoption may take the key.
    Free,
    /// Another adoption has it and makes progress.
    Waits,
}

/// The key as an adoption knows it.
#[derive(Clone, Debug)]
pub(super) struct AdoptionKey {
    cluster: ClusterId,
    me: Controller,
    /// Revision of the key's last write; 0 if there is no key.
    revision: u64,
    /// Term in the key, while this adoption has it.
    term: Option<u64>,
    /// Whether this adoption had the key at any time.
    was_taken: bool,
    /// Revision of the history's last write; an adoption that ends writes the history.
    history: u64,
    /// Time when the key was first seen with its present revision.
    since_ms: u64,
}

impl AdoptionKey {
    pub(super) fn new(cluster: ClusterId, me: Controller) -> Self {
        Self {
            cluster,
            me,
            revision: 0,
            term: None,
            was_taken: false,
            history: 0,
            since_ms: 0,
        }
    }

    /// Returns the term in the key; `None` if this adoption does not have the key, as far as it knows.
    pub(super) fn term(&self) -> Option<u64> {
        self.term
    }

    /// Takes the key as read from etcd; returns also the term in the key.
    pub(super) fn found(&mut self, read: &View, now_ms: u64, lease_ms: u64) -> (KeyState, u64) {
        self.term = None;
        self.history = read.history.mod_revision;
        let Some(entry) = &read.controller else {
            self.revision = 0;
            return (KeyState::Free, 0);
        };
        if entry.mod_revision != self.revision {
            (self.revision, self.since_ms) = (entry.mod_revision, now_ms);
        }
        // A controller cannot write once its key has another revision.
        let Some(term) = entry.value.adopts else {
            return (KeyState::Free, 0);
        };
        let found = if (entry.value.node, entry.value.boot) == (self.me.node, self.me.boot) {
            (self.term, self.was_taken) = (Some(term), true);
            KeyState::Ours
        } else if self.was_taken && now_ms < self.since_ms + lease_ms {
            KeyState::Waits
        } else {
            KeyState::Free
        };
        (found, term)
    }

    /// Makes a transaction that takes the key, or requires that this adoption has it. `ops` may remove the key.
    pub(super) fn txn(&self, mut then: Vec<Op>, term: u64) -> Txn {
        let key = Key::Controller.text(self.cluster);
        let history = Key::History.text(self.cluster);
        let compare = vec![
            Compare::ModRevision(key.clone(), self.revision),
            Compare::ModRevision(history, self.history),
        ];
        let removes = |op: &Op| matches!(op, Op::Delete { key: of } if *of == key);
        if !then.iter().any(removes) {
            let adopts = Some(term);
            let value = Controller { adopts, ..self.me };
            let value = serde_json::to_string(&value).expect("values of ours have no maps");
            let lease = LeaseId(0);
            then.push(Op::Put { key, value, lease });
        }
        Txn { compare, then }
    }

    /// Records that a transaction of this adoption wrote the key.
    pub(super) fn written(&mut self, revision: u64, term: u64) {
        (self.revision, self.term, self.was_taken) = (revision, Some(term), true);
    }

    /// Records that a transaction was refused, or that its result is unknown: etcd must be read again.
    pub(super) fn doubt(&mut self) {
        self.term = None;
    }
}
