//! The planner: from the members and the present maps it computes the wanted maps.
//!
//! It balances copies and active copies per bucket and over all buckets. Copies of a vBucket are on different
//! nodes and, as far as possible, in different zones. Copies that can stay do so. The same input gives the
//! same plan.

mod placement;
mod quota;
mod roles;

use crate::map::{COPIES_MAX, Chain, Member};
use placement::Placement;
use quota::{CopyLimits, Quotas, Totals};

/// Tolerated deviation of a node's copies from an equal share, over all buckets, in thousandths.
const COPIES_TOLERANCE_PER_MILLE: usize = 8;
/// Tolerated deviation of a node's active copies, which move without their data, in thousandths.
const ACTIVE_TOLERANCE_PER_MILLE: usize = 4;

/// Present map of a bucket, and the wanted number of copies.
#[derive(Clone, Debug)]
pub struct BucketChains {
    /// A chain for each vBucket. It may contain nodes that are not members.
    pub chains: Vec<Chain>,
    /// Wanted number of copies of each vBucket, 1 to [`COPIES_MAX`]; with fewer members there are fewer copies.
    pub copies: usize,
}

/// Returns the wanted map of each bucket. Without members the maps stay as they are.
pub fn plan(members: &[Member], buckets: &[BucketChains]) -> Vec<Vec<Chain>> {
    let mut members = members.to_vec();
    members.sort_unstable();
    members.dedup_by_key(|member| member.node);
    if members.is_empty() {
        return buckets.iter().map(|bucket| bucket.chains.clone()).collect();
    }
    let copies_of = |bucket: &BucketChains| bucket.copies.clamp(1, COPIES_MAX.min(members.len()));
    let copies = |bucket: &BucketChains| bucket.chains.len() * copies_of(bucket);
    let vbuckets = |bucket: &BucketChains| bucket.chains.len();
    let totals = |of: &dyn Fn(&BucketChains) -> usize, per_mille| {
        Totals::new(members.len(), buckets.iter().map(of).sum(), per_mille)
    };
    let mut copies_total = totals(&copies, COPIES_TOLERANCE_PER_MILLE);
    let mut active_total = totals(&vbuckets, ACTIVE_TOLERANCE_PER_MILLE);
    let mut wanted = Vec::with_capacity(buckets.len());
    for bucket in buckets {
        let limits = CopyLimits::new(&members, bucket.chains.len(), copies_of(bucket));
        let mut placement = Placement::keep(&members, &limits, &bucket.chains);
        let quotas = Quotas::of_copies(&limits, &placement.counts(), &copies_total);
        placement.complete(&quotas, &copies_total);
        placement.level(&quotas);
        for (total, count) in copies_total.counts.iter_mut().zip(placement.counts()) {
            *total += count;
        }
        let chains = roles::choose(&placement, &bucket.chains, &active_total);
        for active in chains.iter().filter_map(Chain::active) {
            let member = placement.member(active);
            active_total.counts[usize::from(member.expect("members have the copies"))] += 1;
        }
        wanted.push(chains);
    }
    wanted
}

#[cfg(test)]
mod tests;
