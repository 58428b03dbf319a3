//! Parts of JSON documents: finding them and changing them, byte by byte.
//!
//! ```text
//!   path text -> Path -> Located (where in the text) -> the part, or the text with a part spliced
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
mod span;
#[cfg(test)]
mod tests;

pub use attributes::{AttributeSet, decode_binary, encode_binary, find_in, name_of, section_bytes};
pub use edit::{Edit, EditKind, apply};
pub use json::{count, find, is_within_depth};
pub use path::{Component, Path};
pub use span::{DEPTH_MAX, Span};
