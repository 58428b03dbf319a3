//! The backfiller: reads from the store for streams, one chunk for each connection in turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::Seqno;
use storage::{KvStore, Next, Worker};

use crate::Bucket;
use crate::backfill::{ChunkResult, Job};
use crate::stats::Counters;

/// Maximum number of concurrent backfills of a bucket.
const BACKFILLS_MAX: usize = 4096;
/// Number of waiting backfills that are checked under one lock hold.
const PENDING_LOOKED_AT: usize = 256;
/// Pause while memory is short; no bell rings when there is memory again.
const SNOOZE: Duration = Duration::from_millis(200);

/// Result of a backfiller's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backfilled {
    /// A chunk was read; there may be more to read.
    Chunk,
    /// Nothing can be read until the bell rings.
    Nothing,
    /// Memory is short: try again after a pause.
    Snooze(Duration),
}

impl<S: KvStore> Bucket<S> {
    /// Reads one chunk for the next backfill.
    pub fn backfill_step(&self) -> Backfilled {
        if self.memory().used() > self.memory().backfill_limit() {
            return Backfilled::Snooze(SNOOZE);
        }
        // A cancelled or blocked job must not hide the jobs behind it: nothing would ring again.
        let mut unseen = self.backfills.pending.lock().len();
        let (mut job, bytes_max) = loop {
            let seen = unseen.min(PENDING_LOOKED_AT);
            self.begin_backfills(seen);
            unseen -= seen;
            match self.next_backfill() {
                Some(found) => break found,
                None if unseen == 0 && self.backfills.are_none() => return Backfilled::Nothing,
                // Bytes released during the check may be enough for a job.
                None if unseen == 0 && self.memory().backfill_account().note_starved() => {
                    return Backfilled::Nothing;
                }
                None => {}
            }
        };
        let progress = job.read(self, bytes_max);
        match progress {
            Ok(ChunkResult::More) => self.backfills.active.lock().push_back(job),
            Ok(ChunkResult::Ended) => job.end(),
            Err(error) => {
                Counters::add(&self.counters().backfills_failed, 1);
                self.log_read_failure(job.vb(), Seqno::ZERO, &error);
                job.fail();
                job.end();
            }
        }
        // The read documents count as used memory.
        if self.memory().is_pressed() {
            self.relieve();
        }
        Backfilled::Chunk
    }

    /// Starts waiting backfills that may begin, among the first `looked_at`.
    fn begin_backfills(&self, looked_at: usize) {
        let mut free = BACKFILLS_MAX.saturating_sub(self.backfills.active.lock().len());
        let mut begun = Vec::new();
        let mut pending = self.backfills.pending.lock();
        for _ in 0..looked_at {
            if free == 0 {
                break;
            }
            let Some(job) = pending.pop_front() else {
                break;
            };
            if job.is_cancelled() {
                job.abandon();
            } else if job.buffer().may_begin() {
                job.begin();
                begun.push(job);
                free -= 1;
            } else {
                pending.push_back(job);
            }
        }
        drop(pending);
        self.backfills.active.lock().extend(begun);
    }

    /// Selects the connection with free space that has waited longest. Returns its first backfill,
    /// and the bytes to read. Removes cancelled backfills.
    fn next_backfill(&self) -> Option<(Job, usize)> {
        let mut given_up = Vec::new();
        let mut active = self.backfills.active.lock();
        if active.iter().any(Job::is_cancelled) {
            for _ in 0..active.len() {
                let Some(job) = active.pop_front() else { break };
                if job.is_cancelled() {
                    given_up.push(job);
                } else {
                    active.push_back(job);
                }
            }
        }
        let jobs = active.iter().enumerate();
        let with_space = jobs.filter_map(|(index, job)| Some((index, job, job.buffer().chunk()?)));
        let next = with_space.min_by_key(|(_, job, _)| job.buffer().served());
        let found = next.map(|(index, _, bytes)| (index, bytes));
        let found = found.and_then(|(index, bytes)| Some((active.remove(index)?, bytes)));
        drop(active);
        for job in given_up {
            job.end();
        }
        if let Some((job, _)) = &found {
            let turn = self.backfills.turn.fetch_add(1, Ordering::Relaxed);
            job.buffer().set_served(turn + 1);
        }
        found
    }
}

/// The worker that runs backfills.
pub(super) struct Backfiller<S>(pub(super) Arc<Bucket<S>>);

impl<S: KvStore> Worker for Backfiller<S> {
    fn step(&mut self, now_ns: u64) -> Next {
        let Self(bucket) = self;
        if bucket.is_stopping() {
            // Snapshots must be dropped before the store is closed.
            bucket.backfills.pending.lock().clear();
            bucket.backfills.active.lock().clear();
            return Next::Done;
        }
        match bucket.backfill_step() {
            Backfilled::Chunk => Next::Again,
            Backfilled::Nothing => Next::OnSignal,
            Backfilled::Snooze(pause) => Next::At(now_ns + pause.as_nanos() as u64),
        }
    }
}
