//! Cursors over rows of a vBucket in the order of their names.

use std::io;
use std::sync::Arc;

use super::format::Section;
use super::open::Run;
use crate::lsm::row::Row;

/// A cursor over a section of a run, or over rows in memory.
#[derive(Default)]
pub(crate) struct Cursor {
    section: Option<(Arc<Run>, Section)>,
    /// The block after the current one.
    next_block: u32,
    block: Vec<u8>,
    /// Offset and length of the current row in the block.
    at: usize,
    length: usize,
}

impl Cursor {
    /// Creates a cursor at the first row of a section whose name is not below `from`.
    pub(crate) fn new(run: Arc<Run>, section: Section, from: &[u8]) -> io::Result<Self> {
        let mut cursor = Self {
            next_block: run.index.block_of(&section, from),
            section: Some((run, section)),
            ..Self::default()
        };
        cursor.settle()?;
        cursor.seek(from)?;
        Ok(cursor)
    }

    /// Creates a cursor over rows, which lie one behind the other.
    pub(crate) fn of_rows(rows: Vec<u8>) -> io::Result<Self> {
        let mut cursor = Self {
            block: rows,
            ..Self::default()
        };
        cursor.settle()?;
        Ok(cursor)
    }

    /// Returns the current row; `None` at the end.
    pub(crate) fn row(&self) -> Option<Row<'_>> {
        Row::first_of(self.block.get(self.at..self.at + self.length)?)
    }

    /// Advances to the next row.
    pub(crate) fn advance(&mut self) -> io::Result<()> {
        self.at += self.length;
        self.settle()
    }

    /// Advances to the first row whose name is not below `name`.
    ///
    /// Cost: one read at most, unless that row begins a block.
    pub(crate) fn seek(&mut self, name: &[u8]) -> io::Result<()> {
        if self.row().is_none_or(|row| row.name() >= name) {
            return Ok(());
        }
        if let Some((run, section)) = &self.section {
            let block = run.index.block_of(section, name);
            if block >= self.next_block {
                self.next_block = block;
                self.block.clear();
                self.settle()?;
            }
        }
        while self.row().is_some_and(|row| row.name() < name) {
            self.advance()?;
        }
        Ok(())
    }

    /// Finds the row at `at`, or the first one of the next block.
    fn settle(&mut self) -> io::Result<()> {
        loop {
            if let Some(row) = self.block.get(self.at..).and_then(Row::first_of) {
                self.length = row.bytes.len();
                return Ok(());
            }
            (self.at, self.length) = (0, 0);
            let section = self.section.as_ref();
            let next = section.filter(|(_, one)| self.next_block < one.first_block + one.blocks);
            let Some((run, section)) = next else {
                self.block = Vec::new();
                return Ok(());
            };
            run.read_block(section, self.next_block, &mut self.block)?;
            self.next_block += 1;
        }
    }
}
