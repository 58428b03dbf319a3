//! Continuation of a scan: one connection at a time takes its rows.

use std::sync::Arc;

use storage::{KeyRow, KvStore};

use super::scan::{Scan, ScanError, ScanStage};
use crate::Bucket;
use crate::signals::Wake;

/// State of a scan after rows were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanNext {
    /// More rows are in memory.
    More,
    /// More rows must be read; the waker is woken then.
    Wait,
    /// The last row was taken; the scan is removed.
    Complete,
    /// The scan was ended and is removed.
    Ended(ScanError),
}

/// Rows taken from a scan.
#[derive(Debug)]
pub struct ScanRows {
    /// Rows by key: keys or whole documents, as requested.
    pub rows: Vec<KeyRow>,
    /// State of the scan after these rows.
    pub next: ScanNext,
}

/// The exclusive right to continue a scan. Dropping it without [`ScanRun::pause`] ends the scan:
/// rows that were taken may be lost.
pub struct ScanRun<S: KvStore> {
    bucket: Arc<Bucket<S>>,
    scan: Arc<Scan>,
    paused: bool,
}

impl<S: KvStore> ScanRun<S> {
    /// Begins to continue a scan. `None` if another connection does so, or the scan is not open.
    pub fn begin(bucket: &Arc<Bucket<S>>, scan: &Arc<Scan>) -> Option<Self> {
        let mut state = scan.state.lock();
        if state.stage != ScanStage::Idle {
            return None;
        }
        state.stage = ScanStage::Continuing;
        drop(state);
        Some(Self {
            bucket: Arc::clone(bucket),
            scan: Arc::clone(scan),
            paused: false,
        })
    }

    /// Returns the scan.
    pub fn scan(&self) -> &Arc<Scan> {
        &self.scan
    }

    /// Takes up to `items_max` rows, and no more after `bytes_max` bytes of keys and values. If
    /// none is in memory, the scanner reads more and wakes `wake`.
    ///
    /// Cost: one lock; under it only slots of a queue are freed.
    pub fn take(&self, items_max: usize, bytes_max: usize, wake: &Arc<dyn Wake>) -> ScanRows {
        let (mut rows, mut bytes, mut freed) = (Vec::new(), 0, 0);
        let mut state = self.scan.state.lock();
        while rows.len() < items_max && bytes < bytes_max {
            let Some(row) = state.rows.pop_front() else {
                break;
            };
            freed += row.memory_bytes();
            bytes += shown_bytes(&row);
            rows.push(row);
        }
        let freed = freed.min(state.bytes);
        state.bytes -= freed;
        state.items += rows.len() as u64;
        let next = match (state.ended, state.rows.front()) {
            (Some(error), _) => ScanNext::Ended(error),
            (None, _) if state.asked => ScanNext::Wait,
            (None, Some(_)) => ScanNext::More,
            (None, None) if state.rest.is_some() => ScanNext::Wait,
            (None, None) => ScanNext::Complete,
        };
        let ask = next == ScanNext::Wait && !state.asked;
        if next == ScanNext::Wait {
            state.asked = true;
            state.waiter = Some(Arc::clone(wake));
        }
        drop(state);
        self.scan.give_back(freed);
        match next {
            ScanNext::Wait if ask => self.bucket.scans.ask(&self.scan),
            ScanNext::Complete => {
                self.bucket.cancel_scan(self.scan.ask.vb, self.scan.id);
            }
            ScanNext::Wait | ScanNext::More | ScanNext::Ended(_) => {}
        }
        ScanRows { rows, next }
    }

    /// Leaves the scan to the next request that continues it.
    pub fn pause(mut self) {
        self.paused = true;
        let mut state = self.scan.state.lock();
        state.waiter = None;
        state.stage = ScanStage::Idle;
    }
}

impl<S: KvStore> Drop for ScanRun<S> {
    fn drop(&mut self) {
        if !self.paused {
            self.bucket.cancel_scan(self.scan.ask.vb, self.scan.id);
        }
    }
}

/// Returns the bytes of key and value.
fn shown_bytes(row: &KeyRow) -> usize {
    match row {
        KeyRow::Key(key) => key.len(),
        KeyRow::Whole(document) => document.key_and_value().len(),
    }
}
