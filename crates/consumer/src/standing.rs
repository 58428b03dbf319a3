//! The streams of a connection that are asked for until they are there, and again when they ended.

use std::ops::Deref;
use std::time::Duration;

use model::VbId;
use wire::Frame;
use wire::dcp::StreamFlags;

use crate::intake::{Answered, Intake, IntakeError, Pushed};
use crate::passive::Violation;
use crate::target::Target;

/// Why the connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The producer broke the protocol.
    Violation(VbId, Violation),
    /// A vBucket here could not follow.
    Stuck(VbId, String),
}

/// A stream of each vBucket of a bucket that follows.
pub struct StandingStreams<T> {
    intake: Intake<T>,
    flags: StreamFlags,
    retry_ns: u64,
    /// When to ask for the stream of each vBucket that has none.
    ask_from_ns: Vec<u64>,
    /// Some stream may have to be asked for at this time.
    next_ns: u64,
    now_ns: u64,
}

impl<T: Deref<Target: Target>> StandingStreams<T> {
    /// None is there. One that was refused or ended is asked for again after `retry`.
    pub fn new(intake: Intake<T>, flags: StreamFlags, retry: Duration, now_ns: u64) -> Self {
        let vbuckets = usize::from(intake.target().vbuckets());
        Self {
            intake,
            flags,
            retry_ns: retry.as_nanos() as u64,
            ask_from_ns: vec![now_ns; vbuckets],
            next_ns: now_ns,
            now_ns,
        }
    }

    /// What takes their messages.
    pub fn intake(&mut self) -> &mut Intake<T> {
        &mut self.intake
    }

    /// What they fill.
    pub fn target(&self) -> &T::Target {
        self.intake.target()
    }

    /// Notes the time.
    pub fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// A vBucket follows otherwise from now on, or not at all: its stream ends, and another one is asked for at once if
    /// it follows.
    pub fn turn(&mut self, vb: VbId, out: &mut Vec<u8>) {
        if !self.intake.is_closed(vb) {
            self.intake.close_there(vb, out);
        }
        self.next_ns = self.now_ns;
        if let Some(ask_from_ns) = self.ask_from_ns.get_mut(usize::from(vb.0)) {
            *ask_from_ns = self.now_ns;
        }
    }

    /// Asks for streams that are not there, where it is time to.
    pub fn ask_due(&mut self, out: &mut Vec<u8>) {
        if self.now_ns < self.next_ns {
            return;
        }
        self.next_ns = u64::MAX;
        for index in 0..self.ask_from_ns.len() {
            let (vb, from_ns) = (VbId(index as u16), self.ask_from_ns[index]);
            if !self.intake.is_closed(vb) {
                continue;
            }
            if from_ns > self.now_ns {
                self.next_ns = self.next_ns.min(from_ns);
            } else if !self.intake.ask(vb, self.flags, out) {
                // It may become a replica again.
                self.rest(vb);
            }
        }
    }

    /// The stream is not there for now.
    fn rest(&mut self, vb: VbId) {
        let from_ns = self.now_ns.saturating_add(self.retry_ns);
        self.next_ns = self.next_ns.min(from_ns);
        if let Some(ask_from_ns) = self.ask_from_ns.get_mut(usize::from(vb.0)) {
            *ask_from_ns = from_ns;
        }
    }

    /// Takes the answer to the question for a stream.
    ///
    /// # Errors
    /// The connection is to be closed.
    pub fn answered(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Unusable> {
        match self.intake.answered(frame, out) {
            Ok(Some((vb, Answered::Refused(_)))) => self.rest(vb),
            Ok(_) => {}
            Err(wrong) => return self.wrong(wrong, out),
        }
        Ok(())
    }

    /// Takes a message of a stream.
    ///
    /// # Errors
    /// The connection is to be closed.
    pub fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Unusable> {
        match self.intake.pushed(frame, out) {
            Ok(Pushed::Taken) => Ok(()),
            Ok(Pushed::Ended(vb)) => {
                self.rest(vb);
                Ok(())
            }
            Err(wrong) => self.wrong(wrong, out),
        }
    }

    /// A producer that breaks the rules is left; what concerns one vBucket costs its stream only.
    fn wrong(&mut self, wrong: IntakeError, out: &mut Vec<u8>) -> Result<(), Unusable> {
        let (vb, anew) = match wrong {
            // What was under way when a stream was closed is of no use any more.
            IntakeError::NoStream(_) | IntakeError::OtherStream(_) => return Ok(()),
            IntakeError::Violation(vb, violation) => {
                return Err(Unusable::Violation(vb, violation));
            }
            IntakeError::Stuck(vb, reason) => return Err(Unusable::Stuck(vb, reason)),
            IntakeError::NotFollowing(vb) => (vb, false),
            IntakeError::Incomplete(vb) => (vb, true),
        };
        self.intake.close_there(vb, out);
        self.rest(vb);
        if anew && let Err(IntakeError::Stuck(vb, reason)) = self.intake.begin_anew(vb) {
            return Err(Unusable::Stuck(vb, reason));
        }
        Ok(())
    }
}
