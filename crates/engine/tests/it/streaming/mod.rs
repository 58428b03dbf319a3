//! Random writes, flushes, faults and restarts of a vBucket that streams read. One stream feeds a
//! replica, which is also flushed, restarted and read. At the end of each snapshot, a reader has
//! exactly the state of that seqno.

mod node;
mod reader;

use engine::{CheckpointKind, SnapshotMarker};
use model::Seqno;
use node::Node;
use proptest::prelude::*;
use reader::Reader;

const KEYS: u8 = 60;

fn key_of(index: u8) -> Vec<u8> {
    format!("\0key{:02}", index % KEYS).into_bytes()
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Active,
    Replica,
}

#[derive(Clone, Debug)]
enum Op {
    /// Sets consecutive keys.
    Set {
        key: u8,
        count: u8,
    },
    Delete {
        key: u8,
    },
    FlushBegin {
        on: Side,
        items: u16,
    },
    FlushEnd {
        on: Side,
        ok: bool,
        written: bool,
    },
    /// Opens a stream from zero or from the high seqno.
    Open {
        on: Side,
        from_high: bool,
    },
    Read {
        on: Side,
        which: u8,
        items: u16,
    },
    Drop {
        on: Side,
        which: u8,
    },
    DropSlowest {
        on: Side,
    },
    Close {
        on: Side,
        which: u8,
    },
    /// Moves changes from the active vBucket to the replica.
    Replicate {
        items: u16,
    },
    DropLink,
    Restart {
        on: Side,
        unclean: bool,
    },
}

struct World {
    active: Node,
    replica: Node,
    link: Reader,
}

impl World {
    fn new(checkpoint_bytes_max: usize) -> Self {
        let mut active = Node::active(checkpoint_bytes_max);
        let link = Reader::open(&mut active.vbucket, "link", Seqno(0));
        Self {
            active,
            replica: Node::replica(checkpoint_bytes_max),
            link,
        }
    }

    fn side(&mut self, side: Side) -> &mut Node {
        match side {
            Side::Active => &mut self.active,
            Side::Replica => &mut self.replica,
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Set { key, count } => {
                (key..key.saturating_add(count)).for_each(|key| self.active.set(&key_of(key)));
            }
            Op::Delete { key } => self.active.delete(&key_of(key)),
            Op::FlushBegin { on, items } => self.side(on).flush_begin(usize::from(items)),
            Op::FlushEnd { on, ok, written } => self.side(on).flush_end(ok, written),
            Op::Open { on, from_high } => {
                // A reader that starts in the middle of a snapshot must know the state there.
                let after_all = from_high && matches!(on, Side::Active);
                self.side(on).open(after_all);
            }
            Op::Read { on, which, items } => {
                let history = std::mem::take(&mut self.active.history);
                self.side(on).read(which, usize::from(items), &history);
                self.active.history = history;
            }
            Op::Drop { on, which } => self.side(on).drop_cursor(which),
            Op::DropSlowest { on } => self.side(on).drop_slowest(),
            Op::Close { on, which } => self.side(on).close(which),
            Op::Replicate { items } => self.replicate(usize::from(items)),
            Op::DropLink => self.link.drop_cursor(&mut self.active.vbucket),
            Op::Restart { on, unclean } => self.restart(on, unclean),
        }
    }

    fn replicate(&mut self, items: usize) {
        let Some(sent) = self.link.read(&mut self.active, items) else {
            return;
        };
        let vbucket = &mut self.replica.vbucket;
        if let Some(range) = sent.marker {
            let marker = SnapshotMarker {
                start: range.start,
                end: range.end,
                kind: if sent.kind == "disk" {
                    CheckpointKind::Disk
                } else {
                    CheckpointKind::Memory
                },
                checkpoint: sent.checkpoint,
                high_completed: None,
                high_prepared: None,
                visible_end: None,
                purge_seqno: None,
                historical: false,
            };
            vbucket.begin_snapshot(&marker).unwrap();
        }
        for document in &sent.documents {
            let applied = vbucket.apply(document).unwrap();
            let whole = vbucket.snapshot_progress().end == document.seqno();
            assert_eq!(applied.snapshot_ended, whole);
        }
        let end = self.link.stream.last;
        assert!(
            vbucket.high_seqno() <= end,
            "the last ones may have been replaced"
        );
        let progress = vbucket.snapshot_progress();
        if progress.end == end {
            assert_eq!(
                progress.start, end,
                "a whole snapshot is a consistent point"
            );
            self.check_replica(end);
        }
    }

    /// Checks the replica against the active vBucket's history at a consistent seqno.
    fn check_replica(&mut self, at: Seqno) {
        let now = self.active.now;
        for key in (0..KEYS).map(key_of) {
            let newest = self.active.history.newest(&key, at);
            let found = self.replica.vbucket.get_replica(&key, false, now);
            let found = found.ok().map(|outcome| match outcome {
                engine::Outcome::Done(got) | engine::Outcome::Prepared(got) => got.document.seqno(),
                engine::Outcome::NeedsFetch(fetch) => match fetch.wanted {
                    engine::DocumentPart::Value(seqno) => seqno,
                    engine::DocumentPart::Row(_) | engine::DocumentPart::Metadata(_) => {
                        panic!("all keys are here")
                    }
                },
            });
            assert_eq!(
                found,
                newest.filter(|seqno| !self.active.history.is_gone(*seqno))
            );
        }
    }

    fn restart(&mut self, side: Side, unclean: bool) {
        let kept = self.side(side).restart(unclean);
        if matches!(side, Side::Active) && self.replica.vbucket.high_seqno() > kept {
            self.replica.reset();
        }
        let after = self.replica.vbucket.high_seqno();
        self.link = Reader::open(&mut self.active.vbucket, "link", after);
    }
}

fn op() -> impl Strategy<Value = Op> {
    let side = || prop_oneof![Just(Side::Active), Just(Side::Replica)];
    let items = || prop_oneof![1..8u16, 1..80u16, Just(u16::MAX)];
    let some = any::<u8>;
    prop_oneof![
        6 => (some(), 1..6u8).prop_map(|(key, count)| Op::Set { key, count }),
        2 => (some(), 30..90u8).prop_map(|(key, count)| Op::Set { key, count }),
        2 => some().prop_map(|key| Op::Delete { key }),
        4 => (side(), items()).prop_map(|(on, items)| Op::FlushBegin { on, items }),
        4 => (side(), prop_oneof![
            4 => Just((true, true)), 1 => Just((false, true)), 1 => Just((false, false)),
        ]).prop_map(|(on, (ok, written))| Op::FlushEnd { on, ok, written }),
        2 => (side(), any::<bool>()).prop_map(|(on, from_high)| Op::Open { on, from_high }),
        6 => (side(), some(), items())
            .prop_map(|(on, which, items)| Op::Read { on, which, items }),
        1 => (side(), some()).prop_map(|(on, which)| Op::Drop { on, which }),
        1 => side().prop_map(|on| Op::DropSlowest { on }),
        1 => (side(), some()).prop_map(|(on, which)| Op::Close { on, which }),
        6 => items().prop_map(|items| Op::Replicate { items }),
        1 => Just(Op::DropLink),
        1 => (side(), any::<bool>()).prop_map(|(on, unclean)| Op::Restart { on, unclean }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..Default::default() })]

    #[test]
    fn streams_are_prefixes_of_history(
        checkpoint_bytes_max in prop::sample::select(&[1, 2000, 1 << 20][..]),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut world = World::new(checkpoint_bytes_max);
        for op in &ops {
            world.run(op);
            world.active.check();
            world.replica.check();
        }
        // In the end every reader reads everything.
        while world.replica.vbucket.high_seqno() < world.active.vbucket.high_seqno() {
            world.replicate(usize::MAX);
        }
        let history = world.active.history.clone();
        for node in [&mut world.active, &mut world.replica] {
            node.drain(&history);
        }
        world.check_replica(world.active.vbucket.high_seqno());
        world.replica.promote();
    }
}
