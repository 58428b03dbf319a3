//! Collections of a vBucket: creating and dropping them, and erasing their documents.

use std::sync::Arc;

use model::{
    Cas, CollectionId, Document, Draft, Kind, ManifestUid, Meta, Now, ScopeId, Seqno, VbState,
    split_key,
};

use super::change::TableChange;
use super::pass::{Pass, Visited};
use super::{Applied, VBucket};
use crate::checkpoint::ReplicaError;
use crate::error::OpError;
use crate::table::SlotIndex;
use crate::types::ScanProgress;
use collections::{
    CollectionChange, CollectionCounts, EventGroup, Living, ManifestPlanner, OpenCollection,
    SharedCollections, Steps, SummaryPoint, SummaryWriter, Superseded, SystemEvent, VbSummary,
};

/// Number of passes without a find after which nothing is assumed to be left.
const EMPTY_PASSES_MAX: u8 = 3;

impl VBucket {
    /// Refuses a key whose collection does not exist here.
    #[inline]
    pub(super) fn check_collection(&self, key: &[u8]) -> Result<(), OpError> {
        if self.collections.has(key) {
            Ok(())
        } else {
            Err(OpError::UnknownCollection)
        }
    }

    /// Applies some steps towards the planner's manifest; returns `true` once the collections match
    /// it. Each step is a normal change: stored, streamed, and applied by replicas. If the vBucket
    /// is not active, does nothing and returns `true`.
    ///
    /// Documents of a dropped collection become invisible; its undecided durable writes are
    /// aborted. [`VBucket::erase_dead`] and a compaction remove the documents.
    ///
    /// Cost: O(steps), and O(1) for all collections that begin together, if the planner has seen
    /// the same collections in another vBucket; else O(collections). O(prepares) for a dropped
    /// collection.
    pub fn apply_manifest(&mut self, planner: &mut ManifestPlanner<'_>, now: Now) -> bool {
        let uid = planner.manifest().uid();
        if self.state != VbState::Active || self.collections.uid() > uid {
            return true;
        }
        let plan = self.collections.plan(planner);
        let finished = match &plan.steps {
            Steps::None => true,
            Steps::Events(events) => {
                for (index, event) in events.iter().enumerate() {
                    if let CollectionChange::Ended { id, .. } = event.change {
                        self.give_up_prepares(id);
                    }
                    self.note_event(event, index, now);
                }
                events.len() < planner.steps_max()
            }
            Steps::Group(group) => {
                self.note_group(uid, group, now);
                false
            }
        };
        self.collections.finish_plan(&plan);
        if finished {
            self.collections.caught_up(uid);
        }
        finished
    }

    /// Shares one table of collections among vBuckets with the same collections: takes the table of
    /// `shared` if it equals its own, else puts its own there.
    ///
    /// Cost: O(collections), unless the vBucket shares it already.
    pub fn share_collections(&mut self, shared: &mut SharedCollections) {
        self.collections.share(shared);
    }

    fn give_up_prepares(&mut self, id: CollectionId) {
        let of_it = |key: &[u8]| split_key(key).is_some_and(|(of, _)| of == id);
        let waiting: Vec<Seqno> = self.durability.seqnos().collect();
        for seqno in waiting {
            let tracked = self.durability.get(seqno);
            if tracked.is_some_and(|tracked| of_it(tracked.document.key())) {
                if self.state == VbState::Active {
                    self.abort_and_tell(seqno);
                } else {
                    self.durability.untrack(seqno);
                }
            }
        }
    }

    /// Makes the event at `index` of a plan.
    fn note_event(&mut self, event: &SystemEvent<'_>, index: usize, now: Now) {
        let superseded = self.collections.superseded(&event.change);
        let meta = Meta {
            kind: event.kind(),
            expiry: if event.kind() == Kind::Deletion {
                now.unix_s()
            } else {
                0
            },
            flags: SystemEvent::flags(superseded.grouped),
            ..Meta::default()
        };
        let draft = Draft::new(&event.key(), &event.value(), &meta);
        let seqno = self.high_seqno.next();
        let document = draft.stamp(self.hlc.next(now), seqno, 1);
        self.queue_event(event, document, superseded);
        self.before_event(event);
        self.collections.note_planned(event, index, seqno);
    }

    /// Makes all events of a group.
    fn note_group(&mut self, uid: ManifestUid, group: &Arc<EventGroup>, now: Now) {
        let events = group.events();
        let (first, first_cas) = (self.high_seqno.next(), self.hlc.next(now));
        let others = u64::from(events.saturating_sub(1));
        let (last, last_cas) = (Seqno(first.0 + others), Cas(first_cas.0 + others));
        self.hlc.observe(last_cas);
        let marker = EventGroup::marker(last, last_cas);
        self.change(marker, TableChange::Group(group));
        self.collections.note_planned_group(uid, events, first);
    }

    /// Appends an event that has its seqno, and applies it to the collections.
    fn take_event(&mut self, event: &SystemEvent<'_>, document: &Document) {
        let superseded = self.collections.superseded(&event.change);
        self.queue_event(event, document.clone(), superseded);
        self.follow_event(event, document.seqno());
    }

    fn queue_event(&mut self, event: &SystemEvent<'_>, document: Document, superseded: Superseded) {
        if self.state == VbState::Active && self.collections.switches_history(&event.change) {
            // One checkpoint keeps all changes of a collection or none.
            self.checkpoints.close_checkpoint();
        }
        self.count_end(&document);
        self.change(document, TableChange::Event(superseded));
    }

    fn count_end(&mut self, event: &Document) {
        let purgeable =
            event.kind().is_tombstone() && !SystemEvent::is_kept(event.key(), &event.meta());
        self.purgeable_ends += u32::from(purgeable);
    }

    fn follow_event(&mut self, event: &SystemEvent<'_>, seqno: Seqno) {
        self.before_event(event);
        self.collections.apply(event, seqno);
    }

    /// Does the work that needs the collections as they were before the event.
    fn before_event(&mut self, event: &SystemEvent<'_>) {
        if let CollectionChange::Ended { id, .. } = event.change {
            if id == CollectionId::DEFAULT && self.collections.is_open(id) {
                let counts = self.default_counts();
                self.collections.died(counts.items, counts.memory_bytes);
            }
            if self.state != VbState::Active {
                self.give_up_prepares(id);
            }
        }
    }

    /// Applies an event of the active vBucket on a replica. See [`VBucket::apply`].
    pub(super) fn apply_event(&mut self, document: &Document) -> Result<Applied, ReplicaError> {
        let event = SystemEvent::parse(document.key(), document.kind(), document.value());
        let event = event.ok_or(ReplicaError::Marker("a system event makes no sense"))?;
        self.checkpoints.check_next(document, None, false)?;
        self.hlc.observe(document.cas());
        let noted = self.as_noted_here(&event, document);
        self.take_event(&event, noted.as_ref().unwrap_or(document));
        Ok(self.applied())
    }

    /// Returns the event with local metadata, if it must differ. A deletion without a time gets the
    /// time of the newest change, which its purge needs. The flags say whether it can be purged,
    /// which depends on the local rows.
    fn as_noted_here(&self, event: &SystemEvent<'_>, document: &Document) -> Option<Document> {
        let untimed = document.kind().is_tombstone() && document.expiry() == 0;
        let flags = SystemEvent::flags(self.collections.superseded(&event.change).grouped);
        if !untimed && document.flags() == flags {
            return None;
        }
        let seconds = self.hlc.max().0 / 1_000_000_000;
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        let meta = Meta {
            expiry: if untimed { seconds } else { document.expiry() },
            flags,
            ..document.meta()
        };
        Some(document.with_meta(&meta))
    }

    /// Loads an event from the store; `false` if it cannot be parsed.
    pub(super) fn load_event(
        &mut self,
        document: &Document,
        shared: &mut SharedCollections,
    ) -> bool {
        self.hlc.observe(document.cas());
        if SystemEvent::is_group(document.key()) {
            return self.collections.load_group(document, shared);
        }
        match SystemEvent::parse(document.key(), document.kind(), document.value()) {
            Some(event) => {
                self.count_end(document);
                self.follow_event(&event, document.seqno());
                true
            }
            None => false,
        }
    }

    // --- Summary ---

    /// Adds the collections to a summary, unless there was never one. `epoch` is that of the
    /// vBucket in the store. Returns `false`, without a change, while the store lacks an event.
    pub fn summarize(&self, epoch: u64, summary: &mut SummaryWriter) -> bool {
        if !self.has_collections() {
            return true;
        }
        let at = SummaryPoint {
            vb: self.id,
            epoch,
            seqno: self.durable.flushed,
            purgeable_ends: self.purgeable_ends,
        };
        let complete = self.collections.last_event() <= at.seqno;
        if complete {
            summary.add(at, &self.collections);
        }
        complete
    }

    /// Loads the collections from a summary instead of the events up to its point.
    pub fn load_summary(&mut self, summary: &VbSummary) {
        self.collections = summary.collections.clone();
        self.purgeable_ends = summary.at.purgeable_ends;
    }

    // --- Dropped collections ---

    /// Number of end events of collections and scopes that can be purged.
    pub fn purgeable_ends(&self) -> u32 {
        self.purgeable_ends
    }

    /// Whether documents of dropped collections may still be in memory or in the store.
    pub fn has_dead(&self) -> bool {
        self.collections.has_dead()
    }

    /// Runs one step of the pass that removes documents of dropped collections from memory.
    /// Continues where the last step stopped, until `slots` slots were visited or the table ends.
    /// Adds removed documents to `garbage`, to be freed outside the lock.
    pub fn erase_dead(&mut self, slots: usize, garbage: &mut Vec<Document>) -> ScanProgress {
        if self.collections.dead_end() <= self.erasing.done {
            return ScanProgress::FINISHED;
        }
        if self.erasing.end == Seqno::ZERO {
            self.erasing.end = self.collections.dead_end();
            self.next_slot[Pass::Erase as usize] = SlotIndex::default();
        }
        let progress = self.pass(Pass::Erase, slots, |this, slot| {
            let found = this.table.in_slot(slot);
            let dead = found.filter(|document| !this.collections.has(document.key()));
            let dead = dead.cloned().inspect(|document| this.forget_dead(document));
            let changed = dead.is_some();
            garbage.extend(dead);
            Visited::new(changed, true)
        });
        self.erasing.found |= progress.changed > 0;
        ScanProgress {
            finished: progress.finished && self.end_erasing_pass(),
            ..progress
        }
    }

    /// Ends a pass; returns whether all dead documents are out of the table. A resize during a pass
    /// may move documents behind it. So the pass is repeated while dead documents are still
    /// counted.
    fn end_erasing_pass(&mut self) -> bool {
        let erasing = &mut self.erasing;
        if std::mem::take(&mut erasing.found) {
            erasing.empty = 0;
            return false;
        }
        erasing.empty += 1;
        if self.collections.dead().memory_bytes > 0 && erasing.empty < EMPTY_PASSES_MAX {
            return false;
        }
        erasing.done = erasing.end;
        erasing.end = Seqno::ZERO;
        erasing.empty = 0;
        if self.collections.dead_end() == erasing.done {
            // The rest of them is only in the store.
            let items = self.collections.forget_dead_items();
            self.table.count_back(false, items);
        }
        true
    }

    fn forget_dead(&mut self, document: &Document) {
        let place = self.table.place(document.key());
        self.locks.remove(place.hash, document.key());
        self.table.remove(document.key());
        self.checkpoints.note_evicted(document);
        self.collections.removed(document);
    }

    /// Returns the filter of living rows in the store, if dead rows may be there. `None` until
    /// everything up to [`Living::up_to`] is durable and out of memory.
    ///
    /// Cost: O(collections).
    pub fn dead_in_store(&self) -> Option<Living> {
        let end = self.collections.dead_end();
        let ready = end > Seqno::ZERO && end <= self.erasing.done && end <= self.durable.flushed;
        ready.then(|| self.collections.living(end))
    }

    /// Returns the filter of living rows, if a reader of the changes after `read` may meet dead ones. A view of the
    /// store that was opened before they were erased still has them.
    pub(crate) fn living_rows(&self, read: Seqno) -> Option<Living> {
        let high = self.high_seqno;
        let may_have_dead = self.has_dead() || read < self.erasing.done;
        may_have_dead.then(|| self.collections.living(high))
    }

    /// Records that the store has removed all rows that were dead at `end`.
    pub fn finish_erasing(&mut self, end: Seqno) {
        self.collections.erased(end);
    }

    // --- Statistics ---

    /// Whether the vBucket has only the events that began its collections, and never had more.
    /// O(collections).
    pub fn holds_only_collections(&self) -> bool {
        self.collections.events_in_use() as u64 == self.high_seqno.0
    }

    /// UID of the last manifest of which the vBucket has an event.
    pub fn manifest_uid(&self) -> ManifestUid {
        self.collections.uid()
    }

    /// Whether there are or were collections besides the default one.
    pub(crate) fn has_collections(&self) -> bool {
        !self.collections.is_plain()
    }

    /// Seqno of the newest change of a collection; `None` if the vBucket does not have it.
    pub fn collection_high_seqno(&self, id: CollectionId) -> Option<Seqno> {
        self.collections.high_seqno(id)
    }

    /// Ids of the collections of a scope.
    pub(crate) fn collections_of(&self, scope: ScopeId) -> Vec<CollectionId> {
        self.collections.of_scope(scope)
    }

    /// Statistics of the default collection: those of the vBucket minus those of all other
    /// collections.
    fn default_counts(&self) -> CollectionCounts {
        let table = self.table.counts();
        let ops = &self.counters;
        let mut counts = CollectionCounts {
            id: CollectionId::DEFAULT,
            items: table.items,
            memory_bytes: table.document_bytes as u64,
            high_seqno: self.collections.default_high(),
            ops_get: ops.ops_get,
            ops_store: ops.ops_create + ops.ops_update,
            ops_delete: ops.ops_delete,
        };
        let dead = self.collections.dead();
        for other in self.collections.counts().iter().chain([&dead]) {
            counts.items = counts.items.saturating_sub(other.items);
            counts.memory_bytes = counts.memory_bytes.saturating_sub(other.memory_bytes);
            counts.ops_get = counts.ops_get.saturating_sub(other.ops_get);
            counts.ops_store = counts.ops_store.saturating_sub(other.ops_store);
            counts.ops_delete = counts.ops_delete.saturating_sub(other.ops_delete);
        }
        counts
    }

    /// Number of live documents of a collection.
    pub(super) fn items_of(&self, id: CollectionId) -> u64 {
        if id == CollectionId::DEFAULT {
            return self.default_counts().items;
        }
        let counted = self.collections.counts_of(id);
        counted.map_or(0, |counts| counts.items)
    }

    /// Adds the statistics of every collection ever used here to `out`, in no order.
    ///
    /// Cost: 56 bytes copied for each collection; no allocation if `out` has the capacity.
    pub fn collection_counts(&self, out: &mut Vec<CollectionCounts>) {
        if self.collections.is_open(CollectionId::DEFAULT) {
            out.push(self.default_counts());
        }
        out.extend_from_slice(self.collections.counts());
    }

    /// Returns every existing collection, ordered by id.
    ///
    /// Cost: O(collections), 80 bytes each.
    pub fn collections(&self) -> Vec<OpenCollection> {
        self.collections_after(None, usize::MAX)
    }

    /// Returns at most `most` existing collections with ids above `after`, ordered by id.
    ///
    /// Cost: O(log collections), and 80 bytes for each one returned.
    pub fn collections_after(
        &self,
        after: Option<CollectionId>,
        most: usize,
    ) -> Vec<OpenCollection> {
        let open = after.is_none() && self.collections.is_open(CollectionId::DEFAULT);
        let default = open.then(|| OpenCollection {
            scope: ScopeId::DEFAULT,
            start_seqno: Seqno::ZERO,
            max_ttl_s: self.collections.max_ttl_s(&[0]),
            counts: self.default_counts(),
        });
        let others = self.collections.after(after.unwrap_or_default());
        default.into_iter().chain(others).take(most).collect()
    }

    /// Ids of all existing scopes, ascending.
    pub fn scopes(&self) -> Vec<ScopeId> {
        self.collections.scopes()
    }

    /// Number of existing collections.
    pub fn collection_count(&self) -> usize {
        let default = usize::from(self.collections.is_open(CollectionId::DEFAULT));
        self.collections.besides_default() + default
    }
}
