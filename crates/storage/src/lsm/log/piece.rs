//! Pieces of an encrypted log: entries that are sealed together, so that short rows have little overhead.

use std::io;
use std::ops::Range;

use model::VbId;

use crate::lsm::bytes::{CRC_BYTES, damaged};
use crate::lsm::log::chunk::{EntryKind, check_body};
use crate::lsm::log::place::LogPlace;
use crate::lsm::sealed::StoreFile;

/// Bytes of the length field before a piece.
pub(super) const LENGTH_BYTES: usize = 4;

/// Bytes of a piece at which it is ended: a row is read with its whole piece.
pub(super) const PIECE_BYTES: usize = 2 << 10;

/// Reader of single entries of a log. It reads many at once if it is told to [load](Self::load) them.
pub(crate) struct EntryReader<'f> {
    file: &'f StoreFile,
    /// Offset of the window in the file.
    at: u64,
    window: Vec<u8>,
    /// The piece that was unsealed last, without its seal. Earlier ones of the window cannot be unsealed again.
    piece: Range<u64>,
}

impl<'f> EntryReader<'f> {
    pub(crate) fn new(file: &'f StoreFile) -> Self {
        Self {
            file,
            at: 0,
            window: Vec::new(),
            piece: 0..0,
        }
    }

    /// Reads the entries with bodies in a range of offsets.
    pub(crate) fn load(&mut self, bodies: Range<u64>) -> io::Result<()> {
        let (from, end) = match self.file.pieces() {
            None => (bodies.start - CRC_BYTES as u64, bodies.end),
            Some(pieces) => {
                let first = pieces.find(bodies.start).ok_or_else(no_piece)?;
                let (last, length) = pieces.find(bodies.end - 1).ok_or_else(no_piece)?;
                (first.0, last + u64::from(length))
            }
        };
        (self.at, self.piece) = (from, from..from);
        self.window.resize((end - from) as usize, 0);
        let read = self.file.read_at(&mut self.window, from);
        read.inspect_err(|_| self.window.clear())
    }

    /// Returns the body of an entry.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if it is not the written body.
    pub(crate) fn body(&mut self, what: EntryKind, vb: VbId, place: LogPlace) -> io::Result<&[u8]> {
        let body = place.offset()..place.offset() + place.length() as u64;
        if let Some(pieces) = self.file.pieces() {
            if !self.piece.contains(&body.start) {
                let piece = pieces.find(body.start).ok_or_else(no_piece)?;
                self.unseal(piece, &body)?;
            }
            if body.end > self.piece.end {
                return Err(no_piece());
            }
            return Ok(self.in_window(&body));
        }
        let entry = body.start - CRC_BYTES as u64..body.end;
        if !self.holds(&entry) {
            self.load(body)?;
        }
        check_body(what, vb, self.in_window(&entry))
    }

    /// Unseals the piece of a body.
    fn unseal(&mut self, (from, length): (u64, u32), body: &Range<u64>) -> io::Result<()> {
        if from < self.piece.start || !self.holds(&(from..from + u64::from(length))) {
            self.load(body.clone())?;
        }
        let at = (from - self.at) as usize;
        let unit = &mut self.window[at..at + length as usize];
        let opened = self.file.unseal_in_place(unit, (from, &[]));
        self.piece = from..from + *opened.as_ref().unwrap_or(&0) as u64;
        opened.map(drop)
    }

    fn holds(&self, range: &Range<u64>) -> bool {
        self.at <= range.start && range.end <= self.at + self.window.len() as u64
    }

    fn in_window(&self, range: &Range<u64>) -> &[u8] {
        &self.window[(range.start - self.at) as usize..(range.end - self.at) as usize]
    }
}

fn no_piece() -> io::Error {
    damaged("an entry of a log is in no piece")
}

impl LogPlace {
    /// Reads the body into `bytes`, and checks it.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if it is not the written body.
    pub(crate) fn read(
        self,
        file: &StoreFile,
        what: EntryKind,
        vb: VbId,
        bytes: &mut Vec<u8>,
    ) -> io::Result<()> {
        bytes.clear();
        if file.cipher().is_some() {
            bytes.extend_from_slice(EntryReader::new(file).body(what, vb, self)?);
            return Ok(());
        }
        bytes.resize(CRC_BYTES + self.length(), 0);
        file.read_at(bytes, self.offset() - CRC_BYTES as u64)?;
        check_body(what, vb, bytes)?;
        bytes.drain(..CRC_BYTES);
        Ok(())
    }
}
