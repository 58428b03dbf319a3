//! Reads: the row of a key, and views of a vBucket.

mod fetch;
mod newest;
mod order;
mod rows;
mod seqnos;
mod snapshot;

pub(crate) use fetch::{fetch, may_have};
pub(crate) use order::order_logs;
pub(crate) use rows::{NameRange, RowView};
pub(crate) use snapshot::DiskSnapshot;
