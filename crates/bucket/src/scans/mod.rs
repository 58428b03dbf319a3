//! Range scans: documents of one vBucket by key, from a snapshot of the store.
//!
//! ```text
//!   begin_scan -> asked -> (scanner) snapshot, rows -> Scan -> ScanRun::take -> connection
//!                            ^                                     |
//!                            +------- nothing left in memory ------+
//! ```
//!
//! A scan belongs to its vBucket: any connection may continue it, one at a time. It ends after its
//! last row, by cancellation, at its maximum age, and when its vBucket or its collection changes.

mod pass;
mod run;
mod sample;
mod scan;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::OpError;
use model::{VbId, VbState};
use parking_lot::Mutex;
use storage::KvStore;

pub(crate) use pass::Scanner;
pub use run::{ScanNext, ScanRows, ScanRun};
pub use sample::Sampling;
use scan::ScanState;
pub use scan::{Scan, ScanError, ScanId, ScanInfo, ScanRequest, ScanStage};

use crate::Bucket;
use crate::pool::Signal;
use crate::signals::{Wake, wake_all};

/// Default maximum duration of a scan.
const LIFETIME: Duration = Duration::from_mins(3);
/// Maximum number of scans of a bucket: one per so many bytes of its quota, within these bounds.
const QUOTA_BYTES_EACH: u64 = 2 << 20;
const AT_ONCE_MIN: u64 = 16;
const AT_ONCE_MAX: u64 = 1024;

/// All scans of a bucket.
pub(crate) struct Scans {
    all: Mutex<BTreeMap<ScanId, Arc<Scan>>>,
    /// Scans that wait for the scanner.
    asked: Mutex<VecDeque<Arc<Scan>>>,
    pub(crate) signal: Signal,
    lifetime_ns: AtomicU64,
}

impl Default for Scans {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            asked: Mutex::default(),
            signal: Signal::default(),
            lifetime_ns: AtomicU64::new(LIFETIME.as_nanos() as u64),
        }
    }
}

impl Scans {
    fn ask(&self, scan: &Arc<Scan>) {
        self.asked.lock().push_back(Arc::clone(scan));
        self.signal.ring();
    }

    /// Ends the scans for which `over` is true.
    fn end_where(&self, why: ScanError, over: impl Fn(&Scan) -> bool) {
        let gone: Vec<Arc<Scan>> = {
            let mut all = self.all.lock();
            all.extract_if(.., |_, scan| over(scan))
                .map(|(_, scan)| scan)
                .collect()
        };
        wake_all(gone.iter().filter_map(|scan| scan.end(why)).collect());
    }
}

impl<S: KvStore> Bucket<S> {
    /// Begins a scan of an active vBucket. `wake` is woken once the scan can be continued or has
    /// failed. `id` is random.
    ///
    /// # Errors
    /// `Ok(Err(Busy))` if there are too many; those of [`Bucket::run`]; `NotMyVbucket` if the vBucket is not active.
    ///
    /// Cost: one lock; the scanner then reads rows of the range, until the scan's memory is full.
    pub fn begin_scan(
        &self,
        id: ScanId,
        ask: ScanRequest,
        wake: Arc<dyn Wake>,
    ) -> Result<Result<Arc<Scan>, ScanError>, OpError> {
        let epoch = self.run(ask.vb, |vbucket| match vbucket.state() {
            VbState::Active => Ok(self.epoch(ask.vb)),
            _ => Err(OpError::NotMyVbucket),
        })?;
        let scan = Arc::new(Scan {
            id,
            range: ask.range(),
            epoch,
            begun_ns: self.clock.mono_ns(),
            state: Mutex::new(ScanState {
                stage: ScanStage::Opening,
                snapshot: None,
                sample_below: None,
                rows: VecDeque::new(),
                bytes: 0,
                rest: None,
                ended: None,
                asked: true,
                waiter: Some(wake),
                items: 0,
            }),
            account: self.memory().backfill_account(),
            space_freed: Arc::clone(&self.backfills.signal),
            ask,
        });
        let mut all = self.scans.all.lock();
        if self.is_stopping() || all.len() >= self.scans_max() {
            return Ok(Err(ScanError::Busy));
        }
        all.insert(id, Arc::clone(&scan));
        drop(all);
        self.scans.ask(&scan);
        Ok(Ok(scan))
    }

    /// Returns the maximum number of scans.
    pub fn scans_max(&self) -> usize {
        let each = self.memory().quota() / QUOTA_BYTES_EACH;
        each.clamp(AT_ONCE_MIN, AT_ONCE_MAX) as usize
    }

    /// Returns a scan of this vBucket that has not ended.
    pub fn scan(&self, vb: VbId, id: ScanId) -> Option<Arc<Scan>> {
        let scan = self.scans.all.lock().get(&id).cloned();
        scan.filter(|scan| scan.ask.vb == vb)
    }

    /// Ends a scan; `false` if there is none.
    pub fn cancel_scan(&self, vb: VbId, id: ScanId) -> bool {
        let mut all = self.scans.all.lock();
        let is_there = all.get(&id).is_some_and(|scan| scan.ask.vb == vb);
        let gone = is_there.then(|| all.remove(&id)).flatten();
        drop(all);
        if let Some(waiter) = gone.and_then(|scan| scan.end(ScanError::Cancelled)) {
            waiter.wake();
        }
        is_there
    }

    /// Ends the scans of a vBucket after its state or content was replaced.
    pub(crate) fn end_scans_of(&self, vb: VbId) {
        self.scans
            .end_where(ScanError::Cancelled, |scan| scan.ask.vb == vb);
    }

    /// Ends the scans of dropped collections, and wakes their waiters.
    pub(crate) fn end_scans_of_dropped(&self) {
        let scans: Vec<Arc<Scan>> = self.scans.all.lock().values().cloned().collect();
        let gone = |scan: &&Arc<Scan>| !self.knows_collection(scan.ask.collection);
        let gone = scans.iter().filter(gone);
        wake_all(
            gone.filter_map(|scan| scan.end(ScanError::CollectionGone))
                .collect(),
        );
    }

    /// Ends all scans: their snapshots must be dropped before the store is closed.
    pub(crate) fn end_scans(&self) {
        self.scans.end_where(ScanError::Cancelled, |_| true);
    }

    /// Returns the maximum duration of a scan.
    pub fn scan_lifetime(&self) -> Duration {
        Duration::from_nanos(self.scans.lifetime_ns.load(Ordering::Relaxed))
    }

    /// Sets the maximum duration of a scan.
    pub fn set_scan_lifetime(&self, lifetime: Duration) {
        let ns = u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX);
        self.scans.lifetime_ns.store(ns, Ordering::Relaxed);
        self.scans.signal.ring();
    }

    /// Returns the scans of one vBucket or of all, in any order.
    pub fn scan_infos(&self, vb: Option<VbId>) -> Vec<ScanInfo> {
        let scans: Vec<Arc<Scan>> = self.scans.all.lock().values().cloned().collect();
        let now_ns = self.clock.mono_ns();
        let wanted = |scan: &&Arc<Scan>| vb.is_none_or(|vb| scan.ask.vb == vb);
        let mut infos = Vec::new();
        for scan in scans.iter().filter(wanted) {
            let state = scan.state.lock();
            infos.push(ScanInfo {
                id: scan.id,
                ask: scan.ask.clone(),
                stage: state.stage,
                age: Duration::from_nanos(now_ns.saturating_sub(scan.begun_ns)),
                items: state.items,
                bytes: state.bytes,
            });
        }
        infos
    }

    /// Ends scans that are too old. Returns the time until the next one is.
    pub(crate) fn end_old_scans(&self) -> Option<Duration> {
        let now_ns = self.clock.mono_ns();
        let lifetime_ns = self.scans.lifetime_ns.load(Ordering::Relaxed);
        let end_ns = |scan: &Scan| scan.begun_ns.saturating_add(lifetime_ns);
        self.scans
            .end_where(ScanError::Cancelled, |scan| end_ns(scan) <= now_ns);
        let all = self.scans.all.lock();
        let next_ns = all.values().map(|scan| end_ns(scan)).min()?;
        Some(Duration::from_nanos(next_ns.saturating_sub(now_ns)))
    }
}
