//! What a vBucket keeps of its collections.

use std::sync::Arc;

use model::{CollectionId, Document, ManifestUid, ScopeId, Seqno, VbCounts, split_key};

use crate::group::GroupEvents;
use crate::plan::{ManifestPlanner, Plan};
use crate::seqnos::{EventRow, StepNumber, StepSeqnos};
use crate::table::{CollectionTable, NO_TTL, Open};
use crate::{CollectionChange, Living, SystemEvent};

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
    /// Where it began here.
    pub start_seqno: Seqno,
    /// Longest time to live; `None` for the bucket's.
    pub max_ttl_s: Option<u32>,
    /// Its figures.
    pub counts: CollectionCounts,
}

/// What vBuckets share of their collections: see `VBucket::share_collections` and `VBucket::load_shared`.
#[derive(Clone, Debug, Default)]
pub struct SharedCollections {
    table: Arc<CollectionTable>,
    loaded: Vec<LoadedGroup>,
}

/// A group of events that was loaded.
#[derive(Clone, Debug)]
struct LoadedGroup {
    from: Arc<CollectionTable>,
    row: Document,
    /// The table that follows from both.
    to: Arc<CollectionTable>,
}

/// Groups that are remembered: at most 24 bytes a collection each.
const LOADED_GROUPS_MAX: usize = 32;

/// The collections of a vBucket.
///
/// Cost: 24 bytes a collection for all vBuckets that share a table; for each vBucket 16 bytes for each run of
/// changes of collections without documents in between, and 56 for a collection that was ever used there.
#[derive(Clone, Debug, Default)]
pub struct VbCollections {
    /// The newest manifest of which something is noted here.
    uid: ManifestUid,
    table: Arc<CollectionTable>,
    seqnos: StepSeqnos,
    default_high: Seqno,
    /// Of collections that were ever used here, by number; without the default one.
    counts: Vec<CollectionCounts>,
    /// Figures of what was dropped and is still in the table.
    dead: Option<Box<CollectionCounts>>,
    /// The newest end of a collection whose rows may still be in the store; zero for none.
    dead_end: Seqno,
}

fn id_of(key: &[u8]) -> u32 {
    split_key(key).map_or(0, |(id, _)| id.0)
}

fn is_default(key: &[u8]) -> bool {
    key.first() == Some(&0)
}

impl VbCollections {
    /// Whether the collection is here.
    pub fn is_open(&self, id: CollectionId) -> bool {
        if id == CollectionId::DEFAULT {
            self.table.default_open
        } else {
            self.table.place(id.0).is_ok()
        }
    }

    /// Whether the collection of a stored key is here.
    #[inline]
    pub fn has(&self, key: &[u8]) -> bool {
        if is_default(key) {
            self.table.default_open
        } else {
            self.table.place(id_of(key)).is_ok()
        }
    }

    /// Whether a row of the store means something: not one of a collection that was dropped, and came again under its
    /// number.
    pub fn has_row(&self, key: &[u8], seqno: Seqno) -> bool {
        if is_default(key) {
            return self.table.default_open;
        }
        let open = self.table.find(id_of(key));
        open.is_some_and(|open| seqno >= self.seqnos.seqno(open.begun))
    }

    /// The limit of the time to live of a key's collection; `None` for the bucket's.
    #[inline]
    pub fn max_ttl_s(&self, key: &[u8]) -> Option<u32> {
        let ttl = if is_default(key) {
            self.table.default_ttl
        } else {
            self.table.find(id_of(key)).map_or(NO_TTL, |open| open.ttl)
        };
        (ttl != NO_TTL).then_some(ttl)
    }

    /// Whether replaced versions of a key's documents are kept, where the bucket keeps any.
    #[inline]
    pub fn keeps_history(&self, key: &[u8]) -> bool {
        self.table.any_history && self.table.is_historical(id_of(key))
    }

    /// Whether an event begins or ends the history of a collection that is here.
    pub fn switches_history(&self, change: &CollectionChange<'_>) -> bool {
        match change {
            CollectionChange::Modified(info) => {
                info.settings.history != self.table.is_historical(info.id.0)
            }
            _ => false,
        }
    }

    /// The newest manifest of which something is noted here.
    pub fn uid(&self) -> ManifestUid {
        self.uid
    }

    /// Everything of a manifest is noted here.
    pub fn caught_up(&mut self, uid: ManifestUid) {
        self.uid = self.uid.max(uid);
    }

    // --- Figures ---

    /// The figures of a key's collection, or of all that is dead. Not of the default collection:
    /// those are what the vBucket's have beyond all others.
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

    /// Whether the figures of a key's collection are not kept, but what others leave over.
    fn derives(&self, key: &[u8]) -> bool {
        is_default(key) && self.table.default_open
    }

    /// Of a key the table held `old`, and holds `new` from now on.
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
            // A replica may have had it before its collection, if it was told so.
            counts.remove(old.memory_bytes(), old.kind().is_tombstone());
        }
        counts.memory_bytes += new.memory_bytes() as u64;
        counts.items += u64::from(!new.kind().is_tombstone());
    }

    /// A document of the table changed its size, or left it and is still there.
    #[inline]
    pub fn resized(&mut self, key: &[u8], before: usize, after: usize) {
        if !self.derives(key) {
            let counts = self.counts_mut(key);
            let grown = counts.memory_bytes + after as u64;
            counts.memory_bytes = grown.saturating_sub(before as u64);
        }
    }

    /// A document left the table for good.
    #[inline]
    pub fn removed(&mut self, document: &Document) {
        let key = document.key();
        if !self.derives(key) {
            let (bytes, tombstone) = (document.memory_bytes(), document.kind().is_tombstone());
            self.counts_mut(key).remove(bytes, tombstone);
        }
    }

    /// Counts what a client did.
    #[inline]
    pub fn count(&mut self, key: &[u8], what: impl FnOnce(&mut CollectionCounts)) {
        if !is_default(key) {
            what(self.counts_mut(key));
        }
    }

    /// Figures of the collections that were ever used here, but for the default one; by number.
    pub fn counts(&self) -> &[CollectionCounts] {
        &self.counts
    }

    /// Figures of one of them, if it was ever used here.
    pub fn counts_of(&self, id: CollectionId) -> Option<&CollectionCounts> {
        let at = self.counts.binary_search_by_key(&id, |counts| counts.id);
        self.counts.get(at.ok()?)
    }

    /// Takes note of documents that are in the store alone.
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

    /// Counts no documents of what was dropped any more; returns how many were counted.
    pub fn forget_dead_items(&mut self) -> u64 {
        let dead = self.dead.as_deref_mut();
        dead.map_or(0, |dead| std::mem::take(&mut dead.items))
    }

    /// Figures of what was dropped and is still in memory.
    pub fn dead(&self) -> CollectionCounts {
        self.dead.as_deref().copied().unwrap_or_default()
    }

    /// The newest change of the default collection.
    pub fn default_high(&self) -> Seqno {
        self.default_high
    }

    /// The newest change of a collection; where it begins while there is none. `None` when it
    /// is not here.
    pub fn high_seqno(&self, id: CollectionId) -> Option<Seqno> {
        if id == CollectionId::DEFAULT {
            return self.table.default_open.then_some(self.default_high);
        }
        let counted = self.counts_of(id).map_or(Seqno::ZERO, |one| one.high_seqno);
        Some(counted.max(self.newest_event(self.table.find(id.0)?)))
    }

    /// The newest event of a collection.
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

    /// The rows that say what became of a collection, zero for none. `None` when it is not here.
    pub fn rows_of(&self, id: CollectionId) -> Option<[Seqno; 2]> {
        Some(self.steps_of(id)?.map(|step| self.seqnos.row(step).seqno))
    }

    /// Events that say which collections and scopes are here.
    pub fn events_in_use(&self) -> usize {
        self.table.steps_in_use().len()
    }

    /// Every collection whose number is above one, but the default one, with its figures.
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

    /// How many collections there are besides the default one.
    pub fn besides_default(&self) -> usize {
        self.table.open.len()
    }

    /// The numbers of the collections of a scope.
    pub fn of_scope(&self, scope: ScopeId) -> Vec<CollectionId> {
        let default = scope == ScopeId::DEFAULT && self.table.default_open;
        let others = self.table.open.iter().filter(|open| open.scope == scope.0);
        let others = others.map(|open| CollectionId(open.id));
        let default = default.then_some(CollectionId::DEFAULT).into_iter();
        default.chain(others).collect()
    }

    /// Whether there are, or were, others than the default one.
    pub fn is_plain(&self) -> bool {
        self.uid == ManifestUid(0) && self.table.open.is_empty() && self.table.default_open
    }

    /// The numbers of all scopes, ascending.
    pub fn scopes(&self) -> Vec<ScopeId> {
        let others = self.table.scopes.iter().map(|scope| ScopeId(scope.0));
        std::iter::once(ScopeId::DEFAULT).chain(others).collect()
    }

    // --- What is dead ---

    /// Whether anything that was dropped is still in memory or in the store.
    pub fn has_dead(&self) -> bool {
        self.dead_end > Seqno::ZERO
    }

    /// The seqno that must be in the store before what is dead can be taken out of it.
    pub fn dead_end(&self) -> Seqno {
        self.dead_end
    }

    /// A row was found whose collection is gone.
    pub fn found_dead(&mut self, seqno: Seqno) {
        self.dead_end = self.dead_end.max(seqno);
    }

    /// Everything that ended up to `end` is out of the store and of memory.
    pub fn erased(&mut self, end: Seqno) {
        if self.dead_end <= end {
            self.dead_end = Seqno::ZERO;
            self.dead.take_if(|dead| dead.high_seqno <= end);
        }
    }

    /// Which rows mean something, with every change up to `up_to`.
    pub fn living(&self, up_to: Seqno) -> Living {
        let default = self.table.default_open.then_some((0, Seqno::ZERO));
        let default = default.into_iter();
        let others = self.table.open.iter();
        let others = others.map(|open| (open.id, self.seqnos.seqno(open.begun)));
        Living::new(up_to, default.chain(others).collect())
    }

    // --- Changes ---

    /// What comes before an event of the same key.
    pub fn superseded(&self, change: &CollectionChange<'_>) -> Superseded {
        let step = self.table.superseded(change);
        let EventRow {
            seqno: row,
            grouped,
        } = self.seqnos.row(step);
        Superseded {
            seqno: self.seqnos.seqno(step),
            row: if grouped { Seqno::ZERO } else { row },
            grouped,
        }
    }

    /// Takes note of an event at `seqno`. One that says what is known already changes little.
    pub fn apply(&mut self, event: &SystemEvent<'_>, seqno: Seqno) {
        self.note(event, self.table.steps + 1, seqno);
        Arc::make_mut(&mut self.table).apply(&event.change);
    }

    /// The same of what an event does beside the table, with its step and its seqno.
    fn note(&mut self, event: &SystemEvent<'_>, step: StepNumber, seqno: Seqno) {
        self.uid = self.uid.max(event.manifest);
        self.push(step, seqno, 0);
        if let CollectionChange::Ended { id, .. } = event.change {
            self.end(id, seqno);
        }
    }

    fn push(&mut self, step: StepNumber, seqno: Seqno, grouped: u32) {
        let table = &self.table;
        let in_use = || {
            // Those that the table does not know yet are the newest.
            let mut steps = table.steps_in_use();
            steps.extend(table.steps + 1..step);
            steps
        };
        self.seqnos.push(step, seqno, grouped, in_use);
    }

    /// Takes note of the group in a row of the store; `false` when it cannot be read.
    ///
    /// Cost: O(1) if the same group was loaded after the same table before.
    pub fn load_group(&mut self, row: &Document, shared: &mut SharedCollections) -> bool {
        let Some(events) = GroupEvents::parse(row.value()) else {
            return false;
        };
        let before = u64::from(events.left().saturating_sub(1));
        let Some(first) = row.seqno().0.checked_sub(before).map(Seqno) else {
            return false;
        };
        let (step, count) = (self.table.steps + 1, events.left());
        let known = shared.loaded.iter().find(|known| {
            known.row.value() == row.value()
                && (Arc::ptr_eq(&known.from, &self.table) || known.from == self.table)
        });
        let table = if let Some(known) = known {
            Arc::clone(&known.to)
        } else if count > 0 && events.is_whole() {
            let mut table = CollectionTable::clone(&self.table);
            events.clone().for_each(|event| table.apply(&event.change));
            let table = Arc::new(table);
            if shared.loaded.len() == LOADED_GROUPS_MAX {
                shared.loaded.clear();
            }
            shared.loaded.push(LoadedGroup {
                from: Arc::clone(&self.table),
                row: row.clone(),
                to: Arc::clone(&table),
            });
            table
        } else {
            return false;
        };
        self.uid = self.uid.max(events.manifest());
        self.push(step, first, count);
        self.table = table;
        true
    }

    // --- Plans ---

    /// The next steps towards a manifest.
    pub fn plan<'m>(&self, planner: &mut ManifestPlanner<'m>) -> Arc<Plan<'m>> {
        planner.plan(&self.table)
    }

    /// Takes note of an event of a plan, the `index`th, but not in the table.
    pub fn note_planned(&mut self, event: &SystemEvent<'_>, index: usize, seqno: Seqno) {
        self.note(event, self.table.steps + 1 + index as u32, seqno);
    }

    /// Takes note of the group of a plan, but not in the table.
    pub fn note_planned_group(&mut self, uid: ManifestUid, events: u32, first: Seqno) {
        self.uid = self.uid.max(uid);
        self.push(self.table.steps + 1, first, events);
    }

    /// All steps of a plan were taken.
    pub fn finish_plan(&mut self, plan: &Plan<'_>) {
        self.table = Arc::clone(&plan.to);
    }

    /// Shares the table with other vBuckets if theirs is the same, else offers it.
    pub fn share(&mut self, shared: &mut SharedCollections) {
        if Arc::ptr_eq(&self.table, &shared.table) {
            return;
        }
        if *self.table == *shared.table {
            self.table = Arc::clone(&shared.table);
        } else {
            shared.table = Arc::clone(&self.table);
        }
    }

    fn end(&mut self, id: CollectionId, seqno: Seqno) {
        if id == CollectionId::DEFAULT {
            if self.table.default_open && self.default_high > Seqno::ZERO {
                self.dead_end = seqno;
            }
            return;
        }
        let Some(open) = self.table.find(id.0) else {
            // Of documents that came without a beginning the store may have rows.
            if self.dead().high_seqno > Seqno::ZERO {
                self.dead_end = seqno;
            }
            return;
        };
        if open.modified > 0 {
            self.dead_end = seqno;
        }
        let counted = self.counts.binary_search_by_key(&id, |counts| counts.id);
        if let Ok(at) = counted {
            self.dead_end = seqno;
            let counts = self.counts.remove(at);
            self.died(counts.items, counts.memory_bytes);
        }
    }

    /// A collection had these figures when it was dropped.
    pub fn died(&mut self, items: u64, memory_bytes: u64) {
        let dead = self.dead.get_or_insert_default();
        dead.items += items;
        dead.memory_bytes += memory_bytes;
    }

    /// Bytes beyond the vBucket's own, without the table, which is shared.
    pub fn memory_bytes(&self) -> usize {
        self.seqnos.memory_bytes() + self.counts.capacity() * size_of::<CollectionCounts>()
    }
}

/// What an event follows that has its key.
#[derive(Clone, Copy, Debug)]
pub struct Superseded {
    /// Seqno of that event; zero for none.
    pub seqno: Seqno,
    /// The row that goes when the event is written; zero for none.
    pub row: Seqno,
    /// The event before has a row together with others, which stays.
    pub grouped: bool,
}
