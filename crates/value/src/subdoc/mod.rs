//! Parts of JSON documents: lookups and changes, byte by byte.
//!
//! ```text
//!   path text -> Path -> Located (span in the text) -> the part, or the text with a part spliced
//! ```
//!
//! Pure functions. Untouched bytes of a document stay as they are. The text of a document must be
//! valid JSON; for other texts nothing panics, but the results are meaningless.
//!
//! Cost: one pass over the text up to the part, and a copy for a change.
//!
//! Source: protocol specification, sections 4.4 and 4.5. Tests: `tests`.

mod attributes;
mod edit;
mod json;
mod path;
mod span;
#[cfg(test)]
mod tests;

pub use attributes::{
    AttributeSet, are_valid, decode_binary, encode_binary, find_in, name_of, section_bytes,
};
pub use edit::{Edit, EditKind, apply};
pub use json::{count, find, is_within_depth};
pub use path::{Component, Path};
pub use span::{DEPTH_MAX, Span};
