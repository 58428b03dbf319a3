//! What a run does at the moment, for its user.

/// Shows one line after the other.
pub struct Progress(Box<dyn Fn(&str)>);

impl Progress {
    /// Calls `show` with each line.
    pub fn new(show: impl Fn(&str) + 'static) -> Self {
        Self(Box::new(show))
    }

    /// Shows a line in place of the one before.
    pub(crate) fn show(&self, line: &str) {
        (self.0)(line);
    }
}
