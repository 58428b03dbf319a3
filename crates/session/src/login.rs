//! Logins of one connection: when they may be judged, and how many were wrong.

use std::time::Duration;

use identity::{FAILURES_PER_CONNECTION, LoginTurn};

/// What is remembered of a connection's logins.
#[derive(Debug, Default)]
pub(crate) struct LoginAttempts {
    /// Wrong ones.
    failures: u32,
    /// The one at the front of the input waits until then, monotonic nanoseconds.
    waits: Option<Waiting>,
    /// The user is that of the certificate with which the connection began: there is no other login.
    pub(crate) certified: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    until_ns: u64,
    /// It is refused then, unjudged.
    refused: bool,
}

/// What is to be done with a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginStep {
    /// Judge it.
    Judge,
    /// Look again after this long.
    Wait(Duration),
    /// Refuse it, and close the connection.
    Refuse,
}

impl LoginAttempts {
    /// What to do with the login at the front of the input; `turn` is asked once for each.
    pub(crate) fn step(&mut self, now_ns: u64, turn: impl FnOnce() -> LoginTurn) -> LoginStep {
        let waiting = if let Some(waiting) = self.waits.take() {
            waiting
        } else {
            let (wait, refused) = match turn() {
                LoginTurn::Now => return LoginStep::Judge,
                LoginTurn::After(wait) => (wait, false),
                LoginTurn::Refused(wait) => (wait, true),
            };
            let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
            Waiting {
                until_ns: now_ns.saturating_add(wait_ns),
                refused,
            }
        };
        if now_ns < waiting.until_ns {
            self.waits = Some(waiting);
            return LoginStep::Wait(Duration::from_nanos(waiting.until_ns - now_ns));
        }
        if waiting.refused {
            LoginStep::Refuse
        } else {
            LoginStep::Judge
        }
    }

    /// Notes a wrong one; whether the connection has had as many as it may have.
    pub(crate) fn failed(&mut self) -> bool {
        self.failures += 1;
        self.failures >= FAILURES_PER_CONNECTION
    }

    /// Notes a right one.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_waits_for_one_turn_only() {
        let mut attempts = LoginAttempts::default();
        let after = |ns| move || LoginTurn::After(Duration::from_nanos(ns));
        let never = || panic!("a turn was taken already");
        let left = |ns| LoginStep::Wait(Duration::from_nanos(ns));
        assert_eq!(attempts.step(100, || LoginTurn::Now), LoginStep::Judge);
        assert_eq!(attempts.step(100, after(50)), left(50));
        assert_eq!(attempts.step(120, never), left(30), "woken early");
        assert_eq!(attempts.step(150, never), LoginStep::Judge);
        let refused = || LoginTurn::Refused(Duration::from_nanos(9));
        assert_eq!(attempts.step(200, refused), left(9));
        assert_eq!(attempts.step(209, never), LoginStep::Refuse);
    }
}
