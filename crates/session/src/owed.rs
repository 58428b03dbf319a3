//! Answers that are owed: durable writes that were prepared and are not decided yet.
//!
//! The request has left the input. If the peer accepts answers out of order, its next requests run meanwhile,
//! within limits. Otherwise the conversation waits until the answer is sent.

use std::sync::Arc;

use bucket::DurableWait;
use engine::Decision;
use model::Now;
use wire::{Header, Status};

/// Time after its deadline at which an undecided write is answered as ambiguous.
pub(crate) const GRACE_NS: u64 = 2_000_000_000;

/// A durable write that was prepared.
pub(crate) struct OwedAnswer {
    pub(crate) wait: Arc<DurableWait>,
    pub(crate) header: Header,
    /// Whether only a failure is answered.
    pub(crate) quiet: bool,
    /// Status of the answer if the write succeeds.
    pub(crate) status: Status,
    /// Value of the answer: the new number of a counter.
    pub(crate) value: Vec<u8>,
    /// Expiry of the document.
    pub(crate) expiry: u32,
    /// Time when the request was run, monotonic nanoseconds. The next field is its deadline.
    pub(crate) since_ns: u64,
    pub(crate) deadline_ns: u64,
    /// Audit event to record if the write succeeds.
    pub(crate) record: Vec<u8>,
}

impl OwedAnswer {
    /// Returns the decision, if there is one. Well after the deadline it is [`Decision::Ambiguous`].
    pub(crate) fn decision(&self, now: Now) -> Option<Decision> {
        let late = now.mono_ns >= self.deadline_ns.saturating_add(GRACE_NS);
        let decision = self.wait.decision();
        decision.or(late.then_some(Decision::Ambiguous))
    }
}
