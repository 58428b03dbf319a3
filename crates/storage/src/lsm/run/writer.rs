//! Writer of a run: rows are added in the order of vBucket and name.

use std::io;
use std::sync::Arc;

use model::{Seqno, VbId};

use super::filters::FilterWriter;
use super::format::{
    BLOCK_ALIGN, BLOCK_BYTES, BLOCK_END_BYTES, BLOCK_MAGIC, END_BYTES, END_MAGIC, FilterAt, Index,
    Section, block_about, block_crc, crc_from,
};
use super::open::Run;
use crate::lsm::bytes::{FileKind, HEADER_BYTES, damaged};
use crate::lsm::file_draft::FileDraft;
use crate::lsm::files::Files;
use crate::lsm::row::{self, HISTORY, Row};

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes between two syncs, so that the last sync has little to write.
const SYNC_BYTES: u64 = 32 << 20;

/// A run being written.
pub(crate) struct RunWriter {
    made: FileDraft,
    number: u64,
    index: Index,
    buffer: Vec<u8>,
    /// Offset of the buffer in the file.
    at: u64,
    /// Offset of the current block in the buffer.
    block: usize,
    unsynced: u64,
    /// Name of the last row.
    last: Vec<u8>,
    /// Full separators of the current section, one for each block.
    separators: Vec<Vec<u8>>,
    filters: FilterWriter,
}

impl RunWriter {
    /// Creates the file.
    pub(crate) fn create(files: &Arc<dyn Files>, number: u64) -> io::Result<Self> {
        let (made, header) = FileDraft::create(files, FileKind::Run, number)?;
        Ok(Self {
            made,
            number,
            index: Index::default(),
            buffer: header.to_vec(),
            at: 0,
            block: HEADER_BYTES,
            unsynced: 0,
            last: Vec::new(),
            separators: Vec::new(),
            filters: FilterWriter::default(),
        })
    }

    /// Creates the file of a run that may be large: its filters are in a temporary file, because
    /// those of the runs that it replaces take memory, too.
    pub(crate) fn create_large(files: &Arc<dyn Files>, number: u64) -> io::Result<Self> {
        let mut writer = Self::create(files, number)?;
        writer.filters = FilterWriter::aside(files, number)?;
        Ok(writer)
    }

    /// Returns the bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Returns the rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.index.rows
    }

    /// Begins the section of a vBucket with this epoch.
    pub(crate) fn begin_section(&mut self, vb: VbId, epoch: u64) -> io::Result<()> {
        self.end_section()?;
        self.index.sections.push(Section {
            vb,
            epoch,
            first_block: self.index.block_ends.len() as u32,
            blocks: 0,
            rows: 0,
            lowest: Seqno(u64::MAX),
            highest: Seqno::ZERO,
            at: self.bytes(),
            prefix: (0, 0),
        });
        self.last.clear();
        Ok(())
    }

    /// Adds a row; names ascend in a section.
    pub(crate) fn add(&mut self, row: Row<'_>) -> io::Result<()> {
        let name = row.name();
        if self.buffer.len() == self.block {
            let separator = separator(&self.last, name);
            self.separators.push(separator.to_vec());
        }
        let section = self.index.sections.last_mut();
        let section = section.ok_or_else(|| damaged("a row before any section"))?;
        let seqno = row.seqno();
        section.lowest = section.lowest.min(seqno);
        section.highest = section.highest.max(seqno);
        section.rows += 1;
        self.index.rows += 1;
        self.index.gone += u64::from(row.is_gone());
        if let Some(place) = row.place() {
            *self.index.values.entry(place.file).or_default() += u64::from(place.length);
        }
        if row.tag() != HISTORY {
            self.filters.add(row::hash(section.vb, name));
        }
        self.last.clear();
        self.last.extend_from_slice(name);
        self.buffer.extend_from_slice(row.bytes);
        if self.buffer.len() - self.block >= BLOCK_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        let Some(section) = self.index.sections.last_mut() else {
            return Ok(());
        };
        if self.buffer.len() == self.block {
            return Ok(());
        }
        let begin = self.at + self.block as u64;
        let file = &*self.made.file;
        let body = self.buffer.len() - self.block + file.seal_bytes() + BLOCK_END_BYTES;
        let bytes = body.next_multiple_of(BLOCK_ALIGN);
        self.buffer.resize(self.buffer.len() + bytes - body, 0);
        let about = block_about(section.epoch, section.vb);
        file.seal(&mut self.buffer, self.block, (begin, &about))?;
        self.buffer.extend_from_slice(&(bytes as u32).to_be_bytes());
        self.buffer.extend_from_slice(&section.epoch.to_be_bytes());
        self.buffer.extend_from_slice(&section.vb.0.to_be_bytes());
        self.buffer.extend_from_slice(&BLOCK_MAGIC);
        let crc = block_crc(self.number, begin, &self.buffer[self.block..]);
        self.buffer.extend_from_slice(&crc.to_be_bytes());
        self.block = self.buffer.len();
        section.blocks += 1;
        let length = self.at + self.block as u64 - section.at;
        let units = u32::try_from(length / BLOCK_ALIGN as u64);
        let units =
            units.map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, "a section is full"))?;
        self.index.block_ends.push(units);
        let next = self.index.block_ends.len() as u32;
        self.filters.end_block(file, next)?;
        if self.block >= BUFFER_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn end_section(&mut self) -> io::Result<()> {
        self.end_block()?;
        let Some(section) = self.index.sections.last_mut() else {
            return Ok(());
        };
        let prefix = common_prefix(&self.separators);
        let arena = &mut self.index.separators;
        let from = arena.len() as u32;
        if let Some(second) = self.separators.get(1) {
            arena.extend_from_slice(&second[..prefix]);
        }
        section.prefix = (from, arena.len() as u32);
        for (number, separator) in self.separators.drain(..).enumerate() {
            if number > 0 {
                arena.extend_from_slice(&separator[prefix..]);
            }
            self.index.separator_ends.push(arena.len() as u32);
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        self.made.file.write_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.unsynced += self.buffer.len() as u64;
        self.buffer.clear();
        self.block = 0;
        if self.unsynced >= SYNC_BYTES {
            self.made.file.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Writes the filters. Returns their positions.
    fn add_filters(&mut self) -> io::Result<Vec<FilterAt>> {
        let filters_at = self.bytes();
        let mut crc = crc_from(self.number, filters_at);
        self.filters.finish(&self.made.file)?;
        while let Some(piece) = self.filters.next_piece()? {
            crc.update(piece);
            self.buffer.extend_from_slice(piece);
            if self.buffer.len() >= BUFFER_BYTES {
                self.write()?;
            }
        }
        self.buffer.extend_from_slice(&crc.finalize().to_be_bytes());
        Ok(self.filters.places(filters_at))
    }

    /// Ends the run, durably except for its name. The file is removed unless it is kept. Its
    /// filters are not in memory yet.
    pub(crate) fn finish(mut self) -> io::Result<(Run, FileDraft)> {
        self.end_section()?;
        self.index.filters = self.add_filters()?;
        let (from, index_at) = (self.buffer.len(), self.bytes());
        self.index.encode(&mut self.buffer);
        let file = Arc::clone(&self.made.file);
        file.seal(&mut self.buffer, from, (index_at, &[]))?;
        let index_crc = block_crc(self.number, index_at, &self.buffer[from..]);
        let index_bytes = self.bytes() - index_at;
        let mut end = [0; END_BYTES];
        end[..8].copy_from_slice(&index_at.to_be_bytes());
        end[8..16].copy_from_slice(&index_bytes.to_be_bytes());
        end[16..20].copy_from_slice(&index_crc.to_be_bytes());
        end[20..28].copy_from_slice(&END_MAGIC);
        let crc = crc32fast::hash(&end[..28]);
        end[28..].copy_from_slice(&crc.to_be_bytes());
        self.buffer.extend_from_slice(&end);
        self.write()?;
        file.sync()?;
        let run = Run::new(file, (self.number, self.at), self.index, index_at);
        Ok((run, self.made))
    }
}

/// Returns the shortest prefix of `next` that is above `last`.
fn separator<'a>(last: &[u8], next: &'a [u8]) -> &'a [u8] {
    let same = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    &next[..next.len().min(same + 1)]
}

/// Returns the length of the common prefix of all separators except the first.
fn common_prefix(separators: &[Vec<u8>]) -> usize {
    // They ascend, so all have the common prefix of the second and the last one.
    match separators {
        [_, second, .., last] => second.iter().zip(last).take_while(|(a, b)| a == b).count(),
        _ => 0,
    }
}
