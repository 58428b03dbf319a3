//! Why etcd does not carry out requests, for the log and the status.

/// Time after the last failed request until etcd counts as well again, ms.
const WELL_AFTER_MS: u64 = 10_000;

/// The last failed request, with its time and the reason.
#[derive(Default)]
pub(crate) struct Trouble(Option<(u64, String)>);

impl Trouble {
    /// Records a failed request, and logs the first one.
    pub(crate) fn note(&mut self, why: String, now_ms: u64) {
        if self.0.is_none() {
            tracing::warn!(reason = why, "etcd does not carry out requests");
        }
        self.0 = Some((now_ms, why));
    }

    /// Returns the reason of the last failed request, until etcd counts as well again.
    pub(crate) fn reason(&mut self, now_ms: u64) -> Option<String> {
        let (at_ms, why) = self.0.as_ref()?;
        if now_ms.saturating_sub(*at_ms) < WELL_AFTER_MS {
            return Some(why.clone());
        }
        tracing::info!("etcd carries out requests again");
        self.0 = None;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_reason_is_told_until_no_request_fails_for_a_while() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.reason(5), None);
        trouble.note("no leader".to_owned(), 10);
        trouble.note("no space".to_owned(), 20);
        let last_ms = 20 + WELL_AFTER_MS - 1;
        assert_eq!(trouble.reason(last_ms).as_deref(), Some("no space"));
        assert_eq!(trouble.reason(last_ms + 1), None);
        assert_eq!(trouble.reason(30), None, "it is forgotten");
    }
}
