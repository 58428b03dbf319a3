//! History: retention of replaced versions of documents.

use std::sync::atomic::{AtomicU64, Ordering};

use collections::Living;
use model::{Meta, VbId};
use parking_lot::Mutex;
use storage::{HistoryKept, HistoryLimits, KvStore, StoreError};

use crate::Bucket;
use crate::stats::Counters;

/// Divisor: a vBucket's history is checked again when this part of its limit was written or has passed.
const PART: u64 = 8;
/// Minimum of bytes written before such a check.
const GROWN_BYTES_MIN: u64 = 64 << 10;
/// Maximum and minimum interval between two checks, in seconds.
const LOOK_S_MAX: u64 = 60;
const LOOK_S_MIN: u64 = 1;

/// Retention of replaced versions of documents, for collections with a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryRetention {
    /// Maximum age in seconds; 0 for no limit.
    pub seconds: u64,
    /// Maximum bytes in the whole bucket; 0 for no limit.
    pub bytes: u64,
}

impl HistoryRetention {
    /// Whether history is kept: at least one limit is set.
    pub fn keeps(&self) -> bool {
        self.seconds > 0 || self.bytes > 0
    }
}

/// Known figures of one vBucket's history.
#[derive(Clone, Copy, Debug, Default)]
struct KnownHistory {
    /// Figures of the last check.
    kept: HistoryKept,
    /// Bytes written since the last check.
    grown: u64,
    /// Time of the last check in Unix seconds; zero for none.
    looked_s: u64,
}

/// Retention, and the known figures of every vBucket.
#[derive(Debug)]
pub(crate) struct Histories {
    seconds: AtomicU64,
    bytes: AtomicU64,
    /// Figures by vBucket, up to the last one with any.
    known: Mutex<Vec<KnownHistory>>,
}

impl Histories {
    pub(crate) fn new(retention: HistoryRetention) -> Self {
        Self {
            seconds: AtomicU64::new(retention.seconds),
            bytes: AtomicU64::new(retention.bytes),
            known: Mutex::default(),
        }
    }

    pub(crate) fn retention(&self) -> HistoryRetention {
        HistoryRetention {
            seconds: self.seconds.load(Ordering::SeqCst),
            bytes: self.bytes.load(Ordering::SeqCst),
        }
    }

    fn of(&self, id: VbId) -> KnownHistory {
        let known = self.known.lock();
        known.get(usize::from(id.0)).copied().unwrap_or_default()
    }

    /// Counts written rows of so many bytes.
    pub(crate) fn grew(&self, id: VbId, bytes: u64) {
        self.change(id, |known| known.grown += bytes);
    }

    fn looked(&self, id: VbId, kept: HistoryKept, before: u64, now_s: u64) {
        self.change(id, |known| {
            known.kept = kept;
            known.grown = known.grown.saturating_sub(before);
            known.looked_s = now_s;
        });
    }

    fn change(&self, id: VbId, change: impl FnOnce(&mut KnownHistory)) {
        let mut known = self.known.lock();
        let at = usize::from(id.0);
        if known.len() <= at {
            known.resize(at + 1, KnownHistory::default());
        }
        change(&mut known[at]);
    }
}

impl<S: KvStore> Bucket<S> {
    /// Returns the retention of replaced versions.
    pub fn history_retention(&self) -> HistoryRetention {
        self.histories.retention()
    }

    /// Changes the retention. Versions from before the last switch-off of the history are lost.
    ///
    /// # Errors
    /// The store's; then the retention is unchanged.
    ///
    /// Cost: one lock hold for each vBucket; a look into the store for each when the history begins.
    pub fn set_history_retention(&self, retention: HistoryRetention) -> Result<(), StoreError> {
        // Waits for commits under way, so that the old retention applies to them.
        let turn = self.turn_to_write();
        if retention.keeps() && !self.history_retention().keeps() {
            self.forget_histories()?;
        }
        self.histories
            .seconds
            .store(retention.seconds, Ordering::SeqCst);
        self.histories
            .bytes
            .store(retention.bytes, Ordering::SeqCst);
        for id in (0..self.vbuckets()).map(VbId) {
            self.with_vbucket(id, |vbucket| vbucket.set_keeps_history(retention.keeps()));
        }
        drop(turn);
        self.compactions.signal.ring();
        Ok(())
    }

    /// Drops the history of every vBucket.
    pub(crate) fn forget_histories(&self) -> Result<(), StoreError> {
        if self.store.may_have_history()? {
            for id in (0..self.vbuckets()).map(VbId) {
                if self.quarantined(id).is_none() {
                    self.forget_history(id)?;
                }
            }
        }
        Ok(())
    }

    /// Drops the history of a vBucket, because it will have a gap.
    pub(crate) fn forget_history(&self, id: VbId) -> Result<(), StoreError> {
        self.check_quarantine(id, "dropping a history")?;
        let grown = self.histories.of(id).grown;
        let kept = self
            .store
            .trim_history(id, HistoryLimits::NOTHING, &mut |_, _| false)?;
        let now_s = u64::from(self.clock.now().unix_s());
        self.histories.looked(id, kept, grown, now_s);
        Ok(())
    }

    /// Returns the size of a vBucket's history: the figures of the last check, plus the bytes written since.
    pub fn history_kept(&self, id: VbId) -> HistoryKept {
        let known = self.histories.of(id);
        HistoryKept {
            bytes: known.kept.bytes + known.grown,
            ..known.kept
        }
    }

    /// Drops versions of a vBucket's history that are too old, too many, or of dropped collections.
    ///
    /// # Errors
    /// The store's.
    ///
    /// Cost: reads the history, without any lock.
    pub fn trim_history(
        &self,
        id: VbId,
        living: Option<&Living>,
    ) -> Result<HistoryKept, StoreError> {
        self.check_quarantine(id, "trimming a history")?;
        let now = self.clock.now().unix_s();
        let limits = self.history_limits(now);
        let grown = self.histories.of(id).grown;
        let mut dead = |meta: &Meta, key: &[u8]| {
            let tombstone = meta.kind.is_tombstone();
            living.is_some_and(|living| living.is_dead(key, meta.seqno, tombstone))
        };
        let kept = self.store.trim_history(id, limits, &mut dead)?;
        Counters::add(&self.compaction().history_dropped, kept.dropped);
        self.histories.looked(id, kept, grown, now.into());
        Ok(kept)
    }

    fn history_limits(&self, now_s: u32) -> HistoryLimits {
        let retention = self.history_retention();
        if !retention.keeps() {
            return HistoryLimits::NOTHING;
        }
        let seconds = u32::try_from(retention.seconds).unwrap_or(u32::MAX);
        HistoryLimits {
            bytes: match retention.bytes {
                0 => u64::MAX,
                bytes => bytes / u64::from(self.vbuckets()),
            },
            before_s: match seconds {
                0 => 0,
                seconds => now_s.saturating_sub(seconds),
            },
        }
    }

    /// Returns the interval between two checks in seconds; `None` while no history is kept.
    pub(crate) fn history_pause_s(&self) -> Option<u64> {
        let retention = self.history_retention();
        let by_age = match retention.seconds {
            0 => LOOK_S_MAX,
            seconds => (seconds / PART).clamp(LOOK_S_MIN, LOOK_S_MAX),
        };
        retention.keeps().then_some(by_age)
    }

    /// Trims a vBucket's history if that is due. Returns whether it did.
    pub(crate) fn trim_if_due(&self, id: VbId) -> Result<bool, StoreError> {
        let now_s = u64::from(self.clock.now().unix_s());
        let (known, retention) = (self.histories.of(id), self.history_retention());
        if self.quarantined(id).is_some() || !is_due(&known, retention, self.vbuckets(), now_s) {
            return Ok(false);
        }
        self.trim_history(id, None)?;
        Ok(true)
    }
}

/// Whether some versions of a vBucket's history may have to be dropped.
fn is_due(known: &KnownHistory, retention: HistoryRetention, vbuckets: u16, now_s: u64) -> bool {
    if !retention.keeps() {
        return known.grown > 0 || known.kept.rows > 0;
    }
    if known.looked_s == 0 {
        return true;
    }
    let most = retention.bytes / u64::from(vbuckets.max(1));
    let much = retention.bytes > 0
        && known.grown >= (most / PART).max(GROWN_BYTES_MIN)
        && known.kept.bytes + known.grown > most;
    let some = known.grown > 0 || known.kept.rows > 0;
    let since_s = now_s.saturating_sub(known.looked_s);
    let old = retention.seconds > 0 && some && since_s >= (retention.seconds / PART).max(1);
    much || old
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_due_when_too_old_or_too_large() {
        let none = HistoryRetention::default();
        let by_age = HistoryRetention {
            seconds: 80,
            bytes: 0,
        };
        let by_bytes = HistoryRetention {
            seconds: 0,
            bytes: 8 << 20,
        };
        let known = |rows, bytes, grown| KnownHistory {
            kept: HistoryKept {
                rows,
                bytes,
                ..HistoryKept::default()
            },
            grown,
            looked_s: 1000,
        };
        let due = |known: &KnownHistory, retention, now_s| is_due(known, retention, 8, now_s);
        assert!(
            due(&KnownHistory::default(), by_age, 1000),
            "never looked through"
        );
        assert!(!due(&KnownHistory::default(), none, 1000));
        assert!(due(&known(1, 10, 0), none, 1000), "not kept any more");
        assert!(!due(&known(0, 0, 0), by_age, 9000), "nothing there");
        assert!(!due(&known(1, 10, 0), by_age, 1009));
        assert!(due(&known(1, 10, 0), by_age, 1010));
        assert!(due(&known(0, 0, 1), by_age, 1010));
        assert!(
            !due(&known(9, 1 << 20, 1 << 10), by_bytes, 9000),
            "too little"
        );
        assert!(due(&known(9, 1 << 20, 128 << 10), by_bytes, 1000));
        assert!(
            !due(&known(0, 0, 512 << 10), by_bytes, 9000),
            "less than the limit"
        );
    }
}
