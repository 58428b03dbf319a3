//! Parts of JSON documents: finding them and changing them, byte by byte.
//!
//! ```text
//!   path text -> Path -> Found (where in the text) -> the part, or the text with a part spliced
//! ```
//!
//! Pure functions. What is not touched of a document stays as it was, to the byte. A text that is
//! given as a document is valid JSON; nothing here panics if it is not, the results just make no
//! sense then.
//!
//! Cost: one pass over the text up to the part, and a copy for a change.
//!
//! Source: protocol specification, sections 4.4 and 4.5. Tests: `tests`.

mod attributes;
mod edit;
mod json;
mod path;
#[cfg(test)]
mod tests;

pub(crate) use attributes::{
    AttributeSet, decode_binary, encode_binary, find_in, name_of, section_bytes,
};
pub(crate) use edit::{Edit, EditKind, apply};
pub(crate) use json::{count, is_within_depth};
pub(crate) use path::{Component, Path};

use wire::Status;

/// Components of a path, and levels of a document, at most.
pub(crate) const DEPTH_MAX: usize = 32;

/// Where a path leads in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    /// The part of `text` that this is.
    pub(crate) fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// The part of a document that a path leads to.
///
/// # Errors
/// `SUBDOC_PATH_ENOENT`, `SUBDOC_PATH_MISMATCH`.
pub(crate) fn find(text: &[u8], path: &Path<'_>) -> Result<Span, Status> {
    json::walk(text, &path.components).map(|found| found.value)
}
