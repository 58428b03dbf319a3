//! Settings that can be changed while a bucket runs. To keep them is the caller's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::VbConfig;
use model::{CompressionMode, VbId};
use storage::KvStore;

use crate::Bucket;
use crate::backfill::BACKFILL_BYTES_MIN;
use crate::memory::{Eviction, Limits};

impl<S: KvStore> Bucket<S> {
    /// The settings of every vBucket in force.
    pub fn vb_config(&self) -> Arc<VbConfig> {
        Arc::clone(&self.vb_config.read())
    }

    /// Changes settings of every vBucket; when this returns, each obeys them. What
    /// [`VBucket::set_config`](engine::VBucket::set_config) leaves alone stays as it is.
    ///
    /// Cost: a lock hold for each vBucket, if there is a change.
    pub fn change_vb_config(&self, change: impl FnOnce(&mut VbConfig)) {
        {
            let mut current = self.vb_config.write();
            let mut next = VbConfig::clone(&current);
            change(&mut next);
            if next == **current {
                return;
            }
            *current = Arc::new(next);
        }
        for id in (0..self.vbuckets()).map(VbId) {
            // Read under the lock: of two changes at once, the later one stays everywhere.
            self.with_vbucket(id, |vbucket| vbucket.set_config(self.vb_config()));
        }
    }

    /// How it frees memory for what is new.
    pub fn eviction(&self) -> Eviction {
        self.relieving.eviction()
    }

    /// Frees memory in another way from now on. Keys that have left memory stay away until they are
    /// asked for.
    ///
    /// Cost: a lock hold for each vBucket, if there is a change.
    pub fn set_eviction(&self, eviction: Eviction) {
        if self.eviction() == eviction {
            return;
        }
        self.relieving.set_eviction(eviction);
        for id in (0..self.vbuckets()).map(VbId) {
            self.with_vbucket(id, |vbucket| {
                vbucket.set_evicts_keys(self.eviction() == Eviction::Documents);
            });
        }
        if self.memory.is_pressed() {
            self.relieve();
        }
    }

    /// Changes the quota and its shares, all or nothing of what `change` does. If that leaves
    /// too little memory, the reliever is at work when this returns.
    ///
    /// # Errors
    /// Those of `change`, and limits that contradict each other: one line for the client.
    pub fn change_limits(
        &self,
        change: impl FnOnce(&mut Limits) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        self.memory.change_limits(change)?;
        if self.memory.is_pressed() {
            self.relieve();
        }
        Ok(())
    }

    /// What it does about the compression of values.
    #[inline]
    pub fn compression(&self) -> CompressionMode {
        CompressionMode::of_number(self.compression.load(Ordering::Relaxed))
    }

    /// Whether values that come compressed are kept so, and sent so.
    #[inline]
    pub fn keeps_compressed(&self) -> bool {
        self.compression() != CompressionMode::Off
    }

    /// Does something else about it from now on. Values that are stored already stay as they are.
    pub fn set_compression(&self, mode: CompressionMode) {
        self.compression.store(mode as u8, Ordering::Relaxed);
    }

    /// Age at which tombstones are purged, seconds.
    pub fn purge_age_s(&self) -> u64 {
        self.compactions.purge_age_s.load(Ordering::Relaxed)
    }

    /// Purges them at another age from now on.
    pub fn set_purge_age_s(&self, seconds: u64) {
        self.compactions
            .purge_age_s
            .store(seconds, Ordering::Relaxed);
        self.compactions.signal.ring();
    }

    /// Makes changes durable, or begins no commit until this is called again or the bucket stops.
    pub fn set_persists(&self, persists: bool) {
        self.flushes.paused.store(!persists, Ordering::SeqCst);
        self.flushes.dirty.signal.ring();
    }

    /// Bytes of read documents that the streams of one connection may hold.
    pub fn backfill_bytes_max(&self) -> usize {
        self.memory.backfill_account().each_max()
    }

    /// Sets them, within [`BACKFILL_BYTES_MIN`] and 1 GiB; what is held already stays.
    pub fn set_backfill_bytes_max(&self, bytes: usize) {
        let bytes = bytes.clamp(BACKFILL_BYTES_MIN, 1 << 30);
        self.memory.backfill_account().set_each_max(bytes);
        self.backfills.signal.ring();
    }

    /// How many backfills of one connection read at the same time.
    pub fn backfills_at_once(&self) -> usize {
        self.memory.backfill_account().at_once()
    }

    /// Sets that number; at least one.
    pub fn set_backfills_at_once(&self, count: usize) {
        self.memory.backfill_account().set_at_once(count.max(1));
        self.backfills.signal.ring();
    }

    /// Seconds between two passes that look for expired documents; 0 for none.
    pub fn expiry_pass_s(&self) -> u32 {
        self.expiry.pass_s.load(Ordering::Relaxed)
    }

    /// Whether there are such passes.
    pub fn expires(&self) -> bool {
        self.expiry.on.load(Ordering::Relaxed) && self.expiry_pass_s() > 0
    }

    /// Sets the time between two passes; the next one comes this long after now.
    pub fn set_expiry_pass_s(&self, seconds: u32) {
        self.expiry.pass_s.store(seconds, Ordering::Relaxed);
        self.expiry.signal.ring();
    }

    /// Switches the passes on or off.
    pub fn set_expires(&self, expires: bool) {
        self.expiry.on.store(expires, Ordering::Relaxed);
        self.expiry.signal.ring();
    }
}
