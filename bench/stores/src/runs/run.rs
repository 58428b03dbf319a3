//! An immutable sorted file: blocks of rows with a checksum each; the first key of each block and a filter of all keys
//! in memory.

use std::cell::Cell;
use std::fs::File;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::Write;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use xorf::{BinaryFuse8, Filter as _};

use super::{Place, Row, RowKey, Value};
use crate::peer::Failure;

const BLOCK_BYTES: usize = 16 << 10;
/// Key, seqno and the length of the value.
const HEAD_BYTES: usize = 18 + 8 + 4;
/// Bytes of a block's first key that are kept in memory: what tells it from its neighbours, mostly.
const SEPARATOR_BYTES: usize = 8;
/// In the length of a value: it is the place of one.
const THERE: u32 = 1 << 31;
const PLACE_BYTES: usize = 16;
const BUFFER_BYTES: usize = 1 << 20;

pub(super) fn hash(key: &RowKey) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
}

pub(super) fn encode(key: &RowKey, row: &Row, out: &mut Vec<u8>) {
    out.extend(key);
    out.extend(row.seqno.to_le_bytes());
    match &row.value {
        Value::Here(value) => {
            out.extend((value.len() as u32).to_le_bytes());
            out.extend(value);
        }
        Value::There(place) => {
            out.extend((THERE | PLACE_BYTES as u32).to_le_bytes());
            out.extend(place.log.to_le_bytes());
            out.extend(place.length.to_le_bytes());
            out.extend(place.offset.to_le_bytes());
        }
    }
}

fn decode(there: bool, bytes: &[u8]) -> Value {
    let number = |at: usize| bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    if !there {
        return Value::Here(bytes.to_vec());
    }
    Value::There(Place {
        log: number(0),
        length: number(4),
        offset: u64::from(number(8)) | u64::from(number(12)) << 32,
    })
}

fn separator(key: &[u8]) -> [u8; SEPARATOR_BYTES] {
    key.first_chunk().copied().unwrap_or_default()
}

pub(super) struct Run {
    path: PathBuf,
    file: File,
    rows: u64,
    separators: Box<[[u8; SEPARATOR_BYTES]]>,
    /// Where blocks begin, and where the last one ends.
    offsets: Box<[u64]>,
    filter: BinaryFuse8,
    reads: Cell<u64>,
}

impl Run {
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads.get()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.separators.len() * SEPARATOR_BYTES + self.offsets.len() * 8 + self.filter.len()
    }

    pub(super) fn remove(self) -> Result<(), Failure> {
        Ok(std::fs::remove_file(self.path)?)
    }

    fn read(&self, block: usize, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        let (from, to) = (self.offsets[block], self.offsets[block + 1]);
        bytes.resize((to - from) as usize, 0);
        self.file.read_exact_at(bytes, from)?;
        let sum = bytes.split_off(bytes.len() - 4);
        if crc32c::crc32c(bytes).to_le_bytes() != sum.as_slice() {
            return Err("a block is damaged".into());
        }
        Ok(())
    }

    /// The first block in which a key may be.
    fn block_of(&self, key: &RowKey) -> usize {
        let wanted = separator(key);
        let after = self.separators.partition_point(|first| *first < wanted);
        after.saturating_sub(1)
    }

    pub(super) fn get(&self, key: &RowKey, hash: u64) -> Result<Option<Row>, Failure> {
        if !self.filter.contains(&hash) {
            return Ok(None);
        }
        let wanted = separator(key);
        let mut bytes = Vec::new();
        let mut block = self.block_of(key);
        while block < self.separators.len() && self.separators[block] <= wanted {
            self.reads.set(self.reads.get() + 1);
            self.read(block, &mut bytes)?;
            for (found, seqno, there, value) in Rows(&bytes) {
                if found == *key {
                    let value = decode(there, value);
                    return Ok(Some(Row { seqno, value }));
                }
            }
            block += 1;
        }
        Ok(None)
    }

    /// Rows from a key on.
    pub(super) fn from(&self, key: &RowKey) -> Result<Walk<'_>, Failure> {
        let mut walk = Walk {
            run: self,
            block: self.block_of(key),
            bytes: Vec::new(),
            at: 0,
        };
        walk.turn()?;
        while let Some((found, ..)) = Rows(&walk.bytes[walk.at..]).next() {
            if found >= *key {
                break;
            }
            walk.step()?;
        }
        Ok(walk)
    }
}

/// The rows of a block.
struct Rows<'a>(&'a [u8]);

impl<'a> Iterator for Rows<'a> {
    /// Key, seqno, and the value or its place.
    type Item = (RowKey, u64, bool, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, rest) = self.0.split_first_chunk::<18>()?;
        let (seqno, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length);
        let (bytes, rest) = rest.split_at_checked((length & !THERE) as usize)?;
        self.0 = rest;
        let there = length & THERE != 0;
        Some((*key, u64::from_le_bytes(*seqno), there, bytes))
    }
}

/// Rows one after the other.
pub(super) struct Walk<'a> {
    run: &'a Run,
    block: usize,
    bytes: Vec<u8>,
    at: usize,
}

impl Walk<'_> {
    /// Reads the next block, if there is one.
    fn turn(&mut self) -> Result<(), Failure> {
        self.at = 0;
        self.bytes.clear();
        if self.block < self.run.separators.len() {
            self.run.read(self.block, &mut self.bytes)?;
            self.block += 1;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Failure> {
        if let Some((.., value)) = Rows(&self.bytes[self.at..]).next() {
            self.at += HEAD_BYTES + value.len();
        }
        if self.at == self.bytes.len() {
            self.turn()?;
        }
        Ok(())
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<(RowKey, Row), Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let (key, seqno, there, value) = Rows(&self.bytes[self.at..]).next()?;
        let value = decode(there, value);
        if let Err(error) = self.step() {
            return Some(Err(error));
        }
        Some(Ok((key, Row { seqno, value })))
    }
}

pub(super) struct Writer {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// Where the block begins in the buffer.
    block: usize,
    written: u64,
    separators: Vec<[u8; SEPARATOR_BYTES]>,
    offsets: Vec<u64>,
    hashes: Vec<u64>,
}

impl Writer {
    pub(super) fn create(path: PathBuf) -> Result<Self, Failure> {
        Ok(Self {
            file: File::options()
                .create_new(true)
                .read(true)
                .write(true)
                .open(&path)?,
            path,
            buffer: Vec::with_capacity(BUFFER_BYTES + 2 * BLOCK_BYTES),
            block: 0,
            written: 0,
            separators: Vec::new(),
            offsets: Vec::new(),
            hashes: Vec::new(),
        })
    }

    /// Adds a row; keys ascend.
    pub(super) fn add(&mut self, key: &RowKey, row: &Row) -> Result<(), Failure> {
        if self.buffer.len() == self.block {
            self.separators.push(separator(key));
            self.offsets.push(self.written + self.block as u64);
        }
        encode(key, row, &mut self.buffer);
        self.hashes.push(hash(key));
        if self.buffer.len() - self.block >= BLOCK_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), Failure> {
        let sum = crc32c::crc32c(&self.buffer[self.block..]);
        self.buffer.extend(sum.to_le_bytes());
        self.block = self.buffer.len();
        if self.block >= BUFFER_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Failure> {
        self.file.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.block = 0;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Run, Failure> {
        if self.buffer.len() > self.block {
            self.end_block()?;
        }
        self.write()?;
        self.offsets.push(self.written);
        let rows = self.hashes.len() as u64;
        let filter = BinaryFuse8::try_from(&self.hashes)?;
        self.file.write_all(&filter.fingerprints)?;
        self.file.sync_data()?;
        Ok(Run {
            path: self.path,
            file: self.file,
            rows,
            separators: self.separators.into(),
            offsets: self.offsets.into(),
            filter,
            reads: Cell::new(0),
        })
    }
}
