//! Counters of the workers, readable at any time.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::histogram::Histogram;

/// Running totals of the workers. Times in microseconds.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commits that succeeded.
    pub commits: AtomicU64,
    /// Commits that failed and are tried again.
    pub commits_failed: AtomicU64,
    /// Commits that waited because the store had not yet put away what came before.
    pub commits_waited: AtomicU64,
    /// Rows made durable.
    pub rows_persisted: AtomicU64,
    /// Encoded bytes made durable.
    pub bytes_persisted: AtomicU64,
    /// Time spent in commits.
    pub commit_us: AtomicU64,
    /// The last commit's time.
    pub commit_last_us: AtomicU64,
    /// The times of all commits.
    pub commit_times_us: Histogram,
    /// Documents read back from the store.
    pub fetched: AtomicU64,
    /// Reads of clients that waited for a fetch, each counted once.
    pub reads_waited: AtomicU64,
    /// Fetches that found an error.
    pub fetch_failed: AtomicU64,
    /// Values evicted from memory.
    pub evicted: AtomicU64,
    /// Values compressed in memory.
    pub compressed: AtomicU64,
    /// Backfills that the store's error ended.
    pub backfills_failed: AtomicU64,
    /// Times that the reliever went to work.
    pub relief_steps: AtomicU64,
    /// Writes after which the connection backed off, so that the flusher keeps up.
    pub write_backoffs: AtomicU64,
    /// Streams' cursors dropped to free memory.
    pub cursors_dropped: AtomicU64,
    /// Documents deleted to free memory.
    pub auto_deleted: AtomicU64,
    /// Documents that the expiry pass found expired.
    pub expired: AtomicU64,
    /// Expiry passes over the whole bucket.
    pub expiry_passes: AtomicU64,
    /// Operations refused for lack of memory, to be tried again.
    pub refused_for_memory: AtomicU64,
    /// Operations refused because the quota is used up.
    pub refused_at_quota: AtomicU64,
    /// Rollbacks of vBuckets.
    pub rollbacks: AtomicU64,
    /// Seqnos that these took back.
    pub rolled_back: AtomicU64,
    /// vBuckets deleted.
    pub vbuckets_deleted: AtomicU64,
    /// Deletions of vBuckets that the store failed.
    pub vbucket_deletes_failed: AtomicU64,
}

impl Counters {
    /// Adds to one of the totals.
    pub fn add(total: &AtomicU64, amount: u64) {
        total.fetch_add(amount, Ordering::Relaxed);
    }

    /// Reads one of the totals.
    pub fn read(total: &AtomicU64) -> u64 {
        total.load(Ordering::Relaxed)
    }
}

/// Progress of compaction.
#[derive(Debug, Default)]
pub struct CompactionStats {
    /// 1 while a vBucket is walked over.
    pub running: AtomicU64,
    /// vBuckets walked over.
    pub walks: AtomicU64,
    /// Walks that failed.
    pub failed: AtomicU64,
    /// Rows dropped for good.
    pub rows_purged: AtomicU64,
    /// Rows looked at.
    pub rows_read: AtomicU64,
    /// Documents found expired, and made tombstones.
    pub expired: AtomicU64,
    /// Rows of dropped collections taken out of the store.
    pub rows_erased: AtomicU64,
    /// Rows of replaced versions that were dropped: too old, or too much.
    pub history_dropped: AtomicU64,
}

/// What the flusher is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlusherState {
    /// At work or waiting for changes.
    Running = 0,
    /// The last commit found no space or an error; tried again.
    Retrying = 1,
    /// The store takes no commit any more.
    Failed = 2,
    /// Ended.
    Stopped = 3,
    /// Told to make nothing durable.
    Paused = 4,
}

impl FlusherState {
    /// The name that statistics show.
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

/// How far warmup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WarmupStage {
    /// Documents are being read from the store; data operations on a vBucket are refused until it is loaded.
    Loading = 0,
    /// Done.
    Done = 1,
    /// The store could not be read; the bucket serves nothing.
    Failed = 2,
}

/// Whether documents that are in the store alone come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefillState {
    /// Not before all is loaded.
    Waiting = 0,
    /// They do.
    Running = 1,
    /// All did for which there was memory.
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
    /// Keys loaded, tombstones included.
    pub keys: AtomicU64,
    /// Values loaded, with them and afterwards.
    pub values: AtomicU64,
    /// Time from opening to the end of warmup, microseconds.
    pub time_us: AtomicU64,
}

impl WarmupStats {
    pub(crate) fn new(vbuckets: u16) -> Self {
        Self {
            vbuckets: u64::from(vbuckets),
            ..Self::default()
        }
    }

    /// The stage.
    pub fn stage(&self) -> WarmupStage {
        match self.stage.load(Ordering::Acquire) {
            0 => WarmupStage::Loading,
            1 => WarmupStage::Done,
            _ => WarmupStage::Failed,
        }
    }

    /// Whether clients' operations are let in: all is loaded.
    pub fn admits(&self) -> bool {
        self.stage.load(Ordering::Acquire) == WarmupStage::Done as u8
    }

    /// Whether memory is refilled.
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
