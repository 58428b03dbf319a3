//! Back-pressure: large answers are deferred while the total of buffered output exceeds its limit.
//!
//! The size of an answer is not known before it is made. So a command that may have a large answer
//! reads the document's size first. Without congestion this costs one comparison in each turn.

use std::time::Duration;

use bucket::Eviction;
use engine::Outcome;
use model::{Datatype, Now, VbId};
use registry::{Buffers, SMALL_BYTES, ServedBucket};
use wire::{Frame, Magic, Opcode, Status};

use super::Refusal;
use crate::commands::find;
use crate::key::StoredKey;
use crate::outcome::CommandOutcome;
use crate::park::Park;
use crate::session::Session;

/// Interval at which a deferred request is tried again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// How much all connections hold, against the limit of [`Buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    None,
    /// Large answers are deferred.
    High,
    /// All answers are deferred.
    Full,
}

impl Congestion {
    pub(super) fn of(buffers: &Buffers, bucket: Option<&ServedBucket>) -> Self {
        if !buffers.is_crowded() {
            match bucket {
                Some(served) if served.bucket.memory().is_transit_crowded() => Self::High,
                _ => Self::None,
            }
        } else if buffers.is_full() {
            Self::Full
        } else {
            Self::High
        }
    }
}

impl Session {
    /// [`Session::execute`] under congestion: a large answer is deferred.
    pub(super) fn execute_under_congestion(
        &mut self,
        frame: &Frame<'_>,
        now: Now,
        output: &mut Vec<u8>,
    ) -> CommandOutcome {
        match self.must_defer(frame, now) {
            Ok(false) => self.execute(frame, now, output),
            Ok(true) => CommandOutcome::Parked(RETRY_INTERVAL),
            Err(refusal) => self.refuse(frame, refusal, now, output),
        }
    }

    /// Whether the bucket has room for `bytes` of a document more, or will not have it however long
    /// one waits.
    pub fn bucket_has_room(&self, bytes: usize) -> bool {
        let Some(served) = &self.bucket else {
            return true;
        };
        let bucket = &served.bucket;
        let bytes = in_memory(bytes);
        let never = bucket.options().eviction == Eviction::None
            || bytes as u64 > bucket.memory().low_mark();
        never || bucket.has_room_for(bytes)
    }

    /// What is said to a request that would bring `bytes` of a document, and waited for room long enough.
    pub fn no_room_for(&self, bytes: usize) -> Refusal {
        if let Some(served) = &self.bucket
            && let Err(refusal) = served.bucket.admit(in_memory(bytes))
        {
            return refusal.into();
        }
        let context = "others have waited longer for room for large requests";
        Refusal::because(Status::ETMPFAIL, context)
    }

    /// Refuses the request whose beginning `input` is, before the rest of it is read; `false` if that
    /// cannot be done here.
    pub fn refuse_unread(&mut self, input: &[u8], why: Refusal, output: &mut Vec<u8>) -> bool {
        let Some(frame) = Frame::of_header(input) else {
            return false;
        };
        let asks = matches!(
            frame.header.magic,
            Magic::ClientRequest | Magic::AltClientRequest
        );
        if !asks || self.is_dcp() || self.owes() {
            return false;
        }
        let now = self.node.clock.now();
        self.refuse(&frame, why, now, output);
        true
    }

    /// Whether the request has to wait before it is run; an error once it has waited enough.
    pub(super) fn must_defer(&mut self, frame: &Frame<'_>, now: Now) -> Result<bool, Refusal> {
        if !self.is_authenticated() || !self.has_large_response(frame, now) {
            return Ok(false);
        }
        let since_ns = now.mono_ns;
        let park = self.park.get_or_insert(Park { since_ns, runs: 0 });
        let waited = Duration::from_nanos(now.mono_ns.saturating_sub(park.since_ns));
        if waited < self.node.waits.answer_room {
            return Ok(true);
        }
        let context = "connections hold too many answers that are not read";
        Err(Refusal::because(Status::ETMPFAIL, context))
    }

    /// Whether the answer may hold a large part of a document.
    fn has_large_response(&self, frame: &Frame<'_>, now: Now) -> bool {
        let replica = frame.header.opcode == Opcode::GET_REPLICA;
        let sends = find(frame.header.opcode).is_some_and(|row| row.sends_documents);
        if !sends {
            return false;
        }
        let Some(served) = &self.bucket else {
            return false;
        };
        let collections = self.has(wire::Feature::COLLECTIONS);
        let Ok((_, key)) = StoredKey::of(frame.key, collections) else {
            return false;
        };
        let vb = if self.classic {
            VbId::of_key(key.user_key(), served.bucket.vbuckets())
        } else {
            frame.vbucket()
        };
        let found = served.bucket.read(vb, |vbucket| {
            if replica {
                vbucket.get_replica_or_tombstone(key.bytes(), now)
            } else {
                vbucket.get_or_tombstone(key.bytes(), now)
            }
        });
        // What is to be fetched is looked at once it was.
        let Ok(Outcome::Done(got)) = found else {
            return false;
        };
        let value = got.document.value();
        let compressed = got.document.datatype().contains(Datatype::SNAPPY);
        let inflated = if compressed {
            value::inflated_bytes(value)
        } else {
            0
        };
        value.len().max(inflated) > SMALL_BYTES
    }
}

/// What is read is copied once more, into the document.
fn in_memory(bytes: usize) -> usize {
    bytes.saturating_mul(2)
}
