//! Answers to durable writes, once they are decided, and to range scans, once they are open.
//!
//! The life of a durable write:
//! 1. `VBucket::write` queues a *prepare*: in the log, not in the table. Readers see the old document, other
//!    writers are refused.
//! 2. `engine::durability` knows the topology and the progress of each node: of this one by its flushes, of
//!    replicas by `seqno_acknowledged`.
//! 3. Once a majority has the prepare, the *commit* passes through the log into the table (on one node, in
//!    the same call). A prepare whose deadline has passed gets an *abort*.
//! 4. Meanwhile the session owes the answer ([`crate::owed`]). `Outbox::decided` finds it after the lock.
//! 5. A replica tracks the same prepares. So a node that becomes active, or starts again, decides the open ones.

use std::time::Duration;

use bucket::ScanId;
use engine::{Decision, Mutated};
use model::Now;
use registry::timings::CountedResult;
use wire::response::MutationToken;
use wire::{Feature, Frame, Opcode, RequestInfos, Status};

use crate::outcome::{CommandOutcome, Refusal};
use crate::owed::{GRACE_NS, OwedAnswer};
use crate::reply::Reply;
use crate::scanning::OpeningScan;
use crate::session::Session;
use crate::status;

/// Maximum number of answers owed to one peer; further requests wait in the input. It also bounds the time of
/// `settle`. It is far above what clients have under way, and costs a quarter of a MiB.
const OWED_MAX: usize = 1024;

/// Maximum number of range scans of one peer that are being opened.
const OPENING_MAX: usize = 64;

impl Session {
    /// Answers the writes that were decided. `false` if the peer cannot be told and the conversation must end.
    pub(super) fn settle(&mut self, now: Now, output: &mut Vec<u8>) -> bool {
        let mut all = std::mem::take(&mut self.owed);
        let mut goes_on = true;
        // One pass, however many writes were decided.
        for owed in all.extract_if(.., |owed| owed.decision(now).is_some()) {
            let decision = owed.decision(now).unwrap_or(Decision::Ambiguous);
            self.timings.record(
                owed.header.opcode.0,
                now.mono_ns.saturating_sub(owed.since_ns),
            );
            match decision {
                Decision::Committed(mutated) => {
                    self.audit_lines.record_owed(&owed.record);
                    self.answer_committed(&owed, &mutated, output);
                }
                Decision::Ambiguous => {
                    goes_on = self.answer_ambiguous(&owed, output);
                }
            }
            if !goes_on {
                break;
            }
        }
        self.owed = all;
        goes_on && self.answer_opened(now, output)
    }

    fn answer_committed(&self, owed: &OwedAnswer, mutated: &Mutated, output: &mut Vec<u8>) {
        let opcode = owed.header.opcode;
        self.timings
            .answered(opcode.0, CountedResult::of_done(opcode, !owed.quiet));
        if owed.quiet {
            return;
        }
        let token = MutationToken {
            uuid: mutated.vb_uuid,
            seqno: mutated.seqno,
        }
        .to_bytes();
        let reply = Reply {
            status: owed.status,
            cas: mutated.cas,
            extras: if self.has(Feature::MUTATION_SEQNO) {
                &token
            } else {
                &[]
            },
            value: &owed.value,
            expiry: owed.expiry,
            ..Reply::EMPTY
        };
        self.answer_to(&owed.header, &reply, owed.since_ns, output);
    }

    fn answer_ambiguous(&self, owed: &OwedAnswer, output: &mut Vec<u8>) -> bool {
        let status = Status::SYNC_WRITE_AMBIGUOUS;
        let counted = CountedResult::of(status, owed.header.cas);
        self.timings.answered(owed.header.opcode.0, counted);
        let context = "the write was not decided in time; it may or may not happen";
        if let Some(text) = &self.text {
            text.refuse(status, Some(context), output);
            return true;
        }
        let Some(shown) = status::for_peer(status, self.features, self.is_authenticated()) else {
            return false;
        };
        let body = self.error_body(Some(context), None);
        let reply = Reply::error(shown, &body);
        self.answer_to(&owed.header, &reply, owed.since_ns, output);
        true
    }

    /// Answers the open scans in the order of their requests, up to the first one that is not open. `false`
    /// if the conversation must end.
    fn answer_opened(&mut self, now: Now, output: &mut Vec<u8>) -> bool {
        while let Some(first) = self.opening.front() {
            let late = now.mono_ns >= first.until_ns();
            let opened = match first.opened() {
                Some(opened) => opened,
                None if late => Err(Refusal::not_now("the view is not open yet")),
                None => break,
            };
            let Some(mut first) = self.opening.pop_front() else {
                break;
            };
            let (header, since_ns) = (first.header, first.since_ns);
            self.timings
                .record(header.opcode.0, now.mono_ns.saturating_sub(since_ns));
            if let Err(why) = opened {
                let done = self.refuse(&Frame::bare(header), why, now, output);
                if done == CommandOutcome::Close {
                    return false;
                }
                continue;
            }
            first.is_answered = true;
            let ScanId(id) = first.scan.id();
            let answer = CountedResult::of_done(header.opcode, true);
            self.timings.answered(header.opcode.0, answer);
            self.answer_to(&header, &Reply::value(&id), since_ns, output);
        }
        true
    }

    /// Whether the request may run before the owed answers are sent.
    pub(super) fn may_overtake(&self, frame: &Frame<'_>) -> bool {
        let opcode = frame.header.opcode;
        let scans = self.opening.len();
        if scans > 0 && (opcode != Opcode::RANGE_SCAN_CREATE || scans >= OPENING_MAX) {
            return false;
        }
        if self.owed.is_empty() {
            // Scans are answered in the order of their requests.
            return true;
        }
        let reorders = opcode.info().is_some_and(|info| info.reorder);
        let barrier = RequestInfos::parse(frame.frame_infos).is_ok_and(|infos| infos.barrier);
        self.has(Feature::UNORDERED_EXECUTION) && self.owed.len() < OWED_MAX && reorders && !barrier
    }

    /// Returns the longest wait for the first owed answer.
    pub(super) fn owed_limit(&self, now: Now) -> Duration {
        let writes = self.owed.iter().map(|owed| owed.deadline_ns);
        let writes = writes.map(|deadline_ns| deadline_ns.saturating_add(GRACE_NS));
        let scan = self.opening.front().map(OpeningScan::until_ns);
        let until = writes.chain(scan).min().unwrap_or(now.mono_ns);
        // Never zero: a deadline that has passed is handled in the next turn.
        Duration::from_nanos(until.saturating_sub(now.mono_ns).max(1_000_000))
    }
}
