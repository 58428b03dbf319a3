//! Quotas: the number of copies that each node shall have.

use std::collections::BTreeMap;

use crate::map::Member;

/// Limits by members, zones and number of copies.
pub(super) struct CopyLimits {
    pub(super) vbuckets: usize,
    pub(super) copies: usize,
    /// Zone of each member, numbered from 0.
    pub(super) zone_of: Vec<u16>,
    /// Number of members in each zone.
    sizes: Vec<usize>,
    /// Number of copies of one vBucket that each zone may have.
    pub(super) per_zone: Vec<usize>,
}

impl CopyLimits {
    pub(super) fn new(members: &[Member], vbuckets: usize, copies: usize) -> Self {
        let mut zones: Vec<u16> = members.iter().map(|member| member.zone).collect();
        zones.sort_unstable();
        zones.dedup();
        let number = |member: &Member| zones.partition_point(|zone| *zone < member.zone) as u16;
        let zone_of: Vec<u16> = members.iter().map(number).collect();
        let mut sizes = vec![0; zones.len()];
        for zone in &zone_of {
            sizes[usize::from(*zone)] += 1;
        }
        let room = |most: usize| sizes.iter().map(|size| most.min(*size)).sum::<usize>();
        let most = (1..=copies).find(|most| room(*most) >= copies);
        let most = most.unwrap_or(copies);
        Self {
            vbuckets,
            copies,
            zone_of,
            per_zone: sizes.iter().map(|size| most.min(*size)).collect(),
            sizes,
        }
    }

    /// Returns the number of copies that a zone can have of all vBuckets.
    fn zone_limit(&self, zone: usize) -> usize {
        self.vbuckets * self.per_zone[zone]
    }
}

/// Number of copies that each member shall have.
pub(super) struct Quotas(pub(super) Vec<usize>);

impl Quotas {
    /// Computes equal shares, with zones limited to what they can have ([water
    /// filling](https://en.wikipedia.org/wiki/Water_filling_algorithm)). The remainder goes to members that
    /// have it already, then to those with the lowest `totals`.
    pub(super) fn of_copies(limits: &CopyLimits, counts: &[usize], totals: &Totals) -> Self {
        let mut open: Vec<usize> = (0..limits.sizes.len()).collect();
        let mut rest = limits.vbuckets * limits.copies;
        let mut quotas = vec![0; counts.len()];
        loop {
            let members: usize = open.iter().map(|zone| limits.sizes[*zone]).sum();
            let full =
                |zone: &usize| rest * limits.sizes[*zone] >= limits.zone_limit(*zone) * members;
            let Some(at) = open.iter().position(full) else {
                break;
            };
            let zone = open.remove(at);
            let share = limits.zone_limit(zone).min(rest);
            rest -= share;
            limits.share(&mut quotas, share, &[zone], (counts, totals));
        }
        limits.share(&mut quotas, rest, &open, (counts, totals));
        Self(quotas)
    }
}

impl CopyLimits {
    /// Divides `total` among the members of `zones`.
    fn share(
        &self,
        quotas: &mut [usize],
        total: usize,
        zones: &[usize],
        (counts, totals): (&[usize], &Totals),
    ) {
        let inside = |member: &usize| zones.contains(&usize::from(self.zone_of[*member]));
        let members: Vec<usize> = (0..counts.len()).filter(inside).collect();
        if members.is_empty() {
            return;
        }
        let (base, mut extra) = (total / members.len(), total % members.len());
        let mut zone_rest: Vec<usize> = (0..self.sizes.len())
            .map(|zone| {
                self.zone_limit(zone)
                    .saturating_sub(base * self.sizes[zone])
            })
            .collect();
        for member in &members {
            quotas[*member] = base;
        }
        for member in self.by_preference(members, base, (counts, totals)) {
            let zone_rest = &mut zone_rest[usize::from(self.zone_of[member])];
            if extra > 0 && *zone_rest > 0 {
                quotas[member] += 1;
                *zone_rest -= 1;
                extra -= 1;
            }
        }
    }

    /// Orders members for one copy more than `base`: first those far below the mean, then those that have it
    /// already, with the lowest totals first, last those far above the mean. Within each group the zones take
    /// turns, so that the load which a node leaves is spread over all zones.
    fn by_preference(
        &self,
        mut members: Vec<usize>,
        base: usize,
        (counts, totals): (&[usize], &Totals),
    ) -> Vec<usize> {
        let total = |member: usize| totals.counts[member];
        let mean = members.iter().map(|member| total(*member)).sum::<usize>() / members.len();
        let group = |member: usize| {
            let below = total(member) + totals.tolerance < mean;
            let above = total(member) > mean + totals.tolerance;
            (u8::from(above) + u8::from(!below), counts[member] <= base)
        };
        members.sort_by_key(|member| (group(*member), total(*member), *member));
        let mut turn = vec![0; counts.len()];
        let mut turns = BTreeMap::new();
        for member in &members {
            let next: &mut usize = turns
                .entry((group(*member), self.zone_of[*member]))
                .or_default();
            turn[*member] = *next;
            *next += 1;
        }
        members.sort_by_key(|member| (group(*member), turn[*member], total(*member), *member));
        members
    }
}

/// Copies of members in the buckets that are planned already.
pub(super) struct Totals {
    pub(super) counts: Vec<usize>,
    /// Deviation of a member from the mean above which balance is more important than copies that can stay.
    pub(super) tolerance: usize,
}

impl Totals {
    /// Creates totals of `members` that will have `sum` copies together, with equal shares and a tolerance in
    /// thousandths.
    pub(super) fn new(members: usize, sum: usize, tolerance_per_mille: usize) -> Self {
        Self {
            counts: vec![0; members],
            tolerance: sum * tolerance_per_mille / (1000 * members),
        }
    }
}
