//! The rows that belong together.

use super::bucket::{BUCKET, STATES};
use super::node::NODE;
use super::others::OTHERS;
use super::pressure::PRESSURE;
use super::row::{About, BucketRow, Metric};
use super::settings::SETTINGS;
use super::vbuckets::VBUCKETS;

/// Every row of a bucket.
pub(crate) fn bucket_rows() -> impl Iterator<Item = &'static BucketRow> {
    let buckets = BUCKET.iter().chain(PRESSURE);
    buckets.chain(SETTINGS)
}

/// Every statistic of every group.
pub(crate) fn all() -> impl Iterator<Item = (About, Option<Metric>)> {
    let node = NODE.iter().map(|row| (row.about, row.metric));
    let bucket = bucket_rows().map(|row| (row.about, row.metric));
    let states = STATES.iter().map(|row| (row.about, row.metric));
    let vbuckets = VBUCKETS.iter().map(|row| (row.about, row.metric));
    let others = OTHERS.iter().map(|about| (*about, None));
    bucket
        .chain(states)
        .chain(node)
        .chain(vbuckets)
        .chain(others)
}
