//! The fetcher: reads evicted documents from the store, for requests that restore them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{FetchKey, Restored, VBucket};
use model::{Document, Seqno, VbId};
use parking_lot::Mutex;
use storage::{KvStore, Next, Want, Worker};

use crate::Bucket;
use crate::admission::Purpose;
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
    wake: Arc<dyn Wake>,
    progress: Mutex<Progress>,
}

/// Progress of a fetch.
#[derive(Clone)]
enum Progress {
    /// The row is not read yet.
    Waiting,
    /// The row was read. Requests for the same document share it.
    Read(Arc<Row>),
    /// The row was restored, or could not be read.
    Over,
}

/// A row that was read from the store and is not in a vBucket yet; `None` if the store has none.
struct Row {
    document: Option<Document>,
    _held: TransitBytes,
}

impl Fetch {
    /// Whether this document was not read yet.
    pub fn awaits(&self, vb: VbId, key: &FetchKey) -> bool {
        let waits = matches!(*self.progress.lock(), Progress::Waiting);
        waits && self.vb == vb && self.key == *key
    }

    /// Whether both requests want the same document.
    fn is_for(&self, other: &Self) -> bool {
        self.vb == other.vb && self.key == other.key
    }
}

/// Requests that wait for the fetcher and its helpers.
#[derive(Default)]
pub(crate) struct Fetches {
    waiting: Mutex<Vec<Arc<Fetch>>>,
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
            wake,
            progress: Mutex::new(Progress::Waiting),
        });
        self.fetches.waiting.lock().push(Arc::clone(&fetch));
        self.fetches.signals[0].ring();
        if self.fetches.disk_is_slow.load(Ordering::Relaxed) {
            self.fetches.call_help();
        }
        fetch
    }

    /// Restores the document of a fetch if it was read, and is of this vBucket. The caller's operation runs in the same
    /// hold: so the document is there, whatever the pressure on memory.
    pub fn restore(&self, fetch: &Fetch, vbucket: &mut VBucket) {
        let mut progress = fetch.progress.lock();
        let row = match &*progress {
            Progress::Read(row) if fetch.vb == vbucket.id() => Arc::clone(row),
            _ => return,
        };
        *progress = Progress::Over;
        drop(progress);
        self.restore_row(vbucket, &fetch.key, &row);
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
        let mut at = 0;
        while let Some(first) = requests.get(at) {
            let same = |request: &&Arc<Fetch>| request.is_for(first);
            let end = at + requests[at..].iter().take_while(same).count();
            let began_ns = self.clock.mono_ns();
            self.fetch_group(&requests[at..end]);
            let took_ns = self.clock.mono_ns().saturating_sub(began_ns);
            *slow = if took_ns > SLOW_NS {
                SLOW_READS_MAX.min(*slow + 1)
            } else {
                slow.saturating_sub(1)
            };
            let is_slow = *slow >= SLOW_READS;
            self.fetches.disk_is_slow.store(is_slow, Ordering::Relaxed);
            if is_slow {
                self.fetches.waiting.lock().extend(requests.drain(end..));
            }
            at = end;
        }
        at > 0
    }

    /// Returns the waiting fetches in the order of the store; while the disk is slow, those of one
    /// document, and whether there are more.
    fn take_fetches(&self) -> (Vec<Arc<Fetch>>, bool) {
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
        taken.sort_by(|one, other| (one.vb, &one.key.key).cmp(&(other.vb, &other.key.key)));
        (taken, false)
    }

    /// Serves the fetches of one document.
    fn fetch_group(&self, group: &[Arc<Fetch>]) {
        let turn = self
            .store
            .may_have_large()
            .then(|| self.fetches.turn.lock());
        let reservation = self.reserve(Purpose::Restore, 0, Duration::ZERO);
        let first = &group[0];
        let row = reservation
            .is_granted()
            .then(|| self.read_row(first.vb, &first.key));
        drop(turn);
        let row = row.flatten().map(Arc::new);
        let progress = row.map_or(Progress::Over, Progress::Read);
        for request in group {
            *request.progress.lock() = progress.clone();
            request.wake.wake();
        }
    }

    /// Reads and restores one document at once, without the fetcher, for callers that may block. Returns `false` if
    /// that failed.
    pub fn fetch_now(&self, vb: VbId, key: &FetchKey) -> bool {
        let Some(row) = self.read_row(vb, key) else {
            return false;
        };
        let restored = self.with_vbucket_for(Hold::Restore, vb, |vbucket| {
            self.restore_row(vbucket, key, &row)
        });
        restored.unwrap_or(true)
    }

    /// Reads one document; one at a time, because sizes are not known. Returns `None` if that failed.
    fn read_row(&self, vb: VbId, wanted: &FetchKey) -> Option<Row> {
        let seqno = wanted.seqno();
        let want = Want {
            key: &wanted.key,
            seqno,
        };
        let document = match self.store.fetch(vb, &[want]) {
            Ok(documents) => documents.into_iter().next().flatten(),
            Err(error) => {
                Counters::add(&self.counters().fetch_failed, 1);
                tracing::error!(bucket = self.name(), %error, "a document could not be read");
                let before = Seqno(seqno.map_or(0, |seqno| seqno.0.saturating_sub(1)));
                self.report_damage(vb, before, &error);
                return None;
            }
        };
        Counters::add(&self.counters().fetched, u64::from(document.is_some()));
        let bytes = document.as_ref().map_or(0, Document::memory_bytes);
        Some(Row {
            document,
            _held: self.memory.hold_transit(bytes),
        })
    }

    /// Restores a row. Returns `false` if the store lacks it.
    fn restore_row(&self, vbucket: &mut VBucket, wanted: &FetchKey, row: &Row) -> bool {
        let missing = vbucket.restore(wanted, row.document.clone()) == Restored::Missing;
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
