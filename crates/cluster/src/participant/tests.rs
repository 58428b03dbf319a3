//! Outputs of a participant.

use super::machine::Purpose;
use super::{Copies, Identity, NodeLease, Output, Participant};
use crate::agent::{Completeness, Copy, Role, Step};
use crate::agreed::{Alive, BucketSpec, Chunk, ClusterId, Controller, Key, Node, Seen, View};
use crate::condition::Condition;
use crate::coord::{Answer, Compare, KeyChange, KeyValue, LeaseId, Op, Range, Request, RequestId};
use crate::map::{BucketId, Chain, NodeId, Row, Vb};
use crate::message::{Message, Order};
use crate::promotion::Position;
use crate::settings::Settings;

const CLUSTER: ClusterId = ClusterId(7);
const VB: Vb = Vb {
    bucket: BucketId(1),
    number: 0,
};
const ME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);

struct OneCopy(Copy);

impl Copies for OneCopy {
    fn copy(&self, _: Vb) -> Option<Copy> {
        Some(self.0)
    }

    fn vbuckets(&self) -> Vec<Vb> {
        vec![VB]
    }

    fn damaged(&self) -> Vec<Vb> {
        Vec::new()
    }

    fn newer_manifest(&self, _: BucketId, _: Option<&str>) -> Option<String> {
        None
    }
}

/// A node without copies. The text of a manifest is its number alone.
struct NoCopies {
    manifest: u64,
}

const NO_COPIES: NoCopies = NoCopies { manifest: 0 };

impl Copies for NoCopies {
    fn copy(&self, _: Vb) -> Option<Copy> {
        None
    }

    fn vbuckets(&self) -> Vec<Vb> {
        Vec::new()
    }

    fn damaged(&self) -> Vec<Vb> {
        Vec::new()
    }

    fn newer_manifest(&self, _: BucketId, agreed: Option<&str>) -> Option<String> {
        let agreed: u64 = agreed?.parse().ok()?;
        (self.manifest > agreed).then(|| self.manifest.to_string())
    }
}

fn participant() -> Participant {
    let identity = Identity {
        cluster: CLUSTER,
        node: ME,
        boot: 1,
        new: Node::default(),
    };
    Participant::new(identity, Settings::default(), Seen::default())
}

/// A row of the vBucket, written by a revision.
fn row(revision: u64, nodes: [NodeId; 2], term: u64) -> KeyChange {
    let row = Row::new(Chain::new(&nodes).unwrap(), term);
    put(
        revision,
        Key::Map(VB.bucket, 0),
        &Chunk { rows: [row].into() },
    )
}

fn put<T: serde::Serialize>(revision: u64, key: Key, value: &T) -> KeyChange {
    KeyChange::Put(kv(revision, key, value))
}

fn kv<T: serde::Serialize>(revision: u64, key: Key, value: &T) -> KeyValue {
    KeyValue {
        key: key.text(CLUSTER),
        value: serde_json::to_string(value).unwrap(),
        create_revision: 2,
        mod_revision: revision,
        version: revision,
        lease: LeaseId(0),
    }
}

#[test]
fn rows_of_one_batch_make_one_step() {
    let sealed = OneCopy(Copy {
        role: Role::Replica,
        term: 2,
        sealed: true,
        complete: Completeness::Unknown,
        follows: None,
        topology: None,
        position: Position::default(),
        ready: false,
        condition: Condition::Whole,
    });
    let mut participant = participant();
    let rows = [row(5, [ME, OTHER], 2), row(6, [OTHER, ME], 3)];
    participant.take_changes(6, &rows, &sealed);
    let (vb, term, from) = (VB, 3, OTHER);
    let follow = Output::Step(Step::Follow { vb, term, from });
    assert_eq!(participant.outputs, [follow]);
}

#[test]
fn f6_lower_revision_of_a_renewal_only_triggers_a_read() {
    for (revision, went_back) in [(50, false), (45, true)] {
        let mut participant = participant();
        participant.newest.version.revision = 50;
        participant.check_revision(&Answer::KeptAlive(40), 50, 0);
        let Some(Output::Request(id, Request::Get(_))) = participant.outputs.pop() else {
            panic!("etcd is not read");
        };
        assert!(!participant.etcd_went_back());
        let found = Vec::new();
        let outputs = participant.answer(id, &Answer::Got { revision, found }, 0, &NO_COPIES);
        assert_eq!((outputs, participant.etcd_went_back()), (vec![], went_back));
    }
}

#[test]
fn watch_goes_on_after_a_read_of_what_it_reported() {
    let mut participant = participant();
    let read = |revision| {
        let mut read = View::default();
        read.load(CLUSTER, revision, &[]);
        read
    };
    for (revision, opens) in [(5, true), (5, false), (6, true)] {
        participant.load(read(revision), 0, &NO_COPIES);
        let watches = |output: &Output| matches!(output, Output::Request(_, Request::Watch { .. }));
        let opened = participant.outputs.drain(..).any(|output| watches(&output));
        assert_eq!(opened, opens, "{revision}");
    }
}

#[test]
fn node_that_was_never_heard_becomes_unheard() {
    let mut participant = participant();
    let limit_ms = Settings::default().unheard_ms;
    let changes = [put(3, Key::Node(OTHER), &Node::default())];
    participant.take_changes(4, &changes, &NO_COPIES);
    participant.watching_since_ms = Some(10);
    for (now_ms, unheard) in [(10, vec![]), (10 + limit_ms, vec![OTHER])] {
        drop(participant.tick(now_ms, &NO_COPIES));
        assert_eq!(participant.health.unheard, unheard);
        assert_eq!(participant.heard().get(&OTHER), None);
    }
}

#[test]
fn state_for_which_another_node_may_wait_is_reported_early_and_once() {
    let mut participant = participant();
    let Settings {
        repeat_ms,
        moving_ms,
        ..
    } = Settings::default();
    let changes = [put(3, Key::Node(OTHER), &Node::default())];
    participant.take_changes(4, &changes, &NO_COPIES);
    let pings_at = |participant: &mut Participant, now_ms| {
        let ping = Output::Send(OTHER, Message::Ping);
        participant.tick(now_ms, &NO_COPIES).contains(&ping)
    };
    assert!(pings_at(&mut participant, 0));
    assert!(!pings_at(&mut participant, moving_ms));
    participant.ping_early();
    assert!(!pings_at(&mut participant, moving_ms - 1), "not too often");
    assert!(pings_at(&mut participant, moving_ms));
    assert!(!pings_at(&mut participant, 2 * moving_ms));
    assert!(pings_at(&mut participant, moving_ms + repeat_ms));
}

#[test]
fn controller_decides_once_for_a_batch_of_inputs() {
    let mut participant = participant();
    let me = Controller::new(ME, 1);
    let node = Node::default();
    let changes = [
        put(2, Key::Controller, &me),
        put(3, Key::Node(ME), &node),
        put(4, Key::Node(OTHER), &node),
    ];
    participant.take_changes(4, &changes, &NO_COPIES);
    participant.watching_since_ms = Some(0);
    drop(participant.tick(0, &NO_COPIES));
    for order in [Order::Drain(OTHER), Order::Rebalance] {
        let outputs = participant.message(OTHER, &Message::Order(order), 0, &NO_COPIES);
        assert_eq!(outputs, []);
    }
    let outputs = participant.decide(0);
    let requests = outputs
        .iter()
        .filter(|output| matches!(output, Output::Request(..)));
    assert_eq!(requests.count(), 1, "{outputs:?}");
    assert_eq!(participant.decide(0), []);
}

#[test]
fn controller_that_rests_makes_a_round_for_input_and_at_the_interval_of_repetitions() {
    let mut participant = participant();
    let alive = Alive::default();
    let changes = [
        put(2, Key::Controller, &Controller::new(ME, 1)),
        put(3, Key::Node(ME), &Node::default()),
        put(4, Key::Alive(ME), &alive),
    ];
    participant.take_changes(4, &changes, &NO_COPIES);
    participant.watching_since_ms = Some(0);
    let round = |participant: &mut Participant, now_ms| {
        drop(participant.tick(now_ms, &NO_COPIES));
        participant.controlled_ms
    };
    assert_eq!(round(&mut participant, 0), Some(0));
    let Settings { repeat_ms, .. } = participant.settings;
    assert_eq!(round(&mut participant, repeat_ms - 1), Some(0));
    assert_eq!(round(&mut participant, repeat_ms), Some(repeat_ms));
    let order = Message::Order(Order::Rebalance);
    drop(participant.message(OTHER, &order, repeat_ms + 1, &NO_COPIES));
    drop(participant.decide(repeat_ms + 1));
    assert_eq!(participant.controlled_ms, Some(repeat_ms + 1));
}

/// Conditions of the transaction with which a node that is alive replaces this controller; none if it does not.
fn election(found: &Controller) -> Vec<Compare> {
    let mut participant = participant();
    let lease = LeaseId(9);
    let alive = KeyChange::Put(KeyValue {
        lease,
        ..kv(3, Key::Alive(ME), &Alive::default())
    });
    let changes = [put(2, Key::Node(ME), &Node::default()), alive];
    participant.take_changes(3, &changes, &NO_COPIES);
    participant.take_changes(4, &[put(4, Key::Controller, found)], &NO_COPIES);
    participant.watching_since_ms = Some(0);
    participant.lease = NodeLease::Held {
        lease,
        until_ms: 5_000,
        renewed_ms: 0,
    };
    let requests = participant.tick(0, &NO_COPIES).into_iter();
    let txns = requests.filter_map(|output| match output {
        Output::Request(_, Request::Txn(txn)) => Some(txn.compare),
        _ => None,
    });
    txns.flatten().collect()
}

#[test]
fn controller_that_was_an_earlier_start_of_this_node_is_replaced_at_once() {
    let former = Controller::new(ME, 8);
    let key = Key::Controller.text(CLUSTER);
    assert_eq!(election(&former), [Compare::ModRevision(key, 4)]);
    for other in [
        Controller::new(OTHER, 8),
        Controller {
            adopts: Some(3),
            ..former
        },
    ] {
        assert_eq!(election(&other), [], "{other:?}");
    }
}

/// Returns a participant that holds this lease since revision 3, and the request of its watch.
fn joined(lease: LeaseId) -> (Participant, RequestId) {
    let mut participant = participant();
    participant.joined = 3;
    participant.lease = NodeLease::held(&participant.settings, lease, 0);
    participant.watching_since_ms = Some(0);
    let watch = participant.request(Purpose::Watch, Request::Get(Range::Key(String::new())), 0);
    participant.watch = Some(watch);
    participant.outputs.clear();
    (participant, watch)
}

/// Asserts that a change ends the part of this process in the cluster, and that a row makes no step any more.
fn assert_replaced_by(change: KeyChange) {
    let lease = LeaseId(9);
    let (mut participant, watch) = joined(lease);
    let (revision, changes) = (4, vec![change, row(4, [ME, OTHER], 2)]);
    let answer = Answer::Changes { revision, changes };
    let outputs = participant.answer(watch, &answer, 1, &NO_COPIES);
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    assert!(matches!(&outputs[0], Output::Request(_, Request::Revoke(is)) if *is == lease));
    let later = participant.tick(100_000, &NO_COPIES);
    let acts = |output: &Output| !matches!(output, Output::Request(..));
    assert!(!later.iter().any(acts), "{later:?}");
    assert!(participant.is_replaced());
}

#[test]
fn f6_node_whose_number_an_adoption_gave_to_another_one_does_nothing() {
    let other = Node {
        uuid: "other".into(),
        ..Node::default()
    };
    assert_replaced_by(put(4, Key::Node(ME), &other));
}

/// A data directory with fewer starts than etcd is refused.
#[test]
fn join_notes_the_number_of_the_start() {
    let noted = |in_etcd, here| {
        let mut participant = participant();
        participant.identity.new.starts = here;
        let known = Node {
            starts: in_etcd,
            ..Node::default()
        };
        let put = put(2, Key::Node(ME), &known);
        participant.view.apply(CLUSTER, &put);
        participant.join(LeaseId(9), (2, 0), 0);
        let Some(Output::Request(_, Request::Txn(txn))) = participant.outputs.pop() else {
            panic!("no transaction");
        };
        let written = txn.then.iter().find_map(|op| match op {
            Op::Put { key, value, .. } if *key == participant.key(Key::Node(ME)) => {
                serde_json::from_str::<Node>(value).ok()
            }
            _ => None,
        });
        written.map(|node| node.starts)
    };
    assert_eq!(noted(4, 5), Some(5));
    assert_eq!(noted(5, 5), None, "the lease was lost meanwhile");
}

#[test]
fn process_does_nothing_once_a_copy_of_its_directory_has_started() {
    let started = |boot| Alive {
        boot,
        ..Alive::default()
    };
    assert_replaced_by(put(4, Key::Alive(ME), &started(2)));
    // The last start before this one, and a change of this node's own health.
    for change in [
        put(3, Key::Alive(ME), &started(2)),
        put(4, Key::Alive(ME), &started(1)),
    ] {
        let (mut participant, watch) = joined(LeaseId(9));
        let changes = vec![put(2, Key::Node(ME), &Node::default()), change];
        let (revision, changes) = (4, changes);
        let answer = Answer::Changes { revision, changes };
        let outputs = participant.answer(watch, &answer, 1, &NO_COPIES);
        assert_eq!(outputs, []);
        assert_eq!(participant.excluded, None);
    }
}

#[test]
fn etcd_that_lost_collections_gets_them_from_a_node() {
    let asked = |outputs: Vec<Output>| {
        outputs.into_iter().find_map(|output| match output {
            Output::Request(id, Request::Txn(txn)) => Some((id, txn)),
            _ => None,
        })
    };
    for (agreed, own, is_written) in [(9, 16, true), (16, 16, false), (17, 16, false)] {
        let node = NoCopies { manifest: own };
        let (spec, key) = (Key::Spec(VB.bucket), Key::Manifest(VB.bucket));
        let mut read = View::default();
        let found = [kv(3, spec, &BucketSpec::default()), kv(4, key, &agreed)];
        read.load(CLUSTER, 5, &found);
        let mut participant = participant();
        participant.load(read, 0, &node);
        let Some((id, txn)) = asked(std::mem::take(&mut participant.outputs)) else {
            assert!(!is_written, "{agreed}");
            continue;
        };
        let of = |key: Key, revision| Compare::ModRevision(key.text(CLUSTER), revision);
        assert_eq!(txn.compare, [of(spec, 3), of(key, 4)]);
        let (key, value) = (key.text(CLUSTER), own.to_string());
        let lease = LeaseId(0);
        assert_eq!(txn.then, [Op::Put { key, value, lease }]);
        // It is repeated until etcd has it.
        assert_eq!(participant.answer(id, &Answer::Refused, 1, &node), []);
        let again = asked(participant.tick(100_000, &node)).expect("a transaction");
        assert_eq!(again.1, txn);
        let changes = vec![put(6, Key::Manifest(VB.bucket), &own)];
        participant.take_changes(6, &changes, &node);
        let (id, _) = again;
        drop(participant.answer(id, &Answer::Committed(6), 100_000, &node));
        assert_eq!(asked(participant.tick(200_000, &node)), None);
    }
}
