//! The states of vBuckets in manifest and logs.

use model::VbId;

use crate::lsm::log::{Entry, EntryKind};
use crate::lsm::manifest::Manifest;
use crate::lsm::state::{self, StoredState};
use crate::per_vb::PerVb;

/// Known state of a vBucket.
#[derive(Debug, Default)]
pub(crate) struct VbFound {
    pub(crate) state: Option<StoredState>,
    /// Epochs up to this one are removed.
    pub(crate) forgotten: u64,
}

/// The states of all vBuckets.
#[derive(Debug, Default)]
pub(crate) struct States {
    pub(crate) vbs: PerVb<VbFound>,
    /// The highest epoch of any vBucket; a removed vBucket had no higher one.
    newest: u64,
}

impl States {
    /// Records the states in a manifest. Returns the vBuckets whose state is damaged.
    pub(crate) fn read(&mut self, manifest: &Manifest) -> Vec<VbId> {
        let mut damaged = Vec::new();
        for vb in manifest.vbs() {
            let bytes = manifest.state(vb).ok().flatten();
            match bytes.as_deref().and_then(state::decode) {
                Some(stored) => self.record(vb, stored),
                None => damaged.push(vb),
            }
        }
        damaged
    }

    /// Applies an entry of a log.
    pub(crate) fn apply(&mut self, entry: &Entry<'_>) {
        match entry.what {
            EntryKind::Record => {
                if let Some(stored) = state::decode(entry.body) {
                    self.record(entry.vb, stored);
                }
            }
            EntryKind::Forget => self.forget(entry.vb),
            EntryKind::Row | EntryKind::Text => {}
        }
    }

    /// Records a state, unless a later one is known.
    fn record(&mut self, vb: VbId, stored: StoredState) {
        let order = |stored: &StoredState| (stored.state.lineage.epoch, stored.record.high_seqno);
        self.newest = self.newest.max(stored.state.lineage.epoch);
        let found = self.vbs.slot(vb).get_or_insert_default();
        let is_later = found
            .state
            .as_ref()
            .is_none_or(|known| order(known) <= order(&stored));
        if is_later && stored.state.lineage.epoch > found.forgotten {
            found.state = Some(stored);
        }
    }

    /// Records the removal of a vBucket.
    fn forget(&mut self, vb: VbId) {
        let found = self.vbs.slot(vb).get_or_insert_default();
        found.forgotten = self.newest;
        found.state = None;
    }

    /// Returns the state of a vBucket.
    pub(crate) fn get(&self, vb: VbId) -> Option<&StoredState> {
        self.vbs.get(vb)?.state.as_ref()
    }
}
