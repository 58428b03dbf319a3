//! Receive buffer of a connection: it takes bytes and returns frames.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

use wire::{Decoded, Frame, FrameError, Limits};

/// Limits of an answer: well above the largest document.
pub const ANSWER_LIMITS: Limits = Limits {
    body_bytes_max: 128 * 1024 * 1024,
};

/// Result of a search at the beginning of the unread bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A whole item, with its length in bytes.
    Whole(T, usize),
    /// An incomplete item, with the least number of bytes that it lacks.
    Missing(usize),
}

/// Buffer of received bytes. It grows to the longest frame.
///
/// Cost: unread bytes are moved to the front when less than half of the buffer is free behind them.
#[derive(Debug)]
pub struct Input {
    bytes: Vec<u8>,
    unread: Range<usize>,
    /// Bytes that the first unread frame lacks; the least number if its length is unknown.
    missing: usize,
}

impl Input {
    /// Creates an empty buffer of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes: vec![0; bytes],
            unread: 0..0,
            missing: 0,
        }
    }

    /// Returns the number of bytes that were read and not taken yet.
    pub fn unread_bytes(&self) -> usize {
        self.unread.len()
    }

    /// Takes the next frame; `None` if it is not whole.
    ///
    /// # Errors
    /// The bytes are no frame.
    #[expect(
        clippy::should_implement_trait,
        reason = "a frame borrows from the buffer, which no iterator allows"
    )]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        match wire::decode(&self.bytes[self.unread.clone()], ANSWER_LIMITS)? {
            Decoded::Incomplete { more } => {
                self.missing = more;
                Ok(None)
            }
            Decoded::Frame { frame, consumed } => {
                self.unread.start += consumed;
                Ok(Some(frame))
            }
        }
    }

    /// Takes the item that `find` finds at the beginning; `None` if it is not whole.
    ///
    /// # Errors
    /// The error of `find`.
    pub fn next_by<T, E>(
        &mut self,
        find: impl FnOnce(&[u8]) -> Result<Parsed<T>, E>,
    ) -> Result<Option<T>, E> {
        match find(&self.bytes[self.unread.clone()])? {
            Parsed::Missing(more) => {
                self.missing = more;
                Ok(None)
            }
            Parsed::Whole(value, consumed) => {
                self.unread.start += consumed;
                Ok(Some(value))
            }
        }
    }

    /// Reads once. Returns whether the buffer was filled, so that there may be more to read.
    ///
    /// # Errors
    /// The error of the read; `UnexpectedEof` if the peer closed the connection.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<bool> {
        self.make_room();
        let free = &mut self.bytes[self.unread.end..];
        let wanted = free.len();
        let read = match from.read(free) {
            // Over TLS, the text of the error is an address of documentation.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
            read => read?,
        };
        if read == 0 {
            let (kind, reason) = (ErrorKind::UnexpectedEof, "the server closed it");
            return Err(io::Error::new(kind, reason));
        }
        self.unread.end += read;
        Ok(read == wanted)
    }

    /// Reads once from a non-blocking socket: as [`Input::fill`], but `false` if there is nothing to read, `true` if
    /// the read was interrupted.
    ///
    /// # Errors
    /// As [`Input::fill`].
    pub fn fill_ready(&mut self, from: &mut impl Read) -> io::Result<bool> {
        match self.fill(from) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            filled => filled,
        }
    }

    /// Makes room for the missing bytes of the first frame, and for frames behind it.
    fn make_room(&mut self) {
        if self.unread.is_empty() {
            self.unread = 0..0;
        }
        let missing = self.missing.max(1);
        if self.bytes.len() - self.unread.end >= missing.max(self.bytes.len() / 2) {
            return;
        }
        self.bytes.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        let needed = self.unread.end + missing;
        if self.bytes.len() < needed {
            self.bytes.resize(needed.next_power_of_two(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 16_384;

    #[test]
    fn input_grows_and_keeps_unread_bytes() {
        let mut source: &[u8] = &(0..=255).cycle().take(50_000).collect::<Vec<u8>>();
        let expected = source.to_vec();
        let mut input = Input::new(BYTES);
        assert!(input.fill(&mut source).unwrap(), "there may be more");
        assert_eq!(input.bytes[input.unread.clone()], expected[..BYTES]);
        input.unread.start += 10_000;
        input.missing = 40_000 - input.unread_bytes();
        while input.unread_bytes() < 40_000 {
            input.fill(&mut source).unwrap();
        }
        assert_eq!(input.bytes[input.unread.clone()], expected[10_000..]);
        input.unread.start += 40_000;
        let closed = input.fill(&mut source).unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::UnexpectedEof);
        let broken = input.fill(&mut Broken).unwrap_err();
        assert_eq!(broken.to_string(), closed.to_string());
    }

    /// Input that ends as one over TLS does whose peer was killed.
    struct Broken;

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::new(ErrorKind::UnexpectedEof, "an address"))
        }
    }

    #[test]
    fn a_full_buffer_always_gets_room() {
        let mut input = Input::new(BYTES);
        let mut endless = io::repeat(7);
        for _ in 0..5 {
            input.fill(&mut endless).unwrap();
        }
        assert!(input.unread_bytes() > BYTES);
    }
}
