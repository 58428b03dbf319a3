//! Settings that can be changed while a bucket runs. They do not outlive the process.

use std::sync::atomic::Ordering;

use storage::KvStore;

use crate::Bucket;
use crate::backfill::BACKFILL_BYTES_MIN;
use crate::memory::Limits;

impl<S: KvStore> Bucket<S> {
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
