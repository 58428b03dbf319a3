//! The controller's key in the hand of an adoption.
//!
//! It says which adoption writes, and at which term copies are sealed for it. Each transaction of an adoption requires the
//! revision that wrote the key last, and writes it anew: so another one can tell that it goes on. The one that was ordered
//! last takes the key; one that lost it waits, and takes it back if nothing is written for the length of a lease.

use crate::agreed::{ClusterId, Controller, Key, View};
use crate::coord::{Compare, LeaseId, Op, Txn};

/// What an adoption finds when it reads the key.
#[derive(Debug)]
pub(super) enum Found {
    /// It has the key.
    Ours,
    /// It may take the key.
    Free,
    /// Another adoption goes on.
    Waits,
}

/// What an adoption knows of the key.
#[derive(Clone, Debug)]
pub(super) struct AdoptionKey {
    cluster: ClusterId,
    me: Controller,
    /// The revision that wrote the key last; 0 if there is none.
    revision: u64,
    /// The term in the key, while this adoption has it.
    term: Option<u64>,
    /// It had the key.
    was_taken: bool,
    /// The revision that wrote the history last: one that copies were adopted into is another one.
    history: u64,
    /// When the key was seen first as it is.
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

    /// The term in the key; `None` if it is not this adoption's, as far as is known.
    pub(super) fn term(&self) -> Option<u64> {
        self.term
    }

    /// Takes what etcd has; returns also the term in the key.
    pub(super) fn found(&mut self, read: &View, now_ms: u64, lease_ms: u64) -> (Found, u64) {
        self.term = None;
        self.history = read.history.mod_revision;
        let Some(entry) = &read.controller else {
            self.revision = 0;
            return (Found::Free, 0);
        };
        if entry.mod_revision != self.revision {
            (self.revision, self.since_ms) = (entry.mod_revision, now_ms);
        }
        // A controller writes no more once its key is another one.
        let Some(term) = entry.value.adopts else {
            return (Found::Free, 0);
        };
        let found = if (entry.value.node, entry.value.boot) == (self.me.node, self.me.boot) {
            (self.term, self.was_taken) = (Some(term), true);
            Found::Ours
        } else if self.was_taken && now_ms < self.since_ms + lease_ms {
            Found::Waits
        } else {
            Found::Free
        };
        (found, term)
    }

    /// A transaction that takes the key, or requires that this adoption has it. `ops` may remove it.
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

    /// A transaction of this adoption wrote the key.
    pub(super) fn written(&mut self, revision: u64, term: u64) {
        (self.revision, self.term, self.was_taken) = (revision, Some(term), true);
    }

    /// A transaction was refused, or it is not known whether it was made: etcd is to be read.
    pub(super) fn doubt(&mut self) {
        self.term = None;
    }
}
