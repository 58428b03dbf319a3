//! Where a part is.

/// Components of a path, and levels of a document, at most.
pub const DEPTH_MAX: usize = 32;

/// Where a path leads in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub start: usize,
    /// Behind its last byte.
    pub end: usize,
}

impl Span {
    /// The part of `text` that this is.
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}
