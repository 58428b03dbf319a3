//! Log of what a follower cannot take over from the active node.

/// Part of the active node's state, and the reason why it is not followed.
pub(super) struct Missed {
    what: &'static str,
    /// Last logged reason; empty while all is followed.
    reason: String,
}

impl Missed {
    pub(super) fn new(what: &'static str) -> Self {
        let reason = String::new();
        Self { what, reason }
    }

    /// Logs a reason once, however often it is met, and once that there is none any more.
    pub(super) fn note(&mut self, bucket: &str, met: Result<(), String>) {
        let reason = met.err().unwrap_or_default();
        if reason == self.reason {
            return;
        }
        let what = self.what;
        if reason.is_empty() {
            tracing::info!(bucket, "the {what} of the active node are followed again");
        } else {
            tracing::warn!(
                bucket,
                reason,
                "the {what} of the active node are not followed"
            );
        }
        self.reason = reason;
    }
}
