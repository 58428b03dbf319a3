//! The findings of a check.

/// Findings of one check.
#[derive(Default)]
pub(crate) struct Findings {
    /// A sentence about the checked items.
    pub(super) summary: String,
    /// Breaches, one line each; empty if the check passes.
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
