//! Choice of the active copy of each vBucket.

use std::collections::VecDeque;

use super::placement::Placement;
use super::quota::{Quotas, Totals};
use crate::map::{Chain, NodeId};

/// Returns the member with the active copy of each vBucket. Each member has an equal share; the present
/// active copies stay where possible.
pub(super) fn choose(placement: &Placement<'_>, present: &[Chain], totals: &Totals) -> Vec<u16> {
    let mut roles = Roles {
        placement,
        active: Vec::with_capacity(present.len()),
        of: vec![Vec::new(); placement.members()],
    };
    // Active copies that each member has at present and could keep.
    let mut stay = vec![0; placement.members()];
    for (vb, chain) in present.iter().enumerate() {
        let copies = placement.copies(vb);
        let has = |member: &u16| copies.contains(member);
        let member = |node: NodeId| placement.member(node).filter(has);
        let first = chain.active().and_then(member);
        if let Some(first) = first {
            stay[usize::from(first)] += 1;
        }
        let replicas = chain.nodes().iter().filter_map(|node| member(*node));
        let count = |member: &u16| (roles.of[usize::from(*member)].len(), *member);
        let fewest = || copies.iter().copied().min_by_key(count);
        let active = first.or_else(|| replicas.min_by_key(count)).or_else(fewest);
        let active = active.expect("each vBucket has a copy on a member");
        roles.active.push(active);
        roles.of[usize::from(active)].push(vb as u16);
    }
    let quotas = Quotas::of_active(placement.limits(), &stay, totals);
    for from in 0..placement.members() as u16 {
        while roles.of[usize::from(from)].len() > quotas.0[usize::from(from)] {
            if !roles.hand_over(from, &quotas) {
                break;
            }
        }
    }
    roles.active
}

struct Roles<'a> {
    placement: &'a Placement<'a>,
    active: Vec<u16>,
    /// vBuckets whose active copy a member has.
    of: Vec<Vec<u16>>,
}

impl Roles<'_> {
    /// Makes other copies active, along the shortest path to a member below its quota.
    fn hand_over(&mut self, start: u16, quotas: &Quotas) -> bool {
        let mut by: Vec<Option<(u16, u16)>> = vec![None; self.of.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(from) = queue.pop_front() {
            for vb in &self.of[usize::from(from)] {
                for to in self.placement.copies(usize::from(*vb)) {
                    let at = usize::from(*to);
                    if *to == start || by[at].is_some() {
                        continue;
                    }
                    by[at] = Some((*vb, from));
                    if self.of[at].len() < quotas.0[at] {
                        self.apply(&by, start, *to);
                        return true;
                    }
                    queue.push_back(*to);
                }
            }
        }
        false
    }

    fn apply(&mut self, by: &[Option<(u16, u16)>], start: u16, end: u16) {
        let mut to = end;
        while to != start {
            let (vb, from) = by[usize::from(to)].expect("the search came this way");
            self.of[usize::from(from)].retain(|other| *other != vb);
            self.of[usize::from(to)].push(vb);
            self.active[usize::from(vb)] = to;
            to = from;
        }
    }
}
