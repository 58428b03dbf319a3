//! Pieces of an encrypted log: entries that are sealed together, so that short rows cost little.

use std::io;

use crate::lsm::bytes::damaged;
use crate::lsm::files::StoreFile;
use crate::lsm::log::place::Place;

/// Bytes of the length before a piece.
pub(super) const LENGTH_BYTES: usize = 4;

/// A piece is ended once it has so many bytes: a row is read with all of its piece.
pub(super) const PIECE_BYTES: usize = 2 << 10;

/// Reads entries of an encrypted log alone, the last piece that was read in mind.
pub(crate) struct PieceReader<'f> {
    file: &'f dyn StoreFile,
    from: u64,
    bytes: Vec<u8>,
}

impl<'f> PieceReader<'f> {
    pub(crate) fn new(file: &'f dyn StoreFile) -> Self {
        Self {
            file,
            from: 0,
            bytes: Vec::new(),
        }
    }

    /// The body of an entry.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` when it is not what was written.
    pub(crate) fn body(&mut self, place: Place) -> io::Result<&[u8]> {
        let lacks = || damaged("an entry of a log is in no piece");
        let pieces = self.file.pieces().ok_or_else(lacks)?;
        let end = self.from + self.bytes.len() as u64;
        if self.bytes.is_empty() || !(self.from..end).contains(&place.offset()) {
            let (from, length) = pieces.find(place.offset()).ok_or_else(lacks)?;
            self.bytes.clear();
            self.bytes.resize(length as usize, 0);
            self.file.read_at(&mut self.bytes, from)?;
            let opened = self.file.unseal(&mut self.bytes, 0, (from, &[]));
            if let Err(error) = opened {
                self.bytes.clear();
                return Err(error);
            }
            self.from = from;
        }
        let at = (place.offset() - self.from) as usize;
        self.bytes.get(at..at + place.length()).ok_or_else(lacks)
    }
}
