//! Changes of the collections of a vBucket: events, groups of them, plans, and what vBuckets share of these.

use std::sync::Arc;

use model::{CollectionId, Document, ManifestUid, Seqno};

use crate::group::GroupEvents;
use crate::plan::{ManifestPlanner, Plan};
use crate::seqnos::{EventRow, StepNumber};
use crate::state::VbCollections;
use crate::table::CollectionTable;
use crate::{CollectionChange, SystemEvent};

/// Data about collections that vBuckets share: see `VBucket::share_collections` and
/// `VBucket::load_shared`.
#[derive(Clone, Debug, Default)]
pub struct SharedCollections {
    table: Arc<CollectionTable>,
    loaded: Vec<LoadedGroup>,
}

/// A loaded group of events.
#[derive(Clone, Debug)]
struct LoadedGroup {
    from: Arc<CollectionTable>,
    row: Document,
    /// The table after the group, starting with `from`.
    to: Arc<CollectionTable>,
}

/// Maximum number of remembered groups: at most 24 bytes a collection each.
const LOADED_GROUPS_MAX: usize = 32;

/// The event with the same key that a new event supersedes.
#[derive(Clone, Copy, Debug)]
pub struct Superseded {
    /// Seqno of that event; zero for none.
    pub seqno: Seqno,
    /// Row that is removed when the new event is written; zero for none.
    pub row: Seqno,
    /// Whether the old event is in the row of a group, which stays.
    pub grouped: bool,
}

impl VbCollections {
    /// Returns the event of the same key that an event supersedes.
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

    /// Applies an event at `seqno`. A repeated event changes little.
    pub fn apply(&mut self, event: &SystemEvent<'_>, seqno: Seqno) {
        self.note(event, self.table.steps + 1, seqno);
        Arc::make_mut(&mut self.table).apply(&event.change);
    }

    /// Applies an event except for the table, as step `step` at `seqno`.
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
            // Steps that the table does not know yet are the newest.
            let mut steps = table.steps_in_use();
            steps.extend(table.steps + 1..step);
            steps
        };
        self.seqnos.push(step, seqno, grouped, in_use);
    }

    /// Loads a group from a row of the store; `false` if it cannot be parsed.
    ///
    /// Cost: O(1) if the same group was loaded before after the same table.
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

    /// Returns the next steps towards the planner's manifest.
    pub fn plan<'m>(&self, planner: &mut ManifestPlanner<'m>) -> Arc<Plan<'m>> {
        planner.plan(&self.table)
    }

    /// Applies the event at `index` of a plan, except for the table.
    pub fn note_planned(&mut self, event: &SystemEvent<'_>, index: usize, seqno: Seqno) {
        self.note(event, self.table.steps + 1 + index as u32, seqno);
    }

    /// Applies the group of a plan, except for the table.
    pub fn note_planned_group(&mut self, uid: ManifestUid, events: u32, first: Seqno) {
        self.uid = self.uid.max(uid);
        self.push(self.table.steps + 1, first, events);
    }

    /// Completes a plan: takes over its table.
    pub fn finish_plan(&mut self, plan: &Plan<'_>) {
        self.table = Arc::clone(&plan.to);
    }

    /// Shares the table with other vBuckets if theirs is equal, else offers the own one.
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
            // The store may have rows of documents that came before their collection.
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
}
