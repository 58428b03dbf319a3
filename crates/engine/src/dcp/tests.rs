//! Tests of a stream and its vBucket without a node.

use std::sync::Arc;

use collections::{Manifest, ManifestPlanner};
use model::{
    Cas, Document, Draft, FailoverEntry, Meta, Now, Seqno, SnapshotRange, VbId, VbState, VbUuid,
};

use super::*;
use crate::{FlushBudget, Outcome, StoreMode, VBucket, VbConfig, Write};

const NOW: Now = Now {
    unix_ns: 1_700_000_000_000_000_000,
    mono_ns: 1,
};
const NAME: &str = "s";

/// A vBucket, its rows in a store, and a stream.
struct World {
    vbucket: VBucket,
    rows: Vec<Document>,
    stored: StoreView,
    stream: Stream,
}

struct Chunk(Vec<Document>);

impl StoreRows for Chunk {
    fn documents(&self) -> &[Document] {
        &self.0
    }
}

fn vbucket() -> VBucket {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno::ZERO,
    };
    let config = Arc::new(VbConfig::default());
    VBucket::new(VbId(0), VbState::Active, first, config)
}

fn range(start: u64, end: u64) -> SnapshotRange {
    SnapshotRange {
        start: Seqno(start),
        end: Seqno(end),
    }
}

fn set(vbucket: &mut VBucket, key: &str) {
    let key = [b"\0", key.as_bytes()].concat();
    let mut write = Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(&key, b"v", &Meta::default())),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    assert!(matches!(
        vbucket.store(&mut write, NOW),
        Ok(Outcome::Done(_))
    ));
}

fn ask(seqno: u64, end: u64, options: StreamOptions) -> StreamAsk {
    StreamAsk {
        position: ClaimedPosition {
            uuid: VbUuid(u64::from(seqno != 0)),
            seqno: Seqno(seqno),
            snapshot: range(seqno, seqno),
            purge_seqno: Seqno::ZERO,
        },
        end: Seqno(end),
        options,
    }
}

const FOR_EVER: u64 = u64::MAX;

fn opened(vbucket: &mut VBucket, ask: StreamAsk) -> Stream {
    let opened = Stream::open(vbucket, NAME, ask);
    opened.expect("it may go on").stream
}

impl World {
    fn open(vbucket: VBucket, ask: StreamAsk) -> Self {
        let mut vbucket = vbucket;
        Self {
            stream: opened(&mut vbucket, ask),
            vbucket,
            rows: Vec::new(),
            stored: StoreView {
                high: Seqno::ZERO,
                visible_end: Seqno::ZERO,
                purge_seqno: Seqno::ZERO,
                snapshot: range(0, 0),
                high_completed: Seqno::ZERO,
                high_prepared: Seqno::ZERO,
                by_key: false,
                history_from: None,
            },
        }
    }

    /// Drops the cursor, so that a stream that begins again reads the store.
    fn drop_cursor(&mut self) {
        let cursor = self.stream.take_cursor().expect("it has one");
        drop(self.vbucket.remove_cursor(cursor));
    }

    fn reopen(&mut self, ask: StreamAsk) {
        self.stream = opened(&mut self.vbucket, ask);
    }

    fn set(&mut self, keys: &str) {
        keys.split(' ').for_each(|key| set(&mut self.vbucket, key));
    }

    /// Writes dirty changes to the store, at most `items`.
    fn flush(&mut self, items: usize) {
        let budget = FlushBudget {
            items,
            bytes: usize::MAX,
        };
        let batch = self
            .vbucket
            .begin_flush(budget, &mut crate::SpareBuffers::default())
            .expect("it is dirty");
        batch.for_each(&mut |item| {
            let crate::FlushItem::Put { document, .. } = item else {
                return;
            };
            self.rows.retain(|row| row.key() != document.key());
            self.rows.push(document.clone());
        });
        self.stored.high = batch.record.high_seqno;
        self.stored.visible_end = self.stored.high;
        self.stored.snapshot = batch.record.snapshot;
        drop(self.vbucket.finish_flush(batch.done(true)));
    }

    /// Returns the stream's events until it has no more, as `key@seqno`, `[start..end flags]` and
    /// so on.
    fn read(&mut self) -> String {
        let mut said = Vec::new();
        let mut has_latest = false;
        loop {
            while let Some(event) = self.stream.next_event() {
                said.push(tell(&event));
            }
            let (filled, _garbage) = self.stream.fill(&mut self.vbucket, NAME);
            assert!(
                !has_latest || filled == FillResult::Idle,
                "there was no more"
            );
            has_latest = filled == FillResult::Latest;
            match filled {
                FillResult::Ready | FillResult::Latest if !self.stream.is_over() => {}
                FillResult::Ready | FillResult::Latest | FillResult::Idle => return said.join(" "),
                FillResult::HandOver => {
                    self.vbucket.set_state(VbState::Dead, None, VbUuid(9));
                    self.stream.handed_over();
                }
                FillResult::Backfill(range) => self.backfill(range, &mut said),
            }
        }
    }

    fn backfill(&mut self, range: SnapshotRange, said: &mut Vec<String>) {
        said.push(format!("store{}", range.start));
        let view = self.stored;
        let _garbage = self.stream.backfill_opened(&view, &mut self.vbucket, NAME);
        let wanted = |row: &&Document| row.seqno() >= range.start && row.seqno() <= range.end;
        let rows: Vec<Document> = self.rows.iter().filter(wanted).cloned().collect();
        for chunk in rows.chunks(2) {
            self.stream.backfill_rows(Box::new(Chunk(chunk.to_vec())));
            while let Some(event) = self.stream.next_event() {
                said.push(tell(&event));
            }
        }
        self.stream.backfill_done();
    }
}

fn tell(event: &Event<'_>) -> String {
    match event {
        Event::Snapshot(snapshot) => {
            let source = if snapshot.disk { "disk" } else { "memory" };
            let checkpoint = if snapshot.checkpoint { "+" } else { "" };
            let SnapshotRange { start, end } = snapshot.range;
            format!("[{start}..{end} {source}{checkpoint}]")
        }
        Event::Change(document) => {
            let key = String::from_utf8_lossy(&document.key()[1..]).into_owned();
            format!("{key}@{}", document.seqno())
        }
        Event::OutOfOrder { begins: true } => "(".to_owned(),
        Event::OutOfOrder { begins: false } => ")".to_owned(),
        Event::Advanced(seqno) => format!("advanced{seqno}"),
        Event::State(state) => state.name().to_owned(),
        Event::End(end) => format!("{end:?}"),
    }
}

fn with(set: impl FnOnce(&mut StreamOptions)) -> StreamOptions {
    let mut options = StreamOptions::default();
    set(&mut options);
    options
}

fn plain(seqno: u64) -> StreamAsk {
    ask(seqno, FOR_EVER, StreamOptions::default())
}

#[test]
fn stream_reads_from_memory_only() {
    let mut world = World::open(vbucket(), plain(0));
    assert_eq!(world.read(), "");
    world.set("a b a");
    assert_eq!(world.read(), "[0..3 memory+] b@2 a@3");
    world.set("c");
    assert_eq!(world.read(), "[4..4 memory] c@4");
    assert_eq!(world.read(), "");
}

#[test]
fn stream_continues_from_store_to_memory_without_gap() {
    let mut world = World::open(vbucket(), plain(0));
    world.drop_cursor();
    world.set("a b a");
    world.flush(usize::MAX);
    world.set("c");
    world.reopen(plain(0));
    assert_eq!(
        world.read(),
        "store1 [0..3 disk+] b@2 a@3 [4..4 memory+] c@4"
    );
}

/// The store stopped inside a checkpoint. The view has no version of `a`: its older one was
/// replaced before it was written, and its newest one comes later in the same snapshot.
#[test]
fn backfill_completes_a_snapshot_from_memory() {
    let mut world = World::open(vbucket(), plain(0));
    world.drop_cursor();
    world.set("a b c d a");
    world.flush(2);
    world.set("e");
    world.reopen(plain(0));
    let said = world.read();
    let told = said.split(' ').filter(|word| word.contains('@'));
    assert_eq!(
        told.collect::<Vec<_>>(),
        ["b@2", "c@3", "d@4", "a@5", "e@6"]
    );
    let first_end = said
        .split("..")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    assert!(
        first_end.is_some_and(|end| end == "5" || end == "6"),
        "the first snapshot must hold a@5: {said}"
    );
}

#[test]
fn stream_with_dropped_cursor_reads_the_store_again() {
    let mut world = World::open(vbucket(), plain(0));
    world.set("a");
    assert_eq!(world.read(), "[0..1 memory+] a@1");
    world.set("b c");
    world.flush(usize::MAX);
    let cursor = world.stream.figures().cursor.expect("it has one");
    drop(world.vbucket.remove_cursor(cursor));
    world.set("d");
    assert_eq!(
        world.read(),
        "store2 [2..3 disk+] b@2 c@3 [4..4 memory+] d@4"
    );
}

/// The event that created the collection may have been de-duplicated by the one that ends it. Only replicas follow then.
#[test]
fn stream_from_memory_leaves_out_documents_of_dropped_collections() {
    let all = with(|options| options.wants_advances = true);
    let mut world = World::open(vbucket(), ask(0, FOR_EVER, all));
    world.set("a b");
    let manifest = Manifest::default().without_collection("_default", "_default");
    let manifest = manifest.expect("it is there");
    let mut planner = ManifestPlanner::new(&manifest, 100);
    assert!(world.vbucket.apply_manifest(&mut planner, NOW));
    assert_eq!(world.read(), "[0..3 memory+] \0\0_collection@3");
    let replica = StreamOptions {
        sync_writes: true,
        ..all
    };
    world.reopen(ask(0, FOR_EVER, replica));
    assert_eq!(world.read(), "[0..3 memory+] a@1 b@2 \0\0_collection@3");
}

/// The collection is erased after a stream's view of the store was opened, and before the stream looks at it.
#[test]
fn stream_from_an_old_view_leaves_out_documents_of_erased_collections() {
    let all = with(|options| options.wants_advances = true);
    let mut world = World::open(vbucket(), plain(0));
    world.drop_cursor();
    world.set("a b");
    let manifest = Manifest::default().without_collection("_default", "_default");
    let manifest = manifest.expect("it is there");
    let mut planner = ManifestPlanner::new(&manifest, 100);
    assert!(world.vbucket.apply_manifest(&mut planner, NOW));
    world.flush(usize::MAX);
    while !world.vbucket.erase_dead(8, &mut Vec::new()).finished {}
    let living = world.vbucket.dead_in_store().expect("all is durable");
    world.vbucket.finish_erasing(living.up_to());
    assert!(!world.vbucket.has_dead());
    world.reopen(ask(0, FOR_EVER, all));
    assert_eq!(world.read(), "store1 [0..3 disk+] \0\0_collection@3");
}

/// The cursor is dropped during the backfill, and the changes after the view have left memory.
#[test]
fn cursor_dropped_during_backfill_causes_another_backfill() {
    let mut world = World::open(vbucket(), plain(0));
    world.drop_cursor();
    world.set("a b");
    world.flush(usize::MAX);
    world.reopen(plain(0));
    let (filled, _garbage) = world.stream.fill(&mut world.vbucket, NAME);
    assert_eq!(filled, FillResult::Backfill(range(1, FOR_EVER)));
    let view = world.stored;
    let rows = world.rows.clone();
    let cursor = world.stream.figures().cursor.expect("it has one");
    drop(world.vbucket.remove_cursor(cursor));
    world.set("c d");
    world.flush(usize::MAX);
    let opened = world
        .stream
        .backfill_opened(&view, &mut world.vbucket, NAME);
    drop(opened);
    world.stream.backfill_rows(Box::new(Chunk(rows)));
    let mut said = Vec::new();
    while let Some(event) = world.stream.next_event() {
        said.push(tell(&event));
    }
    assert_eq!(said.join(" "), "[0..2 disk+] a@1 b@2");
    world.stream.backfill_done();
    assert_eq!(world.read(), "store3 [3..4 disk+] c@3 d@4");
}

#[test]
fn streams_start_and_end_at_requested_seqnos() {
    let mut world = World::open(vbucket(), ask(0, 2, StreamOptions::default()));
    world.set("a");
    assert_eq!(world.read(), "[0..1 memory+] a@1");
    world.set("b c");
    assert_eq!(world.read(), "[2..3 memory] b@2 c@3 Finished");
    assert!(world.stream.is_over());
    let to_latest = with(|options| options.to_latest = true);
    let mut world = World::open(world.vbucket, ask(0, FOR_EVER, to_latest));
    world.set("d");
    assert_eq!(world.read(), "[0..4 memory+] a@1 b@2 c@3 d@4 Finished");
    let from_latest = with(|options| options.from_latest = true);
    let mut world = World::open(world.vbucket, ask(0, FOR_EVER, from_latest));
    world.set("e");
    assert_eq!(world.read(), "[4..5 memory+] e@5");
}

#[test]
fn disk_only_stream_ends_at_persisted_seqno() {
    let disk_only = with(|options| options.disk_only = true);
    let mut world = World::open(vbucket(), plain(0));
    world.set("a b");
    world.flush(usize::MAX);
    world.set("c");
    let asked = ask(0, FOR_EVER, disk_only);
    let stream = Stream::open(&mut world.vbucket, "other", asked)
        .expect("from 0")
        .stream;
    world.stream = stream;
    assert_eq!(world.read(), "store1 [0..2 disk+] a@1 b@2 Finished");
}

/// A document that is replaced while the stream is under way has its newest version beyond the end that was asked
/// for. Without it the peer would have no version of the document at all.
#[test]
fn a_stream_with_an_end_sends_its_last_snapshot_whole() {
    let with_end = || ask(0, 2, StreamOptions::default());
    let mut world = World::open(vbucket(), with_end());
    world.set("a b a c");
    assert_eq!(
        world.read(),
        "[0..4 memory+] b@2 a@3 c@4 Finished",
        "from memory"
    );
    world.flush(usize::MAX);
    world.drop_cursor();
    world.reopen(with_end());
    assert_eq!(
        world.read(),
        "store1 [0..4 disk+] b@2 a@3 c@4 Finished",
        "from the store"
    );
    world.set("d");
    world.flush(usize::MAX);
    world.set("b");
    world.drop_cursor();
    world.reopen(with_end());
    assert_eq!(
        world.read(),
        "store1 [0..5 disk+] b@2 a@3 c@4 d@5 Finished",
        "what comes after the snapshot is not sent"
    );
}

#[test]
fn a_disk_only_stream_sends_its_view_whole() {
    let disk_only = with(|options| options.disk_only = true);
    let mut world = World::open(vbucket(), plain(0));
    world.set("a b");
    world.flush(usize::MAX);
    world.reopen(ask(0, FOR_EVER, disk_only));
    world.set("a c");
    world.flush(usize::MAX);
    assert_eq!(world.read(), "store1 [0..4 disk+] b@2 a@3 c@4 Finished");
}

/// The store stopped inside a checkpoint, where the only version of `a` is still in memory.
#[test]
fn a_disk_only_stream_ends_where_a_snapshot_does() {
    let disk_only = with(|options| options.disk_only = true);
    let mut world = World::open(vbucket(), plain(0));
    world.drop_cursor();
    world.set("x");
    world.flush(usize::MAX);
    world.set("a b c d a");
    world.flush(2);
    assert!(world.stored.high < Seqno(6), "{:?}", world.stored);
    world.reopen(ask(0, FOR_EVER, disk_only));
    assert_eq!(
        world.read(),
        "store1 [0..6 disk+] x@1 b@3 c@4 d@5 a@6 Finished"
    );
}

/// The peer has no consistent state before the end of the second snapshot. If the vBucket's history branches off
/// in between, the peer goes back to the start that it was told: the start of the first one.
#[test]
fn a_snapshot_that_breaks_off_goes_on_from_its_start() {
    let mut world = World::open(vbucket(), plain(0));
    world.set("a");
    assert_eq!(world.read(), "[0..1 memory+] a@1");
    for number in 0..3000 {
        set(&mut world.vbucket, &number.to_string());
    }
    // The flusher takes all of it as one snapshot, the stream a part.
    world.flush(usize::MAX);
    drop(world.stream.fill(&mut world.vbucket, NAME));
    let mut first = Vec::new();
    while let Some(event) = world.stream.next_event() {
        first.push(tell(&event));
    }
    assert_eq!(first.first().map(String::as_str), Some("[2..3001 memory]"));
    assert!(first.len() < 3000, "the peer has a part of it");
    let cursor = world.stream.figures().cursor.expect("it has one");
    drop(world.vbucket.remove_cursor(cursor));
    world.set("b");
    world.flush(usize::MAX);
    let rest = world.read();
    let rest: Vec<&str> = rest.split(' ').collect();
    assert_eq!(rest[1..3], ["[2..3002", "disk+]"], "{}", rest[0]);
    assert_eq!(rest.last(), Some(&"b@3002"));
}

/// The peer had a part of a longer snapshot: one that would end before it lacks documents that were replaced in the rest.
#[test]
fn the_first_snapshot_does_not_end_before_the_one_that_broke_off() {
    let mut world = World::open(vbucket(), plain(0));
    world.drop_cursor();
    world.set("a b c");
    world.flush(usize::MAX);
    world.set("d e");
    for (snapshot, expected) in [
        (range(1, 5), "store3 [1..5 disk+] c@3 d@4 e@5"),
        (
            range(2, 5),
            "store3 [2..3 disk+] c@3 [4..5 memory+] d@4 e@5",
        ),
        (
            range(1, 2),
            "store3 [2..3 disk+] c@3 [4..5 memory+] d@4 e@5",
        ),
    ] {
        let mut inside = plain(2);
        inside.position.snapshot = snapshot;
        world.reopen(inside);
        assert_eq!(world.read(), expected, "{snapshot:?}");
        world.drop_cursor();
    }
}

/// Such a peer is told of the default collection alone, and that a snapshot is over by its last change.
#[test]
fn a_peer_without_collections_gets_a_long_snapshot_whole() {
    let mut world = World::open(vbucket(), plain(0));
    let manifest = Manifest::default().with_scope("shop").expect("it is new");
    let mut planner = ManifestPlanner::new(&manifest, 100);
    assert!(world.vbucket.apply_manifest(&mut planner, NOW));
    world.set("a");
    for number in 0..2900 {
        set(&mut world.vbucket, &number.to_string());
    }
    world.set("a");
    world.flush(usize::MAX);
    let said = world.read();
    let said: Vec<&str> = said.split(' ').collect();
    let markers = said.iter().filter(|word| word.contains("..")).count();
    assert_eq!((markers, said[0]), (1, "[0..2903"), "{}", said.len());
    assert_eq!(said.last(), Some(&"a@2903"));
}

/// A node that was killed has lost what such a peer has. Without the rollback the peer could never go on.
#[test]
fn a_peer_that_reads_up_to_the_newest_is_told_to_roll_back() {
    let to_latest = with(|options| options.to_latest = true);
    let mut world = World::open(vbucket(), plain(0));
    world.set("a b");
    let asks = |vbucket: &mut VBucket| {
        let opened = Stream::open(vbucket, NAME, ask(5, FOR_EVER, to_latest));
        opened.map(drop).expect_err("it has more than is here")
    };
    let same_history = asks(&mut world.vbucket);
    assert_eq!(same_history, StreamRefusal::OutOfRange);
    world.vbucket.set_state(VbState::Replica, None, VbUuid(1));
    world.vbucket.set_state(VbState::Active, None, VbUuid(2));
    world.set("c");
    let other_history = asks(&mut world.vbucket);
    assert_eq!(other_history, StreamRefusal::Rollback(Seqno(2)));
}

/// Specification section 20.11.
#[test]
fn a_takeover_hands_the_vbucket_over() {
    let takeover = with(|options| options.takeover = true);
    let mut world = World::open(vbucket(), ask(0, FOR_EVER, takeover));
    world.set("a");
    assert_eq!(
        world.read(),
        "[0..1 memory+] a@1",
        "a marker is to be answered"
    );
    assert!(!world.stream.state_acknowledged(), "no state was asked for");
    assert!(world.stream.snapshot_acknowledged());
    assert!(!world.stream.snapshot_acknowledged(), "none is outstanding");
    assert_eq!(world.read(), "pending");
    world.set("b");
    assert_eq!(world.read(), "", "the peer has yet to answer");
    assert!(world.stream.state_acknowledged());
    assert_eq!(world.read(), "[2..2 memory] b@2");
    assert_eq!(world.vbucket.state(), VbState::Dead);
    assert!(world.stream.snapshot_acknowledged());
    assert_eq!(world.read(), "active");
    assert!(world.stream.state_acknowledged());
    assert_eq!(world.read(), "Finished");
}

/// Deletions are left out only of the initial backfill of a peer that starts at seqno 0.
#[test]
fn initial_backfill_skips_deletions_on_request() {
    let without = StreamOptions {
        skip_deletes: true,
        wants_advances: true,
        ..StreamOptions::default()
    };
    for (seqno, expected) in [
        (0, "store1 [0..4 disk+] a@1 c@3 advanced4"),
        (1, "store2 [1..4 disk+] c@3 b@4"),
    ] {
        let mut world = World::open(vbucket(), plain(0));
        world.set("a b c");
        let deleted = world.vbucket.delete(b"\0b", Cas::ANY, None, NOW);
        assert!(matches!(deleted, Ok(Outcome::Done(_))));
        world.flush(usize::MAX);
        let cursor = world.stream.take_cursor().expect("it has one");
        drop(world.vbucket.remove_cursor(cursor));
        let asked = ask(seqno, FOR_EVER, without);
        world.reopen(asked);
        assert_eq!(world.read(), expected);
        // Later deletions are sent, also when they come from the store.
        let deleted = world.vbucket.delete(b"\0a", Cas::ANY, None, NOW);
        assert!(matches!(deleted, Ok(Outcome::Done(_))));
        world.flush(usize::MAX);
        let cursor = world.stream.figures().cursor.expect("it has one");
        drop(world.vbucket.remove_cursor(cursor));
        assert_eq!(world.read(), "store5 [5..5 disk+] a@5");
    }
}

/// A peer that knows the purge seqno continues after it, unless more tombstones are purged.
#[test]
fn peer_that_knows_the_purge_seqno_keeps_its_backfill() {
    for (purged, ended) in [(4, false), (5, true)] {
        let mut world = World::open(vbucket(), plain(0));
        world.set("a b c d e");
        world.flush(usize::MAX);
        let cursor = world.stream.take_cursor().expect("it has one");
        drop(world.vbucket.remove_cursor(cursor));
        let mut knows = plain(2);
        knows.position.purge_seqno = Seqno(4);
        world.reopen(knows);
        world.stored.purge_seqno = Seqno(purged);
        let expected = if ended {
            "store3 Rollback"
        } else {
            "store3 [2..5 disk+] c@3 d@4 e@5"
        };
        assert_eq!(world.read(), expected, "{purged}");
    }
}

#[test]
fn purged_tombstones_end_the_backfill_of_a_peer_with_data() {
    let mut world = World::open(vbucket(), plain(0));
    world.set("a b c");
    assert_eq!(world.read(), "[0..3 memory+] a@1 b@2 c@3");
    world.set("d e");
    world.flush(usize::MAX);
    drop(
        world
            .vbucket
            .remove_cursor(world.stream.figures().cursor.expect("it has one")),
    );
    let (filled, _garbage) = world.stream.fill(&mut world.vbucket, NAME);
    assert_eq!(filled, FillResult::Ready);
    let (filled, _garbage) = world.stream.fill(&mut world.vbucket, NAME);
    assert_eq!(filled, FillResult::Backfill(range(4, FOR_EVER)));
    let view = StoreView {
        purge_seqno: Seqno(4),
        ..world.stored
    };
    drop(
        world
            .stream
            .backfill_opened(&view, &mut world.vbucket, NAME),
    );
    assert_eq!(world.read(), "Rollback");
}

#[test]
fn disk_snapshot_names_completed_prepares() {
    let mut set_before = vbucket();
    set(&mut set_before, "a");
    let mut world = World::open(set_before, plain(0));
    let view = StoreView {
        high: Seqno(5),
        visible_end: Seqno(5),
        high_completed: Seqno(3),
        high_prepared: Seqno(4),
        ..world.stored
    };
    let cursor = world.stream.take_cursor().expect("it has one");
    drop(world.vbucket.remove_cursor(cursor));
    world.flush(usize::MAX);
    let mut filled = FillResult::Ready;
    while matches!(filled, FillResult::Ready | FillResult::Latest) {
        filled = world.stream.fill(&mut world.vbucket, NAME).0;
    }
    assert_eq!(filled, FillResult::Backfill(range(1, FOR_EVER)));
    drop(
        world
            .stream
            .backfill_opened(&view, &mut world.vbucket, NAME),
    );
    let Some(Event::Snapshot(snapshot)) = world.stream.next_event() else {
        panic!("no snapshot is announced");
    };
    assert!(snapshot.disk);
    let decided = (snapshot.high_completed, snapshot.high_prepared);
    assert_eq!(decided, (Some(Seqno(3)), Some(Seqno(4))));
}

#[test]
fn snapshot_end_excludes_prepares_that_the_peer_does_not_get() {
    let told = with(|options| options.wants_advances = true);
    let sync_writes = with(|options| options.sync_writes = true);
    for (options, end) in [(StreamOptions::default(), 3), (told, 5), (sync_writes, 5)] {
        let mut set_before = vbucket();
        set(&mut set_before, "a");
        let mut world = World::open(set_before, ask(0, FOR_EVER, options));
        let cursor = world.stream.take_cursor().expect("it has one");
        drop(world.vbucket.remove_cursor(cursor));
        world.flush(usize::MAX);
        let mut filled = FillResult::Ready;
        while matches!(filled, FillResult::Ready | FillResult::Latest) {
            filled = world.stream.fill(&mut world.vbucket, NAME).0;
        }
        let view = StoreView {
            high: Seqno(5),
            visible_end: Seqno(3),
            snapshot: range(5, 5),
            ..world.stored
        };
        let opened = world
            .stream
            .backfill_opened(&view, &mut world.vbucket, NAME);
        drop(opened);
        let Some(Event::Snapshot(snapshot)) = world.stream.next_event() else {
            panic!("no snapshot is announced");
        };
        assert_eq!(snapshot.range, range(0, end), "{options:?}");
        assert_eq!(snapshot.visible_end, Seqno(3));
    }
}

#[test]
fn stream_open_refuses_bad_requests() {
    let mut vb = vbucket();
    set(&mut vb, "a");
    let open = |vb: &mut VBucket, ask: StreamAsk| {
        Stream::open(vb, NAME, ask)
            .map(|_| ())
            .expect_err("it is refused")
    };
    let backwards = ask(1, 0, StreamOptions::default());
    assert_eq!(open(&mut vb, backwards), StreamRefusal::OutOfRange);
    let ahead = ask(2, FOR_EVER, StreamOptions::default());
    assert_eq!(open(&mut vb, ahead), StreamRefusal::Rollback(Seqno(1)));
    let active_only = with(|options| options.active_only = true);
    vb.set_state(VbState::Replica, None, VbUuid(2));
    let asked = ask(0, FOR_EVER, active_only);
    assert_eq!(open(&mut vb, asked), StreamRefusal::NotMyVbucket);
    vb.set_state(VbState::Dead, None, VbUuid(3));
    assert_eq!(open(&mut vb, plain(0)), StreamRefusal::NotMyVbucket);
}

#[test]
fn a_stream_is_small() {
    assert!(size_of::<Stream>() <= 192, "{}", size_of::<Stream>());
}

/// A batch ends inside a segment that is longer than the budget; the next batch continues there.
#[test]
fn long_segment_is_read_completely_in_parts() {
    for bytes in [1, 100, 5000] {
        let mut world = World::open(vbucket(), plain(0));
        let count = 20_000;
        for number in 0..count {
            let key = format!("\0k{number}");
            let mut write = Write {
                mode: StoreMode::Set,
                draft: Some(Draft::new(
                    key.as_bytes(),
                    &vec![b'v'; bytes],
                    &Meta::default(),
                )),
                cas: Cas::ANY,
                preserve_expiry: false,
                durability: None,
            };
            assert!(world.vbucket.store(&mut write, NOW).is_ok());
        }
        let mut next = 1;
        loop {
            while let Some(event) = world.stream.next_event() {
                if let Event::Change(document) = event {
                    assert_eq!(document.seqno(), Seqno(next), "{bytes} bytes each");
                    next += 1;
                }
            }
            let (filled, _garbage) = world.stream.fill(&mut world.vbucket, NAME);
            if filled == FillResult::Idle {
                break;
            }
        }
        assert_eq!(next, count + 1);
    }
}
