//! Possible states of a store after some calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::VbId;

use super::read::{Deviation, ReadBack, ReadVBucket, ensure};
use super::world::{StoreCall, VbState, World};

/// A possible state of a vBucket.
#[derive(Clone, Debug)]
pub(crate) enum Candidate {
    /// Exactly this state; `None` for a missing vBucket.
    Exact(Option<Arc<VbState>>),
    /// A state between these two.
    Between(Arc<VbState>, Arc<VbState>),
}

/// All possible states of a store: some candidates for each vBucket. The first ones are the acknowledged states.
#[derive(Clone, Debug, Default)]
pub(crate) struct Possible {
    pub(crate) vbs: BTreeMap<VbId, Vec<Candidate>>,
    pub(crate) manifests: Vec<Option<Vec<u8>>>,
}

impl Possible {
    /// Creates the set with this state only.
    pub(crate) fn only(world: &World) -> Self {
        let exact = |(vb, state): (&VbId, &Arc<VbState>)| {
            (*vb, vec![Candidate::Exact(Some(Arc::clone(state)))])
        };
        Self {
            vbs: world.vbs.iter().map(exact).collect(),
            manifests: vec![world.manifest.clone()],
        }
    }

    /// Adds a candidate for a vBucket.
    pub(crate) fn or(&mut self, vb: VbId, candidate: Candidate) {
        let candidates = self.vbs.entry(vb);
        let candidates = candidates.or_insert_with(|| vec![Candidate::Exact(None)]);
        candidates.push(candidate);
    }

    /// Returns the possible states during a step from one world to another.
    pub(crate) fn during(&self, step: &StoreCall, before: &World, after: &World) -> Self {
        let mut during = self.clone();
        for vb in step.touched() {
            let state = after.vbs.get(&vb).cloned();
            if step.has_parts()
                && let (Some(before), Some(state)) = (before.vbs.get(&vb), &state)
            {
                let (before, state) = (Arc::clone(before), Arc::clone(state));
                during.or(vb, Candidate::Between(before, state));
            }
            during.or(vb, Candidate::Exact(state));
        }
        during.manifests.push(after.manifest.clone());
        during
    }

    /// Finds the state of a vBucket that was read; `None` for a missing vBucket.
    pub(crate) fn find(
        &self,
        vb: VbId,
        view: Option<&ReadVBucket>,
    ) -> Result<Option<Arc<VbState>>, String> {
        let none = [Candidate::Exact(None)];
        let candidates = self.vbs.get(&vb).map_or(&none[..], |all| all);
        for candidate in candidates {
            match (candidate, view) {
                (Candidate::Exact(None), None) => return Ok(None),
                (Candidate::Exact(Some(state)), Some(view)) if view.shows(state) => {
                    return Ok(Some(Arc::clone(state)));
                }
                (Candidate::Between(from, to), Some(view)) => {
                    if let Some(state) = view.between(from, to) {
                        return Ok(Some(Arc::new(state)));
                    }
                }
                _ => {}
            }
        }
        let first = candidates.first();
        Err(match (view, first) {
            (Some(view), Some(Candidate::Exact(Some(state)))) => {
                format!(
                    "{vb} of {} candidates: {}",
                    candidates.len(),
                    view.differs(state)
                )
            }
            (Some(_), _) => format!("{vb} is there"),
            (None, _) => format!("{vb} is not there"),
        })
    }

    /// Returns the world that matches a store.
    pub(crate) fn recognize(&self, found: ReadBack) -> Result<World, Deviation> {
        let mut world = World::default();
        let mut views = BTreeMap::new();
        for (vb, view) in found.vbs {
            views.insert(vb, view?);
        }
        let vbs: BTreeSet<VbId> = views.keys().chain(self.vbs.keys()).copied().collect();
        for vb in vbs {
            let state = self.find(vb, views.get(&vb)).map_err(Deviation::Silent)?;
            if let Some(state) = state {
                world.vbs.insert(vb, state);
            }
        }
        world.manifest = found.manifest?;
        ensure(self.manifests.contains(&world.manifest), || {
            "the manifest is another".to_owned()
        })?;
        Ok(world)
    }
}
