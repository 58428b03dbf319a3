//! The collections of a vBucket.

use std::sync::Arc;

use model::{CollectionId, Document, ManifestUid, ScopeId, Seqno, VbCounts, split_key};

use crate::seqnos::{StepNumber, StepSeqnos};
use crate::table::{CollectionTable, NO_TTL, Open};
use crate::{CollectionChange, Living};

/// Statistics of a collection in a vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionCounts {
    /// The collection.
    pub id: CollectionId,
    /// Live documents.
    pub items: u64,
    /// Allocated bytes of its documents and tombstones in memory.
    pub memory_bytes: u64,
    /// Seqno of its newest change.
    pub high_seqno: Seqno,
    /// Reads served.
    pub ops_get: u64,
    /// Documents created and changed.
    pub ops_store: u64,
    /// Documents deleted.
    pub ops_delete: u64,
}

impl CollectionCounts {
    fn remove(&mut self, bytes: usize, tombstone: bool) {
        self.memory_bytes = self.memory_bytes.saturating_sub(bytes as u64);
        self.items = self.items.saturating_sub(u64::from(!tombstone));
    }
}

/// A collection of a vBucket, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCollection {
    /// Its scope.
    pub scope: ScopeId,
    /// Seqno at which it began in this vBucket.
    pub start_seqno: Seqno,
    /// Longest time to live in seconds; `None` for the bucket's limit.
    pub max_ttl_s: Option<u32>,
    /// Its statistics.
    pub counts: CollectionCounts,
}

/// The collections of a vBucket.
///
/// Cost: 24 bytes a collection for all vBuckets that share a table. Per vBucket, 16 bytes for each
/// run of collection changes without documents in between, and 56 for each collection ever used
/// there.
#[derive(Clone, Debug, Default)]
pub struct VbCollections {
    /// UID of the last manifest of which this vBucket has an event.
    pub(crate) uid: ManifestUid,
    pub(crate) table: Arc<CollectionTable>,
    pub(crate) seqnos: StepSeqnos,
    pub(crate) default_high: Seqno,
    /// Statistics of the collections ever used here, ordered by id; without the default one.
    pub(crate) counts: Vec<CollectionCounts>,
    /// Statistics of dropped collections with documents in the table.
    dead: Option<Box<CollectionCounts>>,
    /// Seqno of the last dropped collection that may still have rows in the store; zero for none.
    pub(crate) dead_end: Seqno,
}

fn id_of(key: &[u8]) -> u32 {
    split_key(key).map_or(0, |(id, _)| id.0)
}

fn is_default(key: &[u8]) -> bool {
    key.first() == Some(&0)
}

impl VbCollections {
    /// Whether the collection exists here.
    pub fn is_open(&self, id: CollectionId) -> bool {
        if id == CollectionId::DEFAULT {
            self.table.default_open
        } else {
            self.table.place(id.0).is_ok()
        }
    }

    /// Whether the collection of a stored key exists here.
    #[inline]
    pub fn has(&self, key: &[u8]) -> bool {
        if is_default(key) {
            self.table.default_open
        } else {
            self.table.place(id_of(key)).is_ok()
        }
    }

    /// Whether a row of the store is living: its collection exists, and the row is not from a
    /// dropped one with the same id.
    pub fn has_row(&self, key: &[u8], seqno: Seqno) -> bool {
        if is_default(key) {
            return self.table.default_open;
        }
        let open = self.table.find(id_of(key));
        open.is_some_and(|open| seqno >= self.seqnos.seqno(open.begun))
    }

    /// Maximum time to live in a key's collection; `None` for the bucket's limit.
    #[inline]
    pub fn max_ttl_s(&self, key: &[u8]) -> Option<u32> {
        let ttl = if is_default(key) {
            self.table.default_ttl
        } else {
            self.table.find(id_of(key)).map_or(NO_TTL, |open| open.ttl)
        };
        (ttl != NO_TTL).then_some(ttl)
    }

    /// Whether replaced versions of a key's documents are kept, if the bucket keeps any.
    #[inline]
    pub fn keeps_history(&self, key: &[u8]) -> bool {
        self.table.any_history && self.table.is_historical(id_of(key))
    }

    /// Whether an event switches the history of an existing collection on or off.
    pub fn switches_history(&self, change: &CollectionChange<'_>) -> bool {
        match change {
            CollectionChange::Modified(info) => {
                info.settings.history != self.table.is_historical(info.id.0)
            }
            _ => false,
        }
    }

    /// UID of the last manifest of which this vBucket has an event.
    pub fn uid(&self) -> ManifestUid {
        self.uid
    }

    /// Records that all of a manifest is applied.
    pub fn caught_up(&mut self, uid: ManifestUid) {
        self.uid = self.uid.max(uid);
    }

    // --- Statistics ---

    /// Returns the statistics of a key's collection, or those of all dropped ones. Not for the
    /// default collection: its statistics are those of the vBucket minus all others.
    fn counts_mut(&mut self, key: &[u8]) -> &mut CollectionCounts {
        let id = CollectionId(id_of(key));
        match self.counts.binary_search_by_key(&id, |counts| counts.id) {
            Ok(at) => &mut self.counts[at],
            Err(at) if self.table.place(id.0).is_ok() => {
                let untouched = CollectionCounts {
                    id,
                    ..CollectionCounts::default()
                };
                self.counts.insert(at, untouched);
                &mut self.counts[at]
            }
            Err(_) => self.dead.get_or_insert_default(),
        }
    }

    /// Whether the statistics of a key's collection are derived from those of the others.
    fn derives(&self, key: &[u8]) -> bool {
        is_default(key) && self.table.default_open
    }

    /// Counts the replacement of `old`, the previous document of its key in the table, by `new`.
    #[inline]
    pub fn replaced(&mut self, new: &Document, old: Option<&Document>) {
        if is_default(new.key()) {
            self.default_high = self.default_high.max(new.seqno());
        } else {
            self.count_replaced(new, old);
        }
    }

    fn count_replaced(&mut self, new: &Document, old: Option<&Document>) {
        let counts = self.counts_mut(new.key());
        counts.high_seqno = counts.high_seqno.max(new.seqno());
        if let Some(old) = old {
            // A replica may have had the document before the collection, if it received them in
            // this order.
            counts.remove(old.memory_bytes(), old.kind().is_tombstone());
        }
        counts.memory_bytes += new.memory_bytes() as u64;
        counts.items += u64::from(!new.kind().is_tombstone());
    }

    /// Counts that a document changed its size in the table, or left it but still exists.
    #[inline]
    pub fn resized(&mut self, key: &[u8], before: usize, after: usize) {
        if !self.derives(key) {
            let counts = self.counts_mut(key);
            let grown = counts.memory_bytes + after as u64;
            counts.memory_bytes = grown.saturating_sub(before as u64);
        }
    }

    /// Counts that a document left the table for good.
    #[inline]
    pub fn removed(&mut self, document: &Document) {
        let key = document.key();
        if !self.derives(key) {
            let (bytes, tombstone) = (document.memory_bytes(), document.kind().is_tombstone());
            self.counts_mut(key).remove(bytes, tombstone);
        }
    }

    /// Counts an operation of a client.
    #[inline]
    pub fn count(&mut self, key: &[u8], what: impl FnOnce(&mut CollectionCounts)) {
        if !is_default(key) {
            what(self.counts_mut(key));
        }
    }

    /// Statistics of the collections ever used here, ordered by id; without the default one.
    pub fn counts(&self) -> &[CollectionCounts] {
        &self.counts
    }

    /// Statistics of one collection, if it was ever used here.
    pub fn counts_of(&self, id: CollectionId) -> Option<&CollectionCounts> {
        let at = self.counts.binary_search_by_key(&id, |counts| counts.id);
        self.counts.get(at.ok()?)
    }

    /// Counts documents that are only in the store.
    pub fn leave_in_store(&mut self, stored: &VbCounts) {
        self.default_high = self.default_high.max(stored.default_high);
        self.dead_end = self.dead_end.max(stored.dead_end);
        for one in &stored.collections {
            if self.table.place(one.id.0).is_err() {
                continue;
            }
            let key = model::collection_key(one.id, b"");
            let counts = self.counts_mut(&key);
            counts.items += one.items;
            counts.high_seqno = counts.high_seqno.max(one.high_seqno);
        }
    }

    /// Resets the item count of dropped collections to zero; returns the previous one.
    pub fn forget_dead_items(&mut self) -> u64 {
        let dead = self.dead.as_deref_mut();
        dead.map_or(0, |dead| std::mem::take(&mut dead.items))
    }

    /// Statistics of dropped collections that are still in memory.
    pub fn dead(&self) -> CollectionCounts {
        self.dead.as_deref().copied().unwrap_or_default()
    }

    /// Last seqno of the default collection.
    pub fn default_high(&self) -> Seqno {
        self.default_high
    }

    /// Last seqno of a collection, or the seqno at which it began. `None` if it does not exist
    /// here.
    pub fn high_seqno(&self, id: CollectionId) -> Option<Seqno> {
        if id == CollectionId::DEFAULT {
            return self.table.default_open.then_some(self.default_high);
        }
        let counted = self.counts_of(id).map_or(Seqno::ZERO, |one| one.high_seqno);
        Some(counted.max(self.newest_event(self.table.find(id.0)?)))
    }

    /// Seqno of the last event of a collection.
    fn newest_event(&self, open: &Open) -> Seqno {
        let [begun, modified] = [open.begun, open.modified].map(|step| self.seqnos.seqno(step));
        begun.max(modified)
    }

    fn steps_of(&self, id: CollectionId) -> Option<[StepNumber; 2]> {
        if id == CollectionId::DEFAULT {
            let modified = self.table.default_modified;
            return self.table.default_open.then_some([modified, 0]);
        }
        self.table
            .find(id.0)
            .map(|open| [open.begun, open.modified])
    }

    /// Seqnos of the rows with a collection's events, zero for none. `None` if it does not exist
    /// here.
    pub fn rows_of(&self, id: CollectionId) -> Option<[Seqno; 2]> {
        Some(self.steps_of(id)?.map(|step| self.seqnos.row(step).seqno))
    }

    /// Number of events that define the existing collections and scopes.
    pub fn events_in_use(&self) -> usize {
        self.table.steps_in_use().len()
    }

    /// Returns every collection with an id above `after`, except the default one, with its
    /// statistics.
    pub fn after(&self, after: CollectionId) -> impl Iterator<Item = OpenCollection> {
        let from = self.table.open.partition_point(|open| open.id <= after.0);
        let counted = self.counts.partition_point(|counts| counts.id <= after);
        let mut counted = self.counts[counted..].iter().peekable();
        self.table.open[from..].iter().map(move |open| {
            let id = CollectionId(open.id);
            let untouched = CollectionCounts {
                id,
                ..CollectionCounts::default()
            };
            while counted.next_if(|counts| counts.id < id).is_some() {}
            let found = counted.next_if(|counts| counts.id == id);
            let mut counts = *found.unwrap_or(&untouched);
            counts.high_seqno = counts.high_seqno.max(self.newest_event(open));
            OpenCollection {
                scope: ScopeId(open.scope),
                start_seqno: self.seqnos.seqno(open.begun),
                max_ttl_s: (open.ttl != NO_TTL).then_some(open.ttl),
                counts,
            }
        })
    }

    /// Number of collections besides the default one.
    pub fn besides_default(&self) -> usize {
        self.table.open.len()
    }

    /// Ids of the collections of a scope.
    pub fn of_scope(&self, scope: ScopeId) -> Vec<CollectionId> {
        let default = scope == ScopeId::DEFAULT && self.table.default_open;
        let others = self.table.open.iter().filter(|open| open.scope == scope.0);
        let others = others.map(|open| CollectionId(open.id));
        let default = default.then_some(CollectionId::DEFAULT).into_iter();
        default.chain(others).collect()
    }

    /// Seqno of the last event; zero without one.
    pub fn last_event(&self) -> Seqno {
        self.seqnos.seqno(self.table.steps)
    }

    /// Whether there was never a collection besides the default one.
    pub fn is_plain(&self) -> bool {
        self.uid == ManifestUid(0) && self.table.open.is_empty() && self.table.default_open
    }

    /// Ids of all scopes, ascending.
    pub fn scopes(&self) -> Vec<ScopeId> {
        let others = self.table.scopes.iter().map(|scope| ScopeId(scope.0));
        std::iter::once(ScopeId::DEFAULT).chain(others).collect()
    }

    // --- Dropped collections ---

    /// Whether dropped collections may still have documents in memory or in the store.
    pub fn has_dead(&self) -> bool {
        self.dead_end > Seqno::ZERO
    }

    /// Seqno that must be persisted before the store may remove dead rows.
    pub fn dead_end(&self) -> Seqno {
        self.dead_end
    }

    /// Records a row whose collection was dropped.
    pub fn found_dead(&mut self, seqno: Seqno) {
        self.dead_end = self.dead_end.max(seqno);
    }

    /// Records that documents of collections that ended up to `end` are out of store and memory.
    pub fn erased(&mut self, end: Seqno) {
        if self.dead_end <= end {
            self.dead_end = Seqno::ZERO;
            self.dead.take_if(|dead| dead.high_seqno <= end);
        }
    }

    /// Returns the filter of living rows, with every change up to `up_to`.
    pub fn living(&self, up_to: Seqno) -> Living {
        let default = self.table.default_open.then_some((0, Seqno::ZERO));
        let default = default.into_iter();
        let others = self.table.open.iter();
        let others = others.map(|open| (open.id, self.seqnos.seqno(open.begun)));
        Living::new(up_to, default.chain(others).collect())
    }

    /// Returns what a summary has of the collections.
    pub(crate) fn for_summary(&self) -> (ManifestUid, &Arc<CollectionTable>, &StepSeqnos) {
        (self.uid, &self.table, &self.seqnos)
    }

    /// Creates collections from a summary, without statistics.
    pub(crate) fn of_summary(
        uid: ManifestUid,
        table: &Arc<CollectionTable>,
        seqnos: StepSeqnos,
    ) -> Self {
        Self {
            uid,
            table: Arc::clone(table),
            seqnos,
            ..Self::default()
        }
    }

    /// Adds a dropped collection's statistics to those of all dropped ones.
    pub fn died(&mut self, items: u64, memory_bytes: u64) {
        let dead = self.dead.get_or_insert_default();
        dead.items += items;
        dead.memory_bytes += memory_bytes;
    }

    /// Bytes beyond the size of the vBucket itself, without the shared table.
    pub fn memory_bytes(&self) -> usize {
        self.seqnos.memory_bytes() + self.counts.capacity() * size_of::<CollectionCounts>()
    }
}
