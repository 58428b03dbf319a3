//! Changes that cannot be made at once, for example because a disk is full: they are tried again at an interval.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Interval between attempts.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The newest value that is not completely applied, and the time of the next attempt.
pub(crate) struct Unapplied<T>(Option<(T, Instant)>);

impl<T> Default for Unapplied<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Unapplied<T> {
    /// Replaces the value by a newer one, which is tried at once.
    pub(crate) fn set(&mut self, newest: T) {
        self.0 = Some((newest, Instant::now()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Applies the value if its time has come. It is tried again after [`RETRY`] if `apply` returns false.
    pub(crate) fn attempt(&mut self, apply: impl FnOnce(&T) -> bool) {
        let due = self.0.take_if(|(_, at)| Instant::now() >= *at);
        if let Some((value, _)) = due
            && !apply(&value)
        {
            self.0 = Some((value, Instant::now() + RETRY));
        }
    }
}

/// Changes that are refused, each with its bucket: each is logged once, and once more when it is made.
#[derive(Default)]
pub(crate) struct RefusedChanges(BTreeSet<(&'static str, Option<String>)>);

impl RefusedChanges {
    /// Notes an attempt of a change, which `what` describes as refused; returns whether it was made.
    pub(crate) fn note(
        &mut self,
        bucket: Option<&str>,
        what: &'static str,
        attempt: Result<(), String>,
    ) -> bool {
        let change = (what, bucket.map(str::to_owned));
        match attempt {
            Ok(()) => {
                if self.0.remove(&change) {
                    tracing::info!(bucket, "ended: {what}");
                }
                true
            }
            Err(reason) => {
                if self.0.insert(change) {
                    tracing::error!(bucket, reason, "{what}");
                }
                false
            }
        }
    }

    /// Forgets the changes of buckets: all that are left are made.
    pub(crate) fn forget_buckets(&mut self) {
        self.0.retain(|(_, bucket)| bucket.is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_value_is_tried_again_until_it_is_applied_or_replaced() {
        let mut unapplied = Unapplied::default();
        unapplied.set(1);
        unapplied.attempt(|_| false);
        assert!(!unapplied.is_empty());
        unapplied.attempt(|value| panic!("{value} is tried before its time"));
        unapplied.0 = unapplied.0.map(|(value, _)| (value, Instant::now()));
        unapplied.attempt(|value| *value != 1);
        assert!(!unapplied.is_empty());
        unapplied.set(2);
        unapplied.attempt(|value| *value == 2);
        assert!(unapplied.is_empty());
    }

    #[test]
    fn a_refused_change_is_noted_until_it_is_made() {
        let mut refused = RefusedChanges::default();
        for bucket in [None, Some("shop"), Some("gone")] {
            assert!(!refused.note(bucket, "not written", Err("full".into())));
        }
        assert!(refused.note(Some("shop"), "not written", Ok(())));
        assert_eq!(refused.0.len(), 2);
        refused.forget_buckets();
        assert_eq!(refused.0.len(), 1);
        assert!(refused.note(None, "not written", Ok(())));
        assert!(refused.0.is_empty());
    }
}
