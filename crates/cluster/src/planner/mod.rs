//! Which nodes should have which copies: from the members and the present maps to the wanted maps.
//!
//! Copies and active copies are balanced per bucket and over all buckets, copies of a vBucket are on different nodes
//! and, as far as there are zones, in different zones, and what can stay stays. The same input gives the same plan.

mod placement;
mod quota;
mod roles;

use crate::map::{COPIES_MAX, Chain, Member};
use placement::Placement;
use quota::{Limits, Quotas, Totals};

/// How far the copies of a node may be off an equal share, over all buckets, before one more is moved.
const COPIES_TOLERANCE_PER_MILLE: usize = 8;
/// The same of active copies, which move without their data.
const ACTIVE_TOLERANCE_PER_MILLE: usize = 4;

/// The present map of a bucket, and how many copies of a vBucket it shall have.
#[derive(Clone, Debug)]
pub struct BucketMap {
    /// A chain for each vBucket. It may name nodes that are no members any more.
    pub chains: Vec<Chain>,
    /// 1 to [`COPIES_MAX`]; fewer are made where there are fewer members.
    pub copies: usize,
}

/// What leads from one map of a bucket to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Copies to be built on nodes that have none of the vBucket.
    pub builds: usize,
    /// vBuckets whose active copy changes.
    pub takeovers: usize,
}

impl Work {
    /// The work from `present` to `wanted`, of the same bucket.
    pub fn between(present: &[Chain], wanted: &[Chain]) -> Self {
        let mut work = Self::default();
        for (present, wanted) in present.iter().zip(wanted) {
            let built = wanted.nodes().iter().filter(|node| !present.holds(**node));
            work.builds += built.count();
            work.takeovers += usize::from(present.active() != wanted.active());
        }
        work
    }
}

/// The wanted map of each bucket. Without members the maps stay as they are.
pub fn plan(members: &[Member], buckets: &[BucketMap]) -> Vec<Vec<Chain>> {
    let mut members = members.to_vec();
    members.sort_unstable();
    members.dedup_by_key(|member| member.node);
    if members.is_empty() {
        return buckets.iter().map(|bucket| bucket.chains.clone()).collect();
    }
    let copies_of = |bucket: &BucketMap| bucket.copies.clamp(1, COPIES_MAX.min(members.len()));
    let copies = |bucket: &BucketMap| bucket.chains.len() * copies_of(bucket);
    let vbuckets = |bucket: &BucketMap| bucket.chains.len();
    let totals = |of: &dyn Fn(&BucketMap) -> usize, per_mille| {
        Totals::new(members.len(), buckets.iter().map(of).sum(), per_mille)
    };
    let mut copies_total = totals(&copies, COPIES_TOLERANCE_PER_MILLE);
    let mut active_total = totals(&vbuckets, ACTIVE_TOLERANCE_PER_MILLE);
    let mut wanted = Vec::with_capacity(buckets.len());
    for bucket in buckets {
        let limits = Limits::new(&members, bucket.chains.len(), copies_of(bucket));
        let mut placement = Placement::keep(&members, &limits, &bucket.chains);
        let quotas = Quotas::of_copies(&limits, &placement.counts(), &copies_total);
        placement.complete(&quotas, &copies_total);
        placement.level(&quotas);
        for (total, count) in copies_total.counts.iter_mut().zip(placement.counts()) {
            *total += count;
        }
        let active = roles::choose(&placement, &bucket.chains, &active_total);
        for node in &active {
            active_total.counts[usize::from(*node)] += 1;
        }
        let chains = bucket.chains.iter().zip(active).enumerate();
        let chain =
            |(vb, (present, active)): (usize, (&Chain, u16))| placement.chain(vb, present, active);
        wanted.push(chains.map(chain).collect());
    }
    wanted
}

#[cfg(test)]
mod tests;
