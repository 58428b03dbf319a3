//! What the conversations with another node share: its frames one by one, and the introduction.

use consumer::Violation;
use wire::{Decoded, Frame, Limits, Magic, Opcode, Response, Status, decode};

use super::broken::Broken;
use super::setup::{Introduction, Setup};

/// A conversation, by what it makes of each frame.
pub(super) trait Dialogue {
    /// Takes an answer.
    fn answer(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken>;

    /// Takes a message of a stream.
    fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken>;

    /// The map of the other node changed, or its users.
    fn notified(&mut self) {}

    /// Takes every whole frame at the start of `input`; returns the number of bytes consumed.
    ///
    /// # Errors
    /// The connection is to be closed; what was taken before stays.
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

    /// Takes one frame.
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
    /// Says the first thing.
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

    /// Says the next thing.
    pub(super) fn ask(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        let asked = self.setup.ask(self.about, out);
        asked.map_err(|error| Broken::Refused(error.to_string()))
    }

    /// Takes the answer to what was said last; returns what it tells of other nodes.
    pub(super) fn answered<'f>(&mut self, frame: &Frame<'f>) -> Result<Option<&'f [u8]>, Broken> {
        let (opcode, opaque) = (frame.header.opcode, frame.header.opaque);
        if !self.setup.expects(opcode, opaque) {
            return Err(Broken::Violation(None, Violation::Unexpected));
        }
        let told = self.setup.answered(frame.status(), frame.value);
        told.map_err(Broken::Refused)
    }
}
