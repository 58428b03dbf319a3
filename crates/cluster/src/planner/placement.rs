//! Placement of copies on nodes, regardless of their roles.

use std::collections::VecDeque;

use super::quota::{CopyLimits, Quotas, Totals};
use crate::map::{Chain, Member, NodeId};

/// Copies by vBucket and by member; members are indices.
pub(super) struct Placement<'a> {
    members: &'a [Member],
    limits: &'a CopyLimits,
    copies: Vec<Vec<u16>>,
    vbuckets: Vec<Vec<u16>>,
    /// Number of vBuckets that two members have in common.
    common: Vec<u16>,
    /// Number of other copies in a zone that the vBuckets of a member have.
    common_in_zone: Vec<u16>,
    /// Copies that exist already, as bits by member and vBucket.
    kept: Vec<Vec<u16>>,
}

impl<'a> Placement<'a> {
    /// Keeps the present copies that can stay.
    pub(super) fn keep(members: &'a [Member], limits: &'a CopyLimits, chains: &[Chain]) -> Self {
        let mut placement = Self {
            members,
            limits,
            copies: vec![Vec::with_capacity(limits.copies + 1); chains.len()],
            vbuckets: vec![Vec::new(); members.len()],
            common: vec![0; members.len() * members.len()],
            common_in_zone: vec![0; members.len() * limits.per_zone.len()],
            kept: Vec::new(),
        };
        for (vb, chain) in chains.iter().enumerate() {
            for node in chain.nodes() {
                let Some(member) = placement.member(*node) else {
                    continue;
                };
                if placement.fits(vb, member, None) {
                    placement.add(vb, member);
                }
            }
        }
        for vb in 0..chains.len() {
            placement.drop_surplus(vb);
        }
        placement.kept.clone_from(&placement.copies);
        placement
    }

    /// Drops surplus replicas, from the members with the most copies.
    fn drop_surplus(&mut self, vb: usize) {
        while self.copies[vb].len() > self.limits.copies {
            let replicas = self.copies[vb][1..].iter().copied();
            let fullest = replicas.max_by_key(|member| self.vbuckets[usize::from(*member)].len());
            self.remove(vb, fullest.expect("more copies than one"));
        }
    }

    pub(super) fn member(&self, node: NodeId) -> Option<u16> {
        let found = self
            .members
            .binary_search_by_key(&node, |member| member.node);
        found.ok().map(|at| at as u16)
    }

    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// Returns the members with a copy of `vb`.
    pub(super) fn copies(&self, vb: usize) -> &[u16] {
        &self.copies[vb]
    }

    /// Returns the number of copies of each member.
    pub(super) fn counts(&self) -> Vec<usize> {
        self.vbuckets.iter().map(Vec::len).collect()
    }

    /// Adds the copies that vBuckets lack, on members below their quota. It prefers members that have the
    /// fewest vBuckets in common with the other copies, so that the load of a failed node is spread.
    pub(super) fn complete(&mut self, quotas: &Quotas, totals: &Totals) {
        for vb in 0..self.copies.len() {
            while self.copies[vb].len() < self.limits.copies {
                let key = |member: &u16| {
                    let at = usize::from(*member);
                    let count = self.vbuckets[at].len();
                    let common = self.in_common(vb, *member, None);
                    let full = count >= quotas.0[at];
                    (full, common, count, totals.counts[at], *member)
                };
                let members = 0..self.members.len() as u16;
                let fitting = members.filter(|member| self.fits(vb, *member, None));
                let Some(member) = fitting.min_by_key(key) else {
                    break;
                };
                self.add(vb, member);
            }
        }
    }

    /// Moves copies from members above their quota to members below it, through other members where no direct
    /// move is possible.
    pub(super) fn level(&mut self, quotas: &Quotas) {
        for from in 0..self.members.len() as u16 {
            while self.vbuckets[usize::from(from)].len() > quotas.0[usize::from(from)] {
                let Some(path) = self.path(from, quotas) else {
                    break;
                };
                // From the end, so that each move sees the placement with which it was planned.
                for (vb, from, to) in path.into_iter().rev() {
                    self.remove(vb, from);
                    self.add(vb, to);
                }
            }
        }
    }

    /// Finds a path of moves (vBucket, from, to) to a member below its quota. The path moves as few existing
    /// copies as possible: a breadth-first search in which other moves cost nothing.
    fn path(&self, start: u16, quotas: &Quotas) -> Option<Vec<(usize, u16, u16)>> {
        let count = |member: u16| self.vbuckets[usize::from(member)].len();
        let below = |member: u16| count(member) < quotas.0[usize::from(member)];
        let mut targets: Vec<u16> = (0..self.members.len() as u16).collect();
        targets.sort_by_key(|to| (!below(*to), count(*to), *to));
        let mut by: Vec<Option<SearchStep>> = vec![None; self.members.len()];
        let mut done = vec![false; self.members.len()];
        let mut queue = VecDeque::from([(0, start)]);
        while let Some((cost, from)) = queue.pop_front() {
            if std::mem::replace(&mut done[usize::from(from)], true) {
                continue;
            }
            if below(from) {
                return Some(trace(&by, start, from));
            }
            for to in &targets {
                let at = usize::from(*to);
                let known = by[at].map_or(usize::MAX, |step| step.cost);
                if done[at] || known <= cost {
                    continue;
                }
                let Some(vb) = self.movable(from, *to) else {
                    continue;
                };
                let there = self.kept[vb].contains(&from);
                let step = SearchStep {
                    vb,
                    from,
                    cost: cost + usize::from(there),
                };
                if step.cost < known {
                    by[at] = Some(step);
                    if there {
                        queue.push_back((step.cost, *to));
                    } else {
                        queue.push_front((step.cost, *to));
                    }
                }
            }
        }
        None
    }

    /// Returns a vBucket whose copy can move. It prefers one that must be built anyway, then one that
    /// separates the two members with most in common.
    fn movable(&self, from: u16, to: u16) -> Option<usize> {
        let vbuckets = self.vbuckets[usize::from(from)]
            .iter()
            .map(|vb| usize::from(*vb));
        let key = |vb: &usize| {
            let there = self.kept[*vb].contains(&from);
            (there, self.in_common(*vb, to, Some(from)), *vb)
        };
        vbuckets
            .filter(|vb| self.fits(*vb, to, Some(from)))
            .min_by_key(key)
    }

    /// Whether `member` may take a copy of `vb`, in place of the copy on `instead`.
    fn fits(&self, vb: usize, member: u16, instead: Option<u16>) -> bool {
        let zone = self.limits.zone_of[usize::from(member)];
        let others = self.copies[vb]
            .iter()
            .filter(|other| Some(**other) != instead);
        let mut in_zone = 0;
        for other in others {
            if *other == member {
                return false;
            }
            in_zone += usize::from(self.limits.zone_of[usize::from(*other)] == zone);
        }
        in_zone < self.limits.per_zone[usize::from(zone)]
    }

    /// Sums over the members with a copy of `vb`, except `instead`: their vBuckets in common with `member`,
    /// and the other copies of their vBuckets in the zone of `member`.
    fn in_common(&self, vb: usize, member: u16, instead: Option<u16>) -> (u16, u16) {
        let others = self.copies[vb]
            .iter()
            .filter(|other| Some(**other) != instead);
        others.fold((0, 0), |(common, in_zone), other| {
            let (pair, zone) = self.indices(*other, member);
            (
                common + self.common[pair],
                in_zone + self.common_in_zone[zone],
            )
        })
    }

    /// Returns the indices of two counts: `one` with `other`, and `one` with the zone of `other`.
    fn indices(&self, one: u16, other: u16) -> (usize, usize) {
        let (one, other) = (usize::from(one), usize::from(other));
        let zone = usize::from(self.limits.zone_of[other]);
        let zones = self.limits.per_zone.len();
        (one * self.members.len() + other, one * zones + zone)
    }

    fn add(&mut self, vb: usize, member: u16) {
        for at in 0..self.copies[vb].len() {
            let other = self.copies[vb][at];
            for (one, other) in [(member, other), (other, member)] {
                let (pair, zone) = self.indices(one, other);
                self.common[pair] += 1;
                self.common_in_zone[zone] += 1;
            }
        }
        self.copies[vb].push(member);
        self.vbuckets[usize::from(member)].push(vb as u16);
    }

    fn remove(&mut self, vb: usize, member: u16) {
        self.copies[vb].retain(|other| *other != member);
        self.vbuckets[usize::from(member)].retain(|other| usize::from(*other) != vb);
        for at in 0..self.copies[vb].len() {
            let other = self.copies[vb][at];
            for (one, other) in [(member, other), (other, member)] {
                let (pair, zone) = self.indices(one, other);
                self.common[pair] -= 1;
                self.common_in_zone[zone] -= 1;
            }
        }
    }

    /// Returns the chain of a vBucket with these copies.
    pub(super) fn chain(&self, active: u16, replicas: &[u16]) -> Chain {
        let node = |member: &u16| self.members[usize::from(*member)].node;
        let nodes = std::iter::once(&active).chain(replicas).map(node);
        let nodes: Vec<NodeId> = nodes.collect();
        Chain::new(&nodes).expect("a member has one copy of a vBucket")
    }
}

/// The move with which the search reached a member.
#[derive(Clone, Copy)]
struct SearchStep {
    vb: usize,
    from: u16,
    cost: usize,
}

/// Returns the moves from `start` to `end`.
fn trace(by: &[Option<SearchStep>], start: u16, end: u16) -> Vec<(usize, u16, u16)> {
    let mut moves = Vec::new();
    let mut to = end;
    while to != start {
        let step = by[usize::from(to)].expect("the search came this way");
        moves.push((step.vb, step.from, to));
        to = step.from;
    }
    moves.reverse();
    moves
}
