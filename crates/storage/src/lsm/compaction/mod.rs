//! Compaction: adjacent runs become one, without superseded rows; values move out of files that are mostly dead.

mod merge;
mod policy;
mod renewal;
mod worker;

pub(crate) use worker::CompactionWorker;
