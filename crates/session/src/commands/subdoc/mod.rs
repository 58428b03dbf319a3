//! Commands that read and change parts of documents.
//!
//! Extended attributes lie before a document's body ([`model::Attributes`]). They are parts like others: a
//! flag of the path selects them. Tombstones have attributes only; requests reach them with a flag.
//!
//! A lookup walks the document's text ([`value::subdoc`]) and builds no tree. A change makes the new text
//! outside the lock. `VBucket::exchange` stores it if the document is still the one that was read; otherwise
//! the change starts again. Bytes that the change does not touch stay the same.

mod changed;
mod lookup;
mod macros;
mod mutate;
mod spec;
mod virtual_attributes;

pub(super) use lookup::{lookup, multi_lookup};
pub(super) use macros::Stamps;
pub(super) use mutate::{multi_mutation, mutate};
