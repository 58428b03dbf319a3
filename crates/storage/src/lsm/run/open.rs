//! A run that is there.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{Seqno, VbId};
use xorf::{BinaryFuse8, BinaryFuse8Ref, DmaSerializable as _, Filter as _, FilterRef as _};

use super::format::{BLOCK_END_BYTES, END_BYTES, END_MAGIC, Index, Section};
use super::format::{block_about, block_crc};
use crate::lsm::bytes::{CRC_BYTES, FileKind, HEADER_BYTES, Reader, damaged, named};
use crate::lsm::files::{Files, StoreFile};
use crate::lsm::row::Row;
use crate::lsm::sealed::{self, is_current};

/// A run. Cost in memory: some 1.14 bytes a row for the filters, and a quarter of a byte for the index.
#[derive(Debug)]
pub(crate) struct Run {
    file: Arc<dyn StoreFile>,
    pub(crate) number: u64,
    /// Bytes of the file.
    pub(crate) bytes: u64,
    index: Index,
    filters: Vec<u8>,
    filters_at: u64,
    /// A block was found damaged.
    damaged: AtomicBool,
}

impl Run {
    pub(super) fn new(
        file: Arc<dyn StoreFile>,
        number: u64,
        bytes: u64,
        mut index: Index,
        (mut filters, filters_at): (Vec<u8>, u64),
    ) -> Self {
        index.separators.shrink_to_fit();
        index.separator_ends.shrink_to_fit();
        index.block_ends.shrink_to_fit();
        filters.shrink_to_fit();
        Self {
            file,
            number,
            bytes,
            index,
            filters,
            filters_at,
            damaged: AtomicBool::new(false),
        }
    }

    /// Whether a block was found damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Opens one, of which the manifest knows the length.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` when what is around the rows is damaged.
    pub(crate) fn open(files: &dyn Files, number: u64, bytes: u64) -> io::Result<Self> {
        let name = FileKind::Run.name(number);
        let opened = sealed::open(files, FileKind::Run, number)
            .and_then(|file| Self::read(file, number, bytes));
        opened.map_err(|error| named(&name, error))
    }

    fn read(file: Arc<dyn StoreFile>, number: u64, bytes: u64) -> io::Result<Self> {
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
        let filters_at = index.filters.first().map_or(index_at, |filter| filter.at);
        let mut filters = vec![0; index_at.saturating_sub(filters_at) as usize];
        file.read_at(&mut filters, filters_at)?;
        let crc = filters.split_off(filters.len().saturating_sub(CRC_BYTES));
        if crc != block_crc(number, filters_at, &filters).to_be_bytes() {
            return Err(damaged("its filters are damaged"));
        }
        file.unseal(&mut filters, 0, (filters_at, &[]))?;
        Ok(Self::new(file, number, bytes, index, (filters, filters_at)))
    }

    /// The name of its file.
    pub(crate) fn name(&self) -> String {
        FileKind::Run.name(self.number)
    }

    /// Rows, those that say that one is gone among them.
    pub(crate) fn rows(&self) -> u64 {
        self.index.rows
    }

    /// Rows that say that one is gone.
    pub(crate) fn gone(&self) -> u64 {
        self.index.gone
    }

    /// Bytes of values in other files that its rows refer to.
    pub(crate) fn values(&self) -> &BTreeMap<u64, u64> {
        &self.index.values
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.filters.len()
    }

    /// The rows of a vBucket.
    pub(crate) fn section(&self, vb: VbId) -> Option<&Section> {
        let at = self.index.sections.binary_search_by_key(&vb, |one| one.vb);
        self.index.sections.get(at.ok()?)
    }

    /// All vBuckets, ascending.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.index.sections
    }

    /// The block in which the row of a name may lie; `None` when there is none.
    ///
    /// Cost: no read.
    pub(crate) fn may_have(&self, section: &Section, name: &[u8], hash: u64) -> Option<u32> {
        let block = self.index.block_of(section, name);
        let filters = &self.index.filters;
        let after = filters.partition_point(|filter| filter.first_block <= block);
        let filter = filters.get(after.checked_sub(1)?)?;
        let from = usize::try_from(filter.at - self.filters_at).ok()?;
        let bytes = self.filters.get(from..from + filter.length as usize)?;
        let (descriptor, fingerprints) = bytes.split_at_checked(BinaryFuse8::DESCRIPTOR_LEN)?;
        let filter = BinaryFuse8Ref::from_dma(descriptor, fingerprints);
        filter.contains(&hash).then_some(block)
    }

    /// Reads a block into `bytes`.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` when it is damaged.
    pub(crate) fn read_block(
        &self,
        section: &Section,
        block: u32,
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
        if bytes[body..] != block_crc(self.number, from, &bytes[..body]).to_be_bytes() {
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

    /// Whether it is encrypted as it would be if it was made now.
    pub(crate) fn is_current(&self, files: &dyn Files) -> bool {
        is_current(files, &*self.file)
    }

    /// Reads the row of a name into `bytes`, if there is one up to seqno `limit`.
    ///
    /// # Errors
    /// As [`Run::read_block`].
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

    /// Where a block lies: from and to.
    pub(super) fn block_at(&self, section: &Section, block: u32) -> (u64, u64) {
        self.index.block(section, block)
    }

    /// Where the filters begin, behind the last block.
    pub(super) fn filters_at(&self) -> u64 {
        self.filters_at
    }

    /// The block from which on names not below `name` lie.
    pub(super) fn block_of(&self, section: &Section, name: &[u8]) -> u32 {
        self.index.block_of(section, name)
    }

    /// Whether anything of a section may be of a seqno in a range.
    pub(crate) fn has_seqnos_from(section: &Section, from: Seqno) -> bool {
        section.highest >= from
    }
}

/// The rows of a block.
pub(super) fn rows(block: &[u8]) -> impl Iterator<Item = Row<'_>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        // What is left behind the last row are zeros.
        let row = Row::first_of(rest)?;
        rest = &rest[row.bytes.len()..];
        Some(row)
    })
}
