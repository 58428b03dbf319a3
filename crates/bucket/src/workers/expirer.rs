//! The expiry pass: finds documents whose time has come although nobody asked for them.

use model::VbId;
use storage::KvStore;

use crate::Bucket;
use crate::holds::Hold;
use crate::stats::Counters;

/// Table slots looked at under one lock hold; each may become a tombstone.
const SLOTS_PER_HOLD: usize = 128;

impl<S: KvStore> Bucket<S> {
    /// One pass over all active vBuckets, a bounded hold at a time; tells how many documents had
    /// expired. Ends early when the workers are told to stop, and leaves the rest for the next
    /// pass while checkpoints have no room for more changes.
    pub fn expiry_step(&self) -> u64 {
        let mut expired = 0;
        for index in 0..self.vbuckets() {
            loop {
                if self.is_stopping() || self.memory.admit_removal().is_err() {
                    return expired;
                }
                let now = self.clock.now();
                let progress = self.with_vbucket_for(Hold::Expire, VbId(index), |vbucket| {
                    vbucket.expire_due(SLOTS_PER_HOLD, now)
                });
                let Some(progress) = progress else { break };
                expired += progress.changed as u64;
                Counters::add(&self.counters().expired, progress.changed as u64);
                if progress.finished || progress.slots == 0 {
                    break;
                }
            }
        }
        Counters::add(&self.counters().expiry_passes, 1);
        expired
    }
}
