//! The table of existing collections, shared by all vBuckets with the same history of manifests.

use model::{CollectionId, ScopeId};

use crate::seqnos::StepNumber;
use crate::{Collection, CollectionChange, CollectionInfo, CollectionSettings, Manifest};

/// Value of a time to live for "limit of the bucket".
pub(crate) const NO_TTL: u32 = u32::MAX;

/// An existing collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) id: u32,
    pub(crate) scope: u32,
    pub(crate) ttl: u32,
    /// Step that began it.
    pub(crate) begun: StepNumber,
    /// Step that modified it last; zero for none.
    pub(crate) modified: StepNumber,
    /// Whether its replaced versions are kept.
    pub(crate) history: bool,
}

/// Scopes and collections, and the steps that led to them. Without seqnos: those differ between
/// vBuckets, so that one table serves all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectionTable {
    pub(crate) default_open: bool,
    pub(crate) default_ttl: u32,
    pub(crate) default_history: bool,
    pub(crate) default_modified: StepNumber,
    /// Ordered by id, without the default collection.
    pub(crate) open: Vec<Open>,
    /// Ordered by id, without the default scope; with the steps that began them.
    pub(crate) scopes: Vec<(u32, StepNumber)>,
    /// Last step.
    pub(crate) steps: StepNumber,
    /// Whether any collection keeps its replaced versions.
    pub(crate) any_history: bool,
}

impl Default for CollectionTable {
    fn default() -> Self {
        Self {
            default_open: true,
            default_ttl: NO_TTL,
            default_history: false,
            default_modified: 0,
            open: Vec::new(),
            scopes: Vec::new(),
            steps: 0,
            any_history: false,
        }
    }
}

fn ttl_of(settings: CollectionSettings) -> u32 {
    settings.max_ttl_s.unwrap_or(NO_TTL)
}

impl CollectionTable {
    pub(crate) fn place(&self, id: u32) -> Result<usize, usize> {
        self.open.binary_search_by_key(&id, |open| open.id)
    }

    pub(crate) fn find(&self, id: u32) -> Option<&Open> {
        Some(&self.open[self.place(id).ok()?])
    }

    /// Whether replaced versions of a collection are kept.
    pub(crate) fn is_historical(&self, id: u32) -> bool {
        if id == CollectionId::DEFAULT.0 {
            return self.default_history;
        }
        self.find(id).is_some_and(|open| open.history)
    }

    /// Returns the step that began a scope; zero for none.
    pub(crate) fn scope_begun(&self, scope: ScopeId) -> StepNumber {
        let found = self.scopes.binary_search_by_key(&scope.0, |one| one.0);
        found.map_or(0, |at| self.scopes[at].1)
    }

    /// Returns the step whose row an event supersedes; zero for none.
    pub(crate) fn superseded(&self, change: &CollectionChange<'_>) -> StepNumber {
        match change {
            CollectionChange::Begun(_) | CollectionChange::ScopeBegun { .. } => 0,
            CollectionChange::Modified(info) if info.id == CollectionId::DEFAULT => {
                self.default_modified
            }
            CollectionChange::Modified(info) => {
                self.find(info.id.0).map_or(0, |open| open.modified)
            }
            CollectionChange::Ended { id, .. } => self.find(id.0).map_or(0, |open| open.begun),
            CollectionChange::ScopeEnded { scope } => self.scope_begun(*scope),
        }
    }

    /// Returns all steps to which the table refers.
    pub(crate) fn steps_in_use(&self) -> Vec<StepNumber> {
        let of_open = self
            .open
            .iter()
            .flat_map(|open| [open.begun, open.modified]);
        let of_scopes = self.scopes.iter().map(|scope| scope.1);
        let all = of_open.chain(of_scopes).chain([self.default_modified]);
        all.filter(|step| *step > 0).collect()
    }

    /// Applies a change as the next step. A repeated change changes little.
    pub(crate) fn apply(&mut self, change: &CollectionChange<'_>) {
        self.steps += 1;
        let step = self.steps;
        match *change {
            CollectionChange::Begun(info) => self.begin(info),
            CollectionChange::Modified(info) => self.modify(info.id, info.settings),
            CollectionChange::Ended { id, .. } if id == CollectionId::DEFAULT => {
                self.default_open = false;
                self.default_history = false;
            }
            CollectionChange::Ended { id, .. } => {
                if let Ok(at) = self.place(id.0) {
                    self.open.remove(at);
                }
            }
            CollectionChange::ScopeBegun { scope, .. } => {
                match self.scopes.binary_search_by_key(&scope.0, |one| one.0) {
                    Ok(at) => self.scopes[at].1 = step,
                    Err(at) => self.scopes.insert(at, (scope.0, step)),
                }
            }
            CollectionChange::ScopeEnded { scope } => self.scopes.retain(|one| one.0 != scope.0),
        }
        let begins = matches!(change, CollectionChange::Begun(info) if !info.settings.history);
        if !begins && !matches!(change, CollectionChange::ScopeBegun { .. }) {
            let any = self.open.iter().any(|open| open.history);
            self.any_history = self.default_history || any;
        }
    }

    fn begin(&mut self, info: CollectionInfo<'_>) {
        if info.id == CollectionId::DEFAULT {
            // The default collection cannot be created again.
            return;
        }
        let begun = Open {
            id: info.id.0,
            scope: info.scope.0,
            ttl: ttl_of(info.settings),
            begun: self.steps,
            modified: 0,
            history: info.settings.history,
        };
        match self.place(begun.id) {
            Ok(at) => {
                let there = &mut self.open[at];
                (there.ttl, there.history) = (begun.ttl, begun.history);
            }
            Err(at) => self.open.insert(at, begun),
        }
    }

    fn modify(&mut self, id: CollectionId, settings: CollectionSettings) {
        let (ttl, history, step) = (ttl_of(settings), settings.history, self.steps);
        if id == CollectionId::DEFAULT {
            self.default_ttl = ttl;
            self.default_modified = step;
            self.default_history = history;
        } else if let Ok(at) = self.place(id.0) {
            let there = &mut self.open[at];
            (there.ttl, there.modified, there.history) = (ttl, step, history);
        }
    }

    /// Returns the events that lead to `manifest`: collections and scopes that end, scopes and
    /// collections that begin, modified collections.
    ///
    /// Cost: O(collections).
    pub(crate) fn differences<'a>(&self, manifest: &'a Manifest) -> Vec<CollectionChange<'a>> {
        let (mut changes, came) = self.collection_differences(manifest);
        for &(scope, _) in &self.scopes {
            let scope = ScopeId(scope);
            if manifest.scope(scope).is_none() {
                changes.push(CollectionChange::ScopeEnded { scope });
            }
        }
        for scope in manifest.scopes() {
            let known = self.scopes.binary_search_by_key(&scope.id.0, |one| one.0);
            if scope.id != ScopeId::DEFAULT && known.is_err() {
                changes.push(CollectionChange::ScopeBegun {
                    scope: scope.id,
                    name: &scope.name,
                });
            }
        }
        let (begun, modified): (Vec<_>, Vec<_>) = came
            .into_iter()
            .partition(|change| matches!(change, CollectionChange::Begun(_)));
        changes.extend(begun);
        changes.extend(modified);
        changes
    }

    /// Returns the collections that end, and those that begin or are modified. Both sides have the
    /// same order.
    fn collection_differences<'a>(&self, manifest: &'a Manifest) -> Differences<'a> {
        let (mut went, mut came) = (Vec::new(), Vec::new());
        let ended = |open: &Open| CollectionChange::Ended {
            scope: ScopeId(open.scope),
            id: CollectionId(open.id),
        };
        if self.default_open && manifest.collection(CollectionId::DEFAULT).is_none() {
            went.push(CollectionChange::Ended {
                scope: ScopeId::DEFAULT,
                id: CollectionId::DEFAULT,
            });
        }
        let mut here = self.open.iter().peekable();
        for (scope, collection) in manifest.collections() {
            while let Some(open) = here.next_if(|open| open.id < collection.id.0) {
                went.push(ended(open));
            }
            let open = here.next_if(|open| open.id == collection.id.0);
            came.extend(self.difference(scope.id, collection, open));
        }
        went.extend(here.map(ended));
        (went, came)
    }

    fn difference<'a>(
        &self,
        scope: ScopeId,
        collection: &'a Collection,
        open: Option<&Open>,
    ) -> Option<CollectionChange<'a>> {
        let info = CollectionInfo {
            scope,
            id: collection.id,
            name: &collection.name,
            settings: collection.settings,
        };
        let (ttl, history) = if info.id == CollectionId::DEFAULT {
            // A dropped default collection is not created again.
            let known = (self.default_ttl, self.default_history);
            self.default_open.then_some(known)?
        } else if let Some(open) = open {
            (open.ttl, open.history)
        } else {
            return Some(CollectionChange::Begun(info));
        };
        let same = (ttl, history) == (ttl_of(info.settings), info.settings.history);
        (!same).then_some(CollectionChange::Modified(info))
    }
}

/// Changes that end collections, and changes that begin or modify them.
type Differences<'a> = (Vec<CollectionChange<'a>>, Vec<CollectionChange<'a>>);
