//! Spans of text.

/// Maximum number of components of a path, and of levels of a document.
pub const DEPTH_MAX: usize = 32;

/// Position of a part in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

impl Span {
    /// Returns this part of `text`.
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}
