//! Where values lie in a journal, and reading them back.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fjall::Slice;

/// Where a value lies in the journal.
///
/// Shape: the offset in the upper 38 bits, the length in the lower 26. Never zero: a header comes
/// before every value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValuePosition(NonZeroU64);

impl ValuePosition {
    const LENGTH_BITS: u32 = 26;

    /// The place of `length` bytes at `offset`.
    pub(crate) fn at(offset: u64, length: usize) -> Self {
        let fits = offset >> (64 - Self::LENGTH_BITS) == 0 && length >> Self::LENGTH_BITS == 0;
        let place = NonZeroU64::new(offset << Self::LENGTH_BITS | length as u64);
        match place.filter(|_| fits) {
            Some(place) => Self(place),
            None => panic!("journal and values are limited in size"),
        }
    }

    /// As a number, which is never zero.
    pub(crate) fn number(self) -> u64 {
        self.0.get()
    }

    /// The place of that number.
    pub(crate) fn of_number(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// Where it begins.
    pub(crate) fn offset(self) -> u64 {
        self.0.get() >> Self::LENGTH_BITS
    }

    /// Bytes of the value.
    pub(crate) fn length(self) -> usize {
        (self.0.get() & ((1 << Self::LENGTH_BITS) - 1)) as usize
    }

    /// Reads the value, into the memory in which it stays.
    pub(crate) fn read(self, file: &File) -> io::Result<Slice> {
        let at = self.offset();
        Slice::from_reader(&mut PositionedReader { file, at }, self.length())
    }
}

/// Reads a file from somewhere on, wherever others read it.
struct PositionedReader<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// Reads places that lie mostly one after the other with few reads.
#[derive(Debug)]
pub(crate) struct Window {
    file: Arc<File>,
    start: u64,
    bytes: Vec<u8>,
    /// Bytes to read beyond what is asked for; more as long as places follow one another.
    ahead: usize,
}

impl Window {
    /// Bytes read ahead, at most.
    const AHEAD_MAX: usize = 32 << 10;
    /// Places follow one another when there are at most so many bytes between them.
    const GAP_MAX: u64 = 4096;
    /// ValueReader of so many bytes are read by themselves, so that they are in memory once.
    const ALONE_MIN: usize = 256 << 10;

    pub(crate) fn new(file: Arc<File>) -> Self {
        Self {
            file,
            start: 0,
            bytes: Vec::new(),
            ahead: 0,
        }
    }

    /// Goes on with another file.
    pub(crate) fn turn_to(&mut self, file: &Arc<File>) {
        self.file = Arc::clone(file);
        self.bytes.clear();
        (self.start, self.ahead) = (0, 0);
    }

    /// The value at a place, in memory of its own; a large one is read right into that.
    pub(crate) fn row(&mut self, place: ValuePosition) -> io::Result<Slice> {
        if place.length() >= Self::ALONE_MIN {
            return place.read(&self.file);
        }
        self.get(place).map(Slice::from)
    }

    /// The value at a place.
    pub(crate) fn get(&mut self, place: ValuePosition) -> io::Result<&[u8]> {
        let inside = |window: &Self| {
            let from = place.offset().checked_sub(window.start)?;
            let from = usize::try_from(from).ok()?;
            let range = from..from.checked_add(place.length())?;
            (range.end <= window.bytes.len()).then_some(range)
        };
        let range = if let Some(range) = inside(self) {
            range
        } else {
            self.read(place)?;
            0..place.length()
        };
        self.bytes
            .get(range)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn read(&mut self, place: ValuePosition) -> io::Result<()> {
        let end = self.start + self.bytes.len() as u64;
        let follows = place.offset() >= self.start && place.offset() <= end + Self::GAP_MAX;
        self.ahead = if follows {
            (2 * self.ahead + 1024).min(Self::AHEAD_MAX)
        } else {
            0
        };
        self.bytes.resize(place.length() + self.ahead, 0);
        self.start = place.offset();
        let mut filled = 0;
        while filled < self.bytes.len() {
            let at = self.start + filled as u64;
            match self.file.read_at(&mut self.bytes[filled..], at) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.truncate(filled);
        Ok(())
    }
}
