//! Compaction: runs that lie side by side become one, without what is superseded; values move out of files that are mostly
//! dead.

mod merge;
mod policy;
mod renewal;
mod worker;

pub(crate) use merge::Merged;
pub(crate) use worker::CompactionWorker;
