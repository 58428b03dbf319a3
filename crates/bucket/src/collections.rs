//! The collections of a bucket: the manifest and its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use collections::{
    Collection, CollectionChange, CollectionCounts, CollectionSettings, Manifest, ManifestError,
    ManifestPlanner, OpenCollection, Scope, SharedCollections, SummaryWriter, SystemEvent,
    events_of,
};
use model::{CollectionId, Document, ManifestUid, Now, ScopeId, VbId, VbState};
use parking_lot::{Mutex, RwLock};
use storage::{KvStore, StoreError};

use crate::Bucket;
use crate::holds::Hold;

/// Maximum number of events that one vBucket records under one lock hold.
const STEPS_PER_HOLD: usize = 16;

/// Collections of a bucket.
#[derive(Debug, Default)]
pub(crate) struct Collections {
    current: RwLock<Arc<Manifest>>,
    /// Held while the manifest changes, also through I/O. Taken before all other locks.
    changing: Mutex<()>,
    /// Number of the current manifest, readable without the lock.
    uid: AtomicU64,
    /// Whether the default collection is dropped, readable without the lock.
    default_dropped: AtomicBool,
    /// Whether dropped collections may have documents to erase.
    pub(crate) erase: AtomicBool,
    /// Whether the store's summary of events lacks a change.
    pub(crate) unsummarized: AtomicBool,
    /// Numbers of dropped scopes and collections, as far as the store or this run knows. They
    /// cannot be used again: their documents and end events may exist for a long time.
    dropped: Mutex<Dropped>,
    /// Names from the events of vBuckets, also of dropped scopes and collections.
    names: Mutex<Names>,
    /// Collections that most vBuckets have in common. May be locked under the lock of one vBucket.
    shared: Mutex<SharedCollections>,
}

/// Names of scopes; names of collections with their history setting.
#[derive(Debug, Default)]
struct Names {
    scopes: BTreeMap<ScopeId, Box<str>>,
    collections: BTreeMap<CollectionId, (Box<str>, bool)>,
}

impl Names {
    /// Builds the manifest of a vBucket's collections; `None` if a name is missing.
    fn manifest(
        &self,
        uid: ManifestUid,
        scopes: &[ScopeId],
        collections: &[OpenCollection],
    ) -> Option<Manifest> {
        let mut all = Vec::with_capacity(scopes.len());
        for &id in scopes {
            let name = match id {
                ScopeId::DEFAULT => "_default".into(),
                id => self.scopes.get(&id)?.clone(),
            };
            let mut scope = Scope {
                id,
                name,
                collections: Vec::new(),
            };
            for one in collections.iter().filter(|one| one.scope == id) {
                let id = one.counts.id;
                let (name, history) = match self.collections.get(&id) {
                    Some((name, history)) => (name.clone(), *history),
                    None if id == CollectionId::DEFAULT => ("_default".into(), false),
                    None => return None,
                };
                let max_ttl_s = one.max_ttl_s;
                let settings = CollectionSettings { max_ttl_s, history };
                scope.collections.push(Collection { id, name, settings });
            }
            all.push(scope);
        }
        Manifest::new(uid, all).ok()
    }
}

#[derive(Debug, Default)]
struct Dropped {
    scopes: BTreeSet<ScopeId>,
    collections: BTreeSet<CollectionId>,
}

impl Dropped {
    /// Adds the scopes and collections that `next` lacks.
    fn note(&mut self, current: &Manifest, next: &Manifest) {
        let ids = current.collections().map(|(_, collection)| collection.id);
        let ended = ids.filter(|id| next.collection(*id).is_none());
        self.collections.extend(ended);
        let ids = current.scopes().iter().map(|scope| scope.id);
        let ended = ids.filter(|id| next.scope(*id).is_none());
        self.scopes.extend(ended);
    }

    /// Checks that `next` adds no number that was dropped earlier.
    fn check(&self, current: &Manifest, next: &Manifest) -> Result<(), ManifestError> {
        let again = |id| self.collections.contains(&id) && current.collection(id).is_none();
        let mut ids = next.collections().map(|(_, collection)| collection.id);
        let collection = ids.any(again);
        let again = |id| self.scopes.contains(&id) && current.scope(id).is_none();
        if collection || next.scopes().iter().any(|scope| again(scope.id)) {
            return Err(ManifestError::NoSuccessor(
                "a uid that was dropped comes again",
            ));
        }
        Ok(())
    }
}

/// Reason why a manifest was not accepted.
#[derive(Debug)]
pub enum SetManifestError {
    /// The manifest does not follow the current one.
    Refused(ManifestError),
    /// The store could not save the manifest.
    Store(StoreError),
    /// The bucket is being loaded or stopped.
    NotNow,
}

impl fmt::Display for SetManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::NotNow => f.write_str("the bucket is being loaded or stopped"),
        }
    }
}

impl std::error::Error for SetManifestError {}

impl From<ManifestError> for SetManifestError {
    fn from(error: ManifestError) -> Self {
        Self::Refused(error)
    }
}

impl Collections {
    /// Adds numbers of dropped scopes and collections.
    pub(crate) fn learn_dropped(&self, collections: &[CollectionId], scopes: &[ScopeId]) {
        let mut dropped = self.dropped.lock();
        dropped.collections.extend(collections);
        dropped.scopes.extend(scopes);
    }

    /// Completes a summary with the dropped numbers.
    pub(crate) fn finish_summary(&self, summary: SummaryWriter) -> Vec<u8> {
        let dropped = self.dropped.lock();
        let (collections, scopes) = (dropped.collections.iter(), dropped.scopes.iter());
        summary.finish(collections.copied(), scopes.copied())
    }

    /// Whether `id` is known as the number of a dropped collection.
    pub(crate) fn was_dropped(&self, id: CollectionId) -> bool {
        self.dropped.lock().collections.contains(&id)
    }
}

impl<S: KvStore> Bucket<S> {
    /// Returns the current manifest.
    pub fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.collections.current.read())
    }

    /// Returns the number of the current manifest. Cost: one load.
    pub fn manifest_uid(&self) -> ManifestUid {
        ManifestUid(self.collections.uid.load(Ordering::Acquire))
    }

    /// Whether a collection exists. For the default collection this reads one flag.
    pub fn knows_collection(&self, id: CollectionId) -> bool {
        if id == CollectionId::DEFAULT {
            return !self.collections.default_dropped.load(Ordering::Relaxed);
        }
        self.collections.current.read().collection(id).is_some()
    }

    /// Changes the manifest. `edit` makes the next manifest from the current one; `encode` makes
    /// the text that the store saves. Concurrent changes wait for each other. When this returns,
    /// every active vBucket has the new manifest.
    ///
    /// Returns the current manifest, and whether it changed.
    ///
    /// # Errors
    /// See [`SetManifestError`]; then nothing was changed.
    ///
    /// Cost: a sync of the store, and O(collections) under the lock of each vBucket.
    pub fn change_manifest(
        &self,
        edit: impl FnOnce(&Manifest) -> Result<Manifest, ManifestError>,
        encode: impl FnOnce(&Manifest) -> Vec<u8>,
    ) -> Result<(Arc<Manifest>, bool), SetManifestError> {
        if self.warmup().stage() != crate::WarmupStage::Done || self.is_stopping() {
            return Err(SetManifestError::NotNow);
        }
        let _turn = self.collections.changing.lock();
        let current = self.manifest();
        let next = edit(&current)?;
        if !current.check_successor(&next)? {
            return Ok((current, false));
        }
        self.collections.dropped.lock().check(&current, &next)?;
        self.store
            .set_manifest(&encode(&next))
            .map_err(SetManifestError::Store)?;
        self.collections.dropped.lock().note(&current, &next);
        let next = Arc::new(next);
        // A collection's number is published only after every vBucket can use it.
        let mut planner = ManifestPlanner::new(&next, STEPS_PER_HOLD);
        let now = self.clock.now();
        for id in (0..self.vbuckets()).map(VbId) {
            self.apply_manifest(id, &mut planner, now);
        }
        self.publish_manifest(Arc::clone(&next));
        self.end_scans_of_dropped();
        self.erase_soon();
        Ok((next, true))
    }

    fn publish_manifest(&self, manifest: Arc<Manifest>) {
        let default = manifest.collection(CollectionId::DEFAULT).is_some();
        let uid = manifest.uid().0;
        *self.collections.current.write() = manifest;
        self.collections.uid.store(uid, Ordering::Release);
        self.collections
            .default_dropped
            .store(!default, Ordering::Relaxed);
    }

    /// Applies a manifest to an active vBucket that is not sealed, in steps.
    fn apply_manifest(&self, id: VbId, planner: &mut ManifestPlanner<'_>, now: Now) {
        loop {
            let before = self.newest(id);
            let finished = self.with_vbucket_for(Hold::Collections, id, |vbucket| {
                self.is_sealed(id) || vbucket.apply_manifest(planner, now)
            });
            if self.newest(id) != before {
                self.summarize_later();
            }
            if finished != Some(false) {
                return;
            }
        }
    }

    /// Applies the current manifest to an active vBucket that was created, promoted or loaded.
    pub(crate) fn bring_to_manifest(&self, id: VbId) {
        let active = self.with_vbucket(id, |vbucket| vbucket.state() == VbState::Active);
        if active == Some(true) {
            self.bring_all_to_manifest(std::iter::once(id));
        }
    }

    /// Applies the current manifest to some active vBuckets.
    pub(crate) fn bring_all_to_manifest(&self, ids: impl Iterator<Item = VbId>) {
        // A change under way may have skipped a vBucket while it was a replica, so wait for its end.
        let turn = self.collections.changing.lock();
        let manifest = self.manifest();
        let mut planner = ManifestPlanner::new(&manifest, STEPS_PER_HOLD);
        let now = self.clock.now();
        for id in ids {
            self.apply_manifest(id, &mut planner, now);
            self.share_collections(id);
        }
        drop(turn);
    }

    /// Lets a vBucket share its collections with other vBuckets.
    pub(crate) fn share_collections(&self, id: VbId) {
        self.with_vbucket(id, |vbucket| {
            vbucket.share_collections(&mut self.collections.shared.lock());
        });
    }

    /// Restores a saved manifest, before the workers start.
    pub fn restore_manifest(&self, manifest: Manifest) {
        self.publish_manifest(Arc::new(manifest));
    }

    /// Saves the current manifest. A bucket that follows another node's builds its manifest from
    /// events of its vBuckets, and saves it only once it is independent.
    ///
    /// # Errors
    /// The store's.
    pub fn keep_manifest(
        &self,
        encode: impl FnOnce(&Manifest) -> Vec<u8>,
    ) -> Result<(), StoreError> {
        let _turn = self.collections.changing.lock();
        self.store.set_manifest(&encode(&self.manifest()))
    }

    /// Rebuilds the manifest after the rollback of a replica vBucket took back events of
    /// collections; `events` are the remaining ones. The manifest becomes the one of the vBucket
    /// with the highest manifest number; in a cluster it stays.
    pub(crate) fn relearn(&self, events: &[Document]) {
        for event in events.iter().flat_map(events_of) {
            self.note_names(&event);
        }
        if self.is_manifest_agreed() {
            return;
        }
        let _turn = self.collections.changing.lock();
        let mut ahead = (ManifestUid(0), VbId(0));
        for id in (0..self.vbuckets()).map(VbId) {
            let found = self.with_vbucket(id, |vbucket| (vbucket.state(), vbucket.manifest_uid()));
            match found {
                Some((VbState::Active, _)) => return,
                Some((_, uid)) => ahead = ahead.max((uid, id)),
                None => {}
            }
        }
        let there = self.with_vbucket(ahead.1, |vbucket| {
            (
                vbucket.manifest_uid(),
                vbucket.scopes(),
                vbucket.collections(),
            )
        });
        let Some((uid, scopes, collections)) = there else {
            return;
        };
        let made = self
            .collections
            .names
            .lock()
            .manifest(uid, &scopes, &collections);
        match made {
            Some(made) if made != *self.manifest() => self.publish_manifest(Arc::new(made)),
            Some(_) => {}
            None => tracing::error!(bucket = self.name(), "a collection without a name"),
        }
    }

    fn note_names(&self, event: &SystemEvent<'_>) {
        let mut names = self.collections.names.lock();
        match event.change {
            CollectionChange::ScopeBegun { scope, name } => {
                names.scopes.entry(scope).or_insert_with(|| name.into());
            }
            CollectionChange::Begun(info) | CollectionChange::Modified(info) => {
                // Every vBucket has the same events, so usually nothing is new.
                let known = names.collections.get(&info.id);
                let latest = (info.name, info.settings.history);
                if known.map(|(name, history)| (&**name, *history)) != Some(latest) {
                    let of_it = (info.name.into(), info.settings.history);
                    names.collections.insert(info.id, of_it);
                }
            }
            _ => {}
        }
    }

    /// Whether the nodes of a cluster agree on the manifest. Events of vBuckets do not change it then, because
    /// active vBuckets may not have them yet.
    fn is_manifest_agreed(&self) -> bool {
        self.leases().is_some()
    }

    /// Learns from events of the store or of another node: the manifest follows them, unless it is
    /// newer, or agreed on in a cluster.
    pub(crate) fn learn_event(&self, document: &Document) {
        if self.warmup().stage() == crate::WarmupStage::Done {
            self.summarize_later();
        }
        for event in events_of(document) {
            self.learn(&event);
        }
    }

    /// Lets the compactor write a summary of events some time after it is woken.
    pub(crate) fn summarize_later(&self) {
        self.collections.unsummarized.store(true, Ordering::SeqCst);
    }

    fn learn(&self, event: &SystemEvent<'_>) {
        self.note_names(event);
        match event.change {
            CollectionChange::Ended { id, .. } => {
                self.collections.dropped.lock().collections.insert(id);
            }
            CollectionChange::ScopeEnded { scope } => {
                self.collections.dropped.lock().scopes.insert(scope);
            }
            _ => {}
        }
        self.erase_soon();
        if self.is_manifest_agreed() || event.manifest < self.manifest().uid() {
            return;
        }
        let _turn = self.collections.changing.lock();
        if let Some(learned) = self.manifest().learned(event) {
            self.publish_manifest(Arc::new(learned));
        }
    }

    /// Adds the figures of collections in some vBuckets to `sums`. `sums` lists the wanted
    /// collections, sorted by number.
    ///
    /// Cost: copies 56 bytes under each vBucket's lock for each collection ever used there.
    pub fn add_collection_counts(&self, vbuckets: Range<u16>, sums: &mut [CollectionCounts]) {
        let mut counts = Vec::with_capacity(sums.len());
        for id in vbuckets.map(VbId) {
            counts.clear();
            self.with_vbucket_for(Hold::Stat, id, |vbucket| {
                vbucket.collection_counts(&mut counts);
            });
            for counted in &counts {
                let Ok(at) = sums.binary_search_by_key(&counted.id, |sum| sum.id) else {
                    continue;
                };
                let sum = &mut sums[at];
                sum.items += counted.items;
                sum.memory_bytes += counted.memory_bytes;
                sum.ops_get += counted.ops_get;
                sum.ops_store += counted.ops_store;
                sum.ops_delete += counted.ops_delete;
            }
        }
    }
}
