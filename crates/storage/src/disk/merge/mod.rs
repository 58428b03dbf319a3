//! Merging: runs of tables that lie side by side become one, in a thread of ours.
//!
//! The database would do it in a thread of its own, but takes no write any more once a merge has
//! failed. Here a failed merge is given up whole and tried again.

mod plan;
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

use plan::Sizes;
pub(crate) use tables::{Stuck, Tables};

/// Bytes of a table that a merge writes; the next one begins another.
const TABLE_BYTES: u64 = 64 << 20;

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
    options: DiskOptions,
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

    /// What there is.
    fn sizes(&self) -> Sizes {
        let tree = &self.tables.rows.tree;
        let version = tree.current_version();
        let left = self.tables.left();
        let mut sizes = Sizes {
            left: left.map_or(0, |left| left.bytes),
            new: version.l0().size(),
            removals: tree.tombstone_count(),
            ..Sizes::default()
        };
        for level in version.iter_levels().skip(1) {
            sizes.below += level.size();
        }
        sizes.rows = (tree.approximate_len() as u64).saturating_sub(sizes.removals);
        for (generation, bytes) in self.tables.kept.listed() {
            if left.is_some_and(|left| generation <= left.drained) {
                sizes.left_in += bytes;
            } else {
                sizes.new += bytes;
            }
        }
        sizes
    }

    /// How many runs are merged with what is below.
    pub(crate) fn runs_merged(&self) -> u8 {
        self.sizes().runs_due(self.options.journal_bytes)
    }

    fn is_stopping(&self) -> bool {
        self.told.lock().stop
    }

    /// Merges as long as there are enough runs.
    fn merge_runs(&self) -> Result<(), Stuck> {
        let rows = &self.tables.rows;
        // The database would move a single run down as it is, with what it refers to. Two are never
        // moved: both have the key that tells their generations.
        while !self.is_stopping() && rows.tree.l0_run_count() > 1 {
            let is_small = self.sizes().living() <= self.options.whole_bytes_max;
            let merged = if is_small && !self.tables.has_levels() {
                self.merge_whole(true)?
            } else if self.tables.below_refers() {
                self.merge_whole(false)?
            } else {
                self.merge_levels()?
            };
            if !merged {
                break;
            }
            self.tables.forget();
            self.counts.merges.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The last generation of the journal whose rows a merge takes over now.
    fn last_taken(&self) -> u64 {
        let kept = &self.tables.kept;
        if !kept.is_begun() {
            return u64::MAX;
        }
        let sizes = self.sizes();
        let percent = u128::from(self.options.left_percent);
        let bytes = u128::from(sizes.living()) * percent / 100;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        // After an opening nothing is known of how soon rows die that are written here.
        let young = self.tables.left().map_or(u64::MAX, |left| left.young);
        plan::last_taken(&kept.listed(), self.tables.drained(), bytes.min(young))
    }

    /// Merges runs with all tables, if there are enough, and tells whether. It may leave rows in journals.
    fn merge_whole(&self, leaves: bool) -> Result<bool, Stuck> {
        let tree = &self.tables.rows.tree;
        if tree.l0_run_count() < usize::from(self.runs_merged()) {
            return Ok(false);
        }
        let taken = if leaves { self.last_taken() } else { u64::MAX };
        let unread = self.unread();
        self.tables
            .merge(taken, || Ok(tree.major_compact(TABLE_BYTES, unread)?))?;
        Ok(true)
    }

    /// Merges what the strategy of the database finds, and tells whether that was anything.
    fn merge_levels(&self) -> Result<bool, Stuck> {
        let tree = &self.tables.rows.tree;
        let before = tree.current_version().id();
        let strategy = Arc::new(Leveled::default().with_l0_threshold(self.runs_merged()));
        let unread = self.unread();
        self.tables
            .merge(u64::MAX, || Ok(tree.compact(strategy, unread)?))?;
        Ok(tree.current_version().id() != before)
    }

    /// The number before which nobody reads.
    fn unread(&self) -> u64 {
        let readers = &self.tables.db.supervisor.snapshot_tracker;
        readers.get_seqno_safe_to_gc()
    }

    /// Merges all that there is into one run without dead rows.
    fn merge_all(&self) -> Result<(), Stuck> {
        self.tables.forget();
        let merge = || self.tables.rows.major_compact();
        self.tables.merge(u64::MAX, merge)?;
        if self.tables.rows.tree.stale_blob_bytes() >= self.options.dead_bytes_min {
            // Files of large rows go with the merge after the one that found the rows gone.
            self.tables.merge(u64::MAX, merge)?;
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
        self.sizes().is_mostly_dead(self.options.dead_bytes_min)
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    Rung,
    Late,
    Stop,
}

/// Merges in a thread until it is dropped, which gives up the merge under way.
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
            options: *options,
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
        self.shared.tables.kept.give_up_merges();
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
                (!resting && shared.needs_rest()).then_some(shared.options.quiet)
            }
            Err(_) if shared.is_stopping() => return,
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
