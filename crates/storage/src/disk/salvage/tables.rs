//! The tables of a damaged store, read block by block.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use lsm_tree::table::block::decoder::ParsedItem as _;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, DataBlock};
use lsm_tree::{CompressionType, ValueType};
use model::{Seqno, VbId};

use crate::disk::table_lists::{BLOBS, KEYSPACES, NAMES, TABLES};
use crate::record::row_key;

/// What every block begins with.
const MAGIC: [u8; 4] = [b'L', b'S', b'M', 3];

/// What lies between the index of a table and the rest of its end.
const VERSION: [u8; 1] = [3];

/// What stands before the key and the value of a row that lies apart: magic, checksum, number, three lengths.
pub(crate) const BLOB_HEADER_BYTES: u64 = 4 + 16 + 8 + 2 + 4 + 4;

/// What a table lists of each file of a row that lies apart: its number, and three sums.
const LISTED_BYTES: usize = 4 * 8;

/// A block of a table: its file, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockAt {
    file: u32,
    offset: u32,
}

/// What a block tells of one key.
pub(super) struct TableRow<'a> {
    pub(super) key: &'a [u8],
    /// `None`: it is gone.
    pub(super) value: Option<&'a [u8]>,
    pub(super) at: BlockAt,
}

/// All table files below a directory, whether they count or not.
#[derive(Default)]
pub(super) struct TableFiles {
    pub(super) files: Vec<PathBuf>,
    /// The file and the block that were read last.
    file: Option<(u32, Vec<u8>)>,
    block: Option<(BlockAt, DataBlock)>,
}

impl TableFiles {
    pub(super) fn find(database: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        let keyspaces = database.join(KEYSPACES);
        if keyspaces.is_dir() {
            for keyspace in fs::read_dir(keyspaces)? {
                let keyspace = keyspace?;
                let tables = keyspace.path().join(TABLES);
                if keyspace.file_name() != NAMES && tables.is_dir() {
                    for table in fs::read_dir(tables)? {
                        files.push(table?.path());
                    }
                }
            }
        }
        files.sort();
        Ok(Self {
            files,
            ..Self::default()
        })
    }

    /// Hands on what every whole block of a file tells; gives the number of gaps between them.
    pub(super) fn read(
        &mut self,
        number: usize,
        each: &mut dyn FnMut(TableRow<'_>),
    ) -> io::Result<u64> {
        let number = u32::try_from(number).map_err(io::Error::other)?;
        let bytes = self.bytes(number)?;
        let (mut at, mut gaps, mut in_gap) = (0, 0, false);
        while let Some(next) = find_magic(bytes, at) {
            let between = bytes.get(at..next).unwrap_or_default();
            if !belongs_between(between) && !in_gap {
                (gaps, in_gap) = (gaps + 1, true);
            }
            let Some((block, length)) = block_at(bytes, next) else {
                if !in_gap {
                    (gaps, in_gap) = (gaps + 1, true);
                }
                at = next + 1;
                continue;
            };
            (at, in_gap) = (next + length, false);
            let Some(block) = block else { continue };
            let offset = u32::try_from(next).map_err(io::Error::other)?;
            let here = BlockAt {
                file: number,
                offset,
            };
            for item in block.iter() {
                let item = item.materialize(block.as_slice());
                let put = !item.key.value_type.is_tombstone();
                each(TableRow {
                    key: &item.key.user_key,
                    value: put.then_some(&*item.value),
                    at: here,
                });
            }
        }
        Ok(gaps)
    }

    /// The value of a row that a block was seen to have.
    pub(super) fn value(&mut self, at: BlockAt, vb: VbId, seqno: Seqno) -> Option<Vec<u8>> {
        if self.block.as_ref().is_none_or(|(of, _)| *of != at) {
            let bytes = self.bytes(at.file).ok()?;
            let (block, _) = block_at(bytes, at.offset as usize)?;
            self.block = Some((at, block?));
        }
        let (_, block) = self.block.as_ref()?;
        let key = row_key(vb, seqno);
        let mut items = block.iter().map(|item| item.materialize(block.as_slice()));
        let found =
            items.find(|item| *item.key.user_key == key && !item.key.value_type.is_tombstone())?;
        if found.key.value_type == ValueType::Indirection {
            let table = self.files.get(at.file as usize)?;
            return blob_value(table, &key, &found.value);
        }
        Some(found.value.to_vec())
    }

    fn bytes(&mut self, number: u32) -> io::Result<&[u8]> {
        if self.file.as_ref().is_none_or(|(of, _)| *of != number) {
            let path = &self.files[number as usize];
            self.file = Some((number, fs::read(path)?));
        }
        Ok(self.file.as_ref().map_or(&[], |(_, bytes)| bytes))
    }
}

/// The tables of a store that are not what was written.
pub(crate) fn damaged(database: &Path) -> Vec<PathBuf> {
    let Ok(mut tables) = TableFiles::find(database) else {
        return vec![database.to_owned()];
    };
    let mut found = Vec::new();
    for number in 0..tables.files.len() {
        if tables
            .read(number, &mut |_| {})
            .map_or(true, |gaps| gaps > 0)
        {
            found.push(tables.files[number].clone());
        }
    }
    found
}

/// Whether bytes are what may lie between two blocks: nothing or, once, a list of the files of rows that lie
/// apart, if there are any, and the version of the file.
fn belongs_between(bytes: &[u8]) -> bool {
    let Some(list) = bytes.strip_suffix(&VERSION) else {
        return bytes.is_empty();
    };
    match list.split_first_chunk() {
        Some((count, files)) => files.len() == u32::from_le_bytes(*count) as usize * LISTED_BYTES,
        None => list.is_empty(),
    }
}

/// The value that lies apart from its table, in the place that the table tells; whether it is what was
/// written is for its own checksum to say.
fn blob_value(table: &Path, key: &[u8], mut place: &[u8]) -> Option<Vec<u8>> {
    let offset = varint(&mut place)?;
    let file = varint(&mut place)?;
    let length = usize::try_from(varint(&mut place)?).ok()?;
    let directory = table.parent()?.parent()?.join(BLOBS);
    let file = File::open(directory.join(file.to_string())).ok()?;
    let at = offset.checked_add(BLOB_HEADER_BYTES + key.len() as u64)?;
    if at.checked_add(length as u64)? > file.metadata().ok()?.len() {
        return None;
    }
    let mut value = vec![0; length];
    file.read_exact_at(&mut value, at).ok()?;
    Some(value)
}

/// A number, seven bits in a byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn find_magic(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let found = rest.windows(MAGIC.len()).position(|window| window == MAGIC);
    found.map(|found| from + found)
}

/// The block at an offset, if it is whole: its rows, unless it is one of another kind, and its
/// length.
fn block_at(bytes: &[u8], at: usize) -> Option<(Option<DataBlock>, usize)> {
    let block = Block::from_reader(&mut bytes.get(at..)?, CompressionType::None).ok()?;
    let length = Header::serialized_len() + block.header.data_length as usize;
    let is_data = block.header.block_type == BlockType::Data;
    Some((is_data.then(|| DataBlock::new(block)), length))
}
