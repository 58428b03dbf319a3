//! Backfills: changes that are no longer in memory, read from the store for a stream. A bounded
//! buffer connects the worker that reads and the connection that sends.
//!
//! ```text
//!   stream -> Bucket::backfill -> pending -> (backfiller) snapshot, chunks -> Backfill::take
//!                                                 ^                               |
//!                                                 +--- space in BackfillBuffer <--+
//! ```

mod account;
mod chosen;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use collections::SystemEvent;
use engine::dcp::StoreView;
use model::{Document, Seqno, SnapshotRange, VbId};
use parking_lot::Mutex;
use storage::{KvStore, Snapshot, StoreError};

pub(crate) use account::BackfillAccount;
use account::CHUNK_DOCUMENTS_MAX;
pub use account::{BACKFILL_BYTES_MAX, BACKFILL_BYTES_MIN, BACKFILLS_PER_CONNECTION_MAX};
pub use chosen::ChosenRows;
use chosen::{Chosen, ChosenRead};

use crate::Bucket;
use crate::pool::Signal;
use crate::subscribers::ReadySet;

/// Divisor: a full buffer is filled again once this part of it is free.
const RESUME_PART: usize = 4;

/// Documents that all backfills of a connection hold.
#[derive(Debug)]
pub struct BackfillBuffer {
    /// The connection's set: its vBuckets are marked when documents arrive.
    ready: Arc<ReadySet>,
    bytes: AtomicUsize,
    full: AtomicBool,
    active: AtomicUsize,
    pending: AtomicUsize,
    /// Whether backfills run one after the other.
    sequential: AtomicBool,
    /// Turn of the backfiller in which one of these backfills last read.
    served: AtomicU64,
    signal: Arc<Signal>,
    /// Account of all backfills of the bucket.
    all: Arc<BackfillAccount>,
}

impl BackfillBuffer {
    /// With `true`, reads one vBucket after the other to its end, instead of a chunk of each in
    /// turn. Running backfills continue.
    pub fn set_sequential(&self, sequential: bool) {
        self.sequential.store(sequential, Ordering::SeqCst);
        self.signal.ring();
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    pub(crate) fn set_served(&self, turn: u64) {
        self.served.store(turn, Ordering::Relaxed);
    }

    /// Returns the bytes of documents that were read and not yet sent.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether reading waits for free space in the buffer.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// Returns the number of running backfills.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Returns the number of waiting backfills.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    pub(crate) fn may_begin(&self) -> bool {
        let at_once = if self.sequential.load(Ordering::SeqCst) {
            1
        } else {
            self.all.at_once()
        };
        self.active.load(Ordering::SeqCst) < at_once
    }

    /// Returns the bytes that may be read next for this connection; `None` for nothing.
    pub(crate) fn chunk(&self) -> Option<usize> {
        if self.is_full() || self.all.is_overfull() {
            return None;
        }
        let held = self.bytes.load(Ordering::SeqCst);
        account::chunk_of(held, self.all.each_max(), self.all.free())
    }

    fn add(&self, bytes: usize) {
        self.all.add(bytes);
        let before = self.bytes.fetch_add(bytes, Ordering::SeqCst);
        if before + bytes >= self.all.each_max() {
            self.full.store(true, Ordering::SeqCst);
            // A concurrent release may have found the flag unset.
            self.reopen(self.bytes.load(Ordering::SeqCst));
        }
    }

    fn give_back(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        let awaited = self.all.give_back(bytes);
        self.reopen(before - bytes);
        if awaited {
            self.signal.ring();
        }
    }

    fn reopen(&self, bytes: usize) {
        let max = self.all.each_max();
        if bytes <= max - max / RESUME_PART && self.full.swap(false, Ordering::SeqCst) {
            self.signal.ring();
        }
    }
}

/// Documents of one chunk, ascending; their bytes count until this is dropped.
#[derive(Debug)]
pub struct BackfillChunk {
    /// The documents.
    pub documents: Vec<Document>,
    bytes: usize,
    buffer: Arc<BackfillBuffer>,
}

impl Drop for BackfillChunk {
    fn drop(&mut self) {
        self.buffer.give_back(self.bytes);
    }
}

/// Rows that a backfill reads.
#[derive(Debug)]
pub enum WantedRows {
    /// The newest version of every document, or of a selection.
    Newest(Option<ChosenRows>),
    /// Every version in the history.
    Versions,
}

/// Progress of a backfill since the last call.
#[derive(Debug)]
pub enum BackfillNews {
    /// Nothing yet.
    Nothing,
    /// The view is open; its chunks follow.
    Opened(StoreView),
    /// Some documents.
    Chunk(BackfillChunk),
    /// All requested documents were delivered.
    Done,
    /// The store could not be read; nothing more follows.
    Failed,
}

#[derive(Debug, Default)]
struct Messages {
    view: Option<StoreView>,
    chunks: VecDeque<BackfillChunk>,
    end: Option<bool>,
}

/// State that a job and its stream share.
#[derive(Debug)]
struct BackfillState {
    vb: VbId,
    messages: Mutex<Messages>,
    cancelled: AtomicBool,
    buffer: Arc<BackfillBuffer>,
}

/// A backfill as seen by its stream. Dropping it cancels the job.
#[derive(Debug)]
pub struct Backfill {
    shared: Arc<BackfillState>,
}

impl Backfill {
    /// Takes the next message. The stream's vBucket is marked in its set whenever there is one.
    pub fn take(&self) -> BackfillNews {
        let mut messages = self.shared.messages.lock();
        if let Some(view) = messages.view.take() {
            return BackfillNews::Opened(view);
        }
        if let Some(chunk) = messages.chunks.pop_front() {
            return BackfillNews::Chunk(chunk);
        }
        match messages.end {
            None => BackfillNews::Nothing,
            Some(true) => BackfillNews::Done,
            Some(false) => BackfillNews::Failed,
        }
    }
}

impl Drop for Backfill {
    fn drop(&mut self) {
        self.shared.cancelled.store(true, Ordering::SeqCst);
        // Freed outside of the lock.
        let chunks = std::mem::take(&mut self.shared.messages.lock().chunks);
        drop(chunks);
        self.shared.buffer.signal.ring();
    }
}

/// A backfill as seen by its worker.
pub(crate) struct Job {
    shared: Arc<BackfillState>,
    snapshot: Option<Box<dyn Snapshot>>,
    next: Seqno,
    to: Seqno,
    chosen: Option<Box<Chosen>>,
    /// Whether replaced versions are wanted, too.
    history: bool,
}

/// Result of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkResult {
    More,
    Ended,
}

impl Job {
    pub(crate) fn vb(&self) -> VbId {
        self.shared.vb
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::SeqCst)
    }

    pub(crate) fn buffer(&self) -> &BackfillBuffer {
        &self.shared.buffer
    }

    /// Counts the job as running; [`Job::end`] must follow.
    pub(crate) fn begin(&self) {
        let buffer = self.buffer();
        buffer.pending.fetch_sub(1, Ordering::SeqCst);
        buffer.active.fetch_add(1, Ordering::SeqCst);
    }

    /// The last call for a job that began.
    pub(crate) fn end(self) {
        self.buffer().active.fetch_sub(1, Ordering::SeqCst);
    }

    /// The last call for a job that never began.
    pub(crate) fn abandon(self) {
        self.buffer().pending.fetch_sub(1, Ordering::SeqCst);
    }

    /// Reads one chunk of about `bytes_max` bytes; opens the view first.
    pub(crate) fn read<S: KvStore>(
        &mut self,
        bucket: &Bucket<S>,
        bytes_max: usize,
    ) -> Result<ChunkResult, StoreError> {
        if self.snapshot.is_none() {
            let vb = self.shared.vb;
            self.chosen
                .take_if(|chosen| !chosen.is_worth_it(bucket, vb));
        }
        let store = bucket.store();
        let opened = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => self.open(store)?,
        };
        let snapshot = self.snapshot.insert(opened);
        let to = self.to.min(snapshot.high_seqno());
        let (mut documents, mut bytes, mut ended) = (Vec::new(), 0, true);
        if let Some(chosen) = &mut self.chosen {
            let (bytes, progress) = match chosen.read(&**snapshot, to, bytes_max, &mut documents)? {
                ChosenRead::Some(bytes) => (bytes, Some(ChunkResult::More)),
                ChosenRead::Last(bytes) => (bytes, Some(ChunkResult::Ended)),
                ChosenRead::TooMany => (0, None),
            };
            if let Some(progress) = progress {
                self.post(documents, bytes, progress == ChunkResult::Ended);
                return Ok(progress);
            }
            self.chosen = None;
        }
        let rows = if self.history {
            snapshot.with_history(self.next)
        } else {
            snapshot.by_seqno(self.next)
        };
        for document in rows {
            let document = document?;
            if document.seqno() > to {
                if SystemEvent::is_group(document.key()) {
                    // Some events of this row may be wanted.
                    bytes += document.memory_bytes();
                    documents.push(document);
                }
                break;
            }
            bytes += document.memory_bytes();
            self.next = document.seqno().next();
            documents.push(document);
            if documents.len() >= CHUNK_DOCUMENTS_MAX || bytes >= bytes_max {
                ended = false;
                break;
            }
        }
        self.post(documents, bytes, ended);
        Ok(if ended {
            ChunkResult::Ended
        } else {
            ChunkResult::More
        })
    }

    fn open<S: KvStore>(&self, store: &S) -> Result<Box<dyn Snapshot>, StoreError> {
        let snapshot = if self.chosen.is_some() {
            store.snapshot_by_key(self.vb())?
        } else {
            store.snapshot(self.vb())?
        };
        let high = snapshot.high_seqno();
        let whole = SnapshotRange {
            start: high,
            end: high,
        };
        let record = snapshot.record();
        let visible_end = visible_end(&*snapshot)?;
        let history_from = if self.history {
            snapshot.history_from()?
        } else {
            None
        };
        self.shared.messages.lock().view = Some(StoreView {
            high,
            visible_end,
            purge_seqno: snapshot.purge_seqno(),
            snapshot: record.map_or(whole, |record| record.snapshot),
            high_completed: record.map_or(Seqno::ZERO, |record| record.high_completed),
            high_prepared: record.map_or(Seqno::ZERO, |record| record.high_prepared),
            by_key: self.chosen.as_ref().is_some_and(|chosen| chosen.by_key),
            history_from,
        });
        self.buffer().ready.mark(self.vb());
        Ok(snapshot)
    }

    fn post(&self, documents: Vec<Document>, bytes: usize, ended: bool) {
        self.buffer().add(bytes);
        let chunk = BackfillChunk {
            documents,
            bytes,
            buffer: Arc::clone(&self.shared.buffer),
        };
        let mut messages = self.shared.messages.lock();
        // A stream that cancelled meanwhile has emptied the messages; then the chunk is dropped here.
        if !self.is_cancelled() {
            messages.chunks.push_back(chunk);
        }
        messages.end = ended.then_some(true);
        drop(messages);
        self.buffer().ready.mark(self.vb());
    }

    /// Ends the job: nothing more can be read.
    pub(crate) fn fail(&self) {
        self.shared.messages.lock().end = Some(false);
        self.buffer().ready.mark(self.vb());
    }
}

/// Returns the seqno of the newest row that is neither a prepare nor an abort. It is mostly the
/// last row, otherwise near the end, where pending and aborted prepares are.
fn visible_end(snapshot: &dyn Snapshot) -> Result<Seqno, StoreError> {
    let beside = snapshot.beside_documents(Seqno::ZERO)?;
    let is_last = |row: &Document| row.seqno() == snapshot.high_seqno();
    if !beside
        .iter()
        .any(|row| is_last(row) && row.kind().is_prepared())
    {
        return Ok(snapshot.high_seqno());
    }
    let high = snapshot.high_seqno().0;
    let mut rows = 1;
    loop {
        let from = high.saturating_sub(rows);
        let mut newest = None;
        for document in snapshot.by_seqno(Seqno(from + 1)) {
            let document = document?;
            if !document.kind().is_prepared() {
                newest = Some(document.seqno());
            }
        }
        match newest {
            Some(seqno) => return Ok(seqno),
            None if from == 0 => return Ok(Seqno::ZERO),
            None => rows = rows.saturating_mul(8),
        }
    }
}

/// All backfills of a bucket.
#[derive(Default)]
pub(crate) struct Backfills {
    pub(crate) pending: Mutex<VecDeque<Job>>,
    /// Running jobs; only the backfiller removes them.
    pub(crate) active: Mutex<VecDeque<Job>>,
    /// Number of chunks read.
    pub(crate) turn: AtomicU64,
    pub(crate) signal: Arc<Signal>,
}

impl Backfills {
    /// Whether no backfill runs or waits.
    pub(crate) fn are_none(&self) -> bool {
        self.pending.lock().is_empty() && self.active.lock().is_empty()
    }
}

impl<S: KvStore> Bucket<S> {
    /// Creates a buffer for the connection of `ready`. Its bytes count as used memory of the bucket.
    pub fn backfill_buffer(&self, ready: &Arc<ReadySet>) -> Arc<BackfillBuffer> {
        Arc::new(BackfillBuffer {
            ready: Arc::clone(ready),
            bytes: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            sequential: AtomicBool::new(false),
            served: AtomicU64::new(0),
            signal: Arc::clone(&self.backfills.signal),
            all: self.memory().backfill_account(),
        })
    }

    /// Counts that an HTTP reader of changes holds `after` bytes of documents instead of `before`.
    /// They count like the bytes of backfills.
    pub fn change_lent(&self, before: usize, after: usize) {
        self.memory().change_lent(before, after);
        let account = self.memory().backfill_account();
        if after >= before {
            account.add(after - before);
            if self.memory().is_pressed() {
                self.relieve();
            }
        } else if account.give_back(before - after) {
            self.backfills.signal.ring();
        }
    }

    /// Requests the documents of `range` from the store: a selection of them if possible, or with
    /// replaced versions. The vBucket is marked in the connection's set when they arrive. Never
    /// blocks. The view states whether they come by key, and from which seqno on versions are
    /// complete.
    pub fn backfill(
        &self,
        vb: VbId,
        range: SnapshotRange,
        wanted: WantedRows,
        buffer: &Arc<BackfillBuffer>,
    ) -> Backfill {
        let after = Seqno(range.start.0.saturating_sub(1));
        let history = matches!(wanted, WantedRows::Versions);
        let chosen = match wanted {
            WantedRows::Newest(chosen) => chosen,
            WantedRows::Versions => None,
        };
        let chosen = chosen.map(|rows| Chosen::new(rows, after, Arc::clone(&buffer.all)));
        let shared = Arc::new(BackfillState {
            vb,
            messages: Mutex::default(),
            cancelled: AtomicBool::new(false),
            buffer: Arc::clone(buffer),
        });
        buffer.pending.fetch_add(1, Ordering::SeqCst);
        self.backfills.pending.lock().push_back(Job {
            shared: Arc::clone(&shared),
            snapshot: None,
            next: range.start,
            to: range.end,
            chosen: chosen.map(Box::new),
            history,
        });
        self.backfills.signal.ring();
        Backfill { shared }
    }

    /// Returns the number of running backfills.
    pub fn running_backfills(&self) -> usize {
        self.backfills.active.lock().len()
    }
}
