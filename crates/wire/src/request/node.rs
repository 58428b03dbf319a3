//! Statistics, logging and farewell.

use super::{EXTRAS, Message, OTHER_COMMAND};
use crate::bytes::Reader;
use crate::{Frame, Malformed, Opcode};

/// STAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Name of the group with its argument, separated by a space; empty for the default group.
    pub group: &'a [u8],
    /// Arguments as JSON; mostly empty.
    pub arguments: &'a [u8],
}

impl<'a> Message<'a> for Stat<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::STAT
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::STAT => Ok(Self {
                group: frame.key,
                arguments: frame.value,
            }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn key(&self) -> &[u8] {
        self.group
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.arguments);
    }
}

/// GET_CMD_TIMER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetCmdTimer<'a> {
    /// The opcode whose times are asked for.
    pub timed: Opcode,
    /// Name of a bucket, empty for the selected one, `/all/` for all together.
    pub bucket: &'a [u8],
}

impl<'a> Message<'a> for GetCmdTimer<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::GET_CMD_TIMER
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::GET_CMD_TIMER {
            return Err(OTHER_COMMAND);
        }
        let timed = Opcode(Reader::new(frame.extras).u8().ok_or(EXTRAS)?);
        Ok(Self {
            timed,
            bucket: frame.key,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.push(self.timed.0);
    }

    fn key(&self) -> &[u8] {
        self.bucket
    }
}

/// VERBOSITY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verbosity {
    /// How much is to be logged.
    pub level: u32,
}

impl Message<'_> for Verbosity {
    fn opcode(&self) -> Opcode {
        Opcode::VERBOSITY
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::VERBOSITY {
            return Err(OTHER_COMMAND);
        }
        Ok(Self {
            level: Reader::new(frame.extras).u32().ok_or(EXTRAS)?,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.level.to_be_bytes());
    }
}

/// QUIT, QUITQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quit {
    /// Whether the connection ends without an answer.
    pub quiet: bool,
}

impl Message<'_> for Quit {
    fn opcode(&self) -> Opcode {
        if self.quiet {
            Opcode::QUITQ
        } else {
            Opcode::QUIT
        }
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::QUIT => Ok(Self { quiet: false }),
            Opcode::QUITQ => Ok(Self { quiet: true }),
            _ => Err(OTHER_COMMAND),
        }
    }
}
