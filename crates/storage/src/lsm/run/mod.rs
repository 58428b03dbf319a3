//! A run: an immutable file of rows in the order of vBucket and name.
//!
//! ```text
//! header | blocks of rows, each with a checksum | filters | index | end
//! ```
//!
//! The rows of a vBucket are a section, which begins with a new block and has the epoch of its
//! rows. Drawn in `docs/format/run.md`.

mod check;
mod cursor;
mod filters;
mod format;
mod merged;
mod open;
mod scan;
mod writer;

pub(crate) use check::{CheckEvent, check};
pub(crate) use cursor::Cursor;
pub(crate) use format::Section;
pub(crate) use merged::Merged;
pub(crate) use open::{PARTS, Run, part_of};
pub(crate) use scan::{FoundBlock, scan};
pub(crate) use writer::RunWriter;
