//! MergeWorker: runs of tables that lie side by side become one, in the background.
//!
//! The database would do it in a thread of its own, but takes no write any more once a merge has
//! failed. Here a failed merge is given up whole and tried again.

mod plan;
mod tables;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fjall::AbstractTree;
use fjall::compaction::Leveled;

use super::options::DiskOptions;
use crate::port::Upkeep;
use crate::work::{Duty, Next, Running, Threads, Worker};

use plan::Sizes;
pub(crate) use tables::{Tables, TablesError};

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

/// What is done in the background, over all openings of a store: by which threads, and how often.
pub(crate) struct Background {
    pub(crate) threads: Arc<dyn Threads>,
    pub(crate) merges: AtomicU64,
    pub(crate) merges_failed: AtomicU64,
    pub(crate) runs_failed: AtomicU64,
    /// The last merge failed.
    failing: AtomicBool,
}

impl Background {
    pub(crate) fn new(threads: Arc<dyn Threads>) -> Self {
        Self {
            threads,
            merges: AtomicU64::default(),
            merges_failed: AtomicU64::default(),
            runs_failed: AtomicU64::default(),
            failing: AtomicBool::default(),
        }
    }

    /// As the port tells it.
    pub(crate) fn upkeep(&self) -> Upkeep {
        Upkeep {
            merges: self.merges.load(Ordering::Relaxed),
            merges_failed: self.merges_failed.load(Ordering::Relaxed),
            runs_failed: self.runs_failed.load(Ordering::Relaxed),
        }
    }
}

/// What the merger shares with the threads that signal it.
pub(crate) struct MergeShared {
    pub(crate) tables: Tables,
    pub(crate) background: Arc<Background>,
    options: DiskOptions,
    /// There is another run.
    rung: AtomicBool,
    stop: AtomicBool,
    merger: OnceLock<Box<dyn Running>>,
}

impl MergeShared {
    /// Tells that there is another run.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if let Some(merger) = self.merger.get() {
            merger.ring();
        }
    }

    /// Whether waiting for a merge may take for ever.
    pub(crate) fn is_failing(&self) -> bool {
        self.background.failing.load(Ordering::SeqCst)
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
        for (generation, bytes) in self.tables.value_log.listed() {
            if left.is_some_and(|left| generation <= left.flushed) {
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
        self.stop.load(Ordering::SeqCst)
    }

    /// Makes one merge if there are enough runs, and says whether.
    fn merge_once(&self) -> Result<bool, TablesError> {
        let rows = &self.tables.rows;
        // The database would move a single run down as it is, with what it refers to. Two are never
        // moved: both have the key that tells their generations.
        if rows.tree.l0_run_count() <= 1 {
            return Ok(false);
        }
        let is_small = self.sizes().live() <= self.options.whole_bytes_max;
        let merged = if is_small && !self.tables.has_levels() {
            self.merge_whole(true)?
        } else if self.tables.below_refers() {
            self.merge_whole(false)?
        } else {
            self.merge_levels()?
        };
        if merged {
            self.tables.forget();
            self.background.merges.fetch_add(1, Ordering::Relaxed);
        }
        Ok(merged)
    }

    /// The last generation of the journal whose rows a merge takes over now.
    fn last_inlined(&self) -> u64 {
        let value_log = &self.tables.value_log;
        if !value_log.is_begun() {
            return u64::MAX;
        }
        let sizes = self.sizes();
        let percent = u128::from(self.options.left_percent);
        let bytes = u128::from(sizes.live()) * percent / 100;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        // After an opening nothing is known of how soon rows die that are written here.
        let young = self.tables.left().map_or(u64::MAX, |left| left.young);
        plan::last_inlined(&value_log.listed(), self.tables.flushed(), bytes.min(young))
    }

    /// Merges runs with all tables, if there are enough, and tells whether. It may leave rows in journals.
    fn merge_whole(&self, leaves: bool) -> Result<bool, TablesError> {
        let tree = &self.tables.rows.tree;
        if tree.l0_run_count() < usize::from(self.runs_merged()) {
            return Ok(false);
        }
        let inlined = if leaves {
            self.last_inlined()
        } else {
            u64::MAX
        };
        let unread = self.unread();
        self.tables
            .merge(inlined, || Ok(tree.major_compact(TABLE_BYTES, unread)?))?;
        Ok(true)
    }

    /// Merges what the strategy of the database finds, and tells whether that was anything.
    fn merge_levels(&self) -> Result<bool, TablesError> {
        let tree = &self.tables.rows.tree;
        let before = tree.current_version().id();
        let strategy = Arc::new(Leveled::default().with_l0_threshold(self.runs_merged()));
        let unread = self.unread();
        self.tables
            .merge(u64::MAX, || Ok(tree.compact(strategy, unread)?))?;
        Ok(tree.current_version().id() != before)
    }

    /// The number before which there are no readers.
    fn unread(&self) -> u64 {
        let readers = &self.tables.db.supervisor.snapshot_tracker;
        readers.get_seqno_safe_to_gc()
    }

    /// Merges all that there is into one run without dead rows.
    fn merge_all(&self) -> Result<(), TablesError> {
        self.tables.forget();
        let merge = || self.tables.rows.major_compact();
        self.tables.merge(u64::MAX, merge)?;
        if self.tables.rows.tree.stale_blob_bytes() >= self.options.dead_bytes_min {
            // Files of large rows go with the merge after the one that found the rows gone.
            self.tables.merge(u64::MAX, merge)?;
        }
        self.tables.forget();
        self.background.merges.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What is done when no more comes.
    fn rest(&self) -> Result<(), TablesError> {
        self.tables.value_log.drop_spares();
        if self.is_mostly_dead() {
            self.merge_all()?;
            self.tables.value_log.drop_spares();
        }
        Ok(())
    }

    /// Whether there is anything to do then.
    fn needs_rest(&self) -> bool {
        self.is_mostly_dead() || self.tables.value_log.has_spares()
    }

    /// Whether what is there shall be merged when no more comes.
    fn is_mostly_dead(&self) -> bool {
        self.sizes().is_mostly_dead(self.options.dead_bytes_min)
    }
}

/// Merges in the background until it is dropped, which gives up the merge under way.
pub(crate) struct Merger {
    pub(crate) shared: Arc<MergeShared>,
}

impl Merger {
    /// Begins with a look at what is there.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(
        tables: Tables,
        background: Arc<Background>,
        options: &DiskOptions,
    ) -> io::Result<Self> {
        background.failing.store(false, Ordering::SeqCst);
        let shared = Arc::new(MergeShared {
            tables,
            background,
            options: *options,
            rung: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            merger: OnceLock::new(),
        });
        let merging = MergeWorker {
            shared: Arc::clone(&shared),
            failures: 0,
            pause: None,
            pause_until_ns: None,
        };
        let threads = &shared.background.threads;
        let merger = threads.start(Duty::Merge, Box::new(merging))?;
        shared.merger.get_or_init(|| merger);
        Ok(Self { shared })
    }
}

impl Drop for Merger {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.tables.value_log.give_up_merges();
        if let Some(merger) = self.shared.merger.get() {
            merger.ring();
            merger.join();
        }
    }
}

/// Merges as long as there are enough runs, one merge in each step.
struct MergeWorker {
    shared: Arc<MergeShared>,
    /// In a row.
    failures: u32,
    /// Before the next attempt after a failure, or before what is done when no more comes: first how
    /// long, then until when.
    pause: Option<Duration>,
    pause_until_ns: Option<u64>,
}

impl MergeWorker {
    /// What is due now; `None` for nothing.
    fn due(&mut self, now_ns: u64) -> Option<Due> {
        if let Some(pause) = self.pause.take() {
            self.pause_until_ns = Some(now_ns + pause.as_nanos() as u64);
        }
        let late = self
            .pause_until_ns
            .is_some_and(|until_ns| until_ns <= now_ns);
        if self.failures > 0 {
            return late.then_some(Due::Merge);
        }
        if self.shared.rung.swap(false, Ordering::SeqCst) {
            return Some(Due::Merge);
        }
        late.then_some(Due::Rest)
    }

    /// What comes after an attempt.
    fn went(&mut self, due: Due, merged: Result<bool, TablesError>) {
        let shared = &self.shared;
        match merged {
            Ok(more) => {
                if self.failures > 0 {
                    tracing::info!("merges succeed again");
                }
                self.failures = 0;
                if more {
                    shared.rung.store(true, Ordering::SeqCst);
                } else if due == Due::Merge && shared.needs_rest() {
                    self.pause = Some(shared.options.quiet);
                }
            }
            // It was given up.
            Err(_) if shared.is_stopping() => {}
            Err(error) => {
                self.failures += 1;
                let failures = self.failures;
                shared
                    .background
                    .merges_failed
                    .fetch_add(1, Ordering::Relaxed);
                // It may have been for want of space.
                shared.tables.value_log.drop_spares();
                if failures.is_power_of_two() {
                    let error = error.error();
                    tracing::warn!(%error, failures, "a merge failed and was given up; trying again");
                }
                self.pause = Some(pause_after(failures));
            }
        }
        let failing = &shared.background.failing;
        failing.store(self.failures > 0, Ordering::SeqCst);
    }
}

/// What a step does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    Merge,
    /// What is done when no more comes.
    Rest,
}

impl Worker for MergeWorker {
    fn step(&mut self, now_ns: u64) -> Next {
        if self.shared.is_stopping() {
            return Next::Done;
        }
        let Some(due) = self.due(now_ns) else {
            return self.pause_until_ns.map_or(Next::OnSignal, Next::At);
        };
        self.pause_until_ns = None;
        let merged = match due {
            Due::Merge => self.shared.merge_once(),
            Due::Rest => self.shared.rest().map(|()| false),
        };
        self.went(due, merged);
        Next::Again
    }
}

#[cfg(test)]
mod tests;
