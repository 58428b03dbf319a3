//! Positions of entries in a log.

use std::io;

/// Position of an entry's body in its log.
///
/// Layout: the offset in the upper 38 bits, the length in the lower 26.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPlace(u64);

impl LogPlace {
    const LENGTH_BITS: u32 = 26;

    /// Returns the place of `length` bytes at `offset`.
    ///
    /// # Errors
    /// The offset or the length is too large.
    pub(super) fn at(offset: u64, length: usize) -> io::Result<Self> {
        let fits = offset >> (64 - Self::LENGTH_BITS) == 0 && length >> Self::LENGTH_BITS == 0;
        if !fits {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a log is full"));
        }
        Ok(Self(offset << Self::LENGTH_BITS | length as u64))
    }

    pub(crate) fn offset(self) -> u64 {
        self.0 >> Self::LENGTH_BITS
    }

    pub(crate) fn length(self) -> usize {
        (self.0 & ((1 << Self::LENGTH_BITS) - 1)) as usize
    }
}
