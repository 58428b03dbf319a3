//! Writes, plain and durable.

use std::time::Duration;

use engine::{CounterResult, Mutated, OpError, Outcome, Requirement, VBucket};
use model::VbId;
use registry::ServedBucket;
use wire::response::{MutationToken, counter_value};
use wire::{Feature, Frame, Status};

use crate::context::Context;
use crate::outcome::{CommandOutcome, CommandResult};
use crate::owed::OwedAnswer;
use crate::reply::Reply;

/// Result of a write.
pub(super) trait Written: Copy {
    /// Returns the mutation: seqno, CAS and UUID of the vBucket.
    fn mutated(&self) -> Mutated;

    /// Returns the status of the answer.
    fn status(&self) -> Status {
        Status::SUCCESS
    }

    /// Returns the expiry of the document, for answers that carry it.
    fn expiry(&self) -> u32 {
        0
    }

    /// Appends the value of the answer.
    fn append_value(&self, _out: &mut Vec<u8>) {}
}

impl Written for Mutated {
    fn mutated(&self) -> Mutated {
        *self
    }
}

impl Written for CounterResult {
    fn mutated(&self) -> Mutated {
        self.mutated
    }

    fn expiry(&self) -> u32 {
        self.expiry
    }

    fn append_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&counter_value(self.number));
    }
}

impl Context<'_> {
    /// Returns the durability that the request asks for.
    pub(super) fn requirement(&self, bucket: &ServedBucket) -> Option<Requirement> {
        Some(Requirement {
            level: self.infos.durability?.level,
            deadline_ns: self.deadline_ns(bucket),
        })
    }

    /// Returns the deadline of a durable write.
    fn deadline_ns(&self, bucket: &ServedBucket) -> u64 {
        let asked = self.infos.durability.and_then(|asked| asked.timeout_ms);
        let default = bucket.bucket.options().vb.durability_timeout_ms;
        let timeout = Duration::from_millis(asked.map_or(default, u64::from));
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.now.mono_ns.saturating_add(timeout_ns)
    }

    /// Runs a write and answers it. The answer is owed if the write must be decided first.
    pub(super) fn write<T: Written>(
        &mut self,
        frame: &Frame<'_>,
        bucket: &ServedBucket,
        vb: VbId,
        write: impl FnOnce(&mut VBucket) -> Result<Outcome<T>, OpError>,
    ) -> CommandResult {
        let session = &*self.session;
        let mut wait = None;
        let outcome = self.run(bucket, vb, |vbucket| {
            let outcome = write(vbucket)?;
            if let Outcome::Prepared(written) = &outcome {
                let seqno = written.mutated().seqno;
                wait = Some(bucket.bucket.await_decision(vb, seqno, session.waker()));
            }
            Ok(outcome)
        })?;
        let written = self.settle_write(bucket, vb, outcome)?;
        let mut value = Vec::new();
        written.append_value(&mut value);
        if let Some(wait) = wait {
            let deadline_ns = self.deadline_ns(bucket);
            self.session.owed.push(OwedAnswer {
                wait,
                header: frame.header,
                quiet: self.quiet,
                status: written.status(),
                value,
                expiry: written.expiry(),
                since_ns: self.now.mono_ns,
                deadline_ns,
                record: Vec::new(),
            });
            return Ok(CommandOutcome::Owed);
        }
        Ok(self.reply_written(frame, &written, &value))
    }

    /// Answers a write with its CAS, and with its mutation token if the peer negotiated that.
    fn reply_written(
        &mut self,
        frame: &Frame<'_>,
        written: &impl Written,
        value: &[u8],
    ) -> CommandOutcome {
        let mutated = written.mutated();
        let token = MutationToken {
            uuid: mutated.vb_uuid,
            seqno: mutated.seqno,
        }
        .to_bytes();
        let wanted = self.session.has(Feature::MUTATION_SEQNO);
        let reply = Reply {
            status: written.status(),
            cas: mutated.cas,
            extras: if wanted { &token } else { &[] },
            value,
            expiry: written.expiry(),
            ..Reply::EMPTY
        };
        self.reply(frame, &reply)
    }
}
