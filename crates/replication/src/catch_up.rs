//! Catch-up before a promotion: a replica fetches the changes that another node of its group has and it has not,
//! for every vBucket. Bytes in, bytes out; no socket, no clock.
//!
//! A write is acknowledged as soon as a majority has it, which may not include this node. Replicas of one active
//! node share its failover logs, so each can stream its changes to the others. A catch-up never rolls back: where
//! the histories differ, local data stays.

use std::sync::Arc;

use consumer::{Intake, IntakeError, Pushed, StreamAnswer, Target};
use model::VbId;
use registry::Progress;
use wire::dcp::StreamFlags;
use wire::{Frame, Opcode, Status};

use super::broken::Broken;
use super::dialogue::{Dialogue, Opening};
use super::setup::Introduction;

/// A connection to another node of the group.
pub(super) struct CatchUp<'a, T> {
    opening: Opening<'a>,
    intake: Intake<&'a T>,
    /// Number of requested streams that have not ended.
    left: usize,
    /// Number of vBuckets that the other node could not stream.
    refused: usize,
}

impl<'a, T: Target> CatchUp<'a, T> {
    /// Starts the conversation.
    pub(super) fn new(
        target: &'a T,
        about: &'a Introduction,
        progress: Arc<Progress>,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<Self, Broken> {
        let mut intake = Intake::new(target, progress, about.wishes.window_bytes, now_ns);
        intake.never_go_back();
        Ok(Self {
            opening: Opening::begin(about, out)?,
            intake,
            left: 0,
            refused: 0,
        })
    }

    /// Whether all streams ended or were refused.
    pub(super) fn is_done(&self) -> bool {
        self.opening.is_done() && self.left == 0
    }

    /// Number of vBuckets that the other node could not stream.
    pub(super) fn refused(&self) -> usize {
        self.refused
    }

    /// Processes every whole frame at the start of `input`; returns the number of bytes consumed.
    ///
    /// # Errors
    /// The connection must be closed. Messages processed so far stay applied.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        let done = self.frames(input, out)?;
        self.intake.acknowledge(now_ns, out);
        Ok(done)
    }

    fn on_error(&mut self, error: IntakeError, out: &mut Vec<u8>) -> Result<(), Broken> {
        match error {
            IntakeError::NoStream(_) | IntakeError::OtherStream(_) => Ok(()),
            IntakeError::Violation(vb, violation) => Err(Broken::Violation(Some(vb), violation)),
            IntakeError::Stuck(vb, reason) => Err(Broken::Stuck(vb, reason)),
            IntakeError::NotFollowing(vb) | IntakeError::Incomplete(vb) => {
                self.intake.close_there(vb, out);
                self.refused += 1;
                self.left = self.left.saturating_sub(1);
                Ok(())
            }
        }
    }
}

impl<T: Target> Dialogue for CatchUp<'_, T> {
    fn answer(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        if !self.opening.is_done() {
            self.opening.answered(frame)?;
            if !self.opening.is_done() {
                return self.opening.ask(out);
            }
            self.intake.agree_on_sync_writes(self.opening.sync_writes());
            for vb in (0..self.intake.target().vbuckets()).map(VbId) {
                let asked = self.intake.ask(vb, StreamFlags::TO_LATEST, out);
                self.left += usize::from(asked);
            }
            return Ok(());
        }
        if frame.header.opcode != Opcode::DCP_STREAM_REQ {
            return Ok(());
        }
        match self.intake.answered(frame, out) {
            Ok(Some((_, StreamAnswer::Refused(status)))) => {
                // The request starts beyond the other node's last seqno: there is nothing to fetch.
                self.refused += usize::from(status != Status::ERANGE);
                self.left = self.left.saturating_sub(1);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(wrong) => self.on_error(wrong, out),
        }
    }

    fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        match self.intake.pushed(frame, out) {
            Ok(Pushed::Taken) => Ok(()),
            Ok(Pushed::Ended(_)) => {
                self.left = self.left.saturating_sub(1);
                Ok(())
            }
            Err(wrong) => self.on_error(wrong, out),
        }
    }
}
