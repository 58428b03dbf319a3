//! Rows of several runs and logs in one order, the newest of each name.

use std::io;

use model::Seqno;

use super::cursor::Cursor;
use crate::lsm::row::Row;

/// Iterator over the rows of one vBucket of several cursors, in the order of their names. Of each
/// name it has the newest valid row.
pub(crate) struct Merged {
    cursors: Vec<(Cursor, Seqno)>,
    /// Index of the cursor with the current row.
    at: Option<usize>,
}

impl Merged {
    /// Creates the iterator from cursors, each with its highest valid seqno, the youngest first.
    pub(crate) fn new(cursors: Vec<(Cursor, Seqno)>) -> io::Result<Self> {
        let mut merged = Self { cursors, at: None };
        merged.settle()?;
        Ok(merged)
    }

    /// Returns the current row; `None` at the end. It may be a removal.
    pub(crate) fn row(&self) -> Option<Row<'_>> {
        self.cursors.get(self.at?)?.0.row()
    }

    /// Advances to the next row.
    pub(crate) fn advance(&mut self) -> io::Result<()> {
        if let Some(at) = self.at {
            self.cursors[at].0.advance()?;
        }
        self.settle()
    }

    /// Advances to the first row whose name is not below `name`.
    pub(crate) fn seek(&mut self, name: &[u8]) -> io::Result<()> {
        self.cursors
            .iter_mut()
            .try_for_each(|(cursor, _)| cursor.seek(name))?;
        self.settle()
    }

    /// Finds the lowest name and its newest row, and skips the other rows of that name.
    fn settle(&mut self) -> io::Result<()> {
        loop {
            let mut best: Option<usize> = None;
            let mut passed: Option<usize> = None;
            for number in 0..self.cursors.len() {
                let (cursor, limit) = &self.cursors[number];
                let Some(row) = cursor.row() else { continue };
                if row.seqno() > *limit {
                    passed = Some(number);
                    break;
                }
                let Some(other) = best.and_then(|best| self.cursors[best].0.row()) else {
                    best = Some(number);
                    continue;
                };
                match row.name().cmp(other.name()) {
                    std::cmp::Ordering::Less => best = Some(number),
                    std::cmp::Ordering::Greater => {}
                    std::cmp::Ordering::Equal => {
                        let newer = (row.seqno(), row.is_gone()) > (other.seqno(), other.is_gone());
                        passed = if newer { best } else { Some(number) };
                        break;
                    }
                }
            }
            let Some(passed) = passed else {
                self.at = best;
                return Ok(());
            };
            self.cursors[passed].0.advance()?;
        }
    }
}
