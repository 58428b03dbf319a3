//! Adoptions with an etcd and nodes that answer at once.

use std::collections::BTreeMap;

use super::machine::{Adoption, AdoptionOutput};
use super::writes::{Sealed, transactions};
use crate::agreed::{
    BucketSpec, Chunk, ClusterId, Controller, Entry, History, Key, Mark, Node, View,
};
use crate::coord::{Answer, KeyStore, LeaseId, Op, Range, Request, Txn};
use crate::map::{BucketId, Chain, NodeId, Row, Vb};
use crate::message::Message;
use crate::promotion::Position;

const CLUSTER: ClusterId = ClusterId(7);
const EPOCH: u64 = 4;
const REPEAT_MS: u64 = 500;
const LEASE_MS: u64 = 5_000;
const NODES: [NodeId; 2] = [NodeId(1), NodeId(2)];

/// An etcd, and the term at which each node is sealed; nodes that are missing here do not answer.
#[derive(Default)]
struct World {
    store: KeyStore,
    sealed: BTreeMap<NodeId, u64>,
    /// The highest term that was ever in the controller's key.
    agreed: u64,
    now_ms: u64,
}

impl World {
    fn new(nodes: &[NodeId]) -> Self {
        let sealed = nodes.iter().map(|node| (*node, 0)).collect();
        Self {
            sealed,
            ..Self::default()
        }
    }

    fn put<T: serde::Serialize>(&mut self, key: Key, value: &T) {
        let (key, value) = (key.text(CLUSTER), serde_json::to_string(value).unwrap());
        let lease = LeaseId(0);
        let (compare, then) = (Vec::new(), vec![Op::Put { key, value, lease }]);
        self.store.answer(&Request::Txn(Txn { compare, then }));
    }

    fn view(&mut self) -> View {
        let mut view = View::default();
        let all = Request::Get(Range::Prefix(CLUSTER.prefix()));
        if let Answer::Got { revision, found } = self.store.answer(&all) {
            view.load(CLUSTER, revision, &found);
        }
        view
    }

    fn adopted(&mut self) -> u64 {
        self.view().history.value.adopted
    }

    /// Returns the node and the term in the controller's key.
    fn holder(&mut self) -> Option<(NodeId, Option<u64>)> {
        let entry = self.view().controller?;
        Some((entry.value.node, entry.value.adopts))
    }

    /// Runs a tick of an adoption with its consequences; `answers` is false if the answers of etcd are lost.
    fn tick(&mut self, adoption: &mut Adoption, answers: bool) {
        self.now_ms += 100;
        for action in adoption.tick(self.now_ms, REPEAT_MS) {
            match action {
                AdoptionOutput::Request(request) => {
                    let mut next = Some(request);
                    while let Some(request) = next {
                        let answer = self.store.answer(&request);
                        let term = self.holder().and_then(|(_, term)| term);
                        self.agreed = self.agreed.max(term.unwrap_or(0));
                        let answer = if answers { answer } else { Answer::Unavailable };
                        next = adoption.answered(&answer, self.now_ms, LEASE_MS);
                    }
                }
                AdoptionOutput::Send(to, Message::SealAll { epoch, term, .. }) => {
                    assert!(term <= self.agreed, "{term} is above {}", self.agreed);
                    let Some(held) = self.sealed.get_mut(&to) else {
                        continue;
                    };
                    if *held > term {
                        adoption.refused(EPOCH, *held);
                    } else {
                        *held = term;
                        adoption.sealed(to, (epoch, term), 0, &[]);
                    }
                }
                AdoptionOutput::Send(..) => {}
            }
        }
    }
}

/// An adoption of a node that knows the others.
fn adoption(node: NodeId) -> Adoption {
    let mut known = View {
        revision: 1,
        ..View::default()
    };
    for node in NODES {
        known.nodes.insert(node, Entry::default());
    }
    adoption_by(node, &known)
}

fn adoption_by(node: NodeId, known: &View) -> Adoption {
    let me = Controller::new(node, 1);
    Adoption::new(CLUSTER, me, known, (EPOCH, Vec::new()), 1)
}

#[test]
fn adoption_seals_all_copies_above_the_term_of_a_refusal() {
    let mut world = World::new(&NODES);
    world.sealed.insert(NODES[1], 1_500);
    let mut one = adoption(NODES[0]);
    for _ in 0..20 {
        world.tick(&mut one, true);
    }
    assert_eq!(world.adopted(), EPOCH + 1);
    assert_eq!(world.sealed, NODES.map(|node| (node, 2_500)).into());
    assert_eq!(world.holder(), None);
}

#[test]
fn a_refusal_counts_until_all_copies_are_sealed() {
    let mut world = World::new(&NODES);
    let mut one = adoption(NODES[0]);
    world.tick(&mut one, true);
    world.tick(&mut one, true);
    assert_eq!(world.sealed, NODES.map(|node| (node, 1_000)).into());
    one.refused(EPOCH, 1_000);
    for _ in 0..20 {
        world.tick(&mut one, true);
    }
    assert_eq!(world.adopted(), EPOCH + 1);
    assert_eq!(world.sealed, NODES.map(|node| (node, 1_000)).into());
}

#[test]
fn last_ordered_adoption_continues_and_the_other_one_waits() {
    let mut world = World::new(&NODES[..1]);
    let (mut first, mut second) = (adoption(NODES[0]), adoption(NODES[1]));
    for _ in 0..10 {
        world.tick(&mut first, true);
    }
    assert_eq!(world.holder(), Some((NODES[0], Some(1_000))));
    for _ in 0..100 {
        world.tick(&mut second, true);
        world.tick(&mut first, true);
        assert_eq!(world.holder(), Some((NODES[1], Some(2_000))));
    }
    assert_eq!((first.waits().count(), second.waits().count()), (0, 1));
    world.sealed.insert(NODES[1], 0);
    for _ in 0..20 {
        world.tick(&mut second, true);
        world.tick(&mut first, true);
    }
    assert_eq!(world.adopted(), EPOCH + 1);
    assert_eq!(world.sealed, NODES.map(|node| (node, 2_000)).into());
    assert_eq!(world.holder(), None);
}

#[test]
fn adoption_takes_the_key_back_from_a_silent_adoption() {
    let mut world = World::new(&NODES[..1]);
    let (mut first, mut second) = (adoption(NODES[0]), adoption(NODES[1]));
    for one in [&mut first, &mut second] {
        world.tick(one, true);
        world.tick(one, true);
    }
    world.sealed.insert(NODES[1], 0);
    let silent_ms = world.now_ms;
    while world.adopted() == 0 {
        world.tick(&mut first, true);
        assert!(world.now_ms < silent_ms + 2 * LEASE_MS);
    }
    assert!(world.now_ms >= silent_ms + LEASE_MS);
    assert_eq!(world.sealed, NODES.map(|node| (node, 3_000)).into());
    // The second adoption can continue after that.
    for _ in 0..20 {
        world.tick(&mut second, true);
    }
    assert_eq!(world.sealed, NODES.map(|node| (node, 3_000)).into());
    assert_eq!((world.adopted(), world.holder()), (EPOCH + 1, None));
}

#[test]
fn adoption_continues_with_its_key_after_lost_answers() {
    let mut world = World::new(&NODES);
    let mut one = adoption(NODES[0]);
    for number in 0..100 {
        world.tick(&mut one, number % 3 > 0);
    }
    assert_eq!(world.adopted(), EPOCH + 1);
    assert_eq!(world.sealed, NODES.map(|node| (node, 1_000)).into());
    assert_eq!(world.holder(), None);
}

#[test]
fn request_from_before_an_adoption_takes_no_key() {
    let mut world = World::new(&NODES);
    let mut one = adoption(NODES[0]);
    world.put(Key::History, &History::default());
    let actions = one.tick(0, REPEAT_MS);
    let [AdoptionOutput::Request(look)] = &actions[..] else {
        panic!("{actions:?}");
    };
    let answer = world.store.answer(look);
    let take = one.answered(&answer, 0, LEASE_MS).unwrap();
    let history = History {
        adopted: EPOCH + 1,
        ..History::default()
    };
    world.put(Key::History, &history);
    assert_eq!(world.store.answer(&take), Answer::Refused);
}

#[test]
fn node_without_a_view_adopts_copies_of_all_nodes_in_etcd() {
    let mut world = World::new(&NODES[..1]);
    for node in NODES {
        world.put(Key::Node(node), &Node::default());
    }
    let mut one = adoption_by(NODES[0], &View::default());
    for _ in 0..20 {
        world.tick(&mut one, true);
    }
    assert_eq!(
        (world.adopted(), one.waits().collect()),
        (0, vec![NODES[1]])
    );
    world.sealed.insert(NODES[1], 0);
    for _ in 0..20 {
        world.tick(&mut one, true);
    }
    assert_eq!(world.adopted(), EPOCH + 1);
}

#[test]
fn adoption_keeps_partly_built_copies_out_of_elections() {
    let bucket = BucketId(1);
    let vb = Vb { bucket, number: 0 };
    let mut known = View {
        revision: 1,
        ..View::default()
    };
    let spec = BucketSpec {
        vbuckets: 1,
        copies: 2,
        ..BucketSpec::default()
    };
    let row = |nodes: &[NodeId], term| Row::new(Chain::new(nodes).unwrap(), term);
    let entry = |row| Entry {
        value: Chunk { rows: [row].into() },
        ..Entry::default()
    };
    let spec = Entry {
        value: spec,
        ..Entry::default()
    };
    known.specs.insert(bucket, spec);
    let written_beside = |known: &View, branches: [u64; 2], damaged: &[NodeId]| {
        let at = |branch| Position {
            branch,
            ..Position::default()
        };
        let copies: Vec<_> = NODES.into_iter().zip(branches.map(at)).collect();
        let sealed = Sealed {
            epoch: EPOCH + 1,
            term: 1_000,
            mark: Mark {
                number: 0,
                node: NODES[0],
                boot: 1,
                issued: 1,
            },
            copies: [(vb, copies)].into(),
            damaged: damaged.iter().map(|node| (*node, vb)).collect(),
            nodes: NODES.to_vec(),
            lost: Vec::new(),
        };
        let txns = transactions(CLUSTER, (known, &View::default()), &[], &sealed);
        let map = Key::Map(bucket, 0).text(CLUSTER);
        let mut puts = txns.into_iter().flatten().filter_map(|op| match op {
            Op::Put { key, value, .. } if key == map => Some(value),
            _ => None,
        });
        serde_json::from_str::<Chunk>(&puts.next().unwrap()).unwrap()
    };
    let written = |known: &View, branches| written_beside(known, branches, &[]);
    for chain in [&NODES[1..], &NODES[..]] {
        known.maps.insert((bucket, 0), entry(row(chain, 3)));
        assert_eq!(*written(&known, [5, 5]).rows, [row(chain, 1_000)]);
    }
    // Of copies that have as much, a whole one is kept; a damaged one that has more is needed.
    let mut alone = known.clone();
    let chunk = entry(row(&NODES[1..], 3));
    alone.maps.insert((bucket, 0), chunk);
    for (branches, kept) in [([5, 5], NODES[0]), ([4, 5], NODES[1])] {
        let rows = written_beside(&alone, branches, &NODES[1..]).rows;
        assert_eq!(rows[0].chain.active(), Some(kept));
    }
    let older = Row {
        adopted: 1_000,
        ..row(&[NODES[1], NODES[0]], 1_000)
    };
    assert_eq!(*written(&known, [4, 5]).rows, [older]);
}
