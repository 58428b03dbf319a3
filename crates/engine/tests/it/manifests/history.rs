//! What happened to one vBucket, and what there is at any seqno.

use std::collections::{BTreeMap, BTreeSet};

use engine::collections::Manifest;
use model::{CollectionId, Document, Seqno, split_key};

/// A change of a vBucket.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Document {
        key: Vec<u8>,
        gone: bool,
        expiry: u32,
    },
    Begun {
        id: u32,
        scope: u32,
        ttl: Option<u32>,
    },
    Modified {
        id: u32,
        ttl: Option<u32>,
    },
    Ended(u32),
    ScopeBegun(u32),
    ScopeEnded(u32),
}

pub(super) fn id_of(key: &[u8]) -> u32 {
    split_key(key).unwrap().0.0
}

/// A collection that is there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Open {
    pub(super) scope: u32,
    pub(super) ttl: Option<u32>,
    pub(super) start: Seqno,
    /// Its newest change.
    pub(super) high: Seqno,
}

/// What there is at a seqno.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Live documents.
    pub(super) documents: BTreeMap<Vec<u8>, Seqno>,
    pub(super) open: BTreeMap<u32, Open>,
    pub(super) scopes: BTreeSet<u32>,
}

impl Default for State {
    fn default() -> Self {
        let default = Open {
            scope: 0,
            ttl: None,
            start: Seqno::ZERO,
            high: Seqno::ZERO,
        };
        Self {
            documents: BTreeMap::new(),
            open: BTreeMap::from([(0, default)]),
            scopes: BTreeSet::from([0]),
        }
    }
}

impl State {
    pub(super) fn follow(&mut self, seqno: Seqno, change: &Change) {
        match change {
            Change::Document { key, gone, .. } => {
                if *gone {
                    self.documents.remove(key);
                } else {
                    self.documents.insert(key.clone(), seqno);
                }
                if let Some(open) = self.open.get_mut(&id_of(key)) {
                    open.high = seqno;
                }
            }
            Change::Begun { id, scope, ttl } => {
                let open = Open {
                    scope: *scope,
                    ttl: *ttl,
                    start: seqno,
                    high: seqno,
                };
                self.open.insert(*id, open);
            }
            Change::Modified { id, ttl } => {
                // Of a part of a snapshot that was lost the beginning may be missing.
                if let Some(open) = self.open.get_mut(id) {
                    open.ttl = *ttl;
                    // The default one's is for peers that know no such changes.
                    open.high = if *id == 0 { open.high } else { seqno };
                }
            }
            Change::Ended(id) => {
                self.open.remove(id);
                self.documents.retain(|key, _| id_of(key) != *id);
            }
            Change::ScopeBegun(id) => {
                self.scopes.insert(*id);
            }
            Change::ScopeEnded(id) => {
                self.scopes.remove(id);
            }
        }
    }

    /// What must be noted to come to a manifest: what went before what came.
    pub(super) fn differences(&self, manifest: &Manifest) -> Vec<Change> {
        let gone = |id: &&u32| manifest.collection(CollectionId(**id)).is_none();
        let mut changes: Vec<Change> = self
            .open
            .keys()
            .filter(gone)
            .map(|id| Change::Ended(*id))
            .collect();
        let scopes: BTreeSet<u32> = manifest.scopes().iter().map(|scope| scope.id.0).collect();
        changes.extend(
            self.scopes
                .difference(&scopes)
                .map(|id| Change::ScopeEnded(*id)),
        );
        changes.extend(
            scopes
                .difference(&self.scopes)
                .map(|id| Change::ScopeBegun(*id)),
        );
        for (scope, collection) in manifest.collections() {
            let (id, ttl) = (collection.id.0, collection.settings.max_ttl_s);
            match self.open.get(&id) {
                None => changes.push(Change::Begun {
                    id,
                    scope: scope.id.0,
                    ttl,
                }),
                Some(open) if open.ttl != ttl => changes.push(Change::Modified { id, ttl }),
                Some(_) => {}
            }
        }
        changes
    }
}

/// Every change there was, also those that were replaced.
#[derive(Clone, Default)]
pub(super) struct History {
    pub(super) changes: BTreeMap<Seqno, Change>,
    /// The scope of every collection there ever was.
    pub(super) scopes: BTreeMap<u32, u32>,
}

impl History {
    pub(super) fn add(&mut self, seqno: Seqno, change: Change) {
        if let Change::Begun { id, scope, .. } = change {
            self.scopes.insert(id, scope);
        }
        assert_eq!(self.changes.insert(seqno, change), None);
    }

    pub(super) fn state(&self, at: Seqno) -> State {
        let mut state = State::default();
        for (seqno, change) in self.changes.range(..=at) {
            state.follow(*seqno, change);
        }
        state
    }

    /// Collections that ended after a seqno.
    pub(super) fn ended_after(&self, seqno: Seqno) -> BTreeSet<u32> {
        let later = self.changes.range(seqno.next()..);
        later
            .filter_map(|(_, change)| match change {
                Change::Ended(id) => Some(*id),
                _ => None,
            })
            .collect()
    }

    /// The change that a stream gave must be one that happened.
    pub(super) fn change(&self, document: &Document) -> &Change {
        let change = self.changes.get(&document.seqno());
        let change = change.unwrap_or_else(|| panic!("{document:?} never happened"));
        if let Change::Document { key, gone, expiry } = change {
            assert_eq!(key, document.key());
            assert_eq!(*gone, document.kind().is_tombstone());
            assert!(*gone || *expiry == document.expiry(), "{document:?}");
        }
        change
    }
}
