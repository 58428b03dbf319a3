//! Choice of the active copy of each vBucket, and order of its replicas.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::placement::Placement;
use super::quota::Totals;
use crate::map::{Chain, NodeId};

/// Returns the wanted chain of each vBucket. Members have equal shares of active copies; the present ones stay
/// where possible, and so does the order of replicas.
///
/// Each move of an active copy makes the shares of this bucket more equal, or leaves them as equal and makes
/// the totals more equal. No such move is left at the end, so a plan of a planned map changes nothing.
pub(super) fn choose(placement: &Placement<'_>, present: &[Chain], totals: &Totals) -> Vec<Chain> {
    let mut roles = Roles::keep(placement, present, totals);
    while roles.improve() {}
    let mut orders = ReplicaOrders::new(placement, present);
    let mut vbs: Vec<usize> = (0..present.len()).collect();
    vbs.sort_by_cached_key(|vb| !orders.stays(*vb, roles.active[*vb]));
    let mut chains = present.to_vec();
    for vb in vbs {
        let active = roles.active[vb];
        let replicas = orders.replicas(vb, active);
        orders.add(active, &replicas);
        chains[vb] = placement.chain(active, &replicas);
    }
    chains
}

/// ReplicaOrders of the replicas of vBuckets. The first replica takes over if the active copy's node fails.
struct ReplicaOrders<'a> {
    placement: &'a Placement<'a>,
    present: &'a [Chain],
    /// Number of vBuckets with one member's active copy and another's first replica.
    heirs: Vec<u16>,
}

impl<'a> ReplicaOrders<'a> {
    fn new(placement: &'a Placement<'a>, present: &'a [Chain]) -> Self {
        Self {
            placement,
            present,
            heirs: vec![0; placement.members() * placement.members()],
        }
    }

    /// Returns the replicas if `active` has the active copy. A chain that stays keeps their order. In another one
    /// the first replica is one that is least often the first of `active`.
    fn replicas(&self, vb: usize, active: u16) -> Vec<u16> {
        let copies = self.placement.copies(vb).iter().copied();
        let mut replicas: Vec<u16> = copies.filter(|member| *member != active).collect();
        if self.stays(vb, active) {
            let place = |member: &u16| {
                self.present[vb]
                    .nodes()
                    .iter()
                    .position(|node| self.placement.member(*node) == Some(*member))
            };
            replicas.sort_by_key(place);
        } else {
            replicas.sort_by_key(|member| (self.count(active, *member), *member));
        }
        replicas
    }

    /// Whether the present chain has these copies.
    fn stays(&self, vb: usize, active: u16) -> bool {
        let present = self.present[vb].nodes();
        let copies = self.placement.copies(vb);
        let member = |node: &NodeId| self.placement.member(*node);
        let holds = |node| member(node).is_some_and(|member| copies.contains(&member));
        present.len() == copies.len()
            && present.first().and_then(member) == Some(active)
            && present.iter().all(holds)
    }

    /// Returns the number of vBuckets with the active copy on `active` and the same first replica as `vb` would have.
    fn like(&self, vb: usize, active: u16) -> u16 {
        let first = self.replicas(vb, active).first().copied();
        first.map_or(0, |first| self.count(active, first))
    }

    fn count(&self, active: u16, first: u16) -> u16 {
        self.heirs[self.index(active, first)]
    }

    fn add(&mut self, active: u16, replicas: &[u16]) {
        if let Some(first) = replicas.first() {
            let index = self.index(active, *first);
            self.heirs[index] += 1;
        }
    }

    fn index(&self, active: u16, first: u16) -> usize {
        usize::from(active) * self.placement.members() + usize::from(first)
    }
}

struct Roles<'a> {
    placement: &'a Placement<'a>,
    totals: &'a Totals,
    active: Vec<u16>,
    /// vBuckets whose active copy a member has.
    of: Vec<Vec<u16>>,
}

impl<'a> Roles<'a> {
    /// Keeps the present active copies that can stay. Other vBuckets get the member with the fewest. Of
    /// several it is the member that has the fewest with the same first replica.
    fn keep(placement: &'a Placement<'a>, present: &[Chain], totals: &'a Totals) -> Self {
        let mut orders = ReplicaOrders::new(placement, present);
        let mut roles = Self {
            placement,
            totals,
            active: Vec::with_capacity(present.len()),
            of: vec![Vec::new(); placement.members()],
        };
        for (vb, chain) in present.iter().enumerate() {
            let copies = placement.copies(vb);
            let has = |member: &u16| copies.contains(member);
            let member = |node: NodeId| placement.member(node).filter(has);
            let first = chain.active().and_then(member);
            let replicas = chain.nodes().iter().filter_map(|node| member(*node));
            let key = |member: &u16| (roles.count(*member), orders.like(vb, *member), *member);
            let fewest = || copies.iter().copied().min_by_key(key);
            let active = first.or_else(|| replicas.min_by_key(key)).or_else(fewest);
            let active = active.expect("each vBucket has a copy on a member");
            roles.active.push(active);
            roles.of[usize::from(active)].push(vb as u16);
            orders.add(active, &orders.replicas(vb, active));
        }
        roles
    }

    fn count(&self, member: u16) -> usize {
        self.of[usize::from(member)].len()
    }

    /// Active copies of a member, in this bucket and in all that are planned.
    fn load(&self, member: u16) -> (usize, usize) {
        let count = self.count(member);
        (count, self.totals.counts[usize::from(member)] + count)
    }

    /// Moves an active copy from the member with the most that can be relieved. Returns false if there is none.
    fn improve(&mut self) -> bool {
        let mut members: Vec<u16> = (0..self.of.len() as u16).collect();
        members.sort_by_key(|member| Reverse(self.load(*member)));
        let any_gains = |from: u16| members.iter().any(|to| self.gains(from, *to));
        let mut paths = members.iter().filter(|from| any_gains(**from));
        let Some(path) = paths.find_map(|from| self.path(*from)) else {
            return false;
        };
        for (vb, from, to) in path {
            self.of[usize::from(from)].retain(|other| *other != vb);
            self.of[usize::from(to)].push(vb);
            self.active[usize::from(vb)] = to;
        }
        true
    }

    /// Whether one active copy less on `from` and one more on `to` improves the balance.
    fn gains(&self, from: u16, to: u16) -> bool {
        let ((from, from_total), (to, to_total)) = (self.load(from), self.load(to));
        from > to + 1 || (from == to + 1 && from_total > to_total + 1 + 2 * self.totals.tolerance)
    }

    /// Finds the shortest path of moves (vBucket, from, to) from `start` to a member that gains.
    fn path(&self, start: u16) -> Option<Vec<(u16, u16, u16)>> {
        let mut by: Vec<Option<(u16, u16)>> = vec![None; self.of.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(from) = queue.pop_front() {
            if self.gains(start, from) {
                return Some(trace(&by, start, from));
            }
            for vb in &self.of[usize::from(from)] {
                for to in self.placement.copies(usize::from(*vb)) {
                    let by = &mut by[usize::from(*to)];
                    if *to != start && by.is_none() {
                        *by = Some((*vb, from));
                        queue.push_back(*to);
                    }
                }
            }
        }
        None
    }
}

/// Returns the moves from `end` back to `start`.
fn trace(by: &[Option<(u16, u16)>], start: u16, end: u16) -> Vec<(u16, u16, u16)> {
    let mut moves = Vec::new();
    let mut to = end;
    while to != start {
        let (vb, from) = by[usize::from(to)].expect("the search came this way");
        moves.push((vb, from, to));
        to = from;
    }
    moves
}
