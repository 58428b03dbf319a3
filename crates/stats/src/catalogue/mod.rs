//! The catalogue of statistics, with one row each: groups, name, unit, meaning, function that computes it, and
//! name on the metrics page.
//!
//! In names `N` stands for a number, `STATE` for `active`, `replica` or `pending`, and `OP` for the name of an
//! opcode in small letters.

mod bucket;
mod cluster;
mod conflicts;
mod dcp;
mod groups;
mod left_out;
mod lists;
mod node;
mod others;
mod page;
mod pressure;
mod row;
mod settings;
mod vbuckets;

pub(crate) use bucket::STATES;
pub(crate) use cluster::CLUSTER;
pub(crate) use dcp::{CONSUMERS, PREFIX_SUMS, PRODUCERS, STREAMS, TOTALS};
pub(crate) use groups::{GROUPS, GROUPS_LEFT_OUT, Group};
#[cfg(test)]
pub(crate) use left_out::LEFT_OUT;
pub(crate) use lists::bucket_rows;
pub(crate) use node::NODE;
pub(crate) use page::rows_of;
pub use page::stats_page;
pub(crate) use row::{BucketRow, Metric, NodeRow, Statistic, Unit, VbRow};
pub(crate) use vbuckets::VBUCKETS;
