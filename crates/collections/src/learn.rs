//! A manifest reconstructed from the events of vBuckets: for a node that follows another one, and
//! to replace a lost manifest file.

use crate::{Collection, CollectionChange, Manifest, Scope, SystemEvent};

impl Manifest {
    /// Returns the manifest after `event`; `None` if the event is not new.
    ///
    /// Every vBucket has the same events, at different times. Events older than the manifest are
    /// ignored, and repeated ones change nothing, so the order of the vBuckets does not matter.
    ///
    /// Cost: O(collections) for a new event.
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
    /// Whether the manifest already includes the event; every vBucket repeats most events.
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
            // The previous scope of this name has ended, even if its end event was purged.
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
