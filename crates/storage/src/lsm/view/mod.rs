//! Reading: the row of a key, and views of a vBucket.

mod fetch;
mod seqnos;
mod snapshot;

pub(crate) use fetch::fetch;
pub(crate) use snapshot::{DiskSnapshot, RowView};
