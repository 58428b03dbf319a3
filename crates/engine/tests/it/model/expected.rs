//! Expected state of the vBucket: a map with the history of every change.

use std::collections::{BTreeMap, BTreeSet};

use engine::{DocumentPart, FetchKey, OpError};
use model::{Cas, DOCUMENT_OVERHEAD_BYTES, Document, Kind, Meta, Now, Seqno};

/// One revision in the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) value: Vec<u8>,
    pub(super) meta: Meta,
}

impl Known {
    pub(super) fn matches(&self, document: &Document) -> bool {
        self.meta == document.meta() && self.value == document.value()
    }

    pub(super) fn memory_bytes(&self, key: &[u8], resident: bool) -> usize {
        let value = if resident { self.value.len() } else { 0 };
        let asked = DOCUMENT_OVERHEAD_BYTES + key.len() + value;
        // Allocators have four sizes per doubling.
        (0..4)
            .map(|quarter| 64 + quarter * 16)
            .flat_map(|size: usize| (0..20).map(move |doubling| size << doubling))
            .chain((0..=64).step_by(8))
            .filter(|size| *size >= asked)
            .min()
            .unwrap_or(usize::MAX)
    }
}

/// Expected state of the vBucket.
#[derive(Default)]
pub(super) struct Expected {
    pub(super) documents: BTreeMap<Vec<u8>, Known>,
    pub(super) history: BTreeMap<Seqno, (Vec<u8>, Known)>,
    pub(super) locks: BTreeMap<Vec<u8>, (Cas, u64)>,
    pub(super) evicted: BTreeSet<Vec<u8>>,
    pub(super) high: Seqno,
    pub(super) flushed: Seqno,
    pub(super) max_cas: Cas,
    /// Low bits of the first CAS in a tick of the clock.
    pub(super) cas_start: u64,
    pub(super) max_deleted_rev: u64,
}

impl Expected {
    pub(super) fn next_cas(&mut self, now: Now) -> Cas {
        self.max_cas = Cas((now.unix_ns & !0xffff | self.cas_start).max(self.max_cas.0 + 1));
        self.max_cas
    }

    pub(super) fn live(&self, key: &[u8], now: Now) -> Option<&Known> {
        self.documents.get(key).filter(|known| {
            let expired = known.meta.expiry != 0 && known.meta.expiry <= now.unix_s();
            known.meta.kind == Kind::Mutation && !expired
        })
    }

    pub(super) fn lock(&self, key: &[u8], now: Now) -> Option<Cas> {
        self.locks
            .get(key)
            .filter(|lock| now.mono_ns < lock.1)
            .map(|lock| lock.0)
    }

    pub(super) fn refusal(&self, key: &[u8], cas: Cas, now: Now) -> Option<OpError> {
        let known = self.live(key, now)?;
        match self.lock(key, now) {
            Some(lock) => (lock != cas).then_some(OpError::Locked),
            None if cas == Cas::ANY || cas == known.meta.cas => None,
            None => Some(OpError::KeyExists),
        }
    }

    pub(super) fn fetch(&self, key: &[u8]) -> Option<FetchKey> {
        let seqno = self.documents.get(key)?.meta.seqno;
        self.evicted.contains(key).then(|| FetchKey {
            key: key.into(),
            wanted: DocumentPart::Value(seqno),
        })
    }

    /// Makes a change; `meta` lacks the fields that the vBucket sets.
    pub(super) fn change(&mut self, key: &[u8], value: Vec<u8>, meta: Meta, now: Now) -> Known {
        let before = self
            .documents
            .get(key)
            .map_or(self.max_deleted_rev, |known| known.meta.rev);
        let (rev, seqno, cas) = (before + 1, self.high.next(), self.next_cas(now));
        let known = Known {
            value,
            meta: Meta {
                rev,
                seqno,
                cas,
                ..meta
            },
        };
        if meta.kind != Kind::Mutation {
            self.max_deleted_rev = self.max_deleted_rev.max(rev);
        }
        self.high = seqno;
        self.locks.remove(key);
        self.evicted.remove(key);
        self.documents.insert(key.into(), known.clone());
        self.history.insert(seqno, (key.into(), known.clone()));
        known
    }

    pub(super) fn remove(&mut self, key: &[u8], kind: Kind, now: Now) -> Known {
        let meta = Meta {
            kind,
            expiry: now.unix_s(),
            ..Meta::default()
        };
        self.change(key, Vec::new(), meta, now)
    }

    /// Turns an expired document into a tombstone, as reads do.
    pub(super) fn notice_expiry(&mut self, key: &[u8], now: Now) {
        let alive = self
            .documents
            .get(key)
            .is_some_and(|known| known.meta.kind == Kind::Mutation);
        if alive && self.live(key, now).is_none() {
            self.remove(key, Kind::Expiration, now);
        }
    }
}
