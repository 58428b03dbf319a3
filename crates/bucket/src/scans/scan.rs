//! One scan: its request and its state.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use model::{CollectionId, Seqno, VbId, collection_key};
use parking_lot::Mutex;
use storage::{KeyRange, KeyRow, Snapshot};

use super::sample::Sampling;
use crate::backfill::BackfillAccount;
use crate::pool::Signal;
use crate::signals::Wake;

/// Identifier of a scan: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScanId(pub [u8; 16]);

/// Request for a scan.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The vBucket.
    pub vb: VbId,
    /// The collection of the keys.
    pub collection: CollectionId,
    /// First bound; keys without a prefix.
    pub from: Bound<Vec<u8>>,
    /// Last bound.
    pub to: Bound<Vec<u8>>,
    /// Whether only keys are wanted.
    pub keys_only: bool,
    /// Whether attributes are wanted with the documents; the reader applies it.
    pub attributes: bool,
    /// Random sample to scan instead of all documents.
    pub sampling: Option<Sampling>,
    /// Seqno whose change must exist, not replaced by a newer one.
    pub exists: Option<Seqno>,
    /// Name that the client gave the scan, for statistics.
    pub name: String,
}

impl ScanRequest {
    pub(super) fn range(&self) -> KeyRange {
        let stored = |key: &Vec<u8>| collection_key(self.collection, key);
        let (from, to) = (self.from.as_ref().map(stored), self.to.as_ref().map(stored));
        let asked = KeyRange::new(
            from.as_ref().map(|key| &**key),
            to.as_ref().map(|key| &**key),
        );
        let all = KeyRange::of_collection(self.collection);
        KeyRange {
            from: asked.from.max(all.from),
            to: asked.to.or(all.to),
        }
    }
}

/// Reason why a scan did not begin, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanError {
    /// There are too many scans, or the bucket is stopping.
    Busy,
    /// The range has no document.
    Empty,
    /// The change of [`ScanRequest::exists`] does not exist.
    SeqnoGone,
    /// The scan was cancelled, or its vBucket was replaced.
    Cancelled,
    /// The collection was dropped.
    CollectionGone,
    /// The store could not be read.
    Failed,
}

/// Stage of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStage {
    /// The snapshot is being opened.
    Opening,
    /// The scan can be continued.
    Idle,
    /// A connection is continuing the scan.
    Continuing,
}

impl ScanStage {
    /// Returns the name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opening => "Opening",
            Self::Idle => "Idle",
            Self::Continuing => "Continuing",
        }
    }
}

/// One scan.
pub struct Scan {
    pub(super) id: ScanId,
    pub(super) ask: ScanRequest,
    pub(super) range: KeyRange,
    /// Epoch of the vBucket at the begin.
    pub(super) epoch: u64,
    /// Time of the begin, in monotonic nanoseconds.
    pub(super) begun_ns: u64,
    pub(super) state: Mutex<ScanState>,
    pub(super) account: Arc<BackfillAccount>,
    /// Rung when the account has space again.
    pub(super) space_freed: Arc<Signal>,
}

pub(super) struct ScanState {
    pub(super) stage: ScanStage,
    pub(super) snapshot: Option<Box<dyn Snapshot>>,
    /// Highest hash of keys in the sample.
    pub(super) sample_below: Option<u64>,
    pub(super) rows: VecDeque<KeyRow>,
    /// Booked bytes of `rows`.
    pub(super) bytes: usize,
    /// Key at which the next read begins, after the last of `rows`.
    pub(super) rest: Option<Box<[u8]>>,
    /// Reason of the end, once the scan has ended.
    pub(super) ended: Option<ScanError>,
    /// Whether the scanner is asked for more rows and has not delivered them yet.
    pub(super) asked: bool,
    /// Woken when there are rows, or at the end.
    pub(super) waiter: Option<Arc<dyn Wake>>,
    pub(super) items: u64,
}

impl Scan {
    /// Returns the identifier.
    pub fn id(&self) -> ScanId {
        self.id
    }

    /// Returns the request.
    pub fn ask(&self) -> &ScanRequest {
        &self.ask
    }

    /// Returns whether the snapshot could be opened; `None` while that is unknown.
    pub fn opened(&self) -> Option<Result<(), ScanError>> {
        let state = self.state.lock();
        match (state.ended, state.stage) {
            (Some(error), _) => Some(Err(error)),
            (None, ScanStage::Opening) => None,
            (None, _) => Some(Ok(())),
        }
    }

    pub(super) fn give_back(&self, bytes: usize) {
        if self.account.give_back(bytes) {
            self.space_freed.ring();
        }
    }

    /// Ends the scan and frees its rows after the lock. Returns its waiter, which must be woken.
    #[must_use = "a waiter must be woken"]
    pub(super) fn end(&self, why: ScanError) -> Option<Arc<dyn Wake>> {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            state.ended = Some(why);
        }
        let rows = std::mem::take(&mut state.rows);
        let bytes = std::mem::take(&mut state.bytes);
        let snapshot = state.snapshot.take();
        let waiter = state.waiter.take();
        drop(state);
        self.give_back(bytes);
        drop((rows, snapshot));
        waiter
    }
}

/// Figures of a scan, for statistics.
#[derive(Clone, Debug)]
pub struct ScanInfo {
    /// Identifier.
    pub id: ScanId,
    /// Request.
    pub ask: ScanRequest,
    /// Stage.
    pub stage: ScanStage,
    /// Time since the begin.
    pub age: Duration,
    /// Number of documents or keys delivered.
    pub items: u64,
    /// Memory of its rows, in bytes.
    pub bytes: usize,
}
