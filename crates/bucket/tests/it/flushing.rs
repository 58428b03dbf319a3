//! Changes become rows, each once, and waits for them end then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bucket::{Counters, Flushed, FlusherState};
use model::{Seqno, VbId};
use storage::MemStore;

use crate::world::{Ear, Gated, Kept, Ops, ROOMY, options, rows, running, warm};

#[test]
fn flush_writes_one_row_for_each_key() {
    let bucket = warm(options(4, ROOMY), MemStore::new(), 1);
    bucket.set(1, "a", b"1");
    bucket.set(1, "b", b"1");
    bucket.set(1, "a", b"2");
    bucket.set(3, "c", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.set(1, "b", b"3");
    bucket.try_delete(1, "a").unwrap();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let found: Vec<_> = rows(bucket.store(), 1)
        .iter()
        .map(|row| (row.key().to_vec(), row.seqno().0, row.kind().is_tombstone()))
        .collect();
    assert_eq!(
        found,
        [(b"\0b".to_vec(), 4, false), (b"\0a".to_vec(), 5, true)]
    );
    assert_eq!(bucket.persisted(1), Seqno(5));
    assert_eq!(bucket.persisted(3), Seqno(1));
    assert!(!bucket.any_dirty());
    let commits = Counters::read(&bucket.counters().commits);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(
        Counters::read(&bucket.counters().commits),
        commits,
        "nothing to write, no commit"
    );
    assert_eq!(bucket.flusher_state(), FlusherState::Running);
}

/// A write without quota waits for a commit, except for one that hangs.
#[test]
fn hanging_commit_is_not_waited_for() {
    let bucket = warm(options(1, ROOMY), Gated::new(Kept::default()), 1);
    bucket.set(0, "a", b"1");
    assert!(bucket.is_storing());
    bucket.store().shut();
    std::thread::scope(|threads| {
        let flushed = threads.spawn(|| bucket.flush_step());
        bucket.store().reached.listen();
        assert!(bucket.is_storing(), "it has just begun");
        // The clock advances by one microsecond at each read.
        let began_ns = bucket.clock().mono_ns();
        while bucket.clock().mono_ns() < began_ns + 1_000_000_000 {}
        assert!(!bucket.is_storing());
        bucket.store().open();
        assert_eq!(flushed.join().unwrap(), Flushed::Clean);
    });
    bucket.set(0, "a", b"2");
    assert!(bucket.is_storing(), "the next one is another");
}

#[test]
fn small_commit_pauses_with_all_vbuckets_unlocked() {
    let bucket = warm(options(256, ROOMY), MemStore::new(), 1);
    let pauses_of = |documents: usize| {
        for vb in 0..256 {
            for index in 0..documents {
                bucket.set(vb, &format!("k{index}"), b"v");
            }
        }
        let pauses = AtomicU64::new(0);
        let flushed = bucket.flush_step_with_pauses(&|| {
            pauses.fetch_add(1, Ordering::SeqCst);
            assert!(bucket.is_storing(), "also with no mark left");
            // Would block for ever on a locked vBucket.
            for vb in 0..256 {
                bucket.with_vbucket(VbId(vb), |_| ()).unwrap();
            }
        });
        assert_eq!(flushed, Flushed::Clean);
        assert!(!bucket.any_dirty() && !bucket.is_storing());
        pauses.into_inner()
    };
    assert!(pauses_of(1) >= 4, "on the way to the store and back");
    let of_much = pauses_of(100);
    assert!(of_much <= 1, "there is much to do: {of_much}");
}

#[test]
fn commit_serves_all_vbuckets_despite_a_large_one() {
    let bucket = warm(options(1024, ROOMY), MemStore::new(), 1);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let before = Counters::read(&bucket.counters().commits);
    for vb in 0..1024 {
        bucket.set(vb, "k", b"v");
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(Counters::read(&bucket.counters().commits), before + 1);
    // More than one commit takes, in the first vBucket.
    let value = vec![7; 1 << 20];
    for index in 0..40 {
        bucket.set(0, &format!("hot{index}"), &value);
    }
    for vb in 1..1024 {
        bucket.set(vb, "k", b"w");
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    for vb in 1..1024 {
        assert_eq!(bucket.persisted(vb), Seqno(2), "vb {vb} had its turn");
    }
    while bucket.any_dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
    assert_eq!(rows(bucket.store(), 0).len(), 41);
}

/// Ends a loop, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn continuously_written_vbucket_blocks_no_other() {
    let (bucket, workers) = running(options(1024, ROOMY), MemStore::new(), 1);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Ear::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in 0_u64.. {
                bucket.set(0, &format!("hot{}", index % 100), b"v");
                written.store(index, Ordering::SeqCst);
                if index == 0 {
                    bucket::Wake::wake(&*began);
                }
                if stop.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let stop = Stop(&stop);
        began.listen();
        // Twice, because the first changes may precede the look at the busy vBucket. A round in which its writer did
        // not run shows nothing.
        let mut rounds = 0;
        while rounds < 2 {
            let before = written.load(Ordering::SeqCst);
            let waiting: Vec<_> = (1..1024)
                .map(|vb| {
                    let ear = Ear::new();
                    let seqno = bucket.set(vb, "k", b"v");
                    bucket.await_persisted(VbId(vb), seqno, ear.clone());
                    ear
                })
                .collect();
            // The busy vBucket is dirty again whenever another one may have its turn.
            for ear in &waiting {
                ear.listen();
            }
            rounds += u32::from(written.load(Ordering::SeqCst) > before);
        }
        drop(stop);
    });
    workers.stop().unwrap();
    assert!(!bucket.any_dirty());
    assert!(bucket.persisted(1023) >= Seqno(2));
    assert!(bucket.persisted(0) > Seqno(written.load(Ordering::SeqCst)));
}

#[test]
fn waiter_is_woken_once_when_its_seqno_is_durable() {
    let bucket = warm(options(2, ROOMY), MemStore::new(), 1);
    let (first, second, other) = (Ear::new(), Ear::new(), Ear::new());
    let seqno = bucket.set(0, "a", b"1");
    bucket.await_persisted(VbId(0), seqno, first.clone());
    bucket.await_persisted(VbId(0), seqno.next(), second.clone());
    bucket.await_persisted(VbId(1), seqno, other.clone());
    assert_eq!((first.rings(), second.rings()), (0, 0));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!((first.rings(), second.rings(), other.rings()), (1, 0, 0));
    bucket.set(0, "b", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!((first.rings(), second.rings(), other.rings()), (1, 1, 0));
    // A late waiter is woken at once; one for an invalid vBucket, too.
    let late = Ear::new();
    bucket.await_persisted(VbId(0), seqno, late.clone());
    bucket.await_persisted(VbId(7), seqno, late.clone());
    assert_eq!(late.rings(), 2);
    assert_eq!(bucket.persistence_waiters(), 1);
}

#[test]
fn forgotten_waiter_has_no_waits_left() {
    let bucket = warm(options(2, ROOMY), MemStore::new(), 1);
    let (gone, stays) = (Ear::new(), Ear::new());
    let seqno = bucket.set(0, "a", b"1");
    bucket.await_persisted(VbId(0), seqno, gone.clone());
    bucket.await_persisted(VbId(1), seqno, gone.clone());
    bucket.await_persisted(VbId(0), seqno, stays.clone());
    let name = gone.clone() as std::sync::Arc<dyn bucket::Wake>;
    bucket.forget_waiter(&name);
    bucket.forget_waiter(&name);
    assert_eq!(bucket.persistence_waiters(), 1);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!((gone.rings(), stays.rings()), (0, 1));
    assert_eq!(bucket.persistence_waiters(), 0);
}
