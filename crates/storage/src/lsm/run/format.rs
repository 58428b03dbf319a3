//! The index of a run, as bytes and in memory.

use std::collections::BTreeMap;

use model::{Seqno, VbId};

use crate::lsm::bytes::Reader;

/// A block is ended once it has so many bytes.
pub(super) const BLOCK_BYTES: usize = 16 << 10;
/// Blocks begin at multiples of it.
pub(super) const BLOCK_ALIGN: usize = 8;
/// What ends a block, so that it is found and understood without the index: its length, epoch, vBucket, magic, checksum.
pub(super) const BLOCK_END_BYTES: usize = 20;
pub(super) const BLOCK_MAGIC: [u8; 2] = *b"SB";
/// So many rows have a filter of their own: building one takes 26 bytes a row, and larger ones are only a twentieth smaller.
pub(super) const FILTER_ROWS: usize = 32_000;

/// Bytes of what ends a run: where the index begins, its length, its checksum, magic, checksum of these.
pub(super) const END_BYTES: usize = 32;
pub(super) const END_MAGIC: [u8; 8] = *b"SETTEEND";

/// The rows of a vBucket in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) vb: VbId,
    /// The epoch of all of its rows.
    pub(crate) epoch: u64,
    /// The first block, and how many there are.
    pub(crate) first_block: u32,
    pub(crate) blocks: u32,
    pub(crate) rows: u32,
    /// Seqnos of its rows.
    pub(crate) lowest: Seqno,
    pub(crate) highest: Seqno,
    /// Where the first block begins.
    pub(super) at: u64,
    /// Bytes with which all separators of the section begin, in the arena.
    pub(super) prefix: (u32, u32),
}

/// What a run has beside its rows.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) sections: Vec<Section>,
    /// What tells the blocks of a section apart, without what all of them begin with: a name above all those of the block
    /// before, and not above the first one of its own.
    pub(super) separators: Vec<u8>,
    /// For each block where its separator ends.
    pub(super) separator_ends: Vec<u32>,
    /// For each block where it ends, in units of [`BLOCK_ALIGN`] from the begin of its section.
    pub(super) block_ends: Vec<u32>,
    /// Each with the first block that it is for, where it lies and its length.
    pub(super) filters: Vec<FilterAt>,
    /// Bytes of values in other files that rows refer to.
    pub(super) values: BTreeMap<u64, u64>,
    /// Rows, and those of them that say that one is gone.
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
    /// Adds it to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // At once: it is large where memory is short.
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

    /// `None` when it is no index.
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

    /// Whether its parts fit one another.
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

    /// Where a block of a section lies: from and to.
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
        // What a prefix takes lies before the first one of its section.
        self.separators.get(range).unwrap_or_default()
    }

    /// The block of a section in which a name lies, if it does.
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

    /// Bytes that it takes in memory.
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

/// The checksum of a part of a run: what lies at another place, or in another run, is found out as well.
pub(super) fn block_crc(number: u64, at: u64, bytes: &[u8]) -> u32 {
    let mut crc = crc_from(number, at);
    crc.update(bytes);
    crc.finalize()
}

/// The same, of which the bytes are still to come.
pub(super) fn crc_from(number: u64, at: u64) -> crc32fast::Hasher {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&number.to_be_bytes());
    crc.update(&at.to_be_bytes());
    crc
}

/// What a block is sealed with: what it says of itself outside of the seal.
pub(super) fn block_about(epoch: u64, vb: VbId) -> [u8; 10] {
    let mut about = [0; 10];
    about[..8].copy_from_slice(&epoch.to_be_bytes());
    about[8..].copy_from_slice(&vb.0.to_be_bytes());
    about
}
