//! Back-pressure: large answers are deferred while the total of buffered output exceeds its limit.
//!
//! The size of an answer is unknown until it is made. So, for a command that may have a large answer, the
//! session reads the document's size first. Without congestion this costs one comparison per turn.

use bucket::{Purpose, SMALL_BYTES};
use engine::Outcome;
use model::{Cas, Datatype, Now, VbId};
use wire::{Frame, Magic, Opcode, RawParts};

use super::Refusal;
use crate::commands::{Sends, find};
use crate::key::StoredKey;
use crate::outcome::CommandOutcome;
use crate::session::Session;

impl Session {
    /// Whether connections hold too much memory, in total or in the selected bucket.
    pub(super) fn is_congested(&self) -> bool {
        let memory = self.bucket.as_ref().map(|served| served.bucket.memory());
        self.node.buffers.is_congested(memory)
    }

    /// Runs a frame like [`Session::execute`], but defers a large answer.
    pub(super) fn execute_under_congestion(
        &mut self,
        frame: &Frame<'_>,
        now: Now,
        output: &mut Vec<u8>,
    ) -> CommandOutcome {
        let is_known = self.park.as_ref().is_some_and(|park| park.is_large);
        if !self.is_authenticated() || !is_known && !self.has_large_response(frame, now) {
            return self.execute(frame, now, output);
        }
        match self.admit(Purpose::LargeAnswer, 0, now) {
            Ok(()) => self.execute(frame, now, output),
            Err(Refusal::NoMemoryYet(retry)) => {
                if let Some(park) = &mut self.park {
                    park.is_large = true;
                }
                CommandOutcome::Parked(retry)
            }
            Err(refusal) => self.refuse(frame, refusal, now, output),
        }
    }

    /// Whether the request at the start of `input` can be refused before the rest of it is read.
    pub fn can_refuse_unread(&self, input: &[u8]) -> bool {
        if self.text.is_some() {
            // In text, only the value of a storage command is large.
            return !self.owes();
        }
        Frame::of_header(input).is_some_and(|frame| {
            let client = [Magic::ClientRequest, Magic::AltClientRequest];
            client.contains(&frame.header.magic) && !self.is_dcp() && !self.owes()
        })
    }

    /// Refuses a request that is not read completely.
    pub fn refuse_unread(&mut self, input: &[u8], why: Refusal, output: &mut Vec<u8>) {
        let storage = || Frame::request(Opcode::SET, Cas(0), RawParts::default());
        let frame = match &self.text {
            Some(_) => Some(storage()),
            None => Frame::of_header(input),
        };
        if let Some(frame) = frame {
            let now = self.node.clock.now();
            self.refuse(&frame, why, now, output);
        }
    }

    /// Whether the answer may hold a large part of a document.
    fn has_large_response(&self, frame: &Frame<'_>, now: Now) -> bool {
        let sends = find(frame.header.opcode).map_or(Sends::Nothing, |row| row.sends);
        if sends == Sends::Nothing {
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
        // A fetched value is restored here: an answer may have to wait for what others hold.
        let found = self.read((served, vb), now, |vbucket| {
            if sends == Sends::ReplicaDocument {
                vbucket.get_replica(key.bytes(), true, now)
            } else {
                vbucket.get_or_tombstone(key.bytes(), now)
            }
        });
        // A value that must be fetched is checked after the fetch, when this runs again.
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
