//! Cursors over the rows of a vBucket in a run, in the order of their names.

use std::io;
use std::sync::Arc;

use super::format::Section;
use super::open::Run;
use crate::lsm::row::Row;

/// A cursor over a section.
pub(crate) struct Cursor {
    run: Arc<Run>,
    section: Section,
    /// The block after the current one.
    next_block: u32,
    block: Vec<u8>,
    /// Offset and length of the current row in the block.
    at: usize,
    length: usize,
}

impl Cursor {
    /// Creates a cursor at the first row whose name is not below `from`.
    pub(crate) fn new(run: Arc<Run>, section: Section, from: &[u8]) -> io::Result<Self> {
        let next_block = run.index.block_of(&section, from);
        let mut cursor = Self {
            run,
            section,
            next_block,
            block: Vec::new(),
            at: 0,
            length: 0,
        };
        cursor.settle()?;
        while cursor.row().is_some_and(|row| row.name() < from) {
            cursor.advance()?;
        }
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
        let block = self.run.index.block_of(&self.section, name);
        if block >= self.next_block {
            self.next_block = block;
            self.block.clear();
            (self.at, self.length) = (0, 0);
            self.settle()?;
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
            if self.next_block == self.section.first_block + self.section.blocks {
                self.block = Vec::new();
                return Ok(());
            }
            self.run
                .read_block(&self.section, self.next_block, &mut self.block)?;
            self.next_block += 1;
        }
    }
}
