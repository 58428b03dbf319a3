//! Pieces of an encrypted log: entries that are sealed together, so that short rows have little overhead.

use std::io;

use crate::lsm::bytes::damaged;
use crate::lsm::files::StoreFile;
use crate::lsm::log::place::Place;

/// Bytes of the length field before a piece.
pub(super) const LENGTH_BYTES: usize = 4;

/// Bytes of a piece at which it is ended: a row is read with its whole piece.
pub(super) const PIECE_BYTES: usize = 2 << 10;

/// Reader of single entries of an encrypted log; it caches the last piece.
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

    /// Returns the body of an entry.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if it is not the written body.
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
