//! Continuing a scan: one connection at a time takes rows out of it.

use std::sync::Arc;

use storage::{KeyRow, KvStore};

use super::scan::{Scan, ScanError, ScanStage};
use crate::Bucket;
use crate::signals::Wake;

/// How a scan goes on after what was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanNext {
    /// There is more, at once.
    More,
    /// There is more, once it was read: the waker rings.
    Wait,
    /// That was all; the scan is gone.
    Complete,
    /// It was ended; the scan is gone.
    Ended(ScanError),
}

/// What was taken.
#[derive(Debug)]
pub struct ScanRows {
    /// Rows by key: keys or whole documents, as was asked for.
    pub rows: Vec<KeyRow>,
    /// What follows.
    pub next: ScanNext,
}

/// The right to go on with a scan. Dropping it without [`ScanRun::pause`] ends the scan: what was
/// taken may be lost.
pub struct ScanRun<S: KvStore> {
    bucket: Arc<Bucket<S>>,
    scan: Arc<Scan>,
    paused: bool,
}

impl<S: KvStore> ScanRun<S> {
    /// `None` while another connection continues it, or when it is not open.
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

    /// The scan.
    pub fn scan(&self) -> &Arc<Scan> {
        &self.scan
    }

    /// Takes rows, at most so many and until they have so many bytes of keys and values. If there
    /// is none in memory, the scanner reads more and rings `wake`.
    ///
    /// Cost: one lock; frees nothing under it but places in a queue.
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

/// Bytes of key and value.
fn shown_bytes(row: &KeyRow) -> usize {
    match row {
        KeyRow::Key(key) => key.len(),
        KeyRow::Whole(document) => document.key_and_value().len(),
    }
}
