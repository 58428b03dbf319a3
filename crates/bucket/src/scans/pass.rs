//! The scanner: opens snapshots, and reads rows for waiting scans.

use std::collections::VecDeque;
use std::sync::Arc;

use model::{Meta, Seqno};
use storage::{KeyQuery, KeyRange, KeyRow, KvStore, Next, Snapshot, StoreError, Worker};

use super::sample::{hash, threshold};
use super::scan::{Scan, ScanError, ScanStage};
use crate::Bucket;
use crate::signals::{Wake, wake_all};

/// Maximum memory of one scan's rows, plus one row; and the maximum if there is next to no memory.
const BYTES_MAX: usize = 4 << 20;
const BYTES_MIN: usize = 64 << 10;
/// Divisor: each read takes at most this part of the free memory, because scans share it.
const PART_OF_FREE: usize = 4;

/// Duration after which a step reads for no further scan: its waiters wait for its end.
const STEP_NS: u64 = 1_000_000;

/// Position from which a scan continues.
struct ScanPosition {
    snapshot: Box<dyn Snapshot>,
    sample_below: Option<u64>,
    rows: VecDeque<KeyRow>,
    rest: Option<Box<[u8]>>,
}

impl<S: KvStore> Bucket<S> {
    /// Reads for the scans that have waited longest, then wakes their waiters; a connection with
    /// many scans is woken once. Returns `false` if none waits.
    pub(crate) fn scan_step(&self) -> bool {
        let until_ns = self.clock.mono_ns() + STEP_NS;
        let (mut waiters, mut any) = (Vec::new(), false);
        loop {
            let Some(scan) = self.scans.asked.lock().pop_front() else {
                break;
            };
            any = true;
            let waiter = self.read_for(&scan).unwrap_or_else(|error| {
                self.log_read_failure(scan.ask.vb, Seqno::ZERO, &error);
                self.end_scan(&scan, ScanError::Failed)
            });
            waiters.extend(waiter);
            if self.clock.mono_ns() >= until_ns {
                break;
            }
        }
        wake_all(waiters);
        any
    }

    fn end_scan(&self, scan: &Arc<Scan>, why: ScanError) -> Option<Arc<dyn Wake>> {
        // The reason is set first: it must be there once the scan is not found.
        let waiter = scan.end(why);
        self.cancel_scan(scan.ask.vb, scan.id);
        waiter
    }

    /// Reads rows for one scan. Returns the waiter to be woken.
    fn read_for(&self, scan: &Arc<Scan>) -> Result<Option<Arc<dyn Wake>>, StoreError> {
        let is_over = || self.epoch(scan.ask.vb) != scan.epoch;
        if is_over() {
            return Ok(self.end_scan(scan, ScanError::Cancelled));
        }
        let (opening, position) = {
            let mut state = scan.state.lock();
            if state.ended.is_some() {
                return Ok(None);
            }
            let position = state.snapshot.take().map(|snapshot| ScanPosition {
                snapshot,
                sample_below: state.sample_below,
                rows: std::mem::take(&mut state.rows),
                rest: state.rest.take(),
            });
            (state.stage == ScanStage::Opening, position)
        };
        let mut position = match position {
            Some(position) => position,
            None if opening => match self.open_scan(scan)? {
                Ok(position) => position,
                Err(why) => return Ok(self.end_scan(scan, why)),
            },
            None => return Ok(None),
        };
        let budget = self.scan_budget();
        while position.rows.is_empty() && position.rest.is_some() {
            self.look(scan, &mut position, budget)?;
        }
        // The rows may be those of the vBucket's next life, or none.
        if is_over() {
            return Ok(self.end_scan(scan, ScanError::Cancelled));
        }
        if opening && position.rows.is_empty() {
            return Ok(self.end_scan(scan, ScanError::Empty));
        }
        let waiter = give(scan, position);
        if self.memory().is_pressed() {
            self.relieve();
        }
        Ok(waiter)
    }

    /// Opens the snapshot, and determines the sample.
    fn open_scan(&self, scan: &Scan) -> Result<Result<ScanPosition, ScanError>, StoreError> {
        let snapshot = self.store().snapshot_by_key(scan.ask.vb)?;
        if let Some(seqno) = scan.ask.exists {
            let there = snapshot.by_seqno(seqno).next().transpose()?;
            if there.is_none_or(|document| document.seqno() != seqno) {
                return Ok(Err(ScanError::SeqnoGone));
            }
        }
        let mut sample_below = None;
        if let Some(sampling) = scan.ask.sampling {
            let now_s = self.clock.now().unix_s();
            let live = |meta: &Meta, _: &[u8]| !is_expired(meta, now_s);
            sample_below = threshold(sampling, &scan.range, &*snapshot, &live)?;
            if sample_below.is_none() {
                return Ok(Err(ScanError::Empty));
            }
        }
        Ok(Ok(ScanPosition {
            snapshot,
            sample_below,
            rows: VecDeque::new(),
            rest: Some(scan.range.from.clone()),
        }))
    }

    /// Reads the next rows by key.
    fn look(
        &self,
        scan: &Scan,
        position: &mut ScanPosition,
        budget: usize,
    ) -> Result<(), StoreError> {
        let Some(from) = position.rest.take() else {
            return Ok(());
        };
        let now_s = self.clock.now().unix_s();
        let seed = scan.ask.sampling.map_or(0, |sampling| sampling.seed);
        let sample_below = position.sample_below;
        let wants = |meta: &Meta, key: &[u8]| {
            !is_expired(meta, now_s) && sample_below.is_none_or(|below| hash(seed, key) <= below)
        };
        let range = KeyRange {
            from,
            to: scan.range.to.clone(),
        };
        let look = KeyQuery {
            range: &range,
            keys_only: scan.ask.keys_only,
            bytes_max: budget,
            wants: &wants,
        };
        let found = look.look(&*position.snapshot)?;
        position.rows = found.rows.into();
        position.rest = found.rest;
        Ok(())
    }

    /// Returns the maximum bytes that one scan may hold at present.
    fn scan_budget(&self) -> usize {
        if self.memory().used() > self.memory().backfill_limit() {
            return BYTES_MIN;
        }
        let free = self.memory().backfill_account().free();
        (free / PART_OF_FREE).clamp(BYTES_MIN, BYTES_MAX)
    }
}

/// The worker that reads for scans, and ends those that are too old.
pub(crate) struct Scanner<S>(pub(crate) Arc<Bucket<S>>);

impl<S: KvStore> Worker for Scanner<S> {
    fn step(&mut self, now_ns: u64) -> Next {
        let Self(bucket) = self;
        if bucket.is_stopping() {
            bucket.end_scans();
            return Next::Done;
        }
        let limit = bucket.end_old_scans();
        if bucket.scan_step() {
            return Next::Again;
        }
        limit.map_or(Next::OnSignal, |limit| {
            Next::At(now_ns + limit.as_nanos() as u64)
        })
    }
}

fn is_expired(meta: &Meta, now_s: u32) -> bool {
    meta.expiry != 0 && meta.expiry <= now_s
}

/// Stores the read rows in the scan, unless it ended meanwhile. Returns the waiter to be woken.
fn give(scan: &Scan, position: ScanPosition) -> Option<Arc<dyn Wake>> {
    let bytes: usize = position.rows.iter().map(KeyRow::memory_bytes).sum();
    let mut state = scan.state.lock();
    if state.ended.is_some() {
        drop(state);
        drop(position);
        return None;
    }
    if state.stage == ScanStage::Opening {
        state.stage = ScanStage::Idle;
    }
    scan.account.add(bytes);
    let before = std::mem::replace(&mut state.bytes, bytes);
    // Rows that are left of an earlier read are booked already, and are among these.
    state.rows = position.rows;
    state.rest = position.rest;
    state.sample_below = position.sample_below;
    state.snapshot = Some(position.snapshot);
    state.asked = false;
    let waiter = state.waiter.take();
    drop(state);
    scan.give_back(before);
    waiter
}
