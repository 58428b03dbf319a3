//! Writing documents.

use std::fmt;

use super::{EXTRAS, Message, OTHER_COMMAND};
use crate::bytes::Reader;
use crate::{Frame, Malformed, Opcode};

/// What must be true of a document before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreMode {
    /// Nothing.
    Set,
    /// It must not be there.
    Add,
    /// It must be there.
    Replace,
}

/// SET, ADD, REPLACE and their quiet forms.
///
/// [`Frame::key_and_value`] has both parts in one piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// Condition of the write.
    pub mode: StoreMode,
    /// Whether success is not answered.
    pub quiet: bool,
    /// Key of the document.
    pub key: &'a [u8],
    /// Its new value.
    pub value: &'a [u8],
    /// Flags to store.
    pub flags: u32,
    /// Expiry, as sent.
    pub expiry: u32,
}

impl fmt::Debug for Store<'_> {
    /// Everything but the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("mode", &self.mode)
            .field("quiet", &self.quiet)
            .field("key", &String::from_utf8_lossy(self.key))
            .field("flags", &self.flags)
            .field("expiry", &self.expiry)
            .field("value_bytes", &self.value.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Message<'a> for Store<'a> {
    fn opcode(&self) -> Opcode {
        match (self.mode, self.quiet) {
            (StoreMode::Set, false) => Opcode::SET,
            (StoreMode::Set, true) => Opcode::SETQ,
            (StoreMode::Add, false) => Opcode::ADD,
            (StoreMode::Add, true) => Opcode::ADDQ,
            (StoreMode::Replace, false) => Opcode::REPLACE,
            (StoreMode::Replace, true) => Opcode::REPLACEQ,
        }
    }

    #[inline]
    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let (mode, quiet) = match frame.header.opcode {
            Opcode::SET => (StoreMode::Set, false),
            Opcode::SETQ => (StoreMode::Set, true),
            Opcode::ADD => (StoreMode::Add, false),
            Opcode::ADDQ => (StoreMode::Add, true),
            Opcode::REPLACE => (StoreMode::Replace, false),
            Opcode::REPLACEQ => (StoreMode::Replace, true),
            _ => return Err(OTHER_COMMAND),
        };
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            mode,
            quiet,
            key: frame.key,
            value: frame.value,
            flags: extras.u32().ok_or(EXTRAS)?,
            expiry: extras.u32().ok_or(EXTRAS)?,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.expiry.to_be_bytes());
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}

/// DELETE, DELETEQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// Whether success is not answered.
    pub quiet: bool,
}

impl<'a> Message<'a> for Delete<'a> {
    fn opcode(&self) -> Opcode {
        if self.quiet {
            Opcode::DELETEQ
        } else {
            Opcode::DELETE
        }
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let quiet = match frame.header.opcode {
            Opcode::DELETE => false,
            Opcode::DELETEQ => true,
            _ => return Err(OTHER_COMMAND),
        };
        Ok(Self {
            key: frame.key,
            quiet,
        })
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

/// Which way to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Up.
    Increment,
    /// Down.
    Decrement,
}

/// INCREMENT, DECREMENT and their quiet forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic<'a> {
    /// Which way to count.
    pub direction: Direction,
    /// Whether success is not answered.
    pub quiet: bool,
    /// Key of the document.
    pub key: &'a [u8],
    /// How far to count.
    pub delta: u64,
    /// What to start with when the document is not there.
    pub initial: u64,
    /// Expiry of a document that is created, as sent; [`Arithmetic::DO_NOT_CREATE`].
    pub expiry: u32,
}

impl Arithmetic<'_> {
    /// The expiry with which a document that is not there is not created.
    pub const DO_NOT_CREATE: u32 = 0xffff_ffff;
}

impl<'a> Message<'a> for Arithmetic<'a> {
    fn opcode(&self) -> Opcode {
        match (self.direction, self.quiet) {
            (Direction::Increment, false) => Opcode::INCREMENT,
            (Direction::Increment, true) => Opcode::INCREMENTQ,
            (Direction::Decrement, false) => Opcode::DECREMENT,
            (Direction::Decrement, true) => Opcode::DECREMENTQ,
        }
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let (direction, quiet) = match frame.header.opcode {
            Opcode::INCREMENT => (Direction::Increment, false),
            Opcode::INCREMENTQ => (Direction::Increment, true),
            Opcode::DECREMENT => (Direction::Decrement, false),
            Opcode::DECREMENTQ => (Direction::Decrement, true),
            _ => return Err(OTHER_COMMAND),
        };
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            direction,
            quiet,
            key: frame.key,
            delta: extras.u64().ok_or(EXTRAS)?,
            initial: extras.u64().ok_or(EXTRAS)?,
            expiry: extras.u32().ok_or(EXTRAS)?,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.delta.to_be_bytes());
        out.extend_from_slice(&self.initial.to_be_bytes());
        out.extend_from_slice(&self.expiry.to_be_bytes());
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

/// At which end bytes are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConcatMode {
    /// Behind the value.
    Append,
    /// In front of it.
    Prepend,
}

/// APPEND, PREPEND and their quiet forms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Concat<'a> {
    /// At which end.
    pub mode: ConcatMode,
    /// Whether success is not answered.
    pub quiet: bool,
    /// Key of the document.
    pub key: &'a [u8],
    /// Bytes to add.
    pub value: &'a [u8],
}

impl fmt::Debug for Concat<'_> {
    /// Everything but the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concat")
            .field("mode", &self.mode)
            .field("quiet", &self.quiet)
            .field("key", &String::from_utf8_lossy(self.key))
            .field("value_bytes", &self.value.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Message<'a> for Concat<'a> {
    fn opcode(&self) -> Opcode {
        match (self.mode, self.quiet) {
            (ConcatMode::Append, false) => Opcode::APPEND,
            (ConcatMode::Append, true) => Opcode::APPENDQ,
            (ConcatMode::Prepend, false) => Opcode::PREPEND,
            (ConcatMode::Prepend, true) => Opcode::PREPENDQ,
        }
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let (mode, quiet) = match frame.header.opcode {
            Opcode::APPEND => (ConcatMode::Append, false),
            Opcode::APPENDQ => (ConcatMode::Append, true),
            Opcode::PREPEND => (ConcatMode::Prepend, false),
            Opcode::PREPENDQ => (ConcatMode::Prepend, true),
            _ => return Err(OTHER_COMMAND),
        };
        Ok(Self {
            mode,
            quiet,
            key: frame.key,
            value: frame.value,
        })
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}
