//! Documents: immutable, shared ones, and drafts.

mod draft;
mod header;
mod shared;
#[cfg(test)]
mod tests;

pub use draft::Draft;
pub use header::Meta;
pub use shared::{DOCUMENT_OVERHEAD_BYTES, Document};
