//! Backfills: their content, chunks, memory limits, and a broken store.

use std::sync::Arc;

use bucket::{
    BACKFILL_BYTES_MAX, BACKFILL_BYTES_MIN, BACKFILLS_PER_CONNECTION_MAX, Backfill, BackfillBuffer,
    BackfillChunk, BackfillNews, Backfilled, Bucket, Flushed, ReadySet, WantedRows,
};
use engine::{StoreMode, Write};
use model::{Cas, Draft, Meta, Now, Seqno, SnapshotRange, VbId};
use storage::KvStore;

use crate::world::{Ear, FaultyStore, Kept, Ops, ROOMY, options, warm};

const EVERYTHING: SnapshotRange = SnapshotRange {
    start: Seqno(1),
    end: Seqno(u64::MAX),
};

/// A connection: its set of ready vBuckets, and its buffer.
struct Connection {
    ready: Arc<ReadySet>,
    buffer: Arc<BackfillBuffer>,
}

impl Connection {
    fn of<S: KvStore>(bucket: &Bucket<S>) -> Self {
        let ready = Arc::new(ReadySet::new(Ear::new()));
        let buffer = bucket.backfill_buffer(&ready);
        Self { ready, buffer }
    }

    fn backfill<S: KvStore>(&self, bucket: &Bucket<S>, vb: u16) -> Backfill {
        bucket.backfill(VbId(vb), EVERYTHING, WantedRows::Newest(None), &self.buffer)
    }
}

/// A bucket whose vBuckets 0 to 2 have `documents` of `bytes` each, in the store.
fn stocked(documents: usize, bytes: usize) -> Arc<Bucket<FaultyStore<Kept>>> {
    let bucket = warm(options(3, ROOMY), FaultyStore::new(Kept::default()), 1);
    for vb in 0..3 {
        for number in 0..documents {
            bucket.set(vb, &format!("k{number:05}"), &vec![b'v'; bytes]);
        }
    }
    while bucket.any_dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
    bucket
}

fn work<S: KvStore>(bucket: &Bucket<S>) -> usize {
    let mut chunks = 0;
    while bucket.backfill_step() == Backfilled::Chunk {
        chunks += 1;
    }
    chunks
}

/// Returns the numbers of running and of waiting backfills.
fn counts(buffer: &BackfillBuffer) -> (usize, usize) {
    (buffer.active(), buffer.pending())
}

fn chunk(news: BackfillNews) -> BackfillChunk {
    match news {
        BackfillNews::Chunk(chunk) => chunk,
        other => panic!("{other:?} and no chunk"),
    }
}

fn seqnos(chunk: &BackfillChunk) -> (u64, u64) {
    let seqno = |document: Option<&model::Document>| document.map_or(0, |one| one.seqno().0);
    (
        seqno(chunk.documents.first()),
        seqno(chunk.documents.last()),
    )
}

#[test]
fn backfill_delivers_each_document_once_in_bounded_chunks() {
    let bucket = stocked(10_000, 10);
    let connection = Connection::of(&bucket);
    let backfill = connection.backfill(&bucket, 1);
    assert!(matches!(backfill.take(), BackfillNews::Nothing));
    assert_eq!(counts(&connection.buffer), (0, 1));
    assert_eq!(bucket.backfill_step(), Backfilled::Chunk);
    assert_eq!(counts(&connection.buffer), (1, 0));
    assert_eq!(connection.ready.next(VbId(0)), Some(VbId(1)));
    let BackfillNews::Opened(view) = backfill.take() else {
        panic!("the view comes first");
    };
    assert_eq!((view.high, view.purge_seqno), (Seqno(10_000), Seqno(0)));
    assert_eq!(view.snapshot.end, Seqno(10_000));
    assert_eq!(seqnos(&chunk(backfill.take())), (1, 4096));
    assert!(matches!(backfill.take(), BackfillNews::Nothing));
    // Changes written meanwhile are not part of the view.
    bucket.set(1, "new", b"v");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(work(&bucket), 2);
    assert_eq!(seqnos(&chunk(backfill.take())), (4097, 8192));
    assert_eq!(seqnos(&chunk(backfill.take())), (8193, 10_000));
    assert!(matches!(backfill.take(), BackfillNews::Done));
    assert_eq!(counts(&connection.buffer), (0, 0));
    assert_eq!(connection.buffer.bytes(), 0);
}

#[test]
fn full_buffer_stops_only_its_connection() {
    let bucket = stocked(120, 256 << 10);
    let (slow, quick) = (Connection::of(&bucket), Connection::of(&bucket));
    let held = [0, 1].map(|vb| slow.backfill(&bucket, vb));
    work(&bucket);
    let most = BACKFILL_BYTES_MAX + (5 << 20);
    assert!(slow.buffer.is_full());
    assert!(slow.buffer.bytes() >= BACKFILL_BYTES_MAX && slow.buffer.bytes() <= most);
    let other = quick.backfill(&bucket, 2);
    assert!(work(&bucket) > 0, "another connection has room");
    assert!(matches!(other.take(), BackfillNews::Opened(_)));
    drop(chunk(other.take()));
    // Space for one chunk is not enough to continue; a quarter of the buffer is.
    assert!(matches!(held[0].take(), BackfillNews::Opened(_)));
    let first = chunk(held[0].take());
    assert_eq!(work(&bucket), work(&bucket), "the chunk still counts");
    drop(first);
    while slow.buffer.is_full() {
        drop(chunk(held[0].take()));
    }
    assert!(work(&bucket) > 0);
    drop(held);
    assert_eq!(slow.buffer.bytes(), 0, "what was not taken is given back");
    work(&bucket);
    assert_eq!(counts(&slow.buffer), (0, 0));
}

#[test]
fn store_error_ends_only_its_backfill() {
    let bucket = stocked(10, 10);
    let connection = Connection::of(&bucket);
    bucket.store().set_unreadable(true);
    let unlucky = connection.backfill(&bucket, 0);
    assert_eq!(work(&bucket), 1);
    assert!(matches!(unlucky.take(), BackfillNews::Failed));
    assert_eq!(connection.ready.next(VbId(0)), Some(VbId(0)));
    bucket.store().set_unreadable(false);
    let lucky = connection.backfill(&bucket, 1);
    work(&bucket);
    assert!(matches!(lucky.take(), BackfillNews::Opened(_)));
    assert_eq!(chunk(lucky.take()).documents.len(), 10);
    assert!(matches!(lucky.take(), BackfillNews::Done));
}

#[test]
fn connection_runs_a_limited_number_of_backfills_in_turns() {
    let bucket = stocked(5000, 1);
    let connection = Connection::of(&bucket);
    let count = BACKFILLS_PER_CONNECTION_MAX + 2;
    let backfills: Vec<Backfill> = (0..count)
        .map(|number| connection.backfill(&bucket, (number % 3) as u16))
        .collect();
    assert_eq!(bucket.backfill_step(), Backfilled::Chunk);
    assert_eq!(
        counts(&connection.buffer),
        (BACKFILLS_PER_CONNECTION_MAX, 2)
    );
    // Each backfill gets its first chunk before any gets a second one.
    for _ in 1..BACKFILLS_PER_CONNECTION_MAX {
        assert_eq!(bucket.backfill_step(), Backfilled::Chunk);
    }
    for backfill in &backfills[..BACKFILLS_PER_CONNECTION_MAX] {
        assert!(matches!(backfill.take(), BackfillNews::Opened(_)));
        assert_eq!(chunk(backfill.take()).documents.len(), 4096);
        assert!(matches!(backfill.take(), BackfillNews::Nothing));
    }
    work(&bucket);
    for backfill in &backfills[BACKFILLS_PER_CONNECTION_MAX..] {
        assert!(matches!(backfill.take(), BackfillNews::Opened(_)));
    }
}

#[test]
fn read_documents_count_as_used_until_sent() {
    let bucket = stocked(500, 1);
    let connection = Connection::of(&bucket);
    let before = bucket.memory().used();
    assert_eq!(bucket.memory().backfills(), 0);
    let backfill = connection.backfill(&bucket, 0);
    work(&bucket);
    let read = bucket.memory().backfills();
    assert!(read > 0 && read == connection.buffer.bytes() as u64);
    assert_eq!(bucket.memory().used(), before + read);
    assert!(matches!(backfill.take(), BackfillNews::Opened(_)));
    drop(chunk(backfill.take()));
    assert_eq!(bucket.memory().used(), before);
    // Chunks that are not taken are freed with their stream.
    let given_up = connection.backfill(&bucket, 0);
    work(&bucket);
    assert_eq!(bucket.memory().used(), before + read);
    drop(given_up);
    assert_eq!(bucket.memory().used(), before);
}

/// Clients that request everything and do not read: together they hold a part of the quota, and a
/// connection that reads still gets everything.
#[test]
fn many_idle_readers_hold_little_and_do_not_block_others() {
    let bucket = stocked(300, 16 << 10);
    let quota = 64 << 20;
    bucket
        .change_limits(|limits| {
            limits.quota_bytes = quota;
            Ok(())
        })
        .unwrap();
    let most = bucket.memory().backfills_max();
    assert!(most.abs_diff(quota / 100 * 12) < 100, "{most}");
    let stuck: Vec<Connection> = (0..40).map(|_| Connection::of(&bucket)).collect();
    let asked: Vec<Backfill> = (0..3)
        .flat_map(|vb| stuck.iter().map(move |one| (one, vb)))
        .map(|(one, vb)| one.backfill(&bucket, vb))
        .collect();
    work(&bucket);
    let held = bucket.memory().backfills();
    let rows = 20 << 10;
    let least = (BACKFILL_BYTES_MIN + rows) as u64;
    assert!(held <= most + 40 * least, "{held}");
    assert!(held > most / 2, "{held}");
    for (index, one) in stuck.iter().enumerate() {
        let bytes = one.buffer.bytes();
        assert!(bytes > 0, "{index} has something");
        assert!(bytes as u64 <= most, "{index} has {bytes}");
    }
    // A connection that reads its chunks gets everything in the end.
    let reader = Connection::of(&bucket);
    let backfill = reader.backfill(&bucket, 1);
    let mut seen = 0;
    loop {
        work(&bucket);
        match backfill.take() {
            BackfillNews::Opened(_) => {}
            BackfillNews::Chunk(chunk) => seen += chunk.documents.len(),
            BackfillNews::Done => break,
            other => panic!("{other:?} after {seen}"),
        }
    }
    assert_eq!(seen, 300);
    assert!(bucket.memory().backfills() <= most + 40 * least);
    // Memory of cancelled backfills is free for the others.
    drop(asked);
    assert_eq!(bucket.memory().backfills(), 0);
    let alone = stuck[0].backfill(&bucket, 1);
    work(&bucket);
    assert!(stuck[0].buffer.bytes() as u64 > most / 3);
    drop(alone);
}

/// A connection without space continues when another one releases its memory.
#[test]
fn released_space_wakes_the_backfiller() {
    let (bucket, workers) =
        crate::world::running(options(3, 16 << 20), FaultyStore::new(Kept::default()), 1);
    for number in 0..300 {
        bucket.set(1, &format!("k{number:05}"), &vec![b'v'; 16 << 10]);
    }
    let high = bucket.with_vbucket(VbId(1), |vbucket| vbucket.high_seqno());
    let ear = Ear::new();
    bucket.await_persisted(VbId(1), high.unwrap(), ear.clone());
    ear.listen();
    let (holder, waiter) = (Connection::of(&bucket), Connection::of(&bucket));
    let held = holder.backfill(&bucket, 1);
    let waits = waiter.backfill(&bucket, 1);
    let mut seen = 0;
    let mut kept = Vec::new();
    let mut looks = 0;
    while seen < 300 {
        match waits.take() {
            BackfillNews::Chunk(chunk) => {
                seen += chunk.documents.len();
                // It holds everything for a while, like a slow client.
                kept.push(chunk);
            }
            BackfillNews::Nothing => {
                looks += 1;
                assert!(looks < crate::world::PATIENCE.as_millis(), "{seen} came");
                drop(held.take());
                kept.clear();
                std::thread::yield_now();
                ear.listen_for(std::time::Duration::from_millis(1));
            }
            BackfillNews::Opened(_) => {}
            other => panic!("{other:?} after {seen}"),
        }
    }
    drop((held, kept));
    workers.stop().unwrap();
}

#[test]
fn connections_take_turns_whatever_the_size_of_their_requests() {
    let bucket = stocked(5000, 1);
    let (greedy, modest) = (Connection::of(&bucket), Connection::of(&bucket));
    let many: Vec<Backfill> = (0..30)
        .map(|number| greedy.backfill(&bucket, number % 3))
        .collect();
    let one = modest.backfill(&bucket, 0);
    for _ in 0..4 {
        assert_eq!(bucket.backfill_step(), Backfilled::Chunk);
    }
    assert!(matches!(one.take(), BackfillNews::Opened(_)));
    assert_eq!(seqnos(&chunk(one.take())), (1, 4096));
    assert_eq!(seqnos(&chunk(one.take())), (4097, 5000));
    drop(many);
}

#[test]
fn memory_per_connection_can_be_changed_while_the_bucket_runs() {
    let bucket = stocked(120, 64 << 10);
    assert_eq!(bucket.backfill_bytes_max(), BACKFILL_BYTES_MAX);
    bucket.set_backfill_bytes_max(1 << 20);
    bucket.set_backfills_at_once(2);
    let connection = Connection::of(&bucket);
    let backfills = [0, 1, 2].map(|vb| connection.backfill(&bucket, vb));
    work(&bucket);
    let held = connection.buffer.bytes();
    assert!((1 << 20..3 << 20).contains(&held), "{held}");
    assert_eq!(counts(&connection.buffer), (2, 1));
    bucket.set_backfill_bytes_max(0);
    assert_eq!(bucket.backfill_bytes_max(), BACKFILL_BYTES_MIN);
    bucket.set_backfill_bytes_max(BACKFILL_BYTES_MAX);
    bucket.set_backfills_at_once(3);
    // All waiting backfills of the connection are cancelled.
    drop(backfills);
    let again = connection.backfill(&bucket, 2);
    assert!(work(&bucket) > 0);
    assert!(matches!(again.take(), BackfillNews::Opened(_)));
}

#[test]
fn sequential_buffer_reads_one_vbucket_after_the_other() {
    let bucket = stocked(5000, 1);
    let connection = Connection::of(&bucket);
    connection.buffer.set_sequential(true);
    let backfills = [2, 0, 1].map(|vb| connection.backfill(&bucket, vb));
    for (done, backfill) in backfills.iter().enumerate() {
        assert_eq!(bucket.backfill_step(), Backfilled::Chunk);
        assert_eq!(counts(&connection.buffer), (1, 2 - done));
        assert!(matches!(backfill.take(), BackfillNews::Opened(_)));
        assert_eq!(seqnos(&chunk(backfill.take())), (1, 4096));
        assert_eq!(bucket.backfill_step(), Backfilled::Chunk);
        assert_eq!(seqnos(&chunk(backfill.take())), (4097, 5000));
        assert!(matches!(backfill.take(), BackfillNews::Done));
    }
    assert_eq!(bucket.backfill_step(), Backfilled::Nothing);
    connection.buffer.set_sequential(false);
    let backfills = [0, 1].map(|vb| connection.backfill(&bucket, vb));
    assert_eq!(bucket.backfill_step(), Backfilled::Chunk);
    assert_eq!(counts(&connection.buffer), (2, 0));
    drop(backfills);
}

#[test]
fn nothing_is_read_while_memory_is_short() {
    let mut tight = options(1, 1 << 20);
    tight.eviction = bucket::Eviction::None;
    let bucket = warm(tight, FaultyStore::new(Kept::default()), 1);
    let connection = Connection::of(&bucket);
    let backfill = connection.backfill(&bucket, 0);
    let mut number = 0;
    while bucket.memory().used() <= bucket.memory().quota() / 100 * 96 {
        // Writes that were admitted earlier; a client would be refused here.
        bucket.with_vbucket(VbId(0), |vbucket| {
            let key = format!("\0k{number}");
            let mut write = Write {
                mode: StoreMode::Set,
                draft: Some(Draft::new(key.as_bytes(), &[0; 4096], &Meta::default())),
                cas: Cas::ANY,
                preserve_expiry: false,
                durability: None,
            };
            vbucket.store(&mut write, Now::default()).map(|_| ())
        });
        number += 1;
    }
    assert!(matches!(bucket.backfill_step(), Backfilled::Snooze(_)));
    assert!(matches!(backfill.take(), BackfillNews::Nothing));
}
