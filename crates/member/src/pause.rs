//! Pauses of the whole process (SIGSTOP, a machine that sleeps), after which the known users may be outdated.

use std::sync::atomic::{AtomicU64, Ordering};

/// Shortest time between two ticks that counts as a pause, ms.
const PAUSE_MS: u64 = 1_000;

/// Longest time after a pause in which users wait for the newest users, ms. etcd may be away.
const WAIT_MS: u64 = 3_000;

/// The last tick of the driver, and the last pause in which a lease ended. All times are in ms.
pub(crate) struct Pause {
    ticked: AtomicU64,
    /// End of the last lease, 0 if there was none yet.
    lease_until: AtomicU64,
    /// Time when a pause was detected, 0 once the users are the newest again.
    detected: AtomicU64,
}

impl Pause {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            ticked: now_ms.into(),
            lease_until: AtomicU64::default(),
            detected: AtomicU64::default(),
        }
    }

    /// Records the end of the lease, 0 without one. The process may stand still before the next tick.
    pub(crate) fn renew(&self, now_ms: u64, lease_until_ms: u64) {
        self.detect(now_ms);
        if lease_until_ms > 0 {
            self.lease_until.store(lease_until_ms, Ordering::Release);
        }
    }

    /// Records a tick of the driver. `newest`: the node applied the users that it read.
    pub(crate) fn tick(&self, now_ms: u64, newest: bool) {
        self.detect(now_ms);
        self.ticked.store(now_ms, Ordering::Release);
        if newest && self.lease_until.load(Ordering::Acquire) > now_ms {
            self.detected.store(0, Ordering::Release);
        }
    }

    /// Whether users must wait for the newest users. A request may come before the first tick after a pause.
    pub(crate) fn holds_users(&self, now_ms: u64) -> bool {
        self.detect(now_ms);
        let detected_ms = self.detected.load(Ordering::Acquire);
        detected_ms > 0 && now_ms.saturating_sub(detected_ms) < WAIT_MS
    }

    /// Detects a pause in which the lease ended: while it lasts, other nodes wait until this one has the newest users. A
    /// lease that ended before was lost because etcd is away, and data goes on.
    fn detect(&self, now_ms: u64) {
        let ticked_ms = self.ticked.load(Ordering::Acquire);
        let lease_until_ms = self.lease_until.load(Ordering::Acquire);
        let paused = now_ms.saturating_sub(ticked_ms) >= PAUSE_MS;
        let ended_before = (1..=ticked_ms).contains(&lease_until_ms);
        let known = self.detected.load(Ordering::Acquire) > ticked_ms;
        if paused && lease_until_ms <= now_ms && !ended_before && !known {
            self.detected.store(now_ms, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESUMED_MS: u64 = 10 * PAUSE_MS;

    /// A process that stood still after a tick at 1 ms and a renewal.
    fn stood_still(lease_until_ms: u64) -> Pause {
        let pause = Pause::new(0);
        pause.tick(1, true);
        pause.renew(2, lease_until_ms);
        pause
    }

    #[test]
    fn users_wait_after_a_pause_until_they_are_the_newest() {
        let pause = stood_still(5 * PAUSE_MS);
        assert!(pause.holds_users(RESUMED_MS), "before the first tick");
        pause.renew(RESUMED_MS + 1, 0);
        pause.tick(RESUMED_MS + 1, true);
        assert!(pause.holds_users(RESUMED_MS + 2), "without a lease");
        pause.renew(RESUMED_MS + 3, RESUMED_MS + PAUSE_MS);
        pause.tick(RESUMED_MS + 3, false);
        assert!(pause.holds_users(RESUMED_MS + 4), "with the old users");
        pause.tick(RESUMED_MS + 5, true);
        assert!(!pause.holds_users(RESUMED_MS + 6));
    }

    #[test]
    fn users_wait_only_if_the_lease_ended_in_a_pause() {
        let lasts = stood_still(RESUMED_MS + 1);
        assert!(!lasts.holds_users(RESUMED_MS));
        let ended_before = stood_still(1);
        assert!(!ended_before.holds_users(RESUMED_MS));
        let has_none_yet = stood_still(0);
        assert!(has_none_yet.holds_users(RESUMED_MS), "etcd may know of one");
        let ends_without_a_pause = stood_still(PAUSE_MS);
        assert!(!ends_without_a_pause.holds_users(PAUSE_MS));
    }

    #[test]
    fn users_wait_a_limited_time_after_each_pause() {
        let pause = stood_still(5 * PAUSE_MS);
        for resumed_ms in [20 * PAUSE_MS, 40 * PAUSE_MS] {
            assert!(pause.holds_users(resumed_ms));
            let last_ms = resumed_ms + WAIT_MS - 1;
            assert!(pause.holds_users(last_ms));
            assert!(!pause.holds_users(last_ms + 1), "though no tick came");
            pause.tick(last_ms + 2, false);
            assert!(!pause.holds_users(last_ms + 2));
            pause.renew(last_ms + 3, last_ms + 5 * PAUSE_MS);
        }
    }
}
