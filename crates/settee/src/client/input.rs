//! Frames out of what a connection brings.

use std::io::{self, Read};
use std::ops::Range;

use wire::{Decoded, Frame, FrameError, Limits};

/// Longest answer that is read: well above the largest document.
pub(crate) const ANSWER_LIMITS: Limits = Limits {
    body_bytes_max: 128 * 1024 * 1024,
};

/// How many bytes are asked of the socket at once.
const READ_BYTES: usize = 256 * 1024;

/// Bytes that were read, of which a part was taken.
///
/// Cost: of what was read only the beginning of a frame that is not whole is moved, once a read.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    unread: Range<usize>,
}

impl Input {
    /// Takes the next frame; `None` if it is not whole.
    ///
    /// # Errors
    /// What comes is no frame.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        match wire::decode(&self.bytes[self.unread.clone()], ANSWER_LIMITS)? {
            Decoded::Incomplete { .. } => Ok(None),
            Decoded::Frame { frame, consumed } => {
                self.unread.start += consumed;
                Ok(Some(frame))
            }
        }
    }

    /// Reads what there is.
    ///
    /// # Errors
    /// The connection broke, or was closed.
    pub(crate) fn fill(&mut self, from: &mut impl Read) -> io::Result<()> {
        self.bytes.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let room = self.unread.end + READ_BYTES;
        if self.bytes.len() < room {
            self.bytes.resize(room, 0);
        }
        match from.read(&mut self.bytes[self.unread.end..])? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed it",
            )),
            read => {
                self.unread.end += read;
                Ok(())
            }
        }
    }
}
