//! What a replica fetches from another node of its group before it becomes active: every vBucket
//! from where it stands here to where it stands there. Bytes in, bytes out; no socket, no clock.
//!
//! A write is acknowledged as soon as a majority has it, which need not be this node. Replicas of
//! one active node share its histories, so each can stream to the others what they miss. Nothing is
//! ever rolled back for it: where the histories differ, what is here stays.

use std::sync::Arc;

use model::VbId;
use wire::dcp::StreamFlags;
use wire::{Decoded, Frame, Limits, Magic, Opcode, Response, Status, decode};

use super::consumer::Broken;
use super::intake::{Answered, Intake, Pushed, Wrong};
use super::passive::Violation;
use super::progress::Progress;
use super::setup::{Introduction, Setup};
use super::target::Target;

/// A connection to another node of the group.
pub(super) struct CatchUp<'a, T> {
    about: &'a Introduction,
    setup: Setup,
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
        let mut catch_up = Self {
            about,
            setup: Setup::new(about),
            intake,
            left: 0,
            refused: 0,
        };
        catch_up.ask_setup(out)?;
        Ok(catch_up)
    }

    /// Whether everything came that can be had.
    pub(super) fn is_done(&self) -> bool {
        self.setup.is_done() && self.left == 0
    }

    /// vBuckets that could not be had.
    pub(super) fn refused(&self) -> usize {
        self.refused
    }

    fn ask_setup(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        let asked = self.setup.ask(self.about, out);
        asked.map_err(|error| Broken::Refused(error.to_string()))
    }

    /// Takes every whole frame at the start of `input`; gives how many bytes are done with.
    ///
    /// # Errors
    /// The connection is to be closed; what was taken before stays.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        let mut done = 0;
        loop {
            match decode(&input[done..], Limits::AUTHENTICATED) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    done += consumed;
                    self.frame(&frame, out)?;
                }
                Ok(Decoded::Incomplete { .. }) => break,
                Err(error) => return Err(Broken::Refused(error.to_string())),
            }
        }
        self.intake.acknowledge(now_ns, out);
        Ok(done)
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        match frame.header.magic {
            Magic::ClientResponse | Magic::AltClientResponse => self.answer(frame, out),
            Magic::ClientRequest | Magic::AltClientRequest => self.pushed(frame, out),
            Magic::ServerRequest => Ok(()),
            Magic::ServerResponse => Err(Broken::Violation(None, Violation::Unexpected)),
        }
    }

    fn answer(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        let (opcode, opaque) = (frame.header.opcode, frame.header.opaque);
        if !self.setup.is_done() {
            if !self.setup.expects(opcode, opaque) {
                return Err(Broken::Violation(None, Violation::Unexpected));
            }
            let answered = self.setup.answered(frame.status(), frame.value);
            answered.map_err(Broken::Refused)?;
            if !self.setup.is_done() {
                return self.ask_setup(out);
            }
            self.intake.agree_on_sync_writes(self.setup.sync_writes());
            for vb in (0..self.intake.target().vbuckets()).map(VbId) {
                let asked = self.intake.ask(vb, StreamFlags::TO_LATEST, out);
                self.left += usize::from(asked);
            }
            return Ok(());
        }
        if opcode != Opcode::DCP_STREAM_REQ {
            return Ok(());
        }
        match self.intake.answered(frame, out) {
            Ok(Some((_, Answered::Refused(status)))) => {
                // Who asks for more than is there has it all.
                self.refused += usize::from(status != Status::ERANGE);
                self.left = self.left.saturating_sub(1);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(wrong) => self.wrong(wrong, out),
        }
    }

    fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        let opcode = frame.header.opcode;
        if opcode == Opcode::DCP_NOOP {
            Response::new(opcode, frame.header.opaque, Status::SUCCESS).encode(out);
            return Ok(());
        }
        match self.intake.pushed(frame, out) {
            Ok(Pushed::Taken) => Ok(()),
            Ok(Pushed::Ended(_)) => {
                self.left = self.left.saturating_sub(1);
                Ok(())
            }
            Err(wrong) => self.wrong(wrong, out),
        }
    }

    fn wrong(&mut self, wrong: Wrong, out: &mut Vec<u8>) -> Result<(), Broken> {
        match wrong {
            Wrong::NoStream(_) | Wrong::OtherStream(_) => Ok(()),
            Wrong::Violation(vb, violation) => Err(Broken::Violation(Some(vb), violation)),
            Wrong::Stuck(vb, reason) => Err(Broken::Stuck(vb, reason)),
            Wrong::NotFollowing(vb) | Wrong::Incomplete(vb) => {
                self.intake.close_there(vb, out);
                self.refused += 1;
                self.left = self.left.saturating_sub(1);
                Ok(())
            }
        }
    }
}
