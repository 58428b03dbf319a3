//! Answers that are owed: durable writes that were prepared and wait to be decided.
//!
//! The request is done with and out of the input. A peer that takes answers out of order goes on
//! meanwhile, within limits; for others the conversation stands still until the answer is sent.

use std::sync::Arc;

use bucket::DurableWait;
use engine::Decision;
use model::Now;
use wire::{Header, Status};

/// Time after its deadline at which an undecided write is answered as ambiguous.
pub(crate) const GRACE_NS: u64 = 2_000_000_000;

/// A durable write that was prepared.
pub(crate) struct Owed {
    pub(crate) wait: Arc<DurableWait>,
    pub(crate) header: Header,
    /// Whether only a failure is answered.
    pub(crate) quiet: bool,
    /// What it is answered with if it is done.
    pub(crate) status: Status,
    /// The value of the answer: what a counter has come to.
    pub(crate) value: Vec<u8>,
    /// When the document expires.
    pub(crate) expiry: u32,
    /// When the request was run, and when it is given up; monotonic.
    pub(crate) since_ns: u64,
    pub(crate) deadline_ns: u64,
    /// What is recorded of it if it is done.
    pub(crate) record: Vec<u8>,
}

impl Owed {
    /// How it ended, once it has; also when its time is long over.
    pub(crate) fn decision(&self, now: Now) -> Option<Decision> {
        let late = now.mono_ns >= self.deadline_ns.saturating_add(GRACE_NS);
        let decision = self.wait.decision();
        decision.or(late.then_some(Decision::Ambiguous))
    }
}
