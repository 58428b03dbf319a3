//! Buckets that are visible to a user.

use identity::Access;

use crate::state::HttpState;
use crate::view::BucketSummary;

/// Returns the names of the buckets that are visible to a user.
pub(super) fn visible_buckets(state: &HttpState, access: &Access) -> Vec<String> {
    let mut names = state.view.bucket_names();
    names.retain(|name| !access.within_bucket(name).is_empty());
    names
}

/// Returns the visible buckets with their figures.
pub(super) fn visible(state: &HttpState, access: &Access) -> Vec<(String, BucketSummary)> {
    let names = visible_buckets(state, access).into_iter();
    let known = |name: String| state.view.bucket(&name).map(|bucket| (name, bucket));
    names.filter_map(known).collect()
}
