//! Collections of a vBucket: how they come and go, and what becomes of their documents.

use std::sync::Arc;

use model::{
    Cas, CollectionId, Document, Draft, Kind, ManifestUid, Meta, Now, ScopeId, Seqno, VbState,
    split_key,
};

use super::change::Change;
use super::pass::{Pass, Visited};
use super::{Applied, VBucket};
use crate::checkpoint::ReplicaError;
use crate::error::OpError;
use crate::table::Spot;
use crate::types::ScanProgress;
use collections::{
    CollectionChange, CollectionCounts, EventGroup, Living, ManifestPlanner, OpenCollection,
    SharedCollections, Steps, Superseded, SystemEvent,
};

/// Passes that find nothing after which there is nothing.
const EMPTY_PASSES_MAX: u8 = 3;

impl VBucket {
    /// Refuses what concerns a collection that is not here.
    #[inline]
    pub(super) fn check_collection(&self, key: &[u8]) -> Result<(), OpError> {
        if self.collections.has(key) {
            Ok(())
        } else {
            Err(OpError::UnknownCollection)
        }
    }

    /// Brings the collections some steps closer to the planner's manifest; `true` once they are there. Each
    /// step is a change like any other: stored, streamed, followed by replicas. Does nothing
    /// unless active, and returns `true` then.
    ///
    /// Documents of a collection that was dropped are not found any more; durable writes of it
    /// that wait are given up. [`VBucket::erase_dead`] and a compaction take them away.
    ///
    /// Cost: O(steps), and O(1) for all that begins together, once the planner has met the same collections in another vBucket;
    /// else O(collections). O(prepares) for a collection that is dropped.
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

    /// Has one table of collections for this vBucket and others that have the same ones: keeps that of
    /// `shared` if it is the same as its own, else puts its own there.
    ///
    /// Cost: O(collections) unless it has that one already.
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

    /// Makes the event that a plan has at `index`.
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
        self.change(marker, Change::Group(group));
        self.collections.note_planned_group(uid, events, first);
    }

    /// Queues an event that has its place, and follows it.
    fn take_event(&mut self, event: &SystemEvent<'_>, document: &Document) {
        let superseded = self.collections.superseded(&event.change);
        self.queue_event(event, document.clone(), superseded);
        self.follow_event(event, document.seqno());
    }

    fn queue_event(&mut self, event: &SystemEvent<'_>, document: Document, superseded: Superseded) {
        if self.state == VbState::Active && self.collections.switches_history(&event.change) {
            // In one checkpoint all changes of a collection are kept, or none.
            self.checkpoints.close_checkpoint();
        }
        self.change(document, Change::Event(superseded));
    }

    fn follow_event(&mut self, event: &SystemEvent<'_>, seqno: Seqno) {
        self.before_event(event);
        self.collections.apply(event, seqno);
    }

    /// What is to be done as long as the collections are what they were.
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

    /// Takes an event of the active vBucket that this one follows. See [`VBucket::apply`].
    pub(super) fn apply_event(&mut self, document: &Document) -> Result<Applied, ReplicaError> {
        let event = SystemEvent::parse(document.key(), document.kind(), document.value());
        let event = event.ok_or(ReplicaError::Marker("a system event makes no sense"))?;
        self.checkpoints.check_next(document, None, false)?;
        self.hlc.observe(document.cas());
        let noted = self.as_noted_here(&event, document);
        self.take_event(&event, noted.as_ref().unwrap_or(document));
        Ok(self.applied())
    }

    /// An end that came without its time gets the one of the newest change: it is purged by it. And whether
    /// it is purged at all depends on the rows that are here.
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

    /// Takes an event from the store; `false` when it cannot be read.
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
                self.follow_event(&event, document.seqno());
                true
            }
            None => false,
        }
    }

    // --- What is dead ---

    /// Whether documents of collections that were dropped may still be in memory or in the store.
    pub fn has_dead(&self) -> bool {
        self.collections.has_dead()
    }

    /// One step of the pass that takes documents of dropped collections out of memory, from where
    /// the last one stopped, until `slots` were looked at or the end of the table is reached.
    /// What it let go of is added to `garbage`, to be freed outside of the lock.
    pub fn erase_dead(&mut self, slots: usize, garbage: &mut Vec<Document>) -> ScanProgress {
        if self.collections.dead_end() <= self.erasing.done {
            return ScanProgress::FINISHED;
        }
        if self.erasing.end == Seqno::ZERO {
            self.erasing.end = self.collections.dead_end();
            self.next_slot[Pass::Erase as usize] = Spot::default();
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

    /// Returns whether everything is out of the table. A table that changes its size moves documents
    /// to where the pass has been, so what is still counted is looked for once more.
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
            // What is left of them is in the store alone.
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

    /// Which rows of the store mean something, if some may be there that do not. `None` until
    /// everything up to [`Living::up_to`] is durable and out of memory.
    ///
    /// Cost: O(collections).
    pub fn dead_in_store(&self) -> Option<Living> {
        let end = self.collections.dead_end();
        let ready = end > Seqno::ZERO && end <= self.erasing.done && end <= self.durable.flushed;
        ready.then(|| self.collections.living(end))
    }

    /// Which rows mean something, if there may be some that do not.
    pub(crate) fn living_rows(&self) -> Option<Living> {
        let high = self.high_seqno;
        self.has_dead().then(|| self.collections.living(high))
    }

    /// The store dropped everything that ended up to `end`.
    pub fn finish_erasing(&mut self, end: Seqno) {
        self.collections.erased(end);
    }

    // --- Figures ---

    /// Whether it holds nothing but the beginnings of its collections, and never held more. O(collections).
    pub fn holds_only_collections(&self) -> bool {
        self.collections.events_in_use() as u64 == self.high_seqno.0
    }

    /// The newest manifest of which something is noted here.
    pub fn manifest_uid(&self) -> ManifestUid {
        self.collections.uid()
    }

    /// Whether there are, or were, others than the default one.
    pub(crate) fn has_collections(&self) -> bool {
        !self.collections.is_plain()
    }

    /// The newest change of a collection; `None` when it is not here.
    pub fn collection_high_seqno(&self, id: CollectionId) -> Option<Seqno> {
        self.collections.high_seqno(id)
    }

    /// Numbers of the collections of a scope.
    pub(crate) fn collections_of(&self, scope: ScopeId) -> Vec<CollectionId> {
        self.collections.of_scope(scope)
    }

    /// Figures of the default collection: what those of the vBucket have beyond all others.
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

    /// Live documents of a collection.
    pub(super) fn items_of(&self, id: CollectionId) -> u64 {
        if id == CollectionId::DEFAULT {
            return self.default_counts().items;
        }
        let counted = self.collections.counts_of(id);
        counted.map_or(0, |counts| counts.items)
    }

    /// Adds the figures of every collection that was ever used here to `out`, in no order.
    ///
    /// Cost: 56 bytes copied for each; nothing is allocated if `out` has the capacity.
    pub fn collection_counts(&self, out: &mut Vec<CollectionCounts>) {
        if self.collections.is_open(CollectionId::DEFAULT) {
            out.push(self.default_counts());
        }
        out.extend_from_slice(self.collections.counts());
    }

    /// Every collection that is here, by number.
    ///
    /// Cost: O(collections), 80 bytes each.
    pub fn collections(&self) -> Vec<OpenCollection> {
        self.collections_after(None, usize::MAX)
    }

    /// Collections that are here and whose numbers are above one, by number, `most` at most.
    ///
    /// Cost: O(log collections), and 80 bytes for each one given.
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

    /// Numbers of all scopes that are here, ascending.
    pub fn scopes(&self) -> Vec<ScopeId> {
        self.collections.scopes()
    }

    /// How many collections are here.
    pub fn collection_count(&self) -> usize {
        let default = usize::from(self.collections.is_open(CollectionId::DEFAULT));
        self.collections.besides_default() + default
    }
}
