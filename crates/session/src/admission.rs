//! Admission control: reserves quota for what a command writes or fetches, or parks the request.

use std::time::Duration;

use bucket::{Limit, Memory, MemoryRefusal};
use registry::ServedBucket;

use super::Refusal;
use crate::context::Context;
use crate::park::Park;

/// Interval at which a request without quota is tried again.
pub(super) const QUOTA_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// Time after a wait in vain within which the connection's next writes are refused without a wait:
/// where nothing can leave memory, the refusal comes at once.
const NO_WAIT_NS: u64 = 50_000_000;
/// The same while the store makes room all the time: those that came in behind it.
const NO_WAIT_STORING_NS: u64 = 10_000;

impl Context<'_> {
    /// Asks for memory for a write of `bytes`. See [`Memory::admit`].
    pub(crate) fn admit(&mut self, bucket: &ServedBucket, bytes: usize) -> Result<(), Refusal> {
        self.admit_or_wait(bucket, |memory| memory.admit(bytes))
    }

    /// The same for a deletion.
    pub(crate) fn admit_removal(&mut self, bucket: &ServedBucket) -> Result<(), Refusal> {
        self.admit_or_wait(bucket, Memory::admit_removal)
    }

    /// A write without quota waits a little before it is refused. Flusher and reliever need the processor
    /// time that immediate retries of peers would take: under overload more is written this way.
    fn admit_or_wait(
        &mut self,
        bucket: &ServedBucket,
        ask: impl Fn(&Memory) -> Result<(), MemoryRefusal>,
    ) -> Result<(), Refusal> {
        let Err(refusal) = bucket.bucket.look_for_room(&ask) else {
            self.session.write_backoff = bucket.bucket.write_rest();
            return Ok(());
        };
        let now_ns = self.now.mono_ns;
        let passes = refusal.limit != Limit::OneMutation;
        if passes && now_ns >= self.session.no_room_until_ns {
            let waits = &self.session.node.waits;
            let (longest, pause_ns) = if bucket.bucket.makes_room() {
                (waits.stored_room, NO_WAIT_STORING_NS)
            } else {
                (waits.room, NO_WAIT_NS)
            };
            if self.waited_for_room() < longest {
                return Err(Refusal::NoRoomYet);
            }
            self.session.no_room_until_ns = now_ns + pause_ns;
        }
        Ok(bucket.bucket.note_refusal(refusal)?)
    }

    /// Asks for memory for something that is to be read from the store. What was read before
    /// can always leave again, so this waits longer.
    pub(crate) fn admit_fetch(&mut self, bucket: &ServedBucket) -> Result<(), Refusal> {
        let Err(refusal) = bucket.bucket.look_for_room(Memory::admit_fetch) else {
            let longest = self.session.node.waits.relief;
            if bucket.bucket.reads_ahead_of_relief() && self.waited_for_room() < longest {
                return Err(Refusal::NoRoomYet);
            }
            return Ok(());
        };
        if self.waited_for_room() < self.session.node.waits.fetch_room {
            return Err(Refusal::NoRoomYet);
        }
        Ok(bucket.bucket.note_refusal(refusal)?)
    }

    /// How long the request has waited. A wait for room is not counted as a run: those are
    /// limited for requests that fetch.
    fn waited_for_room(&mut self) -> Duration {
        let now_ns = self.now.mono_ns;
        let park = Park {
            since_ns: now_ns,
            runs: 0,
        };
        let since_ns = self.session.park.get_or_insert(park).since_ns;
        Duration::from_nanos(now_ns.saturating_sub(since_ns))
    }
}
