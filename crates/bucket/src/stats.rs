//! Counters of the workers, readable at any time.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::histogram::Histogram;

/// Running totals of the workers. Times are in microseconds.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commits that succeeded.
    pub commits: AtomicU64,
    /// Commits that failed.
    pub commits_failed: AtomicU64,
    /// Commits that waited until the store had written earlier ones from its log to runs.
    pub commits_waited: AtomicU64,
    /// Rows made durable.
    pub rows_persisted: AtomicU64,
    /// Encoded bytes made durable.
    pub bytes_persisted: AtomicU64,
    /// Time spent in commits.
    pub commit_us: AtomicU64,
    /// Time of the last commit.
    pub commit_last_us: AtomicU64,
    /// Times of all commits.
    pub commit_times_us: Histogram,
    /// Documents read back from the store.
    pub fetched: AtomicU64,
    /// Reads of clients that waited for a fetch, each counted once.
    pub reads_waited: AtomicU64,
    /// Fetches that failed.
    pub fetch_failed: AtomicU64,
    /// Documents evicted from memory, with or without their keys.
    pub evicted: AtomicU64,
    /// Values compressed in memory.
    pub compressed: AtomicU64,
    /// Backfills that failed with an error of the store.
    pub backfills_failed: AtomicU64,
    /// Runs of the reliever.
    pub relief_steps: AtomicU64,
    /// Writes after which the connection backed off, so that the flusher keeps up.
    pub write_backoffs: AtomicU64,
    /// Streams' cursors dropped to free memory.
    pub cursors_dropped: AtomicU64,
    /// Documents deleted to free memory.
    pub auto_deleted: AtomicU64,
    /// Documents that expiry passes found expired.
    pub expired: AtomicU64,
    /// Expiry passes over the whole bucket.
    pub expiry_passes: AtomicU64,
    /// Operations refused for lack of memory with a temporary failure.
    pub refused_for_memory: AtomicU64,
    /// Operations refused because the quota is used up.
    pub refused_at_quota: AtomicU64,
    /// Rollbacks of vBuckets.
    pub rollbacks: AtomicU64,
    /// Seqnos that rollbacks took back.
    pub rolled_back: AtomicU64,
    /// vBuckets deleted.
    pub vbuckets_deleted: AtomicU64,
    /// Deletions of vBuckets that failed in the store.
    pub vbucket_deletes_failed: AtomicU64,
}

impl Counters {
    /// Adds to a total.
    pub fn add(total: &AtomicU64, amount: u64) {
        total.fetch_add(amount, Ordering::Relaxed);
    }

    /// Reads a total.
    pub fn read(total: &AtomicU64) -> u64 {
        total.load(Ordering::Relaxed)
    }
}

/// Progress of compaction.
#[derive(Debug, Default)]
pub struct CompactionStats {
    /// 1 while a vBucket is compacted.
    pub running: AtomicU64,
    /// Compactions of vBuckets.
    pub walks: AtomicU64,
    /// Compactions that failed.
    pub failed: AtomicU64,
    /// Rows purged.
    pub rows_purged: AtomicU64,
    /// Rows read.
    pub rows_read: AtomicU64,
    /// Documents found expired and replaced by tombstones.
    pub expired: AtomicU64,
    /// Rows of dropped collections erased from the store.
    pub rows_erased: AtomicU64,
    /// Rows of replaced versions dropped because of age or size.
    pub history_dropped: AtomicU64,
}

/// State of the flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlusherState {
    /// Committing, or waiting for changes.
    Running = 0,
    /// Retrying after a failed commit: no space, or another error.
    Retrying = 1,
    /// Failed: the store accepts no more commits.
    Failed = 2,
    /// Stopped.
    Stopped = 3,
    /// Paused: changes are not made durable.
    Paused = 4,
}

impl FlusherState {
    /// Returns the name that statistics show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
        }
    }

    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Running,
            1 => Self::Retrying,
            2 => Self::Failed,
            4 => Self::Paused,
            _ => Self::Stopped,
        }
    }
}

/// Stage of warmup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WarmupStage {
    /// Documents are read from the store; data operations on a vBucket are refused until it is loaded.
    Loading = 0,
    /// Everything is loaded.
    Done = 1,
    /// The store could not be read; the bucket serves nothing.
    Failed = 2,
}

/// State of the refill of memory with documents that are only in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefillState {
    /// Waiting for the end of warmup.
    Waiting = 0,
    /// Running.
    Running = 1,
    /// Finished: all documents for which there is memory are loaded.
    Done = 2,
}

/// Progress of warmup.
#[derive(Debug, Default)]
pub struct WarmupStats {
    stage: AtomicU8,
    refill: AtomicU8,
    /// vBuckets to load.
    pub vbuckets: u64,
    /// vBuckets loaded.
    pub vbuckets_done: AtomicU64,
    /// vBuckets with collections from the summary of events.
    pub summarized: AtomicU64,
    /// Keys loaded, tombstones included.
    pub keys: AtomicU64,
    /// Values loaded, by warmup and by the refill.
    pub values: AtomicU64,
    /// Time from opening to the end of warmup, in microseconds.
    pub time_us: AtomicU64,
}

impl WarmupStats {
    pub(crate) fn new(vbuckets: u16) -> Self {
        Self {
            vbuckets: u64::from(vbuckets),
            ..Self::default()
        }
    }

    /// Returns the stage.
    pub fn stage(&self) -> WarmupStage {
        match self.stage.load(Ordering::Acquire) {
            0 => WarmupStage::Loading,
            1 => WarmupStage::Done,
            _ => WarmupStage::Failed,
        }
    }

    /// Whether clients' operations are allowed: everything is loaded.
    pub fn admits(&self) -> bool {
        self.stage.load(Ordering::Acquire) == WarmupStage::Done as u8
    }

    /// Returns the state of the refill.
    pub fn refill(&self) -> RefillState {
        match self.refill.load(Ordering::Relaxed) {
            0 => RefillState::Waiting,
            1 => RefillState::Running,
            _ => RefillState::Done,
        }
    }

    pub(crate) fn set_refill(&self, state: RefillState) {
        self.refill.store(state as u8, Ordering::Relaxed);
    }

    pub(crate) fn set_stage(&self, stage: WarmupStage) {
        self.stage.store(stage as u8, Ordering::Release);
    }
}
