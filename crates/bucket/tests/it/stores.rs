//! Stores for tests: with content that survives restarts, with gates, and with slow reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bucket::Clock;
use model::{Document, VbId};
use storage::{CommitInfo, DocumentRequest, KvStore, MemStore, VbBatch};

use parking_lot::{Condvar, Mutex};

use crate::hooked::{Answer, Hooked, Hooks};
use crate::world::{Ear, HandClock, PATIENCE};

/// A store that several buckets may use one after the other, as over restarts: closing it only counts.
pub(crate) type Kept = Hooked<Memory>;

#[derive(Clone, Default)]
pub(crate) struct Memory {
    inner: Arc<MemStore>,
    pub(crate) closes: Arc<AtomicUsize>,
}

impl Hooks for Memory {
    type Inner = MemStore;

    fn inner(&self) -> &MemStore {
        &self.inner
    }

    fn close(&self) -> Answer<()> {
        self.closes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A `Kept` store with commits that can be blocked.
pub(crate) type Gated = Hooked<Gate>;

pub(crate) struct Gate {
    inner: Kept,
    is_shut: AtomicBool,
    /// Rung when a commit reaches the gate.
    pub(crate) reached: Arc<Ear>,
    opened: Ear,
}

impl Gated {
    pub(crate) fn new(inner: Kept) -> Self {
        Self(Gate {
            inner,
            is_shut: AtomicBool::new(false),
            reached: Ear::new(),
            opened: Ear::default(),
        })
    }
}

impl Gate {
    /// Blocks the next commit.
    pub(crate) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn open(&self) {
        bucket::Wake::wake(&self.opened);
    }
}

impl Hooks for Gate {
    type Inner = Kept;

    fn inner(&self) -> &Kept {
        &self.inner
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Answer<CommitInfo> {
        if self.is_shut.swap(false, Ordering::SeqCst) {
            bucket::Wake::wake(&*self.reached);
            self.opened.listen();
        }
        self.inner.commit(batches)
    }
}

/// A store on a slow disk: each read takes 100 us of a manual clock. The first read continues once
/// all requests exist; from the third on, a read continues once another thread wants to read, too.
pub(crate) type Slow = Hooked<SlowReads>;

pub(crate) struct SlowReads {
    inner: Kept,
    clock: Arc<HandClock>,
    has_large: bool,
    reads: Mutex<Reads>,
    changed: Condvar,
}

#[derive(Default)]
struct Reads {
    all_asked_for: bool,
    asked: usize,
    begun: usize,
    /// Reads in progress, at present and at most.
    now: usize,
    most: usize,
}

impl Slow {
    pub(crate) fn new(has_large: bool, clock: Arc<HandClock>) -> Self {
        Self(SlowReads {
            inner: Kept::default(),
            clock,
            has_large,
            reads: Mutex::default(),
            changed: Condvar::new(),
        })
    }
}

impl SlowReads {
    /// Declares that all requests exist.
    pub(crate) fn all_asked_for(&self) {
        self.reads.lock().all_asked_for = true;
        self.changed.notify_all();
    }

    /// Returns the maximum number of concurrent reads.
    pub(crate) fn reads_at_once(&self) -> usize {
        self.reads.lock().most
    }
}

impl Hooks for SlowReads {
    type Inner = Kept;

    fn inner(&self) -> &Kept {
        &self.inner
    }

    fn may_have_large(&self) -> bool {
        self.reads.lock().asked += 1;
        self.changed.notify_all();
        self.has_large
    }

    fn fetch(&self, vb: VbId, wants: &[DocumentRequest<'_>]) -> Answer<Vec<Option<Document>>> {
        for _ in 0..100 {
            self.clock.now();
        }
        let mut reads = self.reads.lock();
        reads.begun += 1;
        reads.now += 1;
        reads.most = reads.most.max(reads.now);
        let early = |reads: &mut Reads| !reads.all_asked_for;
        let waited = self.changed.wait_while_for(&mut reads, early, PATIENCE);
        assert!(!waited.timed_out(), "not all are asked for");
        if reads.begun == 3 {
            let alone = |reads: &mut Reads| reads.asked == 3;
            let waited = self.changed.wait_while_for(&mut reads, alone, PATIENCE);
            assert!(!waited.timed_out(), "nobody helps");
        }
        if !self.has_large && reads.begun >= 3 {
            let alone = |reads: &mut Reads| reads.most == 1;
            let waited = self.changed.wait_while_for(&mut reads, alone, PATIENCE);
            assert!(!waited.timed_out(), "nobody reads beside");
        }
        self.changed.notify_all();
        reads.now -= 1;
        drop(reads);
        self.inner.fetch(vb, wants)
    }
}
