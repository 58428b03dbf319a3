//! The maximum number of collections, with documents in some of them.

use collections::{COLLECTIONS_MAX, CollectionSettings, WantedCollection, WantedScope};
use model::CollectionId;

use super::Op::{DropCursor, DropScope, Open, Read, Replicate, Restart, Set, Toggle};
use super::{Op, Side, World};

fn scope(name: &str, collections: impl IntoIterator<Item = String>) -> WantedScope {
    let collection = |name: String| WantedCollection {
        name: name.into(),
        max_ttl_s: None,
        history: None,
    };
    WantedScope {
        name: name.into(),
        collections: collections.into_iter().map(collection).collect(),
    }
}

impl World {
    /// Applies a manifest with `count` collections in the scope `many`, besides the default one.
    fn have(&mut self, count: usize) {
        let many = scope(
            "many",
            (0..count).map(|index| format!("collection-{index}")),
        );
        let default = scope("_default", ["_default".to_owned()]);
        let next = self
            .manifest
            .with_scopes(&[default, many], CollectionSettings::default());
        self.take(next.expect("it is valid"), 0);
        let ids: Vec<u32> = self
            .manifest
            .collections()
            .map(|(_, one)| one.id.0)
            .collect();
        // Documents go into the default collection and four others.
        let chosen = [1, 2, ids.len() / 2, ids.len() - 1];
        for (number, at) in self.ids.iter_mut().skip(1).zip(chosen) {
            *number = ids[at];
        }
    }

    fn run_all(&mut self, ops: &[Op]) {
        for op in ops {
            self.run(op);
            self.check();
        }
    }
}

fn flush(items: u16) -> [Op; 2] {
    let on = Side::Active;
    [
        Op::FlushBegin { on, items },
        Op::FlushEnd {
            on,
            ok: true,
            written: true,
        },
    ]
}

/// Streams, a replica, restarts and erasing at several points: before the group is flushed, in its
/// middle for its readers, and after it.
#[test]
fn a_thousand_collections_behave_as_few_do() {
    let open = |wanted, name, from_high| Open {
        wanted,
        name,
        from_high,
    };
    let read = |which, steps| Read {
        which,
        steps,
        rows: 3,
    };
    let restart = |unclean| Restart {
        on: Side::Active,
        unclean,
    };
    let mut world = World::new(4 << 10);
    world.run_all(&[Set { key: 0, count: 5 }, open(0, 1, false)]);
    world.have(COLLECTIONS_MAX - 1);
    world.run_all(&[
        Set { key: 0, count: 40 },
        // Into the middle of the group, from memory.
        read(0, 100),
        Op::Resume { which: 0 },
        Replicate { steps: 200 },
        open(2, 3, false),
        open(3, 1, false),
    ]);
    world.run_all(&flush(u16::MAX));
    world.run_all(&[
        DropCursor { which: 0 },
        read(0, 200),
        read(1, 200),
        Op::Resume { which: 0 },
        // From the store, with the group in one row.
        restart(false),
        open(1, 1, false),
        read(3, 20),
        Set { key: 10, count: 20 },
    ]);
    world.run_all(&flush(3));
    world.run_all(&[restart(true), Replicate { steps: 100 }, read(1, 100)]);
    // Most collections of the group end, in single steps.
    world.have(600);
    world.run_all(&[Set { key: 3, count: 9 }, Op::Erase(Side::Active)]);
    world.run_all(&flush(u16::MAX));
    world.run_all(&[
        Op::Erase(Side::Active),
        restart(false),
        open(0, 5, false),
        read(0, 250),
    ]);
    world.have(COLLECTIONS_MAX - 2);
    world.run_all(&[Toggle {
        names: vec![4],
        ttl: None,
        between: 3,
    }]);
    world.run_all(&[DropScope(4), Set { key: 0, count: 30 }]);
    let known = world.manifest.collection(CollectionId::DEFAULT);
    assert!(known.is_some());
    world.drain();
}
