//! Memory for requests: it is reserved in the bucket's admission control, or the request is parked.

use std::sync::Arc;
use std::time::Duration;

use bucket::{Purpose, Reservation, SMALL_BYTES};
use model::Now;
use registry::ServedBucket;

use crate::context::Context;
use crate::outcome::Refusal;
use crate::park::Park;
use crate::session::Session;

/// Bytes that a request needs only while it runs. Examples: the old value next to the new one, the plain form
/// of a compressed one. They count as memory of connections until this value is dropped.
pub(crate) struct TransientBytes(Option<(Arc<ServedBucket>, usize)>);

impl Drop for TransientBytes {
    fn drop(&mut self) {
        if let Some((served, bytes)) = self.0.take() {
            served.bucket.change_transit(bytes, 0);
        }
    }
}

impl Session {
    /// Reserves memory in the selected bucket, or of the node if no bucket is selected.
    pub fn reserve(&self, purpose: Purpose, bytes: usize, waited: Duration) -> Reservation {
        match &self.bucket {
            Some(served) => served.bucket.reserve(purpose, bytes, waited),
            None => self.node.buffers.reserve(purpose, bytes, waited),
        }
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
        let waited = match self.park {
            Some(park) if park.fetches && writes => return Ok(()),
            _ if pauses && writes => Duration::MAX,
            Some(park) => Duration::from_nanos(now.mono_ns.saturating_sub(park.since_ns)),
            None => Duration::ZERO,
        };
        match self.reserve(purpose, bytes, waited) {
            Reservation::Granted => {
                if writes {
                    let served = self.bucket.as_ref();
                    self.write_backoff = served.and_then(|served| served.bucket.write_backoff());
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

    /// Reserves memory for a write of `stored` bytes that needs `bytes` more while it runs. Many such bytes
    /// count at once, so that concurrent requests do not get the same quota.
    pub(crate) fn admit_with_transient(
        &mut self,
        served: &Arc<ServedBucket>,
        stored: usize,
        bytes: usize,
    ) -> Result<TransientBytes, Refusal> {
        self.admit(Purpose::Write, stored + bytes)?;
        if bytes <= SMALL_BYTES {
            return Ok(TransientBytes(None));
        }
        served.bucket.change_transit(0, bytes);
        Ok(TransientBytes(Some((Arc::clone(served), bytes))))
    }
}
