//! An open run.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use model::VbId;

use super::filters;
use super::format::{BLOCK_END_BYTES, END_BYTES, END_MAGIC, Index, Section};
use super::format::{block_about, block_crc};
use crate::lsm::bytes::{CRC_BYTES, FileKind, HEADER_BYTES, Reader, damaged, named};
use crate::lsm::files::Files;
use crate::lsm::row::Row;
use crate::lsm::sealed::{self, StoreFile};

/// Number of parts of the vBuckets: a large merge writes a run for each, and later ones take those of one part.
pub(crate) const PARTS: u16 = 8;

/// Returns the part of a vBucket.
pub(crate) fn part_of(vb: VbId) -> u16 {
    vb.0 % PARTS
}

/// A run. Memory: some 1.14 bytes a row for the filters, and a quarter of a byte for the index.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) file: Arc<StoreFile>,
    pub(crate) number: u64,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    pub(super) index: Index,
    /// The part of all its vBuckets, if they are of one.
    pub(crate) part: Option<u16>,
    /// Offset of the index, after the filters.
    index_at: u64,
    /// Filters in memory. A new run gets them only after those of the runs that it replaces are freed.
    filters: OnceLock<Vec<u8>>,
    /// Whether a damaged block was found.
    damaged: AtomicBool,
}

impl Run {
    /// Creates a run without its filters in memory.
    pub(super) fn new(
        file: Arc<StoreFile>,
        (number, bytes): (u64, u64),
        mut index: Index,
        index_at: u64,
    ) -> Self {
        index.separators.shrink_to_fit();
        index.separator_ends.shrink_to_fit();
        index.block_ends.shrink_to_fit();
        let mut parts = index.sections.iter().map(|section| part_of(section.vb));
        let first = parts.next();
        let part = first.filter(|first| parts.all(|part| part == *first));
        Self {
            file,
            number,
            bytes,
            index,
            part,
            index_at,
            filters: OnceLock::new(),
            damaged: AtomicBool::new(false),
        }
    }

    /// Whether a damaged block was found.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Opens a run with the length in the manifest.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if index, filters or end are damaged.
    pub(crate) fn open(files: &dyn Files, number: u64, bytes: u64) -> io::Result<Self> {
        let name = FileKind::Run.name(number);
        let opened = sealed::open(files, FileKind::Run, number)
            .and_then(|file| Self::read(file, number, bytes));
        opened.map_err(|error| named(&name, error))
    }

    fn read(file: Arc<StoreFile>, number: u64, bytes: u64) -> io::Result<Self> {
        let length = file.length()?;
        if length != bytes || bytes < (HEADER_BYTES + CRC_BYTES + END_BYTES) as u64 {
            return Err(damaged(format!("it has {length} bytes instead of {bytes}")));
        }
        let mut end = [0; END_BYTES];
        let end_at = bytes - END_BYTES as u64;
        file.read_at(&mut end, end_at)?;
        let whole =
            end[20..28] == END_MAGIC && end[28..] == crc32fast::hash(&end[..28]).to_be_bytes();
        if !whole {
            return Err(damaged("its end is damaged"));
        }
        let mut reader = Reader::new(&end);
        let mut number_of = || reader.u64().unwrap_or(0);
        let (index_at, index_bytes) = (number_of(), number_of());
        if index_at.checked_add(index_bytes) != Some(end_at) {
            return Err(damaged("its index is not where it should be"));
        }
        let mut bytes_of = vec![0; index_bytes as usize];
        file.read_at(&mut bytes_of, index_at)?;
        if end[16..20] != block_crc(number, index_at, &bytes_of).to_be_bytes() {
            return Err(damaged("its index is damaged"));
        }
        file.unseal(&mut bytes_of, 0, (index_at, &[]))?;
        let index = Index::decode(&bytes_of).ok_or_else(|| damaged("its index makes no sense"))?;
        let run = Self::new(file, (number, bytes), index, index_at);
        run.read_filters()?;
        Ok(run)
    }

    /// Reads its filters into memory, unless they are there. Before that, it may have any name.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if they are damaged.
    pub(crate) fn load_filters(&self) -> io::Result<()> {
        let read = self.read_filters();
        read.map_err(|error| named(&self.name(), error))
    }

    fn read_filters(&self) -> io::Result<()> {
        if self.filters.get().is_some() {
            return Ok(());
        }
        let at = self.filters_at();
        let mut bytes = vec![0; self.index_at.saturating_sub(at) as usize];
        self.file.read_at(&mut bytes, at)?;
        let crc = bytes.split_off(bytes.len().saturating_sub(CRC_BYTES));
        if crc != block_crc(self.number, at, &bytes).to_be_bytes() {
            return Err(damaged("its filters are damaged"));
        }
        filters::unseal(&self.file, &self.index.filters, &mut bytes)?;
        // Another thread may have read them first; they are the same.
        self.filters.get_or_init(|| bytes);
        Ok(())
    }

    /// Returns the name of its file.
    pub(crate) fn name(&self) -> String {
        FileKind::Run.name(self.number)
    }

    /// Returns the number of rows, including removals.
    pub(crate) fn rows(&self) -> u64 {
        self.index.rows
    }

    /// Returns the number of removals.
    pub(crate) fn gone(&self) -> u64 {
        self.index.gone
    }

    /// Returns the bytes of values in other files that its rows refer to, by file.
    pub(crate) fn values(&self) -> &BTreeMap<u64, u64> {
        &self.index.values
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.filters.get().map_or(0, Vec::len)
    }

    /// Returns the section of a vBucket.
    pub(crate) fn section(&self, vb: VbId) -> Option<&Section> {
        // Most runs of a large store are of other parts.
        if self.part.is_some_and(|part| part != part_of(vb)) {
            return None;
        }
        let at = self.index.sections.binary_search_by_key(&vb, |one| one.vb);
        self.index.sections.get(at.ok()?)
    }

    /// Returns the sections of all vBuckets, ascending.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.index.sections
    }

    /// Returns the block that may have the row of a name; `None` if there is no such row.
    ///
    /// Cost: no read.
    pub(crate) fn may_have(&self, section: &Section, name: &[u8], hash: u64) -> Option<u32> {
        let block = self.index.block_of(section, name);
        let Some(bytes) = self.filters.get() else {
            return Some(block);
        };
        let filters = &self.index.filters;
        let after = filters.partition_point(|filter| filter.first_block <= block);
        let filter = filters.get(after.checked_sub(1)?)?;
        let from = usize::try_from(filter.at - self.filters_at()).ok()?;
        let length = filter.length as usize - self.file.seal_bytes();
        let filter = bytes.get(from..from + length)?;
        filters::may_have(filter, hash)?.then_some(block)
    }

    /// Reads a block into `bytes`. An encrypted block is verified only by its authentication tag.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if it is damaged.
    pub(crate) fn read_block(
        &self,
        section: &Section,
        block: u32,
        bytes: &mut Vec<u8>,
    ) -> io::Result<()> {
        let by_crc = self.file.cipher().is_none();
        self.read_block_by(by_crc, (section, block), bytes)
    }

    /// As [`Run::read_block`]; with `by_crc`, the checksum is verified, too.
    pub(super) fn read_block_by(
        &self,
        by_crc: bool,
        (section, block): (&Section, u32),
        bytes: &mut Vec<u8>,
    ) -> io::Result<()> {
        let (from, to) = self.index.block(section, block);
        let length = usize::try_from(to.saturating_sub(from)).unwrap_or(0);
        if length < BLOCK_END_BYTES {
            return Err(named(&self.name(), damaged("a block without a length")));
        }
        bytes.clear();
        bytes.resize(length, 0);
        self.file
            .read_at(bytes, from)
            .map_err(|error| named(&self.name(), error))?;
        let body = length - CRC_BYTES;
        let crc = || block_crc(self.number, from, &bytes[..body]).to_be_bytes();
        if by_crc && bytes[body..] != crc() {
            return Err(self.block_damaged(section, from));
        }
        bytes.truncate(length - BLOCK_END_BYTES);
        let about = block_about(section.epoch, section.vb);
        let opened = self.file.unseal(bytes, 0, (from, &about));
        opened.map_err(|_| self.block_damaged(section, from))
    }

    fn block_damaged(&self, section: &Section, from: u64) -> io::Error {
        self.damaged.store(true, Ordering::Relaxed);
        let reason = format!("the block at {from} ({}) is damaged", section.vb);
        named(&self.name(), damaged(reason))
    }

    /// Reads the block of a name into `bytes`. Returns the row of the name, if there is one.
    pub(crate) fn get<'b>(
        &self,
        section: &Section,
        (name, hash): (&[u8], u64),
        bytes: &'b mut Vec<u8>,
    ) -> io::Result<Option<Row<'b>>> {
        let Some(block) = self.may_have(section, name, hash) else {
            return Ok(None);
        };
        self.read_block(section, block, bytes)?;
        Ok(rows(bytes).find(|row| row.name() == name))
    }

    /// Returns the offset of the filters, after the last block.
    pub(super) fn filters_at(&self) -> u64 {
        let first = self.index.filters.first();
        first.map_or(self.index_at, |filter| filter.at)
    }
}

/// Iterates over the rows of a block.
pub(super) fn rows(block: &[u8]) -> impl Iterator<Item = Row<'_>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        // The rest after the last row is zeros.
        let row = Row::first_of(rest)?;
        rest = &rest[row.bytes.len()..];
        Some(row)
    })
}
