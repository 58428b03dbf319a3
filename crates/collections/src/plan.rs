//! Plans: the steps of vBuckets to a manifest, computed once for all vBuckets in the same state.

use std::sync::Arc;

use crate::group::EventGroup;
use crate::table::CollectionTable;
use crate::{CollectionChange, Manifest, SystemEvent};

/// The next steps of a vBucket towards a manifest.
#[derive(Clone, Debug)]
pub enum Steps<'m> {
    /// No step: the manifest is applied.
    None,
    /// Some events, one row each.
    Events(Vec<SystemEvent<'m>>),
    /// Begin events with a common row.
    Group(Arc<EventGroup>),
}

/// Steps from one table to another.
#[derive(Clone, Debug)]
pub struct Plan<'m> {
    from: Arc<CollectionTable>,
    pub(crate) to: Arc<CollectionTable>,
    /// The steps.
    pub steps: Steps<'m>,
}

/// Planner that brings vBuckets to one manifest. vBuckets with equal collections take the same
/// steps, and share a table afterwards.
///
/// Cost: O(collections) for each different table, and for each repeated call of
/// `VBucket::apply_manifest`.
#[derive(Debug)]
pub struct ManifestPlanner<'m> {
    manifest: &'m Manifest,
    steps_max: usize,
    plans: Vec<Arc<Plan<'m>>>,
}

/// Maximum number of begin events at once with a row each: every new bucket has more, as one group.
const ROWS_MAX: usize = 2;
/// Maximum number of remembered plans. More occur only while collections are dropped, some in each
/// step.
const PLANS_MAX: usize = 128;

impl<'m> ManifestPlanner<'m> {
    /// Creates a planner for `manifest`, with at most `steps_max` events per lock hold; more begin
    /// events than that come as one group.
    pub fn new(manifest: &'m Manifest, steps_max: usize) -> Self {
        Self {
            manifest,
            steps_max,
            plans: Vec::new(),
        }
    }

    /// The manifest to reach.
    pub fn manifest(&self) -> &'m Manifest {
        self.manifest
    }

    /// Maximum number of events per lock hold.
    pub fn steps_max(&self) -> usize {
        self.steps_max
    }

    /// Returns the next steps of a vBucket with this table.
    pub(crate) fn plan(&mut self, from: &Arc<CollectionTable>) -> Arc<Plan<'m>> {
        let known = |plan: &&Arc<Plan<'_>>| Arc::ptr_eq(&plan.from, from);
        let known = self.plans.iter().find(known);
        let same = || self.plans.iter().find(|plan| plan.from == *from);
        if let Some(plan) = known.or_else(same) {
            return Arc::clone(plan);
        }
        let plan = Arc::new(self.make(from));
        if self.plans.len() == PLANS_MAX {
            self.plans.clear();
        }
        self.plans.push(Arc::clone(&plan));
        plan
    }

    fn make(&self, from: &Arc<CollectionTable>) -> Plan<'m> {
        let mut changes = from.differences(self.manifest);
        let begins = |change: &CollectionChange<'_>| {
            matches!(
                change,
                CollectionChange::Begun(_) | CollectionChange::ScopeBegun { .. }
            )
        };
        let begun = changes.iter().take_while(|change| begins(change)).count();
        let grouped = begun > self.steps_max.min(ROWS_MAX);
        changes.truncate(if grouped { begun } else { self.steps_max });
        let mut to = CollectionTable::clone(from);
        to.open.reserve_exact(changes.len());
        for change in &changes {
            to.apply(change);
        }
        let manifest = self.manifest.uid();
        let steps = if changes.is_empty() {
            Steps::None
        } else if grouped {
            Steps::Group(Arc::new(EventGroup::new(manifest, &changes)))
        } else {
            let event = |change| SystemEvent { manifest, change };
            Steps::Events(changes.into_iter().map(event).collect())
        };
        let to = match steps {
            Steps::None => Arc::clone(from),
            _ => Arc::new(to),
        };
        Plan {
            from: Arc::clone(from),
            to,
            steps,
        }
    }
}
