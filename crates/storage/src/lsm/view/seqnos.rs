//! The rows of a vBucket in the order of their seqnos. They are stored by name, so a window takes
//! as many rows of the lowest seqnos as memory allows, and sorts them.

use std::io;
use std::sync::Arc;

use model::{Document, Seqno};

use super::rows::RowView;
use crate::lsm::current::WalkBytes;
use crate::lsm::log::LogRow;
use crate::lsm::row::{self, HISTORY, Row};
use crate::lsm::sealed::StoreFile;

/// Minimum bytes of rows in a window, and half of the maximum, approximately; values that are
/// stored apart do not count. Equal to the largest chunk that a backfill takes from one walk.
const WINDOW_BYTES: usize = 4 << 20;

/// Kind of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// The newest row of each key.
    Newest,
    /// The rows of the history.
    History,
}

/// Iterator in the order of seqnos. It ends with the first error.
pub(crate) struct BySeqno<'v> {
    view: &'v RowView,
    range: Range,
    /// First seqno of the next window; `None` after the last one.
    next: Option<Seqno>,
    window: SeqnoWindow,
    /// Index of the next row in the window.
    at: usize,
    /// Rows of the logs, ascending by seqno.
    logged: Vec<(LogRow, Arc<StoreFile>)>,
    logged_at: usize,
    bytes: Vec<u8>,
}

/// Rows of a window.
struct SeqnoWindow {
    /// Account of its bytes, and the bytes counted there.
    walks: WalkBytes,
    counted: usize,
    arena: Vec<u8>,
    /// Seqno of each row, its offset in the arena, and its length.
    rows: Vec<(Seqno, u32, u32)>,
    /// Seqno above which rows were skipped.
    ceiling: Option<Seqno>,
}

impl SeqnoWindow {
    fn new(walks: WalkBytes) -> Self {
        Self {
            walks,
            counted: 0,
            arena: Vec::new(),
            rows: Vec::new(),
            ceiling: None,
        }
    }

    fn count(&mut self) {
        let bytes = self.arena.capacity() + self.rows.capacity() * size_of::<(Seqno, u32, u32)>();
        if bytes != self.counted {
            self.walks.change(self.counted, bytes);
            self.counted = bytes;
        }
    }

    fn add(&mut self, row: Row<'_>) {
        if self.ceiling.is_some_and(|ceiling| row.seqno() > ceiling) {
            return;
        }
        let place = (self.arena.len() as u32, row.bytes.len() as u32);
        self.rows.push((row.seqno(), place.0, place.1));
        self.arena.extend_from_slice(row.bytes);
        if self.arena.len() >= 2 * WINDOW_BYTES {
            self.shrink();
        }
        self.count();
    }

    /// Keeps the rows with the lowest seqnos.
    fn shrink(&mut self) {
        self.rows.sort_unstable();
        let mut bytes = 0;
        let fits = self.rows.iter().take_while(|(_, _, length)| {
            bytes += *length as usize;
            bytes <= WINDOW_BYTES
        });
        let count = fits.count().max(1);
        if count == self.rows.len() {
            return;
        }
        self.rows.truncate(count);
        self.ceiling = self.rows.last().map(|(seqno, ..)| *seqno);
        let mut arena = Vec::with_capacity(2 * WINDOW_BYTES);
        for (_, at, length) in &mut self.rows {
            let from = *at as usize;
            *at = arena.len() as u32;
            arena.extend_from_slice(&self.arena[from..from + *length as usize]);
        }
        self.arena = arena;
    }
}

impl Drop for SeqnoWindow {
    fn drop(&mut self) {
        self.walks.change(self.counted, 0);
    }
}

impl<'v> BySeqno<'v> {
    /// Creates an iterator from a seqno on.
    pub(crate) fn new(view: &'v RowView, range: Range, from: Seqno) -> Self {
        let rows = view.logged.iter();
        let rows = rows.filter(|(row, _)| row.seqno >= from && !row.gone);
        let mut logged: Vec<_> = rows.cloned().collect();
        logged.sort_by_key(|(row, _)| row.seqno);
        Self {
            view,
            range,
            next: Some(from),
            window: SeqnoWindow::new(view.walks.clone()),
            at: 0,
            logged,
            logged_at: 0,
            bytes: Vec::new(),
        }
    }

    fn is_in_range(&self, row: Row<'_>) -> bool {
        (row.tag() == HISTORY) == (self.range == Range::History)
    }

    /// Fills the next window from the runs.
    fn turn(&mut self, from: Seqno) -> io::Result<()> {
        self.window.arena.clear();
        self.window.rows.clear();
        self.window.ceiling = None;
        self.at = 0;
        let begin = match self.range {
            Range::Newest => vec![0],
            Range::History => row::history_from(from).to_vec(),
        };
        let mut rows = self.view.merged(Vec::new(), &begin, from)?;
        while let Some(row) = rows.row().filter(|row| self.is_in_range(*row)) {
            let wanted = row.seqno() >= from && !row.is_gone();
            if wanted && !self.view.is_hidden(row, false)? {
                self.window.add(row);
            }
            rows.advance()?;
            if self.range == Range::History && self.window.ceiling.is_some() {
                break;
            }
        }
        self.window.rows.sort_unstable();
        self.next = self.window.ceiling.map(Seqno::next);
        Ok(())
    }

    /// Returns the seqno of the next row of the runs.
    fn in_runs(&mut self) -> io::Result<Option<Seqno>> {
        while self.at == self.window.rows.len() {
            let Some(from) = self.next.take() else {
                return Ok(None);
            };
            self.turn(from)?;
        }
        Ok(self.window.rows.get(self.at).map(|(seqno, ..)| *seqno))
    }

    /// Reads the next row of the logs. Returns its seqno.
    fn in_logs(&mut self) -> io::Result<Option<Seqno>> {
        while let Some((row, file)) = self.logged.get(self.logged_at) {
            row.read(file, &mut self.bytes)?;
            let found = Row::of(&self.bytes)?;
            if self.is_in_range(found) && !self.view.is_hidden(found, true)? {
                return Ok(Some(row.seqno));
            }
            self.logged_at += 1;
        }
        Ok(None)
    }

    fn step(&mut self) -> io::Result<Option<Document>> {
        let in_runs = self.in_runs()?;
        let in_logs = if in_runs.is_some_and(|seqno| {
            let next = self.logged.get(self.logged_at);
            next.is_none_or(|(row, _)| row.seqno > seqno)
        }) {
            None
        } else {
            self.in_logs()?
        };
        match (in_runs, in_logs) {
            (None, None) => Ok(None),
            (Some(seqno), other) if other.is_none_or(|other| seqno < other) => {
                let (_, at, length) = self.window.rows[self.at];
                self.at += 1;
                let bytes = &self.window.arena[at as usize..(at + length) as usize];
                self.view.values.document(Row::of(bytes)?).map(Some)
            }
            _ => {
                self.logged_at += 1;
                self.view.values.document(Row::of(&self.bytes)?).map(Some)
            }
        }
    }
}

impl Iterator for BySeqno<'_> {
    type Item = io::Result<Document>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::row::DOCUMENT;

    #[test]
    fn memory_of_a_window_is_counted_and_bounded() {
        let walks = WalkBytes::default();
        let mut window = SeqnoWindow::new(walks.clone());
        let mut bytes = Vec::new();
        for seqno in (1..=60_000).rev() {
            bytes.clear();
            row::encode_gone(&row::name(DOCUMENT, &[b'k'; 200]), Seqno(seqno), &mut bytes);
            window.add(Row::of(&bytes).expect("a row"));
        }
        let held = window.arena.capacity();
        assert!(
            walks.get() >= held && held <= 2 * WINDOW_BYTES,
            "{held} bytes"
        );
        assert!(window.rows.iter().any(|(seqno, ..)| *seqno == Seqno(1)));
        drop(window);
        assert_eq!(walks.get(), 0);
    }
}
