//! Logins of a connection: time of the next check, and number of failures.

use std::time::Duration;

use identity::{FAILURES_PER_CONNECTION, LoginTurn};

/// Login state of a connection.
#[derive(Debug, Default)]
pub(crate) struct LoginAttempts {
    /// Number of failed logins.
    failures: u32,
    /// Wait of the login at the front of the input.
    waits: Option<LoginDelay>,
    /// Certificate that is not judged yet.
    pub(crate) shown: Option<ShownCertificate>,
    /// Whether the connection began with a user's certificate: then there is no other login.
    pub(crate) certified: bool,
}

/// Client certificate (DER) of a TLS handshake, if the peer showed one.
#[derive(Debug)]
pub(crate) struct ShownCertificate(pub(crate) Option<Box<[u8]>>);

#[derive(Clone, Copy, Debug)]
struct LoginDelay {
    until_ns: u64,
    /// Whether the login is refused without a check after the wait.
    refused: bool,
}

/// Next step of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginStep {
    /// Check it.
    Judge,
    /// Try again after this time.
    Wait(Duration),
    /// Refuse it, and close the connection.
    Refuse,
}

impl LoginAttempts {
    /// Returns the next step of the login at the front of the input; calls `turn` once for it.
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
            LoginDelay {
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

    /// Records a failed login; returns whether the connection has reached its limit.
    pub(crate) fn failed(&mut self) -> bool {
        self.failures += 1;
        self.failures >= FAILURES_PER_CONNECTION
    }

    /// Records a successful login.
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
