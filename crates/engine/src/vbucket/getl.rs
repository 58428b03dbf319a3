//! Get-and-lock.

use model::{Cas, Now};

use super::VBucket;
use crate::error::OpError;
use crate::locks::Lock;
use crate::types::{GetResult, Outcome};

impl VBucket {
    /// Reads a document and locks it. Until the lock ends, writers must show the returned CAS, and
    /// all other clients see [`Cas::LOCKED`]. If `seconds` is 0 or above the limit, the default
    /// applies. Locks are only in memory, and end when the vBucket stops being active.
    ///
    /// # Errors
    /// `KeyNotFound`; `Locked` if it is locked; `SyncWriteInProgress`,
    /// `SyncWriteReCommitInProgress`; `NotMyVbucket`, `WouldBlockPending`.
    pub fn get_locked(
        &mut self,
        key: &[u8],
        seconds: u32,
        now: Now,
    ) -> Result<Outcome<GetResult>, OpError> {
        self.check_key(key)?;
        let place = seek!(self, key);
        self.check_undecided(place, key)?;
        let document = self.live_or_expire(place, now)?;
        if self.locks.cas_of(place.hash, key, now).is_some() {
            return Err(OpError::Locked);
        }
        if !document.is_resident() {
            return Ok(self.needs_fetch(&document));
        }
        let seconds = if (1..=self.config.getl_max_s).contains(&seconds) {
            seconds
        } else {
            self.config.getl_default_s
        };
        let duration_ns = u64::from(seconds) * 1_000_000_000;
        let cas = self.hlc.next(now);
        let lock = Lock {
            hash: place.hash,
            key: key.into(),
            cas,
            until_mono_ns: now.mono_ns.saturating_add(duration_ns),
        };
        self.locks.insert(lock, now);
        self.counters.ops_get += 1;
        Ok(Outcome::Done(GetResult { document, cas }))
    }

    /// Ends a lock. `cas` is the one that [`VBucket::get_locked`] returned.
    ///
    /// # Errors
    /// `KeyNotFound`; `NotLocked`; `Locked` if the CAS differs; `NotMyVbucket`,
    /// `WouldBlockPending`.
    pub fn unlock(&mut self, key: &[u8], cas: Cas, now: Now) -> Result<Outcome<()>, OpError> {
        self.check_key(key)?;
        let place = seek!(self, key, metadata);
        if self.live(place, now).is_none() {
            return Err(OpError::KeyNotFound);
        }
        match self.locks.cas_of(place.hash, key, now) {
            None => Err(OpError::NotLocked),
            Some(lock) if lock == cas => {
                self.locks.remove(place.hash, key);
                Ok(Outcome::Done(()))
            }
            Some(_) => Err(OpError::Locked),
        }
    }
}
