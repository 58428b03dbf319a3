//! Memory for requests: it is reserved in the bucket's admission control, or the request is parked.

use std::time::Duration;

use bucket::{Purpose, Reservation, SMALL_BYTES, TransitBytes};
use model::Now;
use registry::ServedBucket;

use crate::context::Context;
use crate::outcome::Refusal;
use crate::park::Park;
use crate::session::Session;

impl Session {
    /// Reserves memory in the selected bucket, or of the node if no bucket is selected.
    pub fn reserve(&self, purpose: Purpose, bytes: usize, waited: Duration) -> Reservation {
        match &self.bucket {
            Some(served) => served.bucket.reserve(purpose, bytes, waited),
            None => self.node.buffers.reserve(purpose, bytes, waited),
        }
    }

    /// Returns the time after which to ask again, while streams wait: for memory for their messages, or for the newest
    /// users, as requests do.
    pub fn streams_wait(&self) -> Option<Duration> {
        let for_memory = || match self.reserve(Purpose::Stream, 0, Duration::ZERO) {
            Reservation::Granted => None,
            Reservation::Wait { retry, .. } => Some(retry),
            Reservation::Refused { pause, .. } => Some(pause),
        };
        self.users_wait().or_else(for_memory)
    }

    /// Returns the time after which to ask again, while the peer waits for the newest users: its own rights may have
    /// changed. Other nodes do not wait once they are logged in.
    pub(crate) fn users_wait(&self) -> Option<Duration> {
        let wait = self.node.users_wait()?;
        (!self.is_of_a_node()).then_some(wait)
    }

    /// Notes the back-off after a write that has its memory.
    pub(crate) fn note_granted_write(&mut self) {
        let served = self.bucket.as_ref();
        self.write_backoff = served.and_then(|served| served.bucket.write_backoff());
    }

    /// Reserves memory for the request at the front of the input. The request is parked while it waits. A
    /// wait does not count as a run: the limit of runs is for requests that fetch.
    pub(crate) fn admit(
        &mut self,
        purpose: Purpose,
        bytes: usize,
        now: Now,
    ) -> Result<(), Refusal> {
        let writes = matches!(purpose, Purpose::Write | Purpose::Removal);
        let pauses = now.mono_ns < self.no_wait_until_ns;
        let waited = match &self.park {
            Some(park) if !park.fetches.is_empty() && writes => return Ok(()),
            _ if pauses && writes => Duration::MAX,
            Some(park) => Duration::from_nanos(now.mono_ns.saturating_sub(park.since_ns)),
            None => Duration::ZERO,
        };
        match self.reserve(purpose, bytes, waited) {
            Reservation::Granted => {
                if writes {
                    self.note_granted_write();
                }
                Ok(())
            }
            Reservation::Wait { retry, .. } => {
                self.park.get_or_insert(Park::since(now.mono_ns));
                Err(Refusal::NoMemoryYet(retry))
            }
            Reservation::Refused { shortage, pause } => {
                if !pauses {
                    let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
                    self.no_wait_until_ns = now.mono_ns.saturating_add(pause_ns);
                }
                Err(shortage.into())
            }
        }
    }
}

impl Context<'_> {
    /// Reserves memory for the command.
    pub(crate) fn admit(&mut self, purpose: Purpose, bytes: usize) -> Result<(), Refusal> {
        self.session.admit(purpose, bytes, self.now)
    }

    /// Reserves memory for a write of `stored` bytes that needs `bytes` more while it runs. Examples: the old value
    /// next to the new one, the plain form of a compressed one. Many such bytes count at once, so that concurrent
    /// requests do not get the same quota.
    pub(crate) fn admit_with_transient(
        &mut self,
        served: &ServedBucket,
        stored: usize,
        bytes: usize,
    ) -> Result<Option<TransitBytes>, Refusal> {
        self.admit(Purpose::Write, stored + bytes)?;
        Ok((bytes > SMALL_BYTES).then(|| served.bucket.hold_transit(bytes)))
    }
}
