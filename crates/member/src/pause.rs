//! Pauses of the whole process (SIGSTOP, a machine that sleeps), after which the known users may be outdated.

/// Shortest time between two ticks that counts as a pause, ms.
const PAUSE_MS: u64 = 1_000;

/// Longest time after a pause in which logins wait for the newest users, ms. etcd may be away.
const WAIT_MS: u64 = 3_000;

/// The last tick of the driver, and the last pause.
pub(crate) struct Pause {
    ticked_ms: u64,
    /// Time when a pause was detected, until the users are the newest again.
    detected_ms: Option<u64>,
}

impl Pause {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            ticked_ms: now_ms,
            detected_ms: None,
        }
    }

    /// Records a tick of the driver. `current`: the node has a lease, and applied the users that it read.
    pub(crate) fn tick(&mut self, now_ms: u64, current: bool) {
        self.detect(now_ms);
        self.ticked_ms = now_ms;
        if current {
            self.detected_ms = None;
        }
    }

    /// Whether logins must wait for the newest users. A login may come before the first tick after a pause.
    pub(crate) fn holds_logins(&mut self, now_ms: u64) -> bool {
        self.detect(now_ms);
        let waits = |since_ms| now_ms.saturating_sub(since_ms) < WAIT_MS;
        self.detected_ms.is_some_and(waits)
    }

    fn detect(&mut self, now_ms: u64) {
        let paused = now_ms.saturating_sub(self.ticked_ms) >= PAUSE_MS;
        let known = self.detected_ms.is_some_and(|at_ms| at_ms > self.ticked_ms);
        if paused && !known {
            self.detected_ms = Some(now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_wait_after_a_pause_until_the_users_are_the_newest() {
        let mut pause = Pause::new(0);
        pause.tick(PAUSE_MS - 1, false);
        assert!(
            !pause.holds_logins(PAUSE_MS),
            "without a lease, and no pause"
        );
        let resumed_ms = 10 * PAUSE_MS;
        assert!(pause.holds_logins(resumed_ms), "before the first tick");
        pause.tick(resumed_ms + 1, false);
        assert!(pause.holds_logins(resumed_ms + 2));
        pause.tick(resumed_ms + 3, true);
        assert!(!pause.holds_logins(resumed_ms + 4));
    }

    #[test]
    fn logins_wait_a_limited_time_after_each_pause() {
        let mut pause = Pause::new(0);
        for resumed_ms in [20 * PAUSE_MS, 40 * PAUSE_MS] {
            assert!(pause.holds_logins(resumed_ms));
            let last_ms = resumed_ms + WAIT_MS - 1;
            assert!(pause.holds_logins(last_ms));
            assert!(!pause.holds_logins(last_ms + 1), "though no tick came");
            pause.tick(last_ms + 2, false);
            assert!(!pause.holds_logins(last_ms + 2));
        }
    }
}
