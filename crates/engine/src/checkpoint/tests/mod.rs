mod cursors;
mod expel;
mod spare;

use model::{Cas, Document, Meta, Seqno};

use super::run::Run;
use super::segment::{ChangeSum, SLOTS_MIN, Slot, slots_bytes};
use super::*;

const VALUE: &[u8] = &[b'v'; 50];

fn change(key: &str, seqno: u64) -> Document {
    let meta = Meta {
        cas: Cas(seqno),
        seqno: Seqno(seqno),
        ..Meta::default()
    };
    Document::from_parts(key.as_bytes(), VALUE, &meta)
}

/// Maximum number of changes that the cursor has still to read.
fn behind(log: &CheckpointLog, cursor: CursorId) -> Option<u64> {
    let mut cursors = log.cursor_stats();
    let found = cursors.find(|stats| stats.cursor == cursor);
    found.map(|stats| stats.behind)
}

/// A log with its table.
struct World {
    log: CheckpointLog,
    table: std::collections::BTreeMap<String, Document>,
    high: u64,
    /// Changes of the flush under way, and their bytes.
    flying: ChangeSum,
}

impl World {
    fn new(bytes_max: usize) -> Self {
        Self {
            log: CheckpointLog::new(&LogStart::default(), bytes_max),
            table: [].into(),
            high: 0,
            flying: ChangeSum::default(),
        }
    }

    fn set_at(&mut self, key: &str, seqno: u64) {
        self.high = seqno;
        let document = change(key, seqno);
        let old = self.table.insert(key.into(), document.clone());
        self.log.append(&document, LogEntry::over(old.as_ref()));
        if seqno % 16 < 2 {
            self.check();
        }
    }

    fn set(&mut self, key: &str) {
        self.set_at(key, self.high + 1);
    }

    /// Takes changes, and returns the instructions for the store as text.
    fn take(&mut self, items: usize) -> (String, Taken, Flight) {
        let budget = FlushBudget {
            items,
            bytes: usize::MAX,
        };
        let (taken, flight) = self.log.take_dirty(budget, &mut SpareBuffers::default());
        self.flying = taken.count();
        self.check();
        (told(&taken), taken, flight)
    }

    fn finish(&mut self, flight: &Flight) -> usize {
        let changes = self.flying;
        let garbage = self.log.finish(flight, changes);
        self.check();
        garbage.segments.len()
    }

    /// Checks every counter against a recount over all slots.
    fn check(&self) {
        let log = &self.log;
        let segments = log
            .sealed
            .iter()
            .map(|sealed| (&*sealed.slots, sealed.facts));
        let mut live = (0, 0);
        let mut stale_bytes = 0;
        let mut slot_bytes = 0;
        let mut dirty = (0, 0);
        let mut position = log
            .sealed
            .front()
            .map_or(log.tail_facts.first_position, |sealed| {
                slot_bytes = log.sealed.iter().map(|sealed| sealed.slot_bytes).sum();
                sealed.facts.first_position
            });
        for (slots, facts) in segments.chain([(&log.tail, log.tail_facts)]) {
            assert!(
                facts.first_position >= position,
                "only dead segments leave gaps"
            );
            position = facts.first_position;
            let documents = || slots.iter().filter_map(|slot| slot.document.as_ref());
            let bytes: usize = documents().map(Document::memory_bytes).sum();
            let stale: usize = documents()
                .filter(|held| !self.table[str::from_utf8(held.key()).unwrap()].same_as(held))
                .map(Document::memory_bytes)
                .sum();
            assert_eq!(facts.live, documents().count());
            assert_eq!((facts.live_bytes, facts.stale_bytes), (bytes, stale));
            live = (live.0 + facts.live, live.1 + bytes);
            stale_bytes += stale;
            let persisted = usize::try_from(log.persisted.saturating_sub(position)).unwrap();
            for slot in slots.iter().skip(persisted) {
                let bytes = slot.document.as_ref().map(Document::memory_bytes);
                dirty.0 += usize::from(bytes.is_some());
                dirty.1 += bytes.unwrap_or(0);
            }
            position += slots.len() as u64;
        }
        slot_bytes += slots_bytes(&log.tail);
        assert_eq!((log.items, log.live_bytes), live);
        assert_eq!((log.dirty_items, log.dirty_bytes), dirty);
        assert_eq!((log.stale_bytes, log.slot_bytes), (stale_bytes, slot_bytes));
        let positions = log.cursors.iter().map(|cursor| cursor.position);
        assert_eq!(log.lowest, positions.fold(log.persisted, u64::min));
        self.check_runs();
    }
}

impl World {
    fn check_runs(&self) {
        let log = &self.log;
        let runs: Vec<&Run> = log.closed.iter().chain([&log.open]).collect();
        for pair in runs.windows(2) {
            let next = pair[1].checkpoint - pair[0].checkpoint;
            assert!(next <= 1, "ids are consecutive: {pair:?}");
            assert!(pair[0].first_position < pair[1].first_position);
            assert!(pair[0].last < pair[1].range.start, "{pair:?}");
            assert_eq!(pair[1].complete_before, pair[0].last);
        }
        assert!(
            runs.len() == 1 || runs[1].first_position > log.lowest,
            "a run that every cursor has passed is kept"
        );
    }
}

fn told(taken: &Taken) -> String {
    let mut told = Vec::new();
    taken.for_each(&mut |item| {
        told.push(match item {
            FlushItem::Put {
                document,
                supersedes: Seqno::ZERO,
            } => {
                format!("{}@{}", document.key().escape_ascii(), document.seqno())
            }
            FlushItem::Put {
                document,
                supersedes,
            } => {
                format!(
                    "{}@{}-{supersedes}",
                    document.key().escape_ascii(),
                    document.seqno()
                )
            }
            FlushItem::Remove { seqno, .. } => format!("-{seqno}"),
            FlushItem::Keep(document) => format!("+{}", document.seqno()),
        });
    });
    told.join(" ")
}

#[test]
fn an_empty_log_has_nothing_and_allocates_nothing() {
    let mut world = World::new(1000);
    assert!(!world.log.has_dirty());
    assert_eq!(world.log.memory_bytes(), 0);
    let (told, taken, flight) = world.take(10);
    assert_eq!((told.as_str(), taken.last_seqno()), ("", None));
    assert_eq!(world.finish(&flight), 0);
}

#[test]
fn a_change_replaces_its_older_one_in_the_open_checkpoint() {
    let mut world = World::new(usize::MAX);
    for key in ["a", "b", "a", "a"] {
        world.set(key);
    }
    assert_eq!(world.log.stats().deduplicated, 2);
    assert_eq!(world.log.stats().items, 2);
    assert_eq!(world.take(10).0, "b@2 a@4");
}

#[test]
fn changes_that_were_taken_stay_unchanged() {
    let mut world = World::new(usize::MAX);
    world.set("a");
    let (_, taken, flight) = world.take(10);
    world.set("a");
    world.set("a");
    assert_eq!(told(&taken), "a@1");
    world.finish(&flight);
    assert_eq!(
        world.take(10).0,
        "a@3-1",
        "the row in the store is removed, 2 never existed"
    );
}

#[test]
fn replaced_changes_leave_a_full_segment() {
    let mut world = World::new(usize::MAX);
    for index in 0..SLOTS_MIN {
        world.set(&format!("k{index}"));
    }
    for index in 0..SLOTS_MIN - 1 {
        world.set(&format!("k{index}"));
    }
    assert_eq!(
        world.log.sealed.len(),
        1,
        "the second segment is twice as long"
    );
    assert_eq!(world.log.stats().deduplicated, SLOTS_MIN as u64 - 1);
    let (told, ..) = world.take(usize::MAX);
    assert!(told.starts_with("k15@16 k0@17 k1@18 "), "{told}");
}

#[test]
fn segments_grow_with_what_is_held() {
    let mut world = World::new(usize::MAX);
    for index in 0..1000 {
        world.set(&format!("k{index}"));
    }
    let lengths: Vec<usize> = world
        .log
        .sealed
        .iter()
        .map(|sealed| sealed.slots.len())
        .collect();
    assert_eq!(lengths, [16, 16, 16, 24, 36, 54, 81, 121, 182, 273]);
}

#[test]
fn closed_checkpoints_keep_every_change() {
    let one = change("a", 1).memory_bytes();
    let mut world = World::new(one);
    for key in ["a", "a", "b", "a"] {
        world.set(key);
    }
    let stats = world.log.stats();
    assert_eq!(
        (stats.checkpoints, stats.open_id, stats.deduplicated),
        (4, 4, 0)
    );
    assert_eq!(
        (stats.snapshot_start, stats.snapshot_end),
        (Seqno(4), Seqno(4))
    );
    let (told, _, flight) = world.take(usize::MAX);
    assert_eq!(
        told, "b@3 a@4",
        "within one batch only the newest is written"
    );
    assert_eq!(flight.consistent, Seqno(4));
    assert_eq!(world.finish(&flight), 1, "they share a segment");
    assert_eq!(world.log.stats().checkpoints, 1);
    assert_eq!(world.log.stats().slot_bytes, 0);
}

#[test]
fn failed_batch_is_repeated_and_removes_possible_rows() {
    let one = change("a", 1).memory_bytes();
    let mut world = World::new(one);
    world.set("a");
    world.set("a");
    let (told, taken, flight) = world.take(usize::MAX);
    assert_eq!(told, "a@2");
    drop(taken);
    world.log.fail(&flight);
    world.set("a");
    world.set("b");
    world.set("b");
    let (told, _, flight) = world.take(usize::MAX);
    assert_eq!(
        told, "-1 a@3-2 b@5",
        "rows 1 and 2 may exist, row 4 never was handed out"
    );
    world.finish(&flight);
    world.set("a");
    world.set("a");
    assert_eq!(
        world.take(usize::MAX).0,
        "-3 a@7",
        "a later batch knows its rows again"
    );
}

#[test]
fn batch_inside_a_checkpoint_promises_only_earlier_changes() {
    let mut world = World::new(usize::MAX);
    for index in 0..SLOTS_MIN {
        world.set(&format!("k{index}"));
    }
    world.set("k3");
    let (told, _, flight) = world.take(15);
    assert!(
        !told.contains("k3@"),
        "{told}: its change lies past the end"
    );
    assert_eq!(
        (flight.last_seqno, flight.consistent),
        (Seqno(16), Seqno(0))
    );
    assert_eq!(flight.snapshot_end, Seqno(17));
    world.finish(&flight);
    let (told, _, flight) = world.take(1);
    assert_eq!((told.as_str(), flight.consistent), ("k3@17", Seqno(17)));
}

#[test]
fn a_batch_that_ends_with_a_checkpoint_is_whole() {
    let one = change("a", 1).memory_bytes();
    let mut world = World::new(one);
    for key in ["a", "b", "a"] {
        world.set(key);
    }
    let (told, _, flight) = world.take(1);
    assert_eq!(told, "a@1");
    assert_eq!(
        (flight.consistent, flight.snapshot_end),
        (Seqno(1), Seqno(1))
    );
    world.finish(&flight);
    let (told, _, flight) = world.take(1);
    assert_eq!((told.as_str(), flight.consistent), ("b@2", Seqno(2)));
    world.finish(&flight);
    assert_eq!(world.take(1).0, "a@3-1");
}

#[test]
fn an_older_row_stays_until_the_newer_one_is_in_the_same_batch() {
    // a@1 is in a checkpoint of its own; then a@2 is replaced in place by a change in the next
    // segment. A batch that ends between the two must still write a@1.
    let mut world = World::new(usize::MAX);
    world.set("a");
    world.log.close_checkpoint();
    world.set("a");
    for index in 0..SLOTS_MIN - 1 {
        world.set(&format!("k{index}"));
    }
    world.set("a");
    let (told, _, flight) = world.take(3);
    assert_eq!(told, "a@1 k0@3");
    world.finish(&flight);
    assert!(world.take(usize::MAX).0.ends_with(" k14@17 a@18-1"));
}

#[test]
fn seqnos_after_gaps_are_found_by_search() {
    let mut world = World::new(usize::MAX);
    for index in 0..40 {
        world.set_at(&format!("k{index}"), index * 5 + 3);
    }
    for index in 0..40 {
        world.set_at(&format!("k{index}"), 1000 + index * 7);
    }
    assert_eq!(world.log.stats().deduplicated, 40);
}

#[test]
fn idle_log_frees_its_memory() {
    let mut world = World::new(200);
    for index in 0..500 {
        world.set(&format!("k{index}"));
    }
    let (_, taken, flight) = world.take(usize::MAX);
    assert_eq!(world.finish(&flight), taken.pieces.len());
    assert_eq!(world.log.memory_bytes(), 0);
}

#[test]
fn failed_batch_is_repeated_as_a_whole() {
    let one = change("a", 1).memory_bytes();
    let mut world = World::new(one);
    for key in ["a", "b", "c"] {
        world.set(key);
    }
    let (told, _, flight) = world.take(2);
    assert_eq!(told, "a@1 b@2");
    world.log.fail(&flight);
    assert_eq!(world.take(1).0, "a@1 b@2", "however small the budget is");
}

#[test]
fn a_key_that_changes_all_the_time_does_not_fill_memory() {
    let mut world = World::new(usize::MAX);
    world.set("quiet");
    for _ in 0..5000 {
        world.set("busy");
    }
    let stats = world.log.stats();
    assert_eq!(
        (stats.items, stats.deduplicated, stats.next_position),
        (2, 4999, 5001)
    );
    assert!(
        stats.segments <= 3 && stats.slot_bytes < 16 << 10,
        "{stats:?}"
    );
    let (told, _, flight) = world.take(usize::MAX);
    assert_eq!(
        (told.as_str(), flight.consistent),
        ("quiet@1 busy@5001", Seqno(5001))
    );
    world.finish(&flight);
    assert_eq!(
        (world.log.memory_bytes(), world.log.has_dirty()),
        (0, false)
    );
}
