//! The index of a run, as bytes and in memory.

use std::collections::BTreeMap;

use model::{Seqno, VbId};

use crate::lsm::bytes::Reader;

/// Bytes of a block at which it is ended.
pub(super) const BLOCK_BYTES: usize = 16 << 10;
/// Alignment of blocks.
pub(super) const BLOCK_ALIGN: usize = 8;
/// Bytes at the end of a block, by which it is found and read without the index: its length, epoch,
/// vBucket, magic, checksum.
pub(super) const BLOCK_END_BYTES: usize = 20;
pub(super) const BLOCK_MAGIC: [u8; 2] = *b"SB";
/// Rows of a filter: building one takes 26 bytes a row, and larger filters would be only a twentieth smaller.
pub(super) const FILTER_ROWS: usize = 32_000;

/// Bytes at the end of a run: offset of the index, its length, its checksum, magic, checksum of these.
pub(super) const END_BYTES: usize = 32;
pub(super) const END_MAGIC: [u8; 8] = *b"SETTEEND";

/// The rows of a vBucket in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) vb: VbId,
    /// Epoch of all its rows.
    pub(crate) epoch: u64,
    /// First block and number of blocks.
    pub(crate) first_block: u32,
    pub(crate) blocks: u32,
    pub(crate) rows: u32,
    /// Lowest and highest seqno of its rows.
    pub(crate) lowest: Seqno,
    pub(crate) highest: Seqno,
    /// Offset of the first block.
    pub(super) at: u64,
    /// Range in the arena of the common prefix of all separators of the section.
    pub(super) prefix: (u32, u32),
}

/// Content of a run beside its rows.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) sections: Vec<Section>,
    /// Separators of blocks without the common prefix of the section. A separator is above all
    /// names of the previous block, and not above the first name of its own.
    pub(super) separators: Vec<u8>,
    /// End of each block's separator.
    pub(super) separator_ends: Vec<u32>,
    /// End of each block, in units of [`BLOCK_ALIGN`] from the begin of its section.
    pub(super) block_ends: Vec<u32>,
    /// Filters, each with its first block, offset and length.
    pub(super) filters: Vec<FilterAt>,
    /// Bytes of values in other files that rows refer to, by file.
    pub(super) values: BTreeMap<u64, u64>,
    /// Number of rows, and of removals among them.
    pub(super) rows: u64,
    pub(super) gone: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterAt {
    pub(super) first_block: u32,
    pub(super) at: u64,
    pub(super) length: u32,
}

impl Index {
    /// Appends the index to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // Reserved at once, because it is large when memory is short.
        out.reserve_exact(self.memory_bytes() + 16 * (self.filters.len() + self.values.len()) + 64);
        let u32s = |out: &mut Vec<u8>, numbers: &[u32]| {
            for number in numbers {
                out.extend_from_slice(&number.to_be_bytes());
            }
        };
        let u64s = |out: &mut Vec<u8>, numbers: &[u64]| {
            for number in numbers {
                out.extend_from_slice(&number.to_be_bytes());
            }
        };
        u64s(out, &[self.rows, self.gone]);
        u32s(out, &[self.sections.len() as u32]);
        for section in &self.sections {
            out.extend_from_slice(&section.vb.0.to_be_bytes());
            let seqnos = [section.lowest.0, section.highest.0];
            u64s(out, &[section.epoch, section.at]);
            u64s(out, &seqnos);
            u32s(out, &[section.first_block, section.blocks, section.rows]);
            u32s(out, &[section.prefix.0, section.prefix.1]);
        }
        u32s(out, &[self.block_ends.len() as u32]);
        u32s(out, &self.block_ends);
        u32s(out, &self.separator_ends);
        u32s(out, &[self.separators.len() as u32]);
        out.extend_from_slice(&self.separators);
        u32s(out, &[self.filters.len() as u32]);
        for filter in &self.filters {
            u32s(out, &[filter.first_block, filter.length]);
            u64s(out, &[filter.at]);
        }
        u32s(out, &[self.values.len() as u32]);
        for (file, bytes) in &self.values {
            u64s(out, &[*file, *bytes]);
        }
    }

    /// Decodes an index; `None` if it is invalid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let reader = &mut Reader::new(bytes);
        let mut index = Self {
            rows: reader.u64()?,
            gone: reader.u64()?,
            ..Self::default()
        };
        for _ in 0..reader.u32()? {
            let vb = VbId(reader.u16()?);
            let (epoch, at) = (reader.u64()?, reader.u64()?);
            let (lowest, highest) = (Seqno(reader.u64()?), Seqno(reader.u64()?));
            index.sections.push(Section {
                vb,
                epoch,
                at,
                lowest,
                highest,
                first_block: reader.u32()?,
                blocks: reader.u32()?,
                rows: reader.u32()?,
                prefix: (reader.u32()?, reader.u32()?),
            });
        }
        let blocks = reader.u32()?;
        index.block_ends = u32s(reader, blocks)?;
        index.separator_ends = u32s(reader, blocks)?;
        let separators = reader.u32()? as usize;
        index.separators = reader.bytes(separators)?.to_vec();
        for _ in 0..reader.u32()? {
            let (first_block, length) = (reader.u32()?, reader.u32()?);
            let at = reader.u64()?;
            index.filters.push(FilterAt {
                first_block,
                at,
                length,
            });
        }
        for _ in 0..reader.u32()? {
            index.values.insert(reader.u64()?, reader.u64()?);
        }
        (reader.rest.is_empty() && index.is_sound()).then_some(index)
    }

    /// Whether its parts are consistent.
    fn is_sound(&self) -> bool {
        let mut next = 0;
        let sections = self.sections.iter().all(|section| {
            let follows = section.first_block == next && section.blocks > 0;
            next = section.first_block.saturating_add(section.blocks);
            let (from, to) = section.prefix;
            follows && from <= to && to as usize <= self.separators.len()
        });
        let ascend = self.sections.is_sorted_by(|a, b| a.vb < b.vb);
        let ends = self.separator_ends.is_sorted();
        let last = self.separator_ends.last().copied().unwrap_or(0) as usize;
        let inside = last <= self.separators.len();
        sections && ascend && ends && inside && next as usize == self.block_ends.len()
    }

    /// Returns the begin and the end of a section's block.
    pub(super) fn block(&self, section: &Section, block: u32) -> (u64, u64) {
        let end = |block: u32| {
            let units = self.block_ends.get(block as usize).copied().unwrap_or(0);
            section.at + u64::from(units) * BLOCK_ALIGN as u64
        };
        let from = if block == section.first_block {
            section.at
        } else {
            end(block - 1)
        };
        (from, end(block))
    }

    fn separator(&self, block: u32) -> &[u8] {
        let at = block as usize;
        let from = match at.checked_sub(1) {
            Some(before) => self.separator_ends[before],
            None => 0,
        };
        let range = from as usize..self.separator_ends[at] as usize;
        // A section's prefix is before its first separator.
        self.separators.get(range).unwrap_or_default()
    }

    /// Returns the block of a section that has a name, if any does.
    pub(super) fn block_of(&self, section: &Section, name: &[u8]) -> u32 {
        let (from, to) = section.prefix;
        let prefix = &self.separators[from as usize..to as usize];
        let head = name.get(..prefix.len()).unwrap_or(name);
        let rest = match head.cmp(prefix) {
            std::cmp::Ordering::Less => return section.first_block,
            std::cmp::Ordering::Greater => return section.first_block + section.blocks - 1,
            std::cmp::Ordering::Equal => &name[prefix.len()..],
        };
        // The first block has no separator.
        let (mut low, mut high) = (section.first_block, section.first_block + section.blocks);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.separator(middle) <= rest {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sections.len() * size_of::<Section>()
            + self.separators.len()
            + 4 * (self.separator_ends.len() + self.block_ends.len())
    }
}

fn u32s(reader: &mut Reader<'_>, count: u32) -> Option<Vec<u32>> {
    let bytes = reader.bytes(usize::try_from(count).ok()?.checked_mul(4)?)?;
    let numbers = bytes.as_chunks::<4>().0.iter();
    Some(numbers.map(|bytes| u32::from_be_bytes(*bytes)).collect())
}

/// Returns the checksum of a part of a run. It includes the run and the offset, so that misplaced parts are detected.
pub(super) fn block_crc(number: u64, at: u64, bytes: &[u8]) -> u32 {
    let mut crc = crc_from(number, at);
    crc.update(bytes);
    crc.finalize()
}

/// Begins a checksum as of `block_crc`, before its bytes.
pub(super) fn crc_from(number: u64, at: u64) -> crc32fast::Hasher {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_be_bytes());
    crc.update(&at.to_be_bytes());
    crc
}

/// Returns the additional data that is authenticated with a block.
pub(super) fn block_about(epoch: u64, vb: VbId) -> [u8; 10] {
    let mut about = [0; 10];
    about[..8].copy_from_slice(&epoch.to_be_bytes());
    about[8..].copy_from_slice(&vb.0.to_be_bytes());
    about
}
