//! History of one vBucket, and its state at any seqno.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::ModelStore;
use collections::Manifest;
use model::{CollectionId, Document, Kind, Seqno, split_key};

/// A change of a vBucket.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Document {
        key: Vec<u8>,
        gone: bool,
        expiry: u32,
    },
    /// A prepare.
    Prepared {
        key: Vec<u8>,
        gone: bool,
        expiry: u32,
    },
    /// An abort. A commit counts as a plain document.
    GivenUp {
        key: Vec<u8>,
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

impl Change {
    /// Key of the document.
    pub(super) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Document { key, .. } | Self::Prepared { key, .. } | Self::GivenUp { key } => {
                Some(key)
            }
            _ => None,
        }
    }

    /// Whether only replicas get the change.
    pub(super) fn is_prepared(&self) -> bool {
        matches!(self, Self::Prepared { .. } | Self::GivenUp { .. })
    }
}

pub(super) fn id_of(key: &[u8]) -> u32 {
    split_key(key).unwrap().0.0
}

/// An existing collection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Open {
    pub(super) scope: u32,
    pub(super) ttl: Option<u32>,
    pub(super) start: Seqno,
    /// Its last seqno.
    pub(super) high: Seqno,
}

/// State at a seqno.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Live documents.
    pub(super) documents: BTreeMap<Vec<u8>, Seqno>,
    /// Undecided prepares by key.
    pub(super) prepared: BTreeMap<Vec<u8>, Seqno>,
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
            prepared: BTreeMap::new(),
            open: BTreeMap::from([(0, default)]),
            scopes: BTreeSet::from([0]),
        }
    }
}

impl State {
    pub(super) fn follow(&mut self, seqno: Seqno, change: &Change) {
        match change {
            Change::Prepared { key, .. } => {
                self.prepared.insert(key.clone(), seqno);
            }
            Change::GivenUp { key } => {
                self.prepared.remove(key);
            }
            Change::Document { key, gone, .. } => {
                self.prepared.remove(key);
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
                // The begin event may have been in a lost part of a snapshot.
                if let Some(open) = self.open.get_mut(id) {
                    open.ttl = *ttl;
                    // The high seqno of the default collection is for peers without collections.
                    open.high = if *id == 0 { open.high } else { seqno };
                }
            }
            Change::Ended(id) => {
                self.open.remove(id);
                self.documents.retain(|key, _| id_of(key) != *id);
                self.prepared.retain(|key, _| id_of(key) != *id);
            }
            Change::ScopeBegun(id) => {
                self.scopes.insert(*id);
            }
            Change::ScopeEnded(id) => {
                self.scopes.remove(id);
            }
        }
    }

    /// Seqnos of rows of missing collections. An abort may stay: it is purged like a tombstone if
    /// its collection has no other rows.
    pub(super) fn rows_of_the_dead(&self, store: &ModelStore) -> Vec<Seqno> {
        let of_it = |row: &&Document| row.key()[0] != 1 && row.kind() != Kind::Abort;
        let dead = |row: &&Document| of_it(row) && !self.open.contains_key(&id_of(row.key()));
        let found = store.rows.values().filter(dead);
        found.map(Document::seqno).collect()
    }

    /// Returns the changes needed for a manifest: ends before begins.
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
        let mut modified = Vec::new();
        for (scope, collection) in manifest.collections() {
            let (id, ttl) = (collection.id.0, collection.settings.max_ttl_s);
            match self.open.get(&id) {
                None => changes.push(Change::Begun {
                    id,
                    scope: scope.id.0,
                    ttl,
                }),
                Some(open) if open.ttl != ttl => modified.push(Change::Modified { id, ttl }),
                Some(_) => {}
            }
        }
        changes.extend(modified);
        changes
    }
}

/// Every change, including replaced ones.
#[derive(Clone, Default)]
pub(super) struct History {
    pub(super) changes: BTreeMap<Seqno, Change>,
    /// Scope of every collection that ever existed.
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

    /// Returns the change for a streamed document; panics if it never happened.
    pub(super) fn change(&self, document: &Document) -> &Change {
        let change = self.changes.get(&document.seqno());
        let change = change.unwrap_or_else(|| panic!("{document:?} never happened"));
        let kind = document.kind();
        if let Some(key) = change.key() {
            assert_eq!(key, document.key());
        }
        match change {
            Change::Document { gone, expiry, .. } => {
                assert!(!kind.is_prepared() && *gone == kind.is_tombstone());
                assert!(*gone || *expiry == document.expiry(), "{document:?}");
            }
            Change::Prepared { gone, expiry, .. } => {
                assert!(kind.is_prepare() && *gone == (kind == Kind::PrepareDeletion));
                assert!(*gone || *expiry == document.expiry(), "{document:?}");
            }
            Change::GivenUp { .. } => assert_eq!(kind, Kind::Abort),
            _ => assert!(!kind.is_durable()),
        }
        change
    }
}
