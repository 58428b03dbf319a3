//! One scan: what was asked for, and its state.

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

/// The name of a scan: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScanId(pub [u8; 16]);

/// What a scan is asked for.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The vBucket.
    pub vb: VbId,
    /// The collection of the keys.
    pub collection: CollectionId,
    /// Where it begins; keys without a prefix.
    pub from: Bound<Vec<u8>>,
    /// Where it ends.
    pub to: Bound<Vec<u8>>,
    /// Only keys are wanted.
    pub keys_only: bool,
    /// Attributes are wanted with the documents; to keep to it is the reader's.
    pub attributes: bool,
    /// Only some documents, by chance.
    pub sampling: Option<Sampling>,
    /// The change of this seqno must be there, not replaced by a newer one.
    pub exists: Option<Seqno>,
    /// The client's name for it, for statistics.
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

/// Why a scan did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanError {
    /// There are too many, or the bucket is being stopped.
    Busy,
    /// The range has no document.
    Empty,
    /// The change that must be there is not.
    SeqnoGone,
    /// It was cancelled, or its vBucket is another one.
    Cancelled,
    /// Its collection was dropped.
    CollectionGone,
    /// The store could not be read.
    Failed,
}

/// How far a scan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStage {
    /// Its view is being opened.
    Opening,
    /// It can be continued.
    Idle,
    /// It is being continued.
    Continuing,
}

impl ScanStage {
    /// Its name in statistics.
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
    /// The epoch of the vBucket when it began.
    pub(super) epoch: u64,
    /// When it began, monotonic nanoseconds.
    pub(super) begun_ns: u64,
    pub(super) state: Mutex<ScanState>,
    pub(super) account: Arc<BackfillAccount>,
    /// Rung when the account has space again.
    pub(super) space_freed: Arc<Signal>,
}

pub(super) struct ScanState {
    pub(super) stage: ScanStage,
    pub(super) snapshot: Option<Box<dyn Snapshot>>,
    /// Hashes of keys up to here are in the sample.
    pub(super) sample_below: Option<u64>,
    pub(super) rows: VecDeque<KeyRow>,
    /// Bytes of `rows` as they are booked.
    pub(super) bytes: usize,
    /// Where the next look begins, once nothing is left of `rows`.
    pub(super) rest: Option<Box<[u8]>>,
    /// Set when it is over, and why.
    pub(super) ended: Option<ScanError>,
    /// The scanner was asked for more, and has not brought it yet.
    pub(super) asked: bool,
    /// Rung when rows are there, or it ended.
    pub(super) waiter: Option<Arc<dyn Wake>>,
    pub(super) items: u64,
}

impl Scan {
    /// Its name.
    pub fn id(&self) -> ScanId {
        self.id
    }

    /// What was asked for.
    pub fn ask(&self) -> &ScanRequest {
        &self.ask
    }

    /// Whether its view is open; `None` as long as that is not known.
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

    /// Ends it; gives its waiter, which is to be woken. What it held is freed after the lock.
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
    /// Which one.
    pub id: ScanId,
    /// What was asked for.
    pub ask: ScanRequest,
    /// How far it has come.
    pub stage: ScanStage,
    /// Since it began.
    pub age: Duration,
    /// Documents or keys that were given out.
    pub items: u64,
    /// Bytes of memory that its rows take.
    pub bytes: usize,
}
