//! What must hold, whatever happens.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{BucketId, Copies as _, Vb, Version};

use crate::buckets::{KEYS, Read};
use crate::node::Node;

/// A write that was acknowledged.
#[derive(Clone, Debug)]
struct Promise {
    vb: Vb,
    number: u64,
    term: u64,
    to_disk: bool,
    /// Nodes that crashed, or were passed over, since it was written.
    lost: BTreeSet<usize>,
    /// How many of them a write that is in memory alone survives: none if one copy alone has it.
    survives: usize,
}

impl Promise {
    fn holds(&self) -> bool {
        self.to_disk || self.lost.len() <= self.survives
    }
}

#[derive(Default)]
pub(crate) struct Checks {
    /// By the number of the write.
    promises: BTreeMap<u64, Promise>,
    /// For each write that waits: its vBucket, and nodes lost since it was made (0), or since a copy became active at a
    /// term: what is acknowledged at that term others have got since.
    lost_since: BTreeMap<u64, (Vb, BTreeMap<u64, BTreeSet<usize>>)>,
    versions: BTreeMap<(usize, Vb), Version>,
    /// vBuckets of which an operator was told that writes may be lost, with the epoch then.
    named: BTreeMap<Vb, u64>,
    /// The newest term of which a copy was elected by an operator's order: what older ones promised may be lost.
    forced: BTreeMap<Vb, u64>,
    pub(crate) acknowledged: BTreeMap<Vb, u64>,
    /// The vBucket and the key of each write, by its number.
    written: Vec<(Vb, u8)>,
    pub(crate) failure: Option<String>,
}

impl Checks {
    pub(crate) fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    /// The number of the next write.
    pub(crate) fn next_number(&self) -> u64 {
        self.written.len() as u64
    }

    pub(crate) fn written(&mut self, vb: Vb, key: u8) {
        let number = self.next_number();
        self.written.push((vb, key));
        let since = BTreeMap::from([(0, BTreeSet::new())]);
        self.lost_since.insert(number, (vb, since));
    }

    /// A node lost what it had in memory.
    pub(crate) fn lost(&mut self, node: usize) {
        self.lost_of(|_| true, node);
    }

    /// The active copy of a vBucket is replaced, and what it has is not asked for.
    pub(crate) fn passed_over(&mut self, vb: Vb, node: usize) {
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

    /// A copy becomes active at a term.
    pub(crate) fn activated(&mut self, vb: Vb, term: u64) {
        for (_, since) in self.lost_since.values_mut().filter(|(of, _)| *of == vb) {
            since.insert(term, BTreeSet::new());
        }
    }

    /// An operator is told that writes of a vBucket may be lost, and orders it.
    pub(crate) fn named(&mut self, vb: Vb, epoch: u64) {
        self.named.insert(vb, epoch);
    }

    /// An election gives copies up; the first one of an order by a transaction between two epochs.
    pub(crate) fn given_up(&mut self, (vb, term): (Vb, u64), epochs: Option<(u64, u64)>) {
        if let Some((before, after)) = epochs {
            if self.named.remove(&vb) != Some(before) {
                self.fail(format!("copies of {vb:?} are given up without an order"));
            }
            if after <= before {
                self.fail(format!("{vb:?} may lose writes, and epoch {before} stays"));
            }
        }
        self.forced.insert(vb, term);
    }

    fn forced_term(&self, vb: Vb) -> u64 {
        self.forced.get(&vb).copied().unwrap_or(0)
    }

    /// A bucket was dropped: nothing is promised of it.
    pub(crate) fn forget(&mut self, bucket: BucketId) {
        self.promises
            .retain(|_, promise| promise.vb.bucket != bucket);
        self.lost_since.retain(|_, (vb, _)| vb.bucket != bucket);
        self.acknowledged.retain(|vb, _| vb.bucket != bucket);
    }

    /// `alone`: one copy is all that a vBucket has, or shall have.
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

    /// An acknowledged write got to the disks of a majority.
    pub(crate) fn on_disk(&mut self, number: u64) {
        self.lost_since.remove(&number);
        if let Some(promise) = self.promises.get_mut(&number) {
            promise.to_disk |= promise.holds();
        }
    }

    /// An active copy has all that was promised, or newer writes of the same keys, and nothing that was not written.
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
        let read: Vec<Read> = (0..KEYS).map(|key| node.vbs.read(vb, key)).collect();
        for (read, key) in read.iter().zip(0..) {
            if let Read::Number(number) = read
                && self.written.get(*number as usize) != Some(&(vb, key))
            {
                self.fail(format!("{:?} has {number} in {vb:?}", node.id));
            }
        }
        let written = &self.written;
        let has = |promise: &Promise| {
            let key = written[promise.number as usize].1;
            match read[usize::from(key)] {
                Read::Number(number) => number >= promise.number,
                Read::Nothing => false,
                Read::Undecided => true,
            }
        };
        if term == self.forced_term(vb) {
            // This is the copy that was promoted; what it has is promised further on.
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

    /// One node serves a vBucket.
    pub(crate) fn one_serves<'n>(
        &mut self,
        nodes: impl Iterator<Item = &'n Node>,
        vb: Vb,
        now_ms: u64,
    ) {
        let serving: Vec<&Node> = nodes.filter(|node| node.serves(vb, now_ms)).collect();
        // Copies that an operator gave up may still serve those that reach them, at an older term.
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

    /// A node forgot rows: it starts, and nothing that it did by them is kept.
    pub(crate) fn forget_rows(&mut self, index: usize) {
        self.versions.retain(|(of, _), _| *of != index);
    }

    /// The rows that a node goes by become newer.
    pub(crate) fn rows_grow(&mut self, index: usize, node: &Node, vb: Vb) {
        let Some((version, _)) = node.participant.agent().row(vb) else {
            return;
        };
        let key = (index, vb);
        let before = self.versions.insert(key, *version).unwrap_or_default();
        if before > *version {
            self.fail(format!(
                "node {index} went from {before:?} back to {version:?}"
            ));
        }
    }
}
