//! Standing streams: they are requested until the producer grants them, and again after they ended.

use std::ops::Deref;
use std::time::Duration;

use model::VbId;
use wire::Frame;
use wire::dcp::StreamFlags;

use crate::intake::{Intake, IntakeError, Pushed, StreamAnswer};
use crate::passive::Violation;
use crate::target::Target;

/// Reason why a connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The producer broke the protocol.
    Violation(VbId, Violation),
    /// A vBucket could not apply a message.
    Stuck(VbId, String),
}

/// Settings of stream requests.
#[derive(Clone, Copy, Debug)]
pub struct StandingOptions {
    /// Flags of the requests.
    pub flags: StreamFlags,
    /// Interval before a stream that was refused or ended is requested again.
    pub retry: Duration,
    /// Interval before a vBucket that is no replica is checked again; `None` if [`StandingStreams::turn`] is called
    /// for each vBucket that becomes one.
    pub poll: Option<Duration>,
}

impl Default for StandingOptions {
    fn default() -> Self {
        let retry = Duration::from_secs(1);
        Self {
            flags: StreamFlags::default(),
            retry,
            poll: Some(retry),
        }
    }
}

/// One stream for each vBucket of a bucket that follows.
pub struct StandingStreams<T> {
    intake: Intake<T>,
    wishes: StandingOptions,
    /// For each vBucket, the earliest time of the next request if it has no stream.
    ask_from_ns: Vec<u64>,
    /// Earliest time at which any stream may have to be requested.
    next_ns: u64,
    now_ns: u64,
}

impl<T: Deref<Target: Target>> StandingStreams<T> {
    /// Creates it without streams.
    pub fn new(intake: Intake<T>, wishes: StandingOptions, now_ns: u64) -> Self {
        let vbuckets = usize::from(intake.target().vbuckets());
        Self {
            intake,
            wishes,
            ask_from_ns: vec![now_ns; vbuckets],
            next_ns: now_ns,
            now_ns,
        }
    }

    /// The intake that processes the messages.
    pub fn intake(&mut self) -> &mut Intake<T> {
        &mut self.intake
    }

    /// The target that the streams fill.
    pub fn target(&self) -> &T::Target {
        self.intake.target()
    }

    /// Sets the current time.
    pub fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Restarts the stream of a vBucket whose role or producer changed: closes it, and requests a new one at once if
    /// the vBucket is a replica.
    pub fn turn(&mut self, vb: VbId, out: &mut Vec<u8>) {
        if !self.intake.is_closed(vb) {
            self.intake.close_there(vb, out);
        }
        self.ask(vb, out);
    }

    /// Returns the time when [`Self::ask_due`] or [`Intake::acknowledge`] has something to do, if nothing happens
    /// before.
    pub fn due_ns(&self) -> u64 {
        self.next_ns.min(self.intake.due_ns(self.now_ns))
    }

    /// Requests the missing streams whose time has come.
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
            } else {
                self.ask(vb, out);
            }
        }
    }

    /// Requests a stream if the vBucket is a replica; it may become one later.
    fn ask(&mut self, vb: VbId, out: &mut Vec<u8>) {
        if !self.intake.ask(vb, self.wishes.flags, out) {
            self.retry_after(vb, self.wishes.poll);
        }
    }

    /// Schedules the next request for a missing stream after the retry interval.
    fn retry(&mut self, vb: VbId) {
        self.retry_after(vb, Some(self.wishes.retry));
    }

    /// Schedules the next request for a missing stream; `None` for no request before the next turn.
    fn retry_after(&mut self, vb: VbId, interval: Option<Duration>) {
        let interval_ns = interval.map_or(u64::MAX, |interval| interval.as_nanos() as u64);
        let from_ns = self.now_ns.saturating_add(interval_ns);
        self.next_ns = self.next_ns.min(from_ns);
        if let Some(ask_from_ns) = self.ask_from_ns.get_mut(usize::from(vb.0)) {
            *ask_from_ns = from_ns;
        }
    }

    /// Processes the answer to a stream request.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn answered(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Unusable> {
        match self.intake.answered(frame, out) {
            Ok(Some((vb, StreamAnswer::Refused(_)))) => self.retry(vb),
            Ok(_) => {}
            Err(wrong) => return self.on_error(wrong, out),
        }
        Ok(())
    }

    /// Processes a message of a stream.
    ///
    /// # Errors
    /// The connection must be closed.
    pub fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Unusable> {
        match self.intake.pushed(frame, out) {
            Ok(Pushed::Taken) => Ok(()),
            Ok(Pushed::Ended(vb)) => {
                self.retry(vb);
                Ok(())
            }
            Err(wrong) => self.on_error(wrong, out),
        }
    }

    /// Handles an error. A violation of the protocol costs the connection; an error of one vBucket costs only its
    /// stream.
    fn on_error(&mut self, error: IntakeError, out: &mut Vec<u8>) -> Result<(), Unusable> {
        let (vb, anew) = match error {
            // Messages that were under way when their stream was closed are ignored.
            IntakeError::NoStream(_) | IntakeError::OtherStream(_) => return Ok(()),
            IntakeError::Violation(vb, violation) => {
                return Err(Unusable::Violation(vb, violation));
            }
            IntakeError::Stuck(vb, reason) => return Err(Unusable::Stuck(vb, reason)),
            IntakeError::NotFollowing(vb) => (vb, false),
            IntakeError::Incomplete(vb) => (vb, true),
        };
        self.intake.close_there(vb, out);
        self.retry(vb);
        if anew && let Err(IntakeError::Stuck(vb, reason)) = self.intake.begin_anew(vb) {
            return Err(Unusable::Stuck(vb, reason));
        }
        Ok(())
    }
}
