//! Keepalive of a connection: noops to the peer, and the limit for its silence.

/// Action due at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// No action is due.
    Nothing,
    /// Send a noop.
    Noop,
    /// Close the connection: the peer has been silent for too long.
    Silent,
}

/// The timers of a connection. Times are nanoseconds of the monotonic clock.
///
/// A noop is sent one interval after the last one, unless its answer is outstanding. Every message
/// of the peer shows that it is alive. With noops enabled, a peer that is silent for the idle limit
/// is disconnected. Without noops no peer is disconnected: a consumer may have nothing to send for
/// days.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    enabled: bool,
    interval_ns: u64,
    idle_limit_ns: u64,
    last_noop_ns: u64,
    last_heard_ns: u64,
    awaits_answer: bool,
}

impl Keepalive {
    /// Creates timers with noops disabled, for a peer that has just sent something.
    pub fn new(interval_ns: u64, idle_limit_ns: u64, now_ns: u64) -> Self {
        Self {
            enabled: false,
            interval_ns,
            idle_limit_ns,
            last_noop_ns: now_ns,
            last_heard_ns: now_ns,
            awaits_answer: false,
        }
    }

    /// Enables or disables noops.
    pub fn enable(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Whether noops are enabled.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Sets the interval between noops.
    pub fn set_interval(&mut self, interval_ns: u64) {
        self.interval_ns = interval_ns;
    }

    /// Interval between noops in nanoseconds.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Whether the answer to a noop is outstanding.
    pub fn awaits_answer(&self) -> bool {
        self.awaits_answer
    }

    /// Records a message of the peer.
    pub fn heard(&mut self, now_ns: u64) {
        self.last_heard_ns = now_ns;
    }

    /// Time of the peer's last message.
    pub fn last_heard_ns(&self) -> u64 {
        self.last_heard_ns
    }

    /// Records the answer to a noop.
    pub fn answered(&mut self) {
        self.awaits_answer = false;
    }

    /// Returns the action that is due. A returned noop counts as sent.
    pub fn poll(&mut self, now_ns: u64) -> Pulse {
        if !self.enabled {
            return Pulse::Nothing;
        }
        if now_ns.saturating_sub(self.last_heard_ns) >= self.idle_limit_ns {
            return Pulse::Silent;
        }
        let due = now_ns.saturating_sub(self.last_noop_ns) >= self.interval_ns;
        if due && !self.awaits_answer {
            self.last_noop_ns = now_ns;
            self.awaits_answer = true;
            return Pulse::Noop;
        }
        Pulse::Nothing
    }

    /// Returns the earliest time at which [`Keepalive::poll`] returns an action; `None` without
    /// noops.
    pub fn deadline_ns(&self) -> Option<u64> {
        if !self.enabled {
            return None;
        }
        let silent = self.last_heard_ns.saturating_add(self.idle_limit_ns);
        let noop = self.last_noop_ns.saturating_add(self.interval_ns);
        Some(if self.awaits_answer {
            silent
        } else {
            silent.min(noop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn noops_follow_the_interval_and_wait_for_their_answers() {
        let mut timers = Keepalive::new(20 * S, 360 * S, 0);
        assert_eq!(timers.poll(1000 * S), Pulse::Nothing, "noops are off");
        assert_eq!(timers.deadline_ns(), None);
        timers.enable(true);
        timers.heard(1000 * S);
        assert_eq!(timers.poll(1000 * S), Pulse::Noop);
        assert_eq!(timers.deadline_ns(), Some(1360 * S));
        assert_eq!(timers.poll(1100 * S), Pulse::Nothing, "not answered yet");
        timers.heard(1101 * S);
        timers.answered();
        assert_eq!(timers.deadline_ns(), Some(1020 * S));
        assert_eq!(timers.poll(1101 * S), Pulse::Noop);
    }

    #[test]
    fn silent_peer_is_given_up() {
        let mut timers = Keepalive::new(20 * S, 360 * S, 0);
        timers.enable(true);
        assert_eq!(timers.poll(20 * S), Pulse::Noop);
        timers.heard(30 * S);
        assert_eq!(timers.poll(389 * S), Pulse::Nothing);
        assert_eq!(timers.poll(390 * S), Pulse::Silent);
    }
}
