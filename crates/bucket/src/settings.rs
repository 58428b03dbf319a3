//! Settings that can be changed while a bucket runs. The caller saves them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::VbConfig;
use model::{CompressionMode, VbId};
use storage::KvStore;

use crate::Bucket;
use crate::backfill::BACKFILL_BYTES_MIN;
use crate::memory::{Eviction, Limits};

impl<S: KvStore> Bucket<S> {
    /// Returns the current settings of every vBucket.
    pub fn vb_config(&self) -> Arc<VbConfig> {
        Arc::clone(&self.vb_config.read())
    }

    /// Changes settings of every vBucket; when this returns, they apply everywhere. Settings that
    /// [`VBucket::set_config`](engine::VBucket::set_config) does not change stay the same.
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
            // Read under the lock: after two concurrent changes, every vBucket has the later one.
            self.with_vbucket(id, |vbucket| vbucket.set_config(self.vb_config()));
        }
    }

    /// Returns the eviction policy.
    pub fn eviction(&self) -> Eviction {
        self.relieving.eviction()
    }

    /// Changes the eviction policy. Evicted keys stay out of memory until they are requested.
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

    /// Changes the quota and its shares, either completely or not at all. If that leaves too little
    /// memory, the reliever is called before this returns.
    ///
    /// # Errors
    /// Those of `change`, and contradictory limits: one line for the client.
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

    /// Returns the compression mode of values.
    #[inline]
    pub fn compression(&self) -> CompressionMode {
        CompressionMode::of_number(self.compression.load(Ordering::Relaxed))
    }

    /// Whether values that arrive compressed are stored and sent compressed.
    #[inline]
    pub fn keeps_compressed(&self) -> bool {
        self.compression() != CompressionMode::Off
    }

    /// Changes the compression mode. Stored values stay as they are.
    pub fn set_compression(&self, mode: CompressionMode) {
        self.compression.store(mode as u8, Ordering::Relaxed);
    }

    /// Returns the age at which tombstones are purged, in seconds.
    pub fn purge_age_s(&self) -> u64 {
        self.compactions.purge_age_s.load(Ordering::Relaxed)
    }

    /// Changes the age at which tombstones are purged.
    pub fn set_purge_age_s(&self, seconds: u64) {
        self.compactions
            .purge_age_s
            .store(seconds, Ordering::Relaxed);
        self.compactions.signal.ring();
    }

    /// Switches persistence on, or off until the next call or until the bucket stops.
    pub fn set_persists(&self, persists: bool) {
        self.flushes.paused.store(!persists, Ordering::SeqCst);
        self.flushes.dirty.signal.ring();
    }

    /// Returns the maximum bytes of read documents that the backfills of one connection may hold.
    pub fn backfill_bytes_max(&self) -> usize {
        self.memory.backfill_account().each_max()
    }

    /// Sets that maximum, within [`BACKFILL_BYTES_MIN`] and 1 GiB; bytes already held stay.
    pub fn set_backfill_bytes_max(&self, bytes: usize) {
        let bytes = bytes.clamp(BACKFILL_BYTES_MIN, 1 << 30);
        self.memory.backfill_account().set_each_max(bytes);
        self.backfills.signal.ring();
    }

    /// Returns the maximum number of concurrent backfills of one connection.
    pub fn backfills_at_once(&self) -> usize {
        self.memory.backfill_account().at_once()
    }

    /// Sets that maximum; at least one.
    pub fn set_backfills_at_once(&self, count: usize) {
        self.memory.backfill_account().set_at_once(count.max(1));
        self.backfills.signal.ring();
    }

    /// Returns the interval between two expiry passes in seconds; 0 for no passes.
    pub fn expiry_pass_s(&self) -> u32 {
        self.expiry.pass_s.load(Ordering::Relaxed)
    }

    /// Whether expiry passes run.
    pub fn expires(&self) -> bool {
        self.expiry.on.load(Ordering::Relaxed) && self.expiry_pass_s() > 0
    }

    /// Sets the interval between two passes; the next pass comes one interval after this call.
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
