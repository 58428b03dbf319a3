//! The gate: it knows which node each vBucket of a bucket follows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use model::{VbId, VbUuid};
use parking_lot::{Mutex, MutexGuard};

/// Number of bits below the term in a history's UUID.
const TERM_SHIFT: u32 = 24;

/// Makes the UUID of the history that begins at `term`: 24 bits of the term and 24 bits of `random`. So the
/// failover log of a copy contains the terms of its histories.
pub fn history_uuid(term: u64, random: u64) -> VbUuid {
    let low = (random & ((1 << TERM_SHIFT) - 1)).max(1);
    VbUuid(((term << TERM_SHIFT) | low) & ((1 << 48) - 1))
}

/// Returns the term at which a history began; 0 for the first history of a new copy.
pub fn history_term(uuid: VbUuid) -> u64 {
    uuid.0 >> TERM_SHIFT
}

/// Number of a node in its cluster.
pub type PeerId = u16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Following {
    /// Node that is followed, and the term of its active copy.
    pub(crate) from: Option<(PeerId, u64)>,
    /// Whether a stream of that copy at that term is open.
    pub(crate) open: bool,
    /// Whether the vBucket cannot follow without giving up, for a while, writes that it acknowledged.
    pub(crate) stays: bool,
}

/// The nodes that the vBuckets of a bucket follow.
///
/// Changes of streams are applied under the vBucket's lock in the gate. So once [`Gate::close`] has returned,
/// the copy gets no more changes.
#[derive(Debug)]
pub struct Gate {
    vbuckets: Box<[Mutex<Following>]>,
    /// Number of changes of what [`Self::open_from`] returns.
    changes: AtomicU64,
    /// Whether a vBucket could not follow at some time.
    stayed: AtomicBool,
}

impl Gate {
    /// Creates a gate in which no vBucket follows a node.
    pub fn new(vbuckets: u16) -> Self {
        let vbuckets = (0..vbuckets).map(|_| Mutex::default()).collect();
        Self {
            vbuckets,
            changes: AtomicU64::default(),
            stayed: AtomicBool::default(),
        }
    }

    pub(crate) fn lock(&self, vb: VbId) -> Option<MutexGuard<'_, Following>> {
        Some(self.vbuckets.get(usize::from(vb.0))?.lock())
    }

    /// Makes a vBucket follow the active copy at `from` and its term; no changes are taken before a stream of
    /// it is open.
    pub fn follow(&self, vb: VbId, from: PeerId, term: u64) {
        if let Some(mut following) = self.lock(vb) {
            let from = Some((from, term));
            *following = Following {
                from,
                ..Following::default()
            };
            self.note_change();
        }
    }

    /// Records a change of a vBucket, which is locked.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns a number that is another one after each change of what [`Self::open_from`] returns.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Makes a vBucket follow no node. It waits until a change in progress is applied; a rollback may take long.
    pub fn close(&self, vb: VbId) {
        if let Some(mut following) = self.lock(vb) {
            *following = Following::default();
            self.note_change();
        }
    }

    /// Whether a vBucket cannot follow without giving up, for a while, writes that it acknowledged. It must
    /// be built again.
    pub fn stays(&self, vb: VbId) -> bool {
        let following = self.vbuckets.get(usize::from(vb.0));
        // A copy whose rollback is in progress does not count.
        let following = following.and_then(|following| following.try_lock());
        following.is_some_and(|following| following.stays)
    }

    /// Records that a vBucket, which is locked, cannot follow.
    pub(crate) fn stay(&self, following: &mut Following) {
        following.stays = true;
        self.stayed.store(true, Ordering::SeqCst);
    }

    /// Returns the vBuckets for which [`Self::stays`] holds.
    pub(crate) fn staying(&self) -> Vec<VbId> {
        let all = self.stayed.load(Ordering::SeqCst).then_some(&self.vbuckets);
        let vbs = (0..).zip(all.into_iter().flatten()).map(|(vb, _)| VbId(vb));
        vbs.filter(|vb| self.stays(*vb)).collect()
    }

    /// Returns the vBuckets with an open stream of `from`, each with its term, and whether no vBucket was just
    /// changing.
    pub fn open_from(&self, from: PeerId) -> (Vec<(VbId, u64)>, bool) {
        let mut is_whole = true;
        let open = |index: usize| {
            // A copy whose rollback is in progress does not count as open.
            let Some(following) = self.vbuckets[index].try_lock() else {
                is_whole = false;
                return None;
            };
            let (peer, term) = following.from.filter(|_| following.open)?;
            (peer == from).then_some((VbId(index as u16), term))
        };
        let all = (0..self.vbuckets.len()).filter_map(open).collect();
        (all, is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_uuid_contains_its_term() {
        for (term, random) in [(0, 0), (1, u64::MAX), (77, 1 << 24), ((1 << 24) - 1, 5)] {
            let uuid = history_uuid(term, random);
            assert_eq!(history_term(uuid), term);
            assert!(uuid.0 != 0 && uuid.0 < 1 << 48);
        }
    }

    #[test]
    fn only_open_streams_of_a_node_count() {
        let gate = Gate::new(3);
        gate.follow(VbId(0), 7, 2);
        gate.follow(VbId(1), 7, 3);
        gate.follow(VbId(2), 8, 1);
        for vb in [0, 2] {
            gate.lock(VbId(vb)).expect("a vBucket").open = true;
        }
        assert_eq!(gate.open_from(7), (vec![(VbId(0), 2)], true));
        let before = gate.changes();
        let locked = gate.lock(VbId(0));
        assert_eq!(gate.open_from(7), (Vec::new(), false), "it is changing");
        drop(locked);
        gate.close(VbId(0));
        assert_eq!(gate.open_from(7), (Vec::new(), true));
        assert_ne!(gate.changes(), before);
    }
}
