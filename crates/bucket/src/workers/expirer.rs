//! The expiry pass: finds expired documents that no request reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use model::VbId;
use storage::{KvStore, Next, Worker};

use crate::Bucket;
use crate::holds::Hold;
use crate::pool::Signal;
use crate::stats::{Counters, WarmupStage};

/// Table slots checked under one lock hold; each may become a tombstone.
const SLOTS_PER_HOLD: usize = 128;
/// Lock holds in one step of a pass.
const HOLDS_PER_STEP: usize = 64;

/// Settings of expiry passes.
pub(crate) struct Expiry {
    /// Interval between two passes in seconds, and whether passes run.
    pub(crate) pass_s: AtomicU32,
    pub(crate) on: AtomicBool,
    /// Rings the expirer when the settings change.
    pub(crate) signal: Signal,
}

impl Expiry {
    pub(crate) fn new(pass_s: u32) -> Self {
        Self {
            pass_s: AtomicU32::new(pass_s),
            on: AtomicBool::new(pass_s > 0),
            signal: Signal::default(),
        }
    }
}

/// A pass under way.
#[derive(Default)]
struct ExpiryPass {
    /// The current vBucket.
    vb: u16,
    expired: u64,
}

impl<S: KvStore> Bucket<S> {
    /// Runs one pass over all active vBuckets, a bounded lock hold at a time. Returns the number of
    /// expired documents. Ends early when the workers are told to stop, and while checkpoints have
    /// no headroom for more changes; the next pass finds the rest.
    pub fn expiry_step(&self) -> u64 {
        let mut pass = ExpiryPass::default();
        while !self.continue_expiry(&mut pass) {}
        pass.expired
    }

    /// Runs a part of a pass. Returns whether it was the last one.
    fn continue_expiry(&self, pass: &mut ExpiryPass) -> bool {
        for _ in 0..HOLDS_PER_STEP {
            if pass.vb >= self.vbuckets() {
                Counters::add(&self.counters().expiry_passes, 1);
                return true;
            }
            if self.is_stopping() || !self.may_expire() {
                return true;
            }
            let now = self.clock.now();
            let vb = VbId(pass.vb);
            let progress = self.with_vbucket_for(Hold::Expire, vb, |vbucket| {
                self.may_change(vb, now)
                    .then(|| vbucket.expire_due(SLOTS_PER_HOLD, now))
            });
            let progress = progress.flatten();
            let changed = progress.map_or(0, |progress| progress.changed as u64);
            pass.expired += changed;
            Counters::add(&self.counters().expired, changed);
            if progress.is_none_or(|progress| progress.finished || progress.slots == 0) {
                pass.vb += 1;
            }
        }
        false
    }
}

/// The worker that runs expiry passes at their interval.
pub(super) struct Expirer<S> {
    bucket: Arc<Bucket<S>>,
    due_ns: u64,
    pass: Option<ExpiryPass>,
}

impl<S: KvStore> Expirer<S> {
    pub(super) fn new(bucket: Arc<Bucket<S>>) -> Self {
        Self {
            bucket,
            due_ns: u64::MAX,
            pass: None,
        }
    }
}

impl<S: KvStore> Worker for Expirer<S> {
    fn step(&mut self, now_ns: u64) -> Next {
        let bucket = &self.bucket;
        if bucket.is_stopping() {
            return Next::Done;
        }
        if now_ns >= self.due_ns && bucket.warmup().stage() == WarmupStage::Done {
            self.pass.get_or_insert_default();
        }
        if let Some(pass) = &mut self.pass {
            if !bucket.continue_expiry(pass) {
                return Next::Again;
            }
            let (bucket, expired) = (bucket.name(), pass.expired);
            tracing::debug!(bucket, expired, "looked for expired documents");
            self.pass = None;
        }
        // A changed interval begins here, too.
        let pause_ns = u64::from(bucket.expiry_pass_s()) * 1_000_000_000;
        if !bucket.expires() {
            self.due_ns = u64::MAX;
            return Next::OnSignal;
        }
        self.due_ns = now_ns + pause_ns;
        Next::At(self.due_ns)
    }
}
