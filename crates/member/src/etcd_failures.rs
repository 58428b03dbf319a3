//! Why etcd does not carry out requests, for the log and the status.

/// Time after the last failed request until etcd counts as well again, ms.
const WELL_AFTER_MS: u64 = 10_000;

/// Maximum number of reasons that are logged until etcd is well again. Each member may have its own ones.
const LOGGED: usize = 8;

/// Failed requests, until etcd counts as well again.
#[derive(Default)]
pub(crate) struct EtcdFailures {
    /// The last one, with its time and the reason.
    last: Option<(u64, String)>,
    /// Reasons that are logged.
    logged: Vec<String>,
}

impl EtcdFailures {
    /// Records a failed request, and logs its reason if it is another one than those before. Returns whether it does.
    pub(crate) fn note(&mut self, why: String, now_ms: u64) -> bool {
        let is_news = self.logged.len() < LOGGED && !self.logged.contains(&why);
        if is_news {
            tracing::warn!(reason = why, "etcd does not carry out requests");
            self.logged.push(why.clone());
        }
        self.last = Some((now_ms, why));
        is_news
    }

    /// Returns the reason of the last failed request, until etcd counts as well again.
    pub(crate) fn reason(&mut self, now_ms: u64) -> Option<String> {
        let (at_ms, why) = self.last.as_ref()?;
        if now_ms.saturating_sub(*at_ms) < WELL_AFTER_MS {
            return Some(why.clone());
        }
        tracing::info!("etcd carries out requests again");
        *self = Self::default();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_reason_is_told_until_no_request_fails_for_a_while() {
        let mut etcd_failures = EtcdFailures::default();
        assert_eq!(etcd_failures.reason(5), None);
        etcd_failures.note("no leader".to_owned(), 10);
        etcd_failures.note("no space".to_owned(), 20);
        let last_ms = 20 + WELL_AFTER_MS - 1;
        assert_eq!(etcd_failures.reason(last_ms).as_deref(), Some("no space"));
        assert_eq!(etcd_failures.reason(last_ms + 1), None);
        assert_eq!(etcd_failures.reason(30), None, "it is forgotten");
    }

    #[test]
    fn each_reason_is_logged_once_until_etcd_is_well_again() {
        let mut etcd_failures = EtcdFailures::default();
        let mut logs = |why: &str, now_ms| etcd_failures.note(why.to_owned(), now_ms);
        assert!(logs("a watch broke off", 10));
        assert!(logs("invalid peer certificate", 20));
        assert!(!logs("a watch broke off", 30));
        assert!(!logs("invalid peer certificate", 40));
        let logged = (0..100).filter(|port| logs(&format!("port {port}"), 50));
        assert_eq!(logged.count(), LOGGED - 2);
        assert_eq!(etcd_failures.reason(50 + WELL_AFTER_MS), None);
        assert!(etcd_failures.note("a watch broke off".to_owned(), 20_000));
    }
}
