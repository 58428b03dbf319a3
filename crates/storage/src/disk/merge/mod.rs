//! Merging: runs of tables that lie side by side become one, in a thread of ours.
//!
//! The database would do it in a thread of its own, but takes no write any more once a merge has
//! failed. Here a failed merge is given up whole and tried again.

mod tables;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use fjall::AbstractTree;
use fjall::compaction::Leveled;
use parking_lot::{Condvar, Mutex};

use super::DiskOptions;
use crate::port::Upkeep;

pub(crate) use tables::{Stuck, Tables};

/// When dead rows are merged away though there are few runs.
#[derive(Clone, Copy, Debug)]
struct Rest {
    quiet: Duration,
    dead_bytes_min: u64,
}

impl Rest {
    fn of(options: &DiskOptions) -> Self {
        Self {
            quiet: options.quiet,
            dead_bytes_min: options.dead_bytes_min,
        }
    }

    /// Whether so much of `bytes` with so many rows and removals is dead that merging all of it is
    /// worthwhile: then at least as much goes as is written.
    ///
    /// A removal stands for the row that it removes: a row that came and went within a journal is
    /// in no table.
    fn is_due(self, bytes: u64, rows: u64, removals: u64) -> bool {
        let dead = u128::from(bytes) * u128::from(removals.min(rows)) / u128::from(rows.max(1));
        let dead = u64::try_from(dead).expect("it is a part of the bytes");
        let stays = bytes - dead;
        dead >= self.dead_bytes_min.max(bytes / 2) && stays <= QUIET_BYTES_MAX && removals > 0
    }
}

/// Bytes that stay, above which it is not done: merging them all would take too long, should many
/// runs come meanwhile. Dead rows are a smaller part of more.
const QUIET_BYTES_MAX: u64 = 1 << 30;

/// Runs that lie side by side until they are merged with what is below. A merge writes all that is
/// there, so the more runs it takes, the less is written; a read that misses the journals asks each
/// of them, and what they refer to takes space.
const RUNS_MIN: u64 = 16;
const RUNS_MAX: u64 = 64;

/// As many runs as have so many times the bytes that lie below: what a merge writes is at most half of what came
/// since the last one.
const TIMES_BELOW: u64 = 2;

fn runs_for(bytes_below: u64, run_bytes: u64) -> u8 {
    let runs = TIMES_BELOW * bytes_below / run_bytes.max(1);
    u8::try_from(runs.clamp(RUNS_MIN, RUNS_MAX)).expect("it is within its bounds")
}

/// The pause after the first failure in a row; it doubles with each, up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The pause after so many failures in a row.
pub(crate) fn pause_after(failures: u32) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(PAUSE_MAX)
}

/// What was done in the background, over all openings of a store.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) merges: AtomicU64,
    pub(crate) merges_failed: AtomicU64,
    pub(crate) runs_failed: AtomicU64,
    /// The last merge failed.
    failing: AtomicBool,
}

impl Counts {
    /// As the port tells it.
    pub(crate) fn upkeep(&self) -> Upkeep {
        Upkeep {
            merges: self.merges.load(Ordering::Relaxed),
            merges_failed: self.merges_failed.load(Ordering::Relaxed),
            runs_failed: self.runs_failed.load(Ordering::Relaxed),
        }
    }
}

/// What the thread is told.
#[derive(Default)]
struct Told {
    /// A run was added.
    rung: bool,
    stop: bool,
}

/// What the thread and those who tell it share.
pub(crate) struct Shared {
    pub(crate) tables: Tables,
    pub(crate) counts: Arc<Counts>,
    limits: Rest,
    journal_bytes: u64,
    told: Mutex<Told>,
    bell: Condvar,
}

impl Shared {
    /// Tells that there is another run.
    pub(crate) fn ring(&self) {
        self.told.lock().rung = true;
        self.bell.notify_one();
    }

    /// Whether waiting for a merge may take for ever.
    pub(crate) fn is_failing(&self) -> bool {
        self.counts.failing.load(Ordering::SeqCst)
    }

    /// Waits until there is another run, at most for `pause`.
    fn wait(&self, pause: Option<Duration>) -> Woken {
        let mut told = self.told.lock();
        loop {
            if told.stop {
                return Woken::Stop;
            }
            if std::mem::take(&mut told.rung) {
                return Woken::Rung;
            }
            match pause {
                Some(pause) => {
                    if self.bell.wait_for(&mut told, pause).timed_out() && !told.stop {
                        return Woken::Late;
                    }
                }
                None => self.bell.wait(&mut told),
            }
        }
    }

    /// Waits for all of `pause`; `Late`, unless it is to stop.
    fn pause(&self, pause: Duration) -> Woken {
        let mut told = self.told.lock();
        self.bell
            .wait_while_for(&mut told, |told| !told.stop, pause);
        told.rung = false;
        if told.stop { Woken::Stop } else { Woken::Late }
    }

    /// How many runs are merged with what is below.
    pub(crate) fn runs_merged(&self) -> u8 {
        let version = self.tables.rows.tree.current_version();
        let mut bytes_below = 0;
        for level in version.iter_levels().skip(1) {
            bytes_below += level.size();
        }
        runs_for(bytes_below, self.journal_bytes)
    }

    fn is_stopping(&self) -> bool {
        self.told.lock().stop
    }

    /// Merges as long as the strategy finds something.
    fn merge_runs(&self) -> Result<(), Stuck> {
        let rows = &self.tables.rows;
        let version = || rows.tree.current_version().id();
        // The database would move a single run down as it is, with what it refers to. Two are never
        // moved: both have the key that tells their generations.
        while !self.is_stopping() && rows.tree.l0_run_count() > 1 {
            let before = version();
            let strategy = Leveled::default().with_l0_threshold(self.runs_merged());
            let readers = &self.tables.db.supervisor.snapshot_tracker;
            let unread = readers.get_seqno_safe_to_gc();
            self.tables
                .merge(|| Ok(rows.tree.compact(Arc::new(strategy), unread)?))?;
            if version() == before {
                break;
            }
            self.tables.forget();
            self.counts.merges.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Merges all that there is into one run without dead rows.
    fn merge_all(&self) -> Result<(), Stuck> {
        self.tables.forget();
        self.tables.merge(|| self.tables.rows.major_compact())?;
        if self.tables.rows.tree.stale_blob_bytes() >= self.limits.dead_bytes_min {
            // Files of large rows go with the merge after the one that found the rows gone.
            self.tables.merge(|| self.tables.rows.major_compact())?;
        }
        self.tables.forget();
        self.counts.merges.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What is done when no more comes.
    fn rest(&self) -> Result<(), Stuck> {
        self.tables.kept.drop_spares();
        if self.is_mostly_dead() {
            self.merge_all()?;
            self.tables.kept.drop_spares();
        }
        Ok(())
    }

    /// Whether there is anything to do then.
    fn needs_rest(&self) -> bool {
        self.is_mostly_dead() || self.tables.kept.has_spares()
    }

    /// Whether what is there shall be merged when no more comes.
    fn is_mostly_dead(&self) -> bool {
        let tree = &self.tables.rows.tree;
        let removals = tree.tombstone_count();
        let rows = (tree.approximate_len() as u64).saturating_sub(removals);
        let bytes = tree.disk_space() + self.tables.kept.bytes();
        self.limits.is_due(bytes, rows, removals)
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    Rung,
    Late,
    Stop,
}

/// Merges in a thread until it is dropped, which waits for the merge under way.
pub(crate) struct Merger {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Merger {
    /// Begins with a look at what is there.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(
        tables: Tables,
        counts: Arc<Counts>,
        options: &DiskOptions,
    ) -> io::Result<Self> {
        counts.failing.store(false, Ordering::SeqCst);
        let shared = Arc::new(Shared {
            tables,
            counts,
            limits: Rest::of(options),
            journal_bytes: options.journal_bytes,
            told: Mutex::new(Told {
                rung: true,
                stop: false,
            }),
            bell: Condvar::new(),
        });
        let thread = Builder::new().name("merge".into()).spawn({
            let shared = Arc::clone(&shared);
            move || run(&shared)
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        self.shared.told.lock().stop = true;
        self.shared.bell.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that merges ended early");
        }
    }
}

fn run(shared: &Shared) {
    let mut failures: u32 = 0;
    let mut rest = None;
    loop {
        let woken = if failures > 0 {
            shared.pause(pause_after(failures))
        } else {
            shared.wait(rest)
        };
        if woken == Woken::Stop {
            return;
        }
        // Late after a failure is the time to try again, else that of a rest.
        let resting = woken == Woken::Late && failures == 0;
        let merged = if resting {
            shared.rest()
        } else {
            shared.merge_runs()
        };
        rest = match &merged {
            Ok(()) => {
                if failures > 0 {
                    tracing::info!("merges succeed again");
                }
                failures = 0;
                (!resting && shared.needs_rest()).then_some(shared.limits.quiet)
            }
            Err(stuck) => {
                failures += 1;
                shared.counts.merges_failed.fetch_add(1, Ordering::Relaxed);
                // It may have been for want of space.
                shared.tables.kept.drop_spares();
                if failures.is_power_of_two() {
                    let error = stuck.error();
                    tracing::warn!(%error, failures, "a merge failed and was given up; trying again");
                }
                None
            }
        };
        shared.counts.failing.store(failures > 0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
