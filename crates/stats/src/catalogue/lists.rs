//! Lists of rows that belong together.

use super::bucket::BUCKET;
use super::conflicts::CONFLICTS;
use super::pressure::{LOCK_HOLDS, PRESSURE};
use super::row::BucketRow;
use super::settings::SETTINGS;

/// All rows of a bucket.
pub(crate) fn bucket_rows() -> impl Iterator<Item = &'static BucketRow> {
    let buckets = BUCKET.iter().chain(PRESSURE).chain(LOCK_HOLDS);
    buckets.chain(SETTINGS).chain(CONFLICTS)
}
