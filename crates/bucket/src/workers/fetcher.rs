//! The fetcher: reads evicted documents from the store, for requests that restore them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{FetchKey, Restored, VBucket};
use model::{Document, Seqno, VbId};
use parking_lot::Mutex;
use storage::{DocumentRequest, KvStore, Next, Worker};

use crate::Bucket;
use crate::admission::Purpose;
use crate::buffers::SMALL_BYTES;
use crate::holds::Hold;
use crate::memory::TransitBytes;
use crate::pool::Signal;
use crate::signals::Wake;
use crate::stats::Counters;

/// Duration above which a read has waited for the disk; one from the system's page cache takes a tenth.
const SLOW_NS: u64 = 60_000;

/// Excess of slow reads over fast ones that marks the disk as slow. One slow read may be an interrupted thread.
const SLOW_READS: u32 = 2;
const SLOW_READS_MAX: u32 = 4;

/// Number of fetchers: one, and its helpers while the disk is slow. Then as many reads run as a disk can serve at once.
const FETCHERS: usize = 4;

/// A document that a request waits for.
pub struct Fetch {
    vb: VbId,
    key: FetchKey,
    progress: Mutex<FetchProgress>,
}

/// Progress of a fetch.
enum FetchProgress {
    /// The row is not read yet.
    Waiting,
    /// The row was read.
    Read(FetchedRow),
    /// The row was restored, or could not be read.
    Over,
}

/// A row that was read from the store and is not in a vBucket yet. Requests for the same document share it.
#[derive(Clone)]
struct FetchedRow {
    /// `None` if the store has none.
    document: Option<Document>,
    /// The memory of a large document counts as that of connections.
    _held: Option<Arc<TransitBytes>>,
}

/// A request for a document, as the fetcher has it.
struct FetchRequest {
    fetch: Arc<Fetch>,
    wake: Arc<dyn Wake>,
}

impl Fetch {
    /// Whether this document was not read yet.
    pub fn awaits(&self, vb: VbId, key: &FetchKey) -> bool {
        let waits = matches!(*self.progress.lock(), FetchProgress::Waiting);
        waits && self.vb == vb && self.key == *key
    }
}

impl FetchRequest {
    /// Whether both requests want the same document.
    fn is_for(&self, other: &Self) -> bool {
        self.fetch.vb == other.fetch.vb && self.fetch.key == other.fetch.key
    }

    /// Hands over the row, or `None` if it could not be read.
    fn answer(self, row: Option<FetchedRow>) {
        *self.fetch.progress.lock() = row.map_or(FetchProgress::Over, FetchProgress::Read);
        // The request's thread then frees what it has allocated.
        drop(self.fetch);
        self.wake.wake();
    }
}

/// Requests that wait for the fetcher and its helpers.
#[derive(Default)]
pub(crate) struct Fetches {
    waiting: Mutex<Vec<FetchRequest>>,
    /// Signals of the fetcher and of its helpers.
    signals: [Signal; FETCHERS],
    /// Whether reads of the store wait for the disk, so that helpers are needed.
    disk_is_slow: AtomicBool,
    /// Serializes reads of documents that may be large.
    turn: Mutex<()>,
}

impl Fetches {
    /// Returns the signals of the fetcher and its helpers.
    pub(super) fn signals(&self) -> &[Signal] {
        &self.signals
    }

    /// Wakes a helper, if one is idle.
    fn call_help(&self) {
        self.signals[1..].iter().any(Signal::ring_if_idle);
    }
}

impl<S: KvStore> Bucket<S> {
    /// Requests a document that is only in the store; `wake` is woken when the caller should [restore](Bucket::restore)
    /// it and retry. The caller has reserved memory for [`Purpose::Fetch`].
    #[must_use]
    pub fn fetch(&self, vb: VbId, key: FetchKey, wake: Arc<dyn Wake>) -> Arc<Fetch> {
        let fetch = Arc::new(Fetch {
            vb,
            key,
            progress: Mutex::new(FetchProgress::Waiting),
        });
        self.fetches.waiting.lock().push(FetchRequest {
            fetch: Arc::clone(&fetch),
            wake,
        });
        self.fetches.signals[0].ring();
        if self.fetches.disk_is_slow.load(Ordering::Relaxed) {
            self.fetches.call_help();
        }
        fetch
    }

    /// Restores the document of a fetch if it was read, and is of this vBucket. The caller's operation runs in the same
    /// hold: so the document is there, whatever the pressure on memory.
    pub fn restore(&self, fetch: &Fetch, vbucket: &mut VBucket) {
        if fetch.vb != vbucket.id() {
            return;
        }
        let mut progress = fetch.progress.lock();
        if let FetchProgress::Read(row) = &mut *progress {
            self.restore_row(vbucket, &fetch.key, row.document.take());
            *progress = FetchProgress::Over;
        }
    }

    /// Serves all waiting fetches; a document with many requests is read once. A request for which
    /// earlier reads left no memory is woken as well, and then waits for memory.
    pub fn fetch_step(&self) {
        while self.fetch_waiting(&mut 0) {}
    }

    /// Takes waiting fetches and serves them. Returns whether there were any. While the disk is
    /// slow it takes those for one document only, and wakes a helper if there are more. `slow`
    /// counts slow reads.
    fn fetch_waiting(&self, slow: &mut u32) -> bool {
        let (mut requests, more) = self.take_fetches();
        if more {
            self.fetches.call_help();
        }
        let any = !requests.is_empty();
        while let Some(first) = requests.pop() {
            let began_ns = self.clock.mono_ns();
            self.fetch_group(first, &mut requests);
            let took_ns = self.clock.mono_ns().saturating_sub(began_ns);
            *slow = if took_ns > SLOW_NS {
                SLOW_READS_MAX.min(*slow + 1)
            } else {
                slow.saturating_sub(1)
            };
            let is_slow = *slow >= SLOW_READS;
            self.fetches.disk_is_slow.store(is_slow, Ordering::Relaxed);
            if is_slow {
                self.fetches.waiting.lock().append(&mut requests);
            }
        }
        any
    }

    /// Returns the waiting fetches in the order of the store, the last one first; while the disk is
    /// slow, those of one document, and whether there are more.
    fn take_fetches(&self) -> (Vec<FetchRequest>, bool) {
        let mut waiting = self.fetches.waiting.lock();
        let mut taken = std::mem::take(&mut *waiting);
        if self.fetches.disk_is_slow.load(Ordering::Relaxed) && !taken.is_empty() {
            let first = taken.swap_remove(0);
            let (mut same, others): (Vec<_>, _) =
                taken.into_iter().partition(|other| first.is_for(other));
            *waiting = others;
            let more = !waiting.is_empty();
            drop(waiting);
            same.push(first);
            return (same, more);
        }
        drop(waiting);
        taken.sort_by(|one, other| {
            let (one, other) = (&one.fetch, &other.fetch);
            (other.vb, &other.key.key).cmp(&(one.vb, &one.key.key))
        });
        (taken, false)
    }

    /// Serves the fetches of one document: `first`, and the last ones of `others`.
    fn fetch_group(&self, first: FetchRequest, others: &mut Vec<FetchRequest>) {
        let turn = self
            .store
            .may_have_large()
            .then(|| self.fetches.turn.lock());
        let reservation = self.reserve(Purpose::Restore, 0, Duration::ZERO);
        let row = reservation
            .is_granted()
            .then(|| self.read_row(first.fetch.vb, &first.fetch.key))
            .flatten();
        drop(turn);
        while let Some(same) = others.pop_if(|other| other.is_for(&first)) {
            same.answer(row.clone());
        }
        first.answer(row);
    }

    /// Reads and restores one document at once, without the fetcher, for callers that may block. Returns `false` if
    /// that failed.
    pub fn fetch_now(&self, vb: VbId, key: &FetchKey) -> bool {
        let Some(row) = self.read_row(vb, key) else {
            return false;
        };
        let restored = self.with_vbucket_for(Hold::Restore, vb, |vbucket| {
            self.restore_row(vbucket, key, row.document)
        });
        restored.unwrap_or(true)
    }

    /// Reads one document; one at a time, because sizes are not known. Returns `None` if that failed.
    fn read_row(&self, vb: VbId, wanted: &FetchKey) -> Option<FetchedRow> {
        let seqno = wanted.seqno();
        let want = DocumentRequest {
            key: &wanted.key,
            seqno,
        };
        let document = match self.store.fetch(vb, &[want]) {
            Ok(documents) => documents.into_iter().next().flatten(),
            Err(error) => {
                Counters::add(&self.counters().fetch_failed, 1);
                let before = Seqno(seqno.map_or(0, |seqno| seqno.0.saturating_sub(1)));
                self.log_read_failure(vb, before, &error);
                return None;
            }
        };
        Counters::add(&self.counters().fetched, u64::from(document.is_some()));
        let bytes = document.as_ref().map_or(0, Document::memory_bytes);
        Some(FetchedRow {
            document,
            _held: (bytes > SMALL_BYTES).then(|| Arc::new(self.memory.hold_transit(bytes))),
        })
    }

    /// Restores a row. Returns `false` if the store lacks it.
    fn restore_row(&self, vbucket: &mut VBucket, wanted: &FetchKey, row: Option<Document>) -> bool {
        let missing = vbucket.restore(wanted, row) == Restored::Missing;
        if missing {
            Counters::add(&self.counters().fetch_failed, 1);
            let (vb, seqno) = (vbucket.id().0, wanted.seqno().map(|seqno| seqno.0));
            tracing::error!(bucket = self.name(), vb, seqno, "the store lost a document");
        }
        !missing
    }
}

/// The worker that serves fetches, or helps with them.
pub(super) struct Fetcher<S> {
    bucket: Arc<Bucket<S>>,
    /// Excess of slow reads over fast ones.
    slow: u32,
}

impl<S: KvStore> Fetcher<S> {
    pub(super) fn new(bucket: Arc<Bucket<S>>) -> Self {
        Self { bucket, slow: 0 }
    }
}

impl<S: KvStore> Worker for Fetcher<S> {
    fn step(&mut self, _: u64) -> Next {
        if self.bucket.is_stopping() {
            return Next::Done;
        }
        if self.bucket.fetch_waiting(&mut self.slow) {
            return Next::Again;
        }
        Next::OnSignal
    }
}
