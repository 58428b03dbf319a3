//! What a vBucket keeps of its collections.

use model::{CollectionId, Document, ManifestUid, ScopeId, Seqno, split_key};

use super::{Collection, CollectionChange, CollectionSettings, Living, Manifest, SystemEvent};

/// In [`Open::ttl`]: the bucket's limit holds.
const NO_TTL: u32 = u32::MAX;
/// In [`Open::counts`]: nothing was counted yet.
const UNTOUCHED: u32 = u32::MAX;

/// A collection that is here. 32 bytes, since there may be a thousand in each vBucket.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Its beginning; the seqno of the row that says so.
    start: Seqno,
    /// Seqno of the row of its last modification, zero for none.
    modified: Seqno,
    id: u32,
    scope: u32,
    ttl: u32,
    /// Where its figures are.
    counts: u32,
}

/// Figures of a collection in a vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionCounts {
    /// The collection.
    pub id: CollectionId,
    /// Live documents.
    pub items: u64,
    /// Bytes of its documents and tombstones in memory, as allocated.
    pub memory_bytes: u64,
    /// Its newest change.
    pub high_seqno: Seqno,
    /// Reads served.
    pub ops_get: u64,
    /// Documents created and changed.
    pub ops_store: u64,
    /// Documents deleted.
    pub ops_delete: u64,
}

/// A collection of a vBucket, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCollection {
    /// Its scope.
    pub scope: ScopeId,
    /// Where it began here.
    pub start_seqno: Seqno,
    /// Longest time to live; `None` for the bucket's.
    pub max_ttl_s: Option<u32>,
    /// Its figures.
    pub counts: CollectionCounts,
}

/// The collections of a vBucket.
///
/// Cost: nothing is allocated while there is only the default collection; else 32 bytes for a
/// collection, and 56 for one that was ever used here.
#[derive(Clone, Debug)]
pub(crate) struct VbCollections {
    /// The newest manifest of which something is noted here.
    uid: ManifestUid,
    default_open: bool,
    default_ttl: u32,
    default_modified: Seqno,
    default_high: Seqno,
    /// By number, without the default collection.
    open: Vec<Open>,
    /// By number, without the default scope; with the rows that say so.
    scopes: Vec<(u32, Seqno)>,
    counts: Vec<CollectionCounts>,
    /// Numbers of those whose replaced versions are kept, ascending; the default one as well.
    historical: Box<[u32]>,
    /// Figures of what was dropped and is still in the table.
    dead: CollectionCounts,
    /// The newest end of a collection whose rows may still be in the store; zero for none.
    dead_end: Seqno,
}

/// What went, and what came.
type Differences<'a> = (Vec<CollectionChange<'a>>, Vec<CollectionChange<'a>>);

impl Default for VbCollections {
    fn default() -> Self {
        Self {
            uid: ManifestUid(0),
            default_open: true,
            default_ttl: NO_TTL,
            default_modified: Seqno::ZERO,
            default_high: Seqno::ZERO,
            open: Vec::new(),
            scopes: Vec::new(),
            counts: Vec::new(),
            historical: Box::default(),
            dead: CollectionCounts::default(),
            dead_end: Seqno::ZERO,
        }
    }
}

fn id_of(key: &[u8]) -> u32 {
    split_key(key).map_or(0, |(id, _)| id.0)
}

fn is_default(key: &[u8]) -> bool {
    key.first() == Some(&0)
}

fn ttl_of(settings: CollectionSettings) -> u32 {
    settings.max_ttl_s.unwrap_or(NO_TTL)
}

impl VbCollections {
    fn place(&self, id: u32) -> Result<usize, usize> {
        self.open.binary_search_by_key(&id, |open| open.id)
    }

    /// Whether the collection is here.
    pub(crate) fn is_open(&self, id: CollectionId) -> bool {
        if id == CollectionId::DEFAULT {
            self.default_open
        } else {
            self.place(id.0).is_ok()
        }
    }

    /// Whether the collection of a stored key is here.
    #[inline]
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        if is_default(key) {
            self.default_open
        } else {
            self.place(id_of(key)).is_ok()
        }
    }

    /// The limit of the time to live of a key's collection; `None` for the bucket's.
    #[inline]
    pub(crate) fn max_ttl_s(&self, key: &[u8]) -> Option<u32> {
        let ttl = if is_default(key) {
            self.default_ttl
        } else {
            self.place(id_of(key))
                .map_or(NO_TTL, |at| self.open[at].ttl)
        };
        (ttl != NO_TTL).then_some(ttl)
    }

    /// Whether replaced versions of a key's documents are kept, where the bucket keeps any.
    pub(crate) fn keeps_history(&self, key: &[u8]) -> bool {
        !self.historical.is_empty() && self.is_historical(id_of(key))
    }

    fn is_historical(&self, id: u32) -> bool {
        self.historical.binary_search(&id).is_ok()
    }

    fn set_historical(&mut self, id: u32, historical: bool) {
        if self.is_historical(id) == historical {
            return;
        }
        let others = self.historical.iter().copied().filter(|one| *one != id);
        let mut all: Vec<u32> = others.chain(historical.then_some(id)).collect();
        all.sort_unstable();
        self.historical = all.into();
    }

    /// Whether an event begins or ends the history of a collection that is here.
    pub(crate) fn switches_history(&self, change: &CollectionChange<'_>) -> bool {
        match change {
            CollectionChange::Modified { id, settings, .. } => {
                settings.history != self.is_historical(id.0)
            }
            _ => false,
        }
    }

    /// The newest manifest of which something is noted here.
    pub(crate) fn uid(&self) -> ManifestUid {
        self.uid
    }

    /// Everything of a manifest is noted here.
    pub(crate) fn caught_up(&mut self, uid: ManifestUid) {
        self.uid = self.uid.max(uid);
    }

    // --- Figures ---

    /// The figures of a key's collection, or of all that is dead. Not of the default collection:
    /// those are what the vBucket's have beyond all others.
    fn counts_mut(&mut self, key: &[u8]) -> &mut CollectionCounts {
        let id = id_of(key);
        let Ok(at) = self.open.binary_search_by_key(&id, |open| open.id) else {
            return &mut self.dead;
        };
        let open = &mut self.open[at];
        if open.counts == UNTOUCHED {
            open.counts = self.counts.len() as u32;
            self.counts.push(CollectionCounts {
                id: CollectionId(id),
                ..CollectionCounts::default()
            });
        }
        &mut self.counts[open.counts as usize]
    }

    /// Whether the figures of a key's collection are not kept, but what others leave over.
    fn derives(&self, key: &[u8]) -> bool {
        is_default(key) && self.default_open
    }

    /// Of a key the table held `old`, and holds `new` from now on.
    #[inline]
    pub(crate) fn replaced(&mut self, new: &Document, old: Option<&Document>) {
        if is_default(new.key()) {
            self.default_high = new.seqno();
        } else {
            self.count_replaced(new, old);
        }
    }

    fn count_replaced(&mut self, new: &Document, old: Option<&Document>) {
        let counts = self.counts_mut(new.key());
        counts.high_seqno = counts.high_seqno.max(new.seqno());
        if let Some(old) = old {
            // A replica may have had it before its collection, if it was told so.
            let (bytes, live) = (old.memory_bytes() as u64, !old.kind().is_tombstone());
            counts.memory_bytes = counts.memory_bytes.saturating_sub(bytes);
            counts.items = counts.items.saturating_sub(live.into());
        }
        counts.memory_bytes += new.memory_bytes() as u64;
        counts.items += u64::from(!new.kind().is_tombstone());
    }

    /// A document of the table changed its size, or left it and is still there.
    pub(crate) fn resized(&mut self, key: &[u8], before: usize, after: usize) {
        if !self.derives(key) {
            let counts = self.counts_mut(key);
            let grown = counts.memory_bytes + after as u64;
            counts.memory_bytes = grown.saturating_sub(before as u64);
        }
    }

    /// A document left the table for good.
    pub(crate) fn removed(&mut self, document: &Document) {
        let key = document.key();
        if !self.derives(key) {
            let (bytes, live) = (document.memory_bytes(), !document.kind().is_tombstone());
            let counts = self.counts_mut(key);
            counts.memory_bytes = counts.memory_bytes.saturating_sub(bytes as u64);
            counts.items = counts.items.saturating_sub(live.into());
        }
    }

    /// A document that was not in memory is not there any more.
    pub(crate) fn removed_evicted(&mut self, key: &[u8], tombstone: bool) {
        if !self.derives(key) {
            let counts = self.counts_mut(key);
            counts.items = counts.items.saturating_sub(u64::from(!tombstone));
        }
    }

    /// Counts what a client did.
    #[inline]
    pub(crate) fn count(&mut self, key: &[u8], what: impl FnOnce(&mut CollectionCounts)) {
        if !is_default(key) {
            what(self.counts_mut(key));
        }
    }

    /// Figures of the collections that were ever used here, but for the default one; in no order.
    pub(crate) fn counts(&self) -> &[CollectionCounts] {
        &self.counts
    }

    /// Figures of what was dropped and is still in memory.
    pub(crate) fn dead(&self) -> &CollectionCounts {
        &self.dead
    }

    /// The newest change of the default collection.
    pub(crate) fn default_high(&self) -> Seqno {
        self.default_high
    }

    /// The newest change of a collection; where it begins while there is none. `None` when it
    /// is not here.
    pub(crate) fn high_seqno(&self, id: CollectionId) -> Option<Seqno> {
        if id == CollectionId::DEFAULT {
            return self.default_open.then_some(self.default_high);
        }
        let open = &self.open[self.place(id.0).ok()?];
        let counts = self.counts.get(open.counts as usize);
        let high = counts.map_or(Seqno::ZERO, |counts| counts.high_seqno);
        Some(high.max(open.start).max(open.modified))
    }

    /// The rows that say what became of a collection, zero for none. `None` when it is not here.
    pub(crate) fn rows_of(&self, id: CollectionId) -> Option<[Seqno; 2]> {
        if id == CollectionId::DEFAULT {
            return self
                .default_open
                .then_some([self.default_modified, Seqno::ZERO]);
        }
        let open = &self.open[self.place(id.0).ok()?];
        Some([open.start, open.modified])
    }

    /// Every collection but the default one, with its figures.
    pub(crate) fn all(&self) -> impl Iterator<Item = OpenCollection> {
        self.open.iter().map(|open| {
            let id = CollectionId(open.id);
            let untouched = CollectionCounts {
                id,
                ..CollectionCounts::default()
            };
            let mut counts = *self.counts.get(open.counts as usize).unwrap_or(&untouched);
            counts.high_seqno = counts.high_seqno.max(open.start).max(open.modified);
            OpenCollection {
                scope: ScopeId(open.scope),
                start_seqno: open.start,
                max_ttl_s: (open.ttl != NO_TTL).then_some(open.ttl),
                counts,
            }
        })
    }

    /// The numbers of the collections of a scope.
    pub(crate) fn of_scope(&self, scope: ScopeId) -> Vec<CollectionId> {
        let default = scope == ScopeId::DEFAULT && self.default_open;
        let others = self.open.iter().filter(|open| open.scope == scope.0);
        let others = others.map(|open| CollectionId(open.id));
        let default = default.then_some(CollectionId::DEFAULT).into_iter();
        default.chain(others).collect()
    }

    /// Whether there are, or were, others than the default one.
    pub(crate) fn is_plain(&self) -> bool {
        self.uid == ManifestUid(0) && self.open.is_empty() && self.default_open
    }

    /// The numbers of all scopes, ascending.
    pub(crate) fn scopes(&self) -> Vec<ScopeId> {
        let others = self.scopes.iter().map(|scope| ScopeId(scope.0));
        std::iter::once(ScopeId::DEFAULT).chain(others).collect()
    }

    // --- What is dead ---

    /// Whether anything that was dropped is still in memory or in the store.
    pub(crate) fn has_dead(&self) -> bool {
        self.dead_end > Seqno::ZERO
    }

    /// The seqno that must be in the store before what is dead can be taken out of it.
    pub(crate) fn dead_end(&self) -> Seqno {
        self.dead_end
    }

    /// A row was found whose collection is gone.
    pub(crate) fn found_dead(&mut self, seqno: Seqno) {
        self.dead_end = self.dead_end.max(seqno);
    }

    /// Everything that ended up to `end` is out of the store and of memory.
    pub(crate) fn erased(&mut self, end: Seqno) {
        if self.dead_end <= end {
            self.dead_end = Seqno::ZERO;
            if self.dead.high_seqno <= end {
                self.dead = CollectionCounts::default();
            }
        }
    }

    /// Which rows mean something, with every change up to `up_to`.
    pub(crate) fn living(&self, up_to: Seqno) -> Living {
        let default = self.default_open.then_some((0, Seqno::ZERO)).into_iter();
        let others = self.open.iter().map(|open| (open.id, open.start));
        Living::new(up_to, default.chain(others).collect())
    }

    // --- Changes ---

    /// The row that an event takes the place of; zero for none.
    pub(crate) fn superseded(&self, change: &CollectionChange<'_>) -> Seqno {
        match change {
            CollectionChange::Begun { .. } | CollectionChange::ScopeBegun { .. } => Seqno::ZERO,
            CollectionChange::Modified { id, .. } if *id == CollectionId::DEFAULT => {
                self.default_modified
            }
            CollectionChange::Modified { id, .. } => self
                .place(id.0)
                .map_or(Seqno::ZERO, |at| self.open[at].modified),
            CollectionChange::Ended { id, .. } => self
                .place(id.0)
                .map_or(Seqno::ZERO, |at| self.open[at].start),
            CollectionChange::ScopeEnded { scope } => {
                let found = self.scopes.binary_search_by_key(&scope.0, |one| one.0);
                found.map_or(Seqno::ZERO, |at| self.scopes[at].1)
            }
        }
    }

    /// Takes note of an event at `seqno`. One that says what is known already changes little.
    pub(crate) fn apply(&mut self, event: &SystemEvent<'_>, seqno: Seqno) {
        self.uid = self.uid.max(event.manifest);
        match event.change {
            CollectionChange::Begun {
                scope,
                id,
                settings,
                ..
            } => self.begin(scope, id, settings, seqno),
            CollectionChange::Modified { id, settings, .. } => self.modify(id, settings, seqno),
            CollectionChange::Ended { id, .. } => self.end(id, seqno),
            CollectionChange::ScopeBegun { scope, .. } => {
                match self.scopes.binary_search_by_key(&scope.0, |one| one.0) {
                    Ok(at) => self.scopes[at].1 = seqno,
                    Err(at) => self.scopes.insert(at, (scope.0, seqno)),
                }
            }
            CollectionChange::ScopeEnded { scope } => self.scopes.retain(|one| one.0 != scope.0),
        }
    }

    fn begin(
        &mut self,
        scope: ScopeId,
        id: CollectionId,
        settings: CollectionSettings,
        seqno: Seqno,
    ) {
        if id == CollectionId::DEFAULT {
            // It does not come back.
            return;
        }
        let begun = Open {
            start: seqno,
            modified: Seqno::ZERO,
            id: id.0,
            scope: scope.0,
            ttl: ttl_of(settings),
            counts: UNTOUCHED,
        };
        self.set_historical(id.0, settings.history);
        match self.place(id.0) {
            Ok(at) => self.open[at].ttl = begun.ttl,
            Err(at) => self.open.insert(at, begun),
        }
    }

    fn modify(&mut self, id: CollectionId, settings: CollectionSettings, seqno: Seqno) {
        if id == CollectionId::DEFAULT {
            self.default_ttl = ttl_of(settings);
            self.default_modified = seqno;
        } else if let Ok(at) = self.place(id.0) {
            self.open[at].ttl = ttl_of(settings);
            self.open[at].modified = seqno;
        } else {
            return;
        }
        self.set_historical(id.0, settings.history);
    }

    fn end(&mut self, id: CollectionId, seqno: Seqno) {
        self.set_historical(id.0, false);
        if id == CollectionId::DEFAULT {
            if self.default_open && self.default_high > Seqno::ZERO {
                self.dead_end = seqno;
            }
            self.default_open = false;
            return;
        }
        let Ok(at) = self.place(id.0) else {
            // Of documents that came without a beginning the store may have rows.
            if self.dead.high_seqno > Seqno::ZERO {
                self.dead_end = seqno;
            }
            return;
        };
        let open = self.open.remove(at);
        if open.modified > Seqno::ZERO {
            self.dead_end = seqno;
        }
        if open.counts == UNTOUCHED {
            return;
        }
        self.dead_end = seqno;
        let counts = self.counts.swap_remove(open.counts as usize);
        self.dead.items += counts.items;
        self.dead.memory_bytes += counts.memory_bytes;
        if let Some(moved) = self.counts.get(open.counts as usize)
            && let Ok(at) = self.place(moved.id.0)
        {
            self.open[at].counts = open.counts;
        }
    }

    /// The default collection had these figures when it was dropped.
    pub(crate) fn default_died(&mut self, items: u64, memory_bytes: u64) {
        self.dead.items += items;
        self.dead.memory_bytes += memory_bytes;
    }

    /// The next few events that lead to `manifest`: what went, what came, what changed.
    ///
    /// Cost: O(collections).
    pub(crate) fn differences<'a>(
        &self,
        manifest: &'a Manifest,
        most: usize,
    ) -> Vec<CollectionChange<'a>> {
        let (mut changes, came) = self.collection_differences(manifest);
        for &(scope, _) in &self.scopes {
            if manifest.scope(ScopeId(scope)).is_none() {
                changes.push(CollectionChange::ScopeEnded {
                    scope: ScopeId(scope),
                });
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
        changes.extend(came);
        changes.truncate(most);
        changes
    }

    /// Which collections went; which ones came or changed. Both sides are in the same order.
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
        let (id, name, settings) = (collection.id, &*collection.name, collection.settings);
        let ttl = if id == CollectionId::DEFAULT {
            // One that was dropped does not come back.
            self.default_open.then_some(self.default_ttl)?
        } else if let Some(open) = open {
            open.ttl
        } else {
            return Some(CollectionChange::Begun {
                scope,
                id,
                name,
                settings,
            });
        };
        let same = ttl == ttl_of(settings) && self.is_historical(id.0) == settings.history;
        (!same).then_some(CollectionChange::Modified {
            scope,
            id,
            name,
            settings,
        })
    }

    /// Bytes beyond the vBucket's own.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.open.capacity() * size_of::<Open>()
            + self.scopes.capacity() * size_of::<(u32, Seqno)>()
            + self.counts.capacity() * size_of::<CollectionCounts>()
            + size_of_val(&*self.historical)
    }
}
