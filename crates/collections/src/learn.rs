//! A manifest put together from the events of the vBuckets: how a node that follows another one
//! knows what exists there, and how one is made anew whose file was lost.

use crate::{Collection, CollectionChange, Manifest, Scope, SystemEvent};

impl Manifest {
    /// What the manifest is after `event`; `None` when it says nothing new.
    ///
    /// Every vBucket has the same events, each in its own time. What is older than the manifest
    /// is passed over, and what is there already is not there twice, so the order in which
    /// vBuckets tell them does not matter.
    ///
    /// Cost: O(collections) for what is new.
    pub fn learned(&self, event: &SystemEvent<'_>) -> Option<Self> {
        if event.manifest < self.uid() || self.says(event) {
            return None;
        }
        let mut scopes = self.scopes().to_vec();
        learn(&mut scopes, event.change);
        let learned = Self::new(event.manifest, scopes).ok()?;
        (learned != *self).then_some(learned)
    }
}

impl Manifest {
    /// Whether the manifest says the same already; most events are told by every vBucket.
    fn says(&self, event: &SystemEvent<'_>) -> bool {
        let same = match event.change {
            CollectionChange::ScopeBegun { scope, .. } => self.scope(scope).is_some(),
            CollectionChange::ScopeEnded { scope } => self.scope(scope).is_none(),
            CollectionChange::Begun(info) | CollectionChange::Modified(info) => self
                .collection(info.id)
                .is_some_and(|(_, there)| there.settings == info.settings),
            CollectionChange::Ended { id, .. } => self.collection(id).is_none(),
        };
        same && event.manifest == self.uid()
    }
}

fn learn(scopes: &mut Vec<Scope>, change: CollectionChange<'_>) {
    match change {
        CollectionChange::ScopeBegun { scope, name } => {
            // The scope that had the name has ended, even if its end is told no more.
            scopes.retain(|one| one.id == scope || &*one.name != name);
            if scopes.iter().all(|one| one.id != scope) {
                scopes.push(Scope {
                    id: scope,
                    name: name.into(),
                    collections: Vec::new(),
                });
            }
        }
        CollectionChange::ScopeEnded { scope } => scopes.retain(|one| one.id != scope),
        CollectionChange::Begun(info) | CollectionChange::Modified(info) => {
            let Some(scope) = scopes.iter_mut().find(|one| one.id == info.scope) else {
                return;
            };
            let collections = &mut scope.collections;
            collections.retain(|one| one.id == info.id || &*one.name != info.name);
            match collections.iter_mut().find(|one| one.id == info.id) {
                Some(there) => there.settings = info.settings,
                None => collections.push(Collection {
                    id: info.id,
                    name: info.name.into(),
                    settings: info.settings,
                }),
            }
        }
        CollectionChange::Ended { id, .. } => {
            for scope in scopes {
                scope.collections.retain(|one| one.id != id);
            }
        }
    }
}
