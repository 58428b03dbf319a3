//! What a check found.

/// Findings of one check.
#[derive(Default)]
pub(crate) struct Findings {
    /// One sentence on what was looked at.
    pub(super) summary: String,
    /// Breaches, one line each; none means the promise holds.
    pub(super) breaches: Vec<String>,
}

impl Findings {
    pub(super) fn breach(&mut self, text: impl Into<String>) {
        self.breaches.push(text.into());
    }

    pub(super) fn summary(&mut self, text: impl Into<String>) {
        self.summary = text.into();
    }
}
