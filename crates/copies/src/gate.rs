//! Which vBuckets of a bucket follow which node of a cluster.

use model::{VbId, VbUuid};
use parking_lot::{Mutex, MutexGuard};

/// Bits of a history's UUID below its term.
const TERM_SHIFT: u32 = 24;

/// The UUID of the history that begins at `term`: 24 bits of it, and 24 of `random`. So the term of a copy's history is
/// known wherever its failover log is.
pub fn history_uuid(term: u64, random: u64) -> VbUuid {
    let low = (random & ((1 << TERM_SHIFT) - 1)).max(1);
    VbUuid(((term << TERM_SHIFT) | low) & ((1 << 48) - 1))
}

/// The term at which a history began; 0 for the one that a copy is made with.
pub fn history_term(uuid: VbUuid) -> u64 {
    uuid.0 >> TERM_SHIFT
}

/// A node of a cluster, by its number there.
pub type PeerId = u16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Following {
    /// The node that is followed, and the term of its active copy.
    pub(crate) from: Option<(PeerId, u64)>,
    /// A stream of that copy at that term is open.
    pub(crate) open: bool,
    /// To follow it the vBucket would have to give up what it acknowledged, for a while.
    pub(crate) stays: bool,
}

/// Which node each vBucket of a bucket follows.
///
/// What a stream brings is taken under the lock of its vBucket here. So once [`Gate::close`] has returned, nothing
/// more comes into the copy.
#[derive(Debug)]
pub struct Gate {
    vbuckets: Box<[Mutex<Following>]>,
}

impl Gate {
    /// None follows any.
    pub fn new(vbuckets: u16) -> Self {
        let vbuckets = (0..vbuckets).map(|_| Mutex::default()).collect();
        Self { vbuckets }
    }

    pub(crate) fn lock(&self, vb: VbId) -> Option<MutexGuard<'_, Following>> {
        Some(self.vbuckets.get(usize::from(vb.0))?.lock())
    }

    /// A vBucket follows the active copy of a term at `from`; nothing comes before a stream of it is open.
    pub fn follow(&self, vb: VbId, from: PeerId, term: u64) {
        if let Some(mut following) = self.lock(vb) {
            let from = Some((from, term));
            *following = Following {
                from,
                ..Following::default()
            };
        }
    }

    /// A vBucket follows none. Waits until what is being taken is taken; a rollback may take long.
    pub fn close(&self, vb: VbId) {
        if let Some(mut following) = self.lock(vb) {
            *following = Following::default();
        }
    }

    /// Whether a vBucket cannot follow without giving up, for a while, what it acknowledged. It has to come anew.
    pub fn stays(&self, vb: VbId) -> bool {
        let following = self.vbuckets.get(usize::from(vb.0));
        // One that goes back does not stay.
        let following = following.and_then(|following| following.try_lock());
        following.is_some_and(|following| following.stays)
    }

    /// The vBuckets with an open stream of `from`, each with its term.
    pub fn open_from(&self, from: PeerId) -> Vec<(VbId, u64)> {
        let open = |index: usize| {
            // One that goes back is not open.
            let following = *self.vbuckets[index].try_lock()?;
            let (peer, term) = following.from.filter(|_| following.open)?;
            (peer == from).then_some((VbId(index as u16), term))
        };
        (0..self.vbuckets.len()).filter_map(open).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_tells_its_term() {
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
        assert_eq!(gate.open_from(7), [(VbId(0), 2)]);
        gate.close(VbId(0));
        assert_eq!(gate.open_from(7), []);
    }
}
