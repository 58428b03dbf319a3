//! Documents: immutable and shared ones, and those that are being made.

mod draft;
mod header;
mod shared;
#[cfg(test)]
mod tests;

pub use draft::Draft;
pub use header::Meta;
pub use shared::{DOCUMENT_OVERHEAD_BYTES, Document};
