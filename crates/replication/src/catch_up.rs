//! What a replica fetches from another node of its group before it becomes active: every vBucket
//! from where it stands here to where it stands there. Bytes in, bytes out; no socket, no clock.
//!
//! A write is acknowledged as soon as a majority has it, which need not be this node. Replicas of
//! one active node share its histories, so each can stream to the others what they miss. Nothing is
//! ever rolled back for it: where the histories differ, what is here stays.

use std::sync::Arc;

use consumer::{Answered, Intake, IntakeError, Pushed, Target};
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
    /// Streams that were asked for and have not ended.
    left: usize,
    /// vBuckets that could not be fetched from there.
    refused: usize,
}

impl<'a, T: Target> CatchUp<'a, T> {
    /// Begins the conversation.
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

    /// Whether everything came that can be had.
    pub(super) fn is_done(&self) -> bool {
        self.opening.is_done() && self.left == 0
    }

    /// vBuckets that could not be had.
    pub(super) fn refused(&self) -> usize {
        self.refused
    }

    /// Takes every whole frame at the start of `input`; returns the number of bytes consumed.
    ///
    /// # Errors
    /// The connection is to be closed; what was taken before stays.
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

    fn wrong(&mut self, wrong: IntakeError, out: &mut Vec<u8>) -> Result<(), Broken> {
        match wrong {
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
            Ok(Some((_, Answered::Refused(status)))) => {
                // A request beyond the end is complete.
                self.refused += usize::from(status != Status::ERANGE);
                self.left = self.left.saturating_sub(1);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(wrong) => self.wrong(wrong, out),
        }
    }

    fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        match self.intake.pushed(frame, out) {
            Ok(Pushed::Taken) => Ok(()),
            Ok(Pushed::Ended(_)) => {
                self.left = self.left.saturating_sub(1);
                Ok(())
            }
            Err(wrong) => self.wrong(wrong, out),
        }
    }
}
