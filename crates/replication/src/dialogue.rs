//! The common parts of conversations with another node: the loop over frames, and the introduction.

use consumer::Violation;
use wire::{Decoded, Frame, Limits, Magic, Opcode, Response, Status, decode};

use super::broken::Broken;
use super::setup::{Introduction, Setup};

/// A conversation with another node; it processes one frame after the other.
pub(super) trait Dialogue {
    /// Processes an answer.
    fn answer(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken>;

    /// Processes a message of a stream.
    fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken>;

    /// Notes that the map or the users of the other node changed.
    fn notified(&mut self) {}

    /// Processes every whole frame at the start of `input`; returns the number of bytes consumed.
    ///
    /// # Errors
    /// The connection must be closed. Messages processed so far stay applied.
    fn frames(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        let mut done = 0;
        loop {
            match decode(&input[done..], Limits::AUTHENTICATED) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    done += consumed;
                    self.frame(&frame, out)?;
                }
                Ok(Decoded::Incomplete { .. }) => return Ok(done),
                Err(error) => return Err(Broken::Refused(error.to_string())),
            }
        }
    }

    /// Processes one frame.
    fn frame(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        match frame.header.magic {
            Magic::ClientResponse | Magic::AltClientResponse => self.answer(frame, out),
            Magic::ClientRequest | Magic::AltClientRequest
                if frame.header.opcode == Opcode::DCP_NOOP =>
            {
                let opaque = frame.header.opaque;
                Response::new(Opcode::DCP_NOOP, opaque, Status::SUCCESS).encode(out);
                Ok(())
            }
            Magic::ClientRequest | Magic::AltClientRequest => self.pushed(frame, out),
            Magic::ServerRequest => {
                self.notified();
                Ok(())
            }
            Magic::ServerResponse => Err(Broken::Violation(None, Violation::Unexpected)),
        }
    }
}

/// The introduction, step by step.
pub(super) struct Opening<'a> {
    about: &'a Introduction,
    setup: Setup,
}

impl<'a> Opening<'a> {
    /// Sends the first request.
    pub(super) fn begin(about: &'a Introduction, out: &mut Vec<u8>) -> Result<Self, Broken> {
        let setup = Setup::new(about);
        let mut opening = Self { about, setup };
        opening.ask(out)?;
        Ok(opening)
    }

    pub(super) fn about(&self) -> &'a Introduction {
        self.about
    }

    pub(super) fn is_done(&self) -> bool {
        self.setup.is_done()
    }

    /// Whether the other node sends prepares.
    pub(super) fn sync_writes(&self) -> bool {
        self.setup.sync_writes()
    }

    /// Sends the next request.
    pub(super) fn ask(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        let asked = self.setup.ask(self.about, out);
        asked.map_err(|error| Broken::Refused(error.to_string()))
    }

    /// Processes the answer to the last request; returns the text about other nodes if there is one.
    pub(super) fn answered<'f>(&mut self, frame: &Frame<'f>) -> Result<Option<&'f [u8]>, Broken> {
        let (opcode, opaque) = (frame.header.opcode, frame.header.opaque);
        if !self.setup.expects(opcode, opaque) {
            return Err(Broken::Violation(None, Violation::Unexpected));
        }
        let taken = self.setup.answered(frame.status(), frame.value);
        taken.map_err(Broken::Refused)
    }
}
