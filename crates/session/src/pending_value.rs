//! The value of an answer whose head is in the output already. It is copied piece by piece while the peer reads, from
//! the document that tables and other answers share, so that it is in memory once.

use model::Document;

/// Size from which values are sent piece by piece, and of a piece. Smaller pieces cost values of 1 MB a fifth of their
/// throughput.
const PIECE_BYTES: usize = 1 << 20;

/// A value of which not everything is in the output.
pub(crate) struct PendingValue {
    document: Document,
    /// Bytes at the end of the document that are missing.
    left: usize,
}

impl PendingValue {
    /// Returns `value` as a pending one, if it is large and the end of the value of `document`.
    pub(crate) fn of(document: &Document, value: &[u8]) -> Option<Self> {
        let end = document.value().as_ptr_range().end;
        let is_end = std::ptr::eq(value.as_ptr_range().end, end);
        (is_end && value.len() >= PIECE_BYTES).then(|| Self {
            document: document.clone(),
            left: value.len(),
        })
    }

    /// Appends the next piece. Returns whether the value is whole.
    pub(crate) fn append_piece(&mut self, output: &mut Vec<u8>) -> bool {
        let value = self.document.value();
        let piece = &value[value.len() - self.left..];
        let piece = &piece[..piece.len().min(PIECE_BYTES)];
        output.extend_from_slice(piece);
        self.left -= piece.len();
        self.left == 0
    }

    /// Returns the memory of the document.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.document.memory_bytes()
    }
}
