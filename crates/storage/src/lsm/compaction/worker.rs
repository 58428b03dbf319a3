//! The worker that merges runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::merge::merge;
use super::policy::{MergeLimits, RunSize, Sizes};
use super::renewal::Renewal;
use crate::lsm::current::Version;
use crate::lsm::flush::pause_after;
use crate::lsm::writer::Core;
use crate::work::{Next, Worker};

/// Merges runs while the policy finds any, one merge in each step.
pub(crate) struct CompactionWorker {
    core: Arc<Core>,
    failures: u32,
    retry_ns: u64,
    /// The last group at the last check, and the time of its change.
    seen: (u64, u64),
    /// The runs that a merge of all mergeable runs left, and whether no commits arrived then. They are not merged alone
    /// by the same limits, whatever the estimate of their dead rows.
    settled: Option<(Vec<u64>, bool)>,
    /// Whether the last merge of all mergeable runs left files that are to be emptied.
    goes_on: bool,
}

impl CompactionWorker {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            failures: 0,
            retry_ns: 0,
            seen: (0, 0),
            settled: None,
            goes_on: false,
        }
    }

    /// Runs one merge if the policy finds one. Returns whether it did.
    fn merge_once(&mut self, quiet: bool) -> std::io::Result<bool> {
        let core = &*Arc::clone(&self.core);
        load_filters(core)?;
        let mut outdated = None;
        if core.renewing.load(Ordering::Relaxed) {
            match core.renew()? {
                Renewal::Waits => return Ok(false),
                Renewal::Merge(values) => outdated = Some(values),
                Renewal::Over => core.renewing.store(false, Ordering::Relaxed),
            }
        }
        if core.removed.swap(false, Ordering::Relaxed) {
            self.settled = None;
        }
        let renews = outdated.is_some();
        let version = Arc::clone(&core.current.read().version);
        if !renews
            && let Some((settled, was_quiet)) = &self.settled
            && *settled == numbers(&version)
            && (*was_quiet || !quiet)
        {
            return Ok(false);
        }
        let sizes = sizes_of(&version, core.dead_rows.load(Ordering::Relaxed));
        let options = &core.options;
        let limits = MergeLimits {
            log_bytes: options.log_bytes,
            runs_max: options.runs_max,
            dead_bytes_min: options.dead_bytes_min,
        };
        let plan = match outdated {
            Some(values) => Some(sizes.all(values, limits)),
            None => sizes.plan(limits, quiet, self.goes_on),
        };
        let Some(plan) = plan else {
            self.goes_on = false;
            return Ok(false);
        };
        let made = merge(core, &version.runs, &plan)?;
        core.upkeep.lock().merges += 1;
        if renews {
            // Damaged runs stay as they are.
            core.renewing.store(false, Ordering::Relaxed);
        }
        if plan.runs.len() == sizes.usable().len() {
            let left = Arc::clone(&core.current.read().version);
            // A file with a damaged value is never empty.
            let stays = |file| left.values.contains_key(file);
            self.goes_on = plan.leaves_files && !plan.emptied.iter().any(stays);
            let others = version.runs.len() - plan.runs.len();
            let is_settled = !self.goes_on && left.runs.len() == made + others;
            self.settled = is_settled.then(|| (numbers(&left), quiet));
        }
        Ok(true)
    }
}

/// Returns the numbers of the runs.
fn numbers(version: &Version) -> Vec<u64> {
    version.runs.iter().map(|run| run.number).collect()
}

/// Loads the filters of a merged run, after those of its inputs are freed.
fn load_filters(core: &Core) -> std::io::Result<()> {
    let version = Arc::clone(&core.current.read().version);
    version.runs.iter().try_for_each(|run| run.load_filters())
}

fn sizes_of(version: &Version, dead_rows: u64) -> Sizes {
    let mut sizes = Sizes {
        dead_rows,
        ..Sizes::default()
    };
    for (file, value) in &version.values {
        sizes.values.insert(*file, (value.bytes, 0));
    }
    for run in &version.runs {
        sizes.rows += run.rows();
        sizes.runs.push(RunSize {
            bytes: run.bytes,
            damaged: run.is_damaged(),
            part: run.part,
        });
        for (file, bytes) in run.values() {
            if let Some(of_file) = sizes.values.get_mut(file) {
                of_file.1 += bytes;
            }
        }
    }
    sizes
}

impl Worker for CompactionWorker {
    fn step(&mut self, now_ns: u64) -> Next {
        let core = Arc::clone(&self.core);
        if core.stopping.load(Ordering::SeqCst) {
            return Next::Done;
        }
        if self.failures > 0 && now_ns < self.retry_ns {
            return Next::At(self.retry_ns);
        }
        let group = core.committed.load(Ordering::Relaxed);
        if group != self.seen.0 {
            self.seen = (group, now_ns);
        }
        let quiet_ns = self.seen.1 + core.options.quiet.as_nanos() as u64;
        let quiet = now_ns >= quiet_ns;
        match self.merge_once(quiet) {
            Ok(true) => {
                self.failures = 0;
                Next::Again
            }
            Ok(false) if quiet => Next::OnSignal,
            Ok(false) => Next::At(quiet_ns),
            Err(_) if core.stopping.load(Ordering::SeqCst) => Next::Done,
            Err(error) => {
                self.failures += 1;
                let failures = self.failures;
                core.upkeep.lock().merges_failed += 1;
                if failures.is_power_of_two() {
                    tracing::warn!(%error, failures, "a merge failed and was given up; trying again");
                }
                self.retry_ns = now_ns + pause_after(failures).as_nanos() as u64;
                Next::At(self.retry_ns)
            }
        }
    }
}
