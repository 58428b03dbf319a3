//! Rules that must hold at all times.

use std::collections::{BTreeMap, BTreeSet};

use bucket::Clock as _;
use cluster::{BucketId, Copies as _, Vb, Version};
use model::Cas;

use crate::buckets::{KEYS, KEYS_DEFAULT, Read};
use crate::node::Node;

/// An acknowledged write.
#[derive(Clone, Debug)]
struct Promise {
    vb: Vb,
    number: u64,
    term: u64,
    to_disk: bool,
    /// Nodes that crashed, or whose copy was lost, since the write was made.
    lost: BTreeSet<usize>,
    /// Number of these nodes that a write in memory survives: none if only one copy has it.
    survives: usize,
}

impl Promise {
    fn holds(&self) -> bool {
        self.to_disk || self.lost.len() <= self.survives
    }
}

/// An unsafe failover that an operator ordered.
#[derive(Debug)]
struct UnsafeOrder {
    /// vBuckets whose writes may be lost, as the operator was told, and whose copies are not given up yet.
    named: BTreeSet<Vb>,
    /// The epoch that the operator saw, or the one that the last part of the order wrote.
    epoch: u64,
}

#[derive(Default)]
pub(crate) struct Checks {
    /// Acknowledged writes, by number.
    promises: BTreeMap<u64, Promise>,
    /// For each pending write: its vBucket, and the nodes that were lost since the write was made (0), or
    /// since a copy became active at a term. A write that is acknowledged at that term has reached other
    /// nodes since then.
    lost_since: BTreeMap<u64, (Vb, BTreeMap<u64, BTreeSet<usize>>)>,
    versions: BTreeMap<(usize, Vb), Version>,
    orders: Vec<UnsafeOrder>,
    /// Newest term of an election that an operator ordered: promises of older terms may be broken.
    forced: BTreeMap<Vb, u64>,
    pub(crate) acknowledged: BTreeMap<Vb, u64>,
    /// vBucket, key and CAS of each write, by its number.
    written: Vec<(Vb, u8, Cas)>,
    /// Number of the newest deletion of each key.
    deleted: BTreeMap<(Vb, u8), u64>,
    /// Times at which documents expire, in seconds of the wall clock, by the numbers of writes to a key.
    expiries: BTreeMap<(Vb, u8), BTreeMap<u64, u32>>,
    /// Longest time by which a node's wall clock was ahead.
    ahead_ms: i64,
    pub(crate) failure: Option<String>,
}

impl Checks {
    pub(crate) fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    /// Returns the number of the next write.
    pub(crate) fn next_number(&self) -> u64 {
        self.written.len() as u64
    }

    pub(crate) fn written(&mut self, (vb, key): (Vb, u8), deleted: bool, expiry_s: u32, cas: Cas) {
        let number = self.next_number();
        self.written.push((vb, key, cas));
        if expiry_s > 0 {
            let expiries = self.expiries.entry((vb, key)).or_default();
            expiries.insert(number, expiry_s);
        }
        if deleted {
            self.deleted.insert((vb, key), number);
        }
        let since = BTreeMap::from([(0, BTreeSet::new())]);
        self.lost_since.insert(number, (vb, since));
    }

    /// Records the time by which a node's wall clock is ahead.
    pub(crate) fn wall_clock(&mut self, ahead_ms: i64) {
        self.ahead_ms = self.ahead_ms.max(ahead_ms);
    }

    /// Returns vBucket and key of a write.
    pub(crate) fn place(&self, number: u64) -> Option<(Vb, u8)> {
        let written = self.written.get(number as usize)?;
        Some((written.0, written.1))
    }

    /// Returns the newest CAS among the documents of a copy.
    pub(crate) fn newest_cas(&self, node: &Node, vb: Vb) -> Option<Cas> {
        let cas = |key: u8| match node.vbs.read(vb, key) {
            Read::Number(number) => Some(self.written.get(number as usize)?.2),
            Read::Nothing | Read::Undecided => None,
        };
        (0..KEYS).filter_map(cas).max()
    }

    /// Whether the document of a write does not exist any more.
    pub(crate) fn is_expired(&self, number: u64, now_s: u32) -> bool {
        let place = self.written.get(number as usize);
        let expiries = place.and_then(|(vb, key, _)| self.expiries.get(&(*vb, *key)));
        let expiry_s = expiries.and_then(|expiries| expiries.get(&number));
        expiry_s.is_some_and(|expiry_s| *expiry_s <= now_s)
    }

    /// Records that a node lost its memory.
    pub(crate) fn lost(&mut self, node: usize) {
        self.lost_of(|_| true, node);
    }

    /// Records that the copy of a vBucket on a node is lost: it cannot be read, or was active and was replaced
    /// without its answer.
    pub(crate) fn lost_copy(&mut self, vb: Vb, node: usize) {
        self.lost_of(|of| of == vb, node);
    }

    fn lost_of(&mut self, of: impl Fn(Vb) -> bool, node: usize) {
        for (_, since) in self.lost_since.values_mut().filter(|(vb, _)| of(*vb)) {
            for lost in since.values_mut() {
                lost.insert(node);
            }
        }
        let promises = self.promises.values_mut();
        for promise in promises.filter(|promise| !promise.to_disk && of(promise.vb)) {
            promise.lost.insert(node);
        }
    }

    /// Records that a copy became active at a term.
    pub(crate) fn activated(&mut self, vb: Vb, term: u64) {
        for (_, since) in self.lost_since.values_mut().filter(|(of, _)| *of == vb) {
            since.insert(term, BTreeSet::new());
        }
    }

    /// Records that an operator was told that writes of vBuckets may be lost, and ordered it.
    pub(crate) fn named(&mut self, named: BTreeSet<Vb>, epoch: u64) {
        self.orders.push(UnsafeOrder { named, epoch });
    }

    /// Checks the elections of a transaction that give copies up, with their terms, and whether each is the first
    /// one to do so. `epochs` are those before and after the transaction.
    pub(crate) fn given_up(&mut self, elections: &[(Vb, u64, bool)], epochs: (u64, u64)) {
        let first = elections.iter().filter(|(.., first)| *first);
        let first: BTreeSet<Vb> = first.map(|(vb, ..)| *vb).collect();
        if !first.is_empty() {
            self.part_of_order(&first, epochs);
        }
        self.forced
            .extend(elections.iter().map(|(vb, term, _)| (*vb, *term)));
    }

    /// Checks that a transaction is a part of an order. The order continues at the epoch that the transaction wrote.
    fn part_of_order(&mut self, vbs: &BTreeSet<Vb>, (before, after): (u64, u64)) {
        let of = |order: &&mut UnsafeOrder| order.epoch == before && vbs.is_subset(&order.named);
        let mut found = false;
        for order in self.orders.iter_mut().filter(of) {
            order.named.retain(|vb| !vbs.contains(vb));
            order.epoch = after;
            found = true;
        }
        if !found {
            self.fail(format!("copies of {vbs:?} are given up without an order"));
        }
        if after <= before {
            self.fail(format!("{vbs:?} may lose writes, and epoch {before} stays"));
        }
    }

    fn forced_term(&self, vb: Vb) -> u64 {
        self.forced.get(&vb).copied().unwrap_or(0)
    }

    /// Forgets a dropped bucket: nothing is promised for it.
    pub(crate) fn forget(&mut self, bucket: BucketId) {
        self.promises
            .retain(|_, promise| promise.vb.bucket != bucket);
        self.lost_since.retain(|_, (vb, _)| vb.bucket != bucket);
        self.acknowledged.retain(|vb, _| vb.bucket != bucket);
        // A restored etcd may bring it back: its terms begin anew.
        self.forced.retain(|vb, _| vb.bucket != bucket);
    }

    /// Forgets writes to the other collection of a bucket, which an operator makes or drops.
    pub(crate) fn forget_collection(&mut self, bucket: BucketId) {
        let written = &self.written;
        let is_of =
            |vb: Vb, number: u64| vb.bucket == bucket && written[number as usize].1 >= KEYS_DEFAULT;
        self.promises
            .retain(|number, promise| !is_of(promise.vb, *number));
        self.lost_since
            .retain(|number, (vb, _)| !is_of(*vb, *number));
        self.deleted
            .retain(|(vb, key), _| vb.bucket != bucket || *key < KEYS_DEFAULT);
    }

    /// Records an acknowledgement; `alone` if the vBucket has, or will have, only one copy.
    pub(crate) fn acknowledged(
        &mut self,
        (vb, number): (Vb, u64),
        term: u64,
        (to_disk, alone): (bool, bool),
    ) {
        if self.promises.contains_key(&number) || term < self.forced_term(vb) {
            return;
        }
        *self.acknowledged.entry(vb).or_default() += 1;
        let since = self.lost_since.get(&number);
        let Some((_, lost)) = since.and_then(|(_, since)| since.range(..=term).next_back()) else {
            return;
        };
        let lost = lost.clone();
        let promise = Promise {
            vb,
            number,
            term,
            to_disk,
            lost,
            survives: usize::from(!alone),
        };
        self.promises.insert(number, promise);
    }

    /// Records that an acknowledged write got on the disks of a majority.
    pub(crate) fn on_disk(&mut self, number: u64) {
        self.lost_since.remove(&number);
        if let Some(promise) = self.promises.get_mut(&number) {
            promise.to_disk |= promise.holds();
        }
    }

    /// Checks that an active copy has every promised write, or newer writes of the same keys, and nothing
    /// that was not written.
    pub(crate) fn history(&mut self, node: &Node, vb: Vb) {
        if !node.vbs.is_active(vb) {
            return;
        }
        let term = node.vbs.copy(vb).map_or(0, |copy| copy.term);
        if node.vbs.is_alone(vb) {
            for promise in self.promises.values_mut().filter(|p| p.vb == vb) {
                promise.survives = 0;
            }
        }
        let now_s = node.clock.now().unix_s();
        // A document is gone once a node found it expired, whatever other clocks say.
        let latest_s = node.clock.wall_s(self.ahead_ms);
        let read: Vec<Read> = (0..KEYS).map(|key| node.vbs.read(vb, key)).collect();
        for (read, key) in read.iter().zip(0..) {
            if let Read::Number(number) = read
                && self.place(*number) != Some((vb, key))
            {
                self.fail(format!("{:?} has {number} in {vb:?}", node.id));
            }
            if let Read::Number(number) = read
                && self.is_expired(*number, now_s)
            {
                self.fail(format!("{:?} has expired {number} in {vb:?}", node.id));
            }
        }
        let (written, deleted) = (&self.written, &self.deleted);
        let expired = |key: u8, from: u64| {
            let expiries = self.expiries.get(&(vb, key));
            let mut later = expiries.into_iter().flat_map(|all| all.range(from..));
            later.any(|(_, expiry_s)| *expiry_s <= latest_s)
        };
        let has = |promise: &Promise| {
            let key = written[promise.number as usize].1;
            let deletion = deleted.get(&(vb, key));
            match read[usize::from(key)] {
                Read::Number(number) => number >= promise.number,
                Read::Nothing => {
                    deletion.is_some_and(|number| *number >= promise.number)
                        || expired(key, promise.number)
                }
                Read::Undecided => true,
            }
        };
        if term == self.forced_term(vb) {
            // This is the promoted copy; its writes are promised from here on.
            let decided = |promise: &Promise| {
                read[usize::from(written[promise.number as usize].1)] != Read::Undecided
            };
            let kept = |promise: &Promise| {
                promise.vb != vb || promise.term >= term || has(promise) && decided(promise)
            };
            self.promises.retain(|_, promise| kept(promise));
        }
        let mut due = self
            .promises
            .values()
            .filter(|promise| promise.vb == vb && promise.term <= term && promise.holds());
        let missing = due.find(|promise| !has(promise));
        if let Some(promise) = missing {
            let (id, key) = (node.id.0, written[promise.number as usize].1);
            let found = read[usize::from(key)];
            self.fail(format!(
                "node {id} is active at term {term} with {found:?}, without {promise:?}"
            ));
        }
    }

    /// Checks that at most one node serves a vBucket.
    pub(crate) fn one_serves<'n>(
        &mut self,
        nodes: impl Iterator<Item = &'n Node>,
        vb: Vb,
        now_ms: u64,
    ) {
        let serving: Vec<&Node> = nodes.filter(|node| node.serves(vb, now_ms)).collect();
        // Copies that an operator gave up may still serve clients that reach them, at an older term.
        let term = |node: &Node| node.vbs.copy(vb).map_or(0, |copy| copy.term);
        let forced = self.forced_term(vb);
        let newest = serving.iter().map(|node| term(node)).max().unwrap_or(0);
        let given_up = |node: &&Node| term(node) < forced && forced <= newest;
        let serving: Vec<u16> = serving
            .into_iter()
            .filter(|node| !given_up(node))
            .map(|node| node.id.0)
            .collect();
        if serving.len() > 1 {
            self.fail(format!("nodes {serving:?} serve {}", vb.number));
        }
    }

    /// Forgets the rows of a node that starts: it does not keep them.
    pub(crate) fn forget_rows(&mut self, index: usize) {
        self.versions.retain(|(of, _), _| *of != index);
    }

    /// Checks that the rows of a node only get newer.
    pub(crate) fn rows_grow(&mut self, index: usize, node: &Node, vb: Vb) {
        let Some((version, _)) = node.participant.agent().row(vb) else {
            return;
        };
        let key = (index, vb);
        let before = self.versions.insert(key, version).unwrap_or_default();
        if before > version {
            self.fail(format!(
                "node {index} went from {before:?} back to {version:?}"
            ));
        }
    }
}

mod tests {
    use super::*;

    const BEFORE: u64 = 3;

    fn vb(number: u16) -> Vb {
        let bucket = BucketId(1);
        Vb { bucket, number }
    }

    /// Returns what is wrong with transactions after an order for vBuckets 0 to 2. Each transaction gives up copies of
    /// some vBuckets, and has the epochs before and after it.
    fn wrong(transactions: &[(&[u16], u64, u64)]) -> Option<String> {
        let mut checks = Checks::default();
        checks.named((0..3).map(vb).collect(), BEFORE);
        for (numbers, before, after) in transactions {
            let elections = numbers.iter().map(|number| (vb(*number), 1, true));
            checks.given_up(&elections.collect::<Vec<_>>(), (*before, *after));
        }
        checks.failure
    }

    #[test]
    fn an_order_continues_at_the_epoch_that_its_last_part_wrote() {
        assert_eq!(wrong(&[(&[0, 1, 2], 3, 4)]), None);
        assert_eq!(wrong(&[(&[0], 3, 4), (&[2], 4, 5), (&[1], 5, 6)]), None);
    }

    #[test]
    fn copies_are_given_up_once_and_as_they_were_named() {
        let unordered: [&[(&[u16], u64, u64)]; 5] = [
            &[(&[0, 3], 3, 4)],
            &[(&[0], 2, 3)],
            // The epoch of the other part, or of another order.
            &[(&[0], 3, 4), (&[1], 3, 5)],
            &[(&[0], 3, 4), (&[1], 5, 6)],
            &[(&[0, 1], 3, 4), (&[1, 2], 4, 5)],
        ];
        for transactions in unordered {
            let wrong = wrong(transactions).expect("a failure");
            assert!(wrong.contains("without an order"), "{wrong}");
        }
        let wrong = wrong(&[(&[0], 3, 3)]).expect("a failure");
        assert!(wrong.contains("epoch 3 stays"), "{wrong}");
    }

    #[test]
    fn two_orders_of_an_epoch_do_not_both_continue() {
        let mut checks = Checks::default();
        for named in [[vb(0), vb(1)], [vb(1), vb(2)]] {
            checks.named(BTreeSet::from(named), BEFORE);
        }
        checks.given_up(&[(vb(1), 1, true)], (3, 4));
        checks.given_up(&[(vb(0), 1, true)], (4, 5));
        assert_eq!(checks.failure, None);
        checks.given_up(&[(vb(2), 1, true)], (5, 6));
        assert!(checks.failure.is_some());
    }
}
