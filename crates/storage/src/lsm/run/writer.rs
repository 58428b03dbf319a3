//! Writing a run: rows come in the order of vBucket and name.

use std::io;
use std::sync::Arc;

use model::{Seqno, VbId};
use xorf::{BinaryFuse8, DmaSerializable};

use super::format::{
    BLOCK_ALIGN, BLOCK_BYTES, BLOCK_END_BYTES, BLOCK_MAGIC, END_BYTES, END_MAGIC, FILTER_ROWS,
    FilterAt, Index, Section, block_about, block_crc,
};
use super::open::Run;
use crate::lsm::bytes::{FileKind, HEADER_BYTES, damaged};
use crate::lsm::files::Files;
use crate::lsm::made::Made;
use crate::lsm::row::{self, HISTORY, Row};

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes after which what was written is synced, so that the last sync has little to do.
const SYNC_BYTES: u64 = 32 << 20;

/// A run on its way.
pub(crate) struct RunWriter {
    made: Made,
    number: u64,
    index: Index,
    buffer: Vec<u8>,
    /// Where the buffer lies in the file.
    at: u64,
    /// Where the block begins in the buffer.
    block: usize,
    unsynced: u64,
    /// The last name, and the one before the block.
    last: Vec<u8>,
    /// Full separators of the section that is written, each with the end of its block.
    separators: Vec<Vec<u8>>,
    hashes: Vec<u64>,
    filter_from: u32,
    filters: Vec<u8>,
    filter_ats: Vec<(u32, usize)>,
}

impl RunWriter {
    /// Makes the file.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn create(files: &Arc<dyn Files>, number: u64) -> io::Result<Self> {
        let (made, header) = Made::create(files, FileKind::Run, number)?;
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
            hashes: Vec::new(),
            filter_from: 0,
            filters: Vec::new(),
            filter_ats: Vec::new(),
        })
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.index.rows
    }

    /// The rows that follow are of this vBucket and epoch.
    ///
    /// # Errors
    /// Those of the system.
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
    ///
    /// # Errors
    /// Those of the system.
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
            self.hashes.push(row::hash(section.vb, name));
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
        if self.hashes.len() >= FILTER_ROWS {
            self.end_filter()?;
        }
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

    /// Ends the filter of the blocks so far.
    fn end_filter(&mut self) -> io::Result<()> {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        if self.hashes.is_empty() {
            self.hashes.push(0);
        }
        let filter = BinaryFuse8::try_from(&self.hashes).map_err(io::Error::other)?;
        self.hashes.clear();
        let from = self.filters.len();
        self.filters.resize(from + BinaryFuse8::DESCRIPTOR_LEN, 0);
        filter.dma_copy_descriptor_to(&mut self.filters[from..]);
        self.filters.extend_from_slice(filter.dma_fingerprints());
        self.filter_ats.push((self.filter_from, from));
        self.filter_from = self.index.block_ends.len() as u32;
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

    /// Adds a part that is no block; gives its checksum.
    fn add_part(&mut self, part: &[u8]) -> io::Result<u32> {
        let (from, at) = (self.buffer.len(), self.bytes());
        self.buffer.extend_from_slice(part);
        let file = &*self.made.file;
        file.seal(&mut self.buffer, from, (at, &[]))?;
        Ok(block_crc(self.number, at, &self.buffer[from..]))
    }

    /// Ends the run, durably but for its name; it goes again unless its file is kept.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn finish(mut self) -> io::Result<(Run, Made)> {
        self.end_section()?;
        if !self.hashes.is_empty() || self.filter_ats.is_empty() {
            self.end_filter()?;
        }
        let filters_at = self.bytes();
        let ends = self.filter_ats.iter().skip(1).map(|(_, from)| *from);
        let ends: Vec<usize> = ends.chain([self.filters.len()]).collect();
        for ((first_block, from), to) in self.filter_ats.iter().zip(ends) {
            self.index.filters.push(FilterAt {
                first_block: *first_block,
                at: filters_at + *from as u64,
                length: (to - from) as u32,
            });
        }
        let filters = std::mem::take(&mut self.filters);
        let crc = self.add_part(&filters)?;
        self.buffer.extend_from_slice(&crc.to_be_bytes());
        let index_at = self.bytes();
        let index = self.index.encode();
        let index_crc = self.add_part(&index)?;
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
        self.made.file.sync()?;
        let file = Arc::clone(&self.made.file);
        let run = Run::new(
            file,
            self.number,
            self.at,
            self.index,
            (filters, filters_at),
        );
        Ok((run, self.made))
    }
}

/// The shortest begin of `next` that is above `last`.
fn separator<'a>(last: &[u8], next: &'a [u8]) -> &'a [u8] {
    let same = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    &next[..next.len().min(same + 1)]
}

/// How many bytes all but the first have in common.
fn common_prefix(separators: &[Vec<u8>]) -> usize {
    // They ascend: what the second and the last have in common all between have.
    match separators {
        [_, second, .., last] => second.iter().zip(last).take_while(|(a, b)| a == b).count(),
        _ => 0,
    }
}
