//! Commands that read and change parts of documents.
//!
//! Extended attributes lie in front of a document's body ([`model::Attributes`]) and are parts like
//! others, whose paths say so. Tombstones have attributes only, and are taken by requests that ask for them.
//!
//! A lookup walks the document's text ([`value::subdoc`]); nothing is built. A change makes the new text outside of the
//! lock, and `VBucket::exchange` puts it in if what was read is still there; if not, all of it is done again. What is
//! not touched stays as it was, to the byte.

mod changed;
mod lookup;
mod macros;
mod mutate;
mod spec;
mod virtual_attributes;

pub(super) use lookup::{lookup, multi_lookup};
pub(super) use macros::Stamps;
pub(super) use mutate::{multi_mutation, mutate};
