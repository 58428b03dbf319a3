//! The write-ahead log: committed data that is in no run yet, in the order of commits; after a
//! flush the values that runs still refer to.
//!
//! It consists of groups: all entries of a group are valid, or none. A group is begun only when all
//! earlier ones are durable. Drawn in `docs/format/log.md`.

mod chunk;
mod index;
mod order;
mod piece;
mod place;
mod replay;
mod search;

use std::io;
use std::sync::Arc;

use model::VbId;

use super::bytes::{FileKind, HEADER_BYTES};
use super::files::Files;
use super::sealed::{self, StoreFile};
use chunk::{CHUNK_HEADER_BYTES, ChunkHeader, ENTRY_BYTES, LAST};
use piece::{LENGTH_BYTES, PIECE_BYTES};

pub(crate) use chunk::{Entry, EntryKind};
pub(crate) use index::{LogIndex, LogRow, RecordAt};
pub(crate) use order::{LogOrder, Ordered, read_rows};
pub(crate) use place::LogPlace;
pub(crate) use replay::{ExistingLog, lacking_commits, lacks_groups};
pub(crate) use search::Searched;

/// Bytes of a chunk at which it is written; only a large value makes a larger one.
const CHUNK_BYTES: usize = 64 << 10;

/// Minimum size of values that are written without a copy into the buffer.
const LARGE_BYTES: usize = 256 << 10;

/// Maximum initial length of a file, as a hole: a sync after writing into it need not make a new
/// length durable as well, which takes a file system many times as long.
const EXTENT_MAX: u64 = 64 << 20;

/// The log being written.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) file: Arc<StoreFile>,
    pub(crate) number: u64,
    /// Offset of the next group; all before are whole groups.
    pub(crate) end: u64,
    /// Number of the last whole group of this log or of earlier ones.
    pub(crate) last_group: u64,
    /// Whether everything before `end` is durable.
    synced: bool,
    /// Buffer, reused by every group.
    buffer: Vec<u8>,
    /// Offset in the buffer of a piece that is not sealed yet.
    piece: Option<usize>,
}

/// A group being written. Without [`Log::finish`] it does not count.
#[derive(Debug, Default)]
pub(crate) struct LogGroup {
    /// Offset of the buffered chunk in the file.
    at: u64,
    chunk: u32,
}

impl Log {
    /// Creates an empty durable log. `bytes` is its approximate content.
    ///
    /// # Errors
    /// Those of the system; then the file may exist, and the next attempt overwrites it.
    ///
    /// Cost: two syncs.
    pub(crate) fn create(
        files: &dyn Files,
        number: u64,
        last_group: u64,
        bytes: u64,
    ) -> io::Result<Self> {
        let name = FileKind::Log.name(number);
        let (file, header) = sealed::create(files, &name, (FileKind::Log, number))?;
        file.write_at(&header, 0)?;
        file.set_length(bytes.clamp(HEADER_BYTES as u64, EXTENT_MAX))?;
        file.sync()?;
        files.sync_names()?;
        Ok(Self::at(file, number, HEADER_BYTES as u64, last_group))
    }

    /// Continues an existing log after its last whole group.
    pub(crate) fn at(file: Arc<StoreFile>, number: u64, end: u64, last_group: u64) -> Self {
        Self {
            file,
            number,
            end,
            last_group,
            synced: true,
            buffer: Vec::new(),
            piece: None,
        }
    }

    /// Sets the last group before an empty log.
    pub(crate) fn after(mut self, last_group: u64) -> Self {
        self.last_group = last_group;
        self
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// Then the content of the disk is unknown.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if !self.synced {
            self.file.sync()?;
            self.synced = true;
        }
        Ok(())
    }

    /// Begins a group. All earlier ones must be durable.
    pub(crate) fn begin(&mut self) -> LogGroup {
        debug_assert!(self.synced, "a group is begun when all before are durable");
        self.begin_chunk();
        LogGroup {
            at: self.end,
            chunk: 0,
        }
    }

    /// Adds an entry: the body that `encode` appends to the buffer, given its offset in the file,
    /// and after it `value`, which is not part of the body. Returns the place of the body.
    ///
    /// # Errors
    /// Those of the system: the group cannot be finished.
    pub(crate) fn put(
        &mut self,
        group: &mut LogGroup,
        (what, vb): (EntryKind, VbId),
        value: &[u8],
        encode: impl FnOnce(&mut Vec<u8>, u64),
    ) -> io::Result<LogPlace> {
        if self.piece.is_none() && self.file.cipher().is_some() {
            self.buffer.extend_from_slice(&[0; LENGTH_BYTES]);
            self.piece = Some(self.buffer.len());
        }
        let entry = self.buffer.len();
        self.buffer.resize(entry + ENTRY_BYTES, 0);
        let body = entry + ENTRY_BYTES;
        let at = group.at + body as u64;
        encode(&mut self.buffer, at);
        let length = self.buffer.len() - body;
        Entry::begin(what, vb, &mut self.buffer[entry..], self.piece.is_none());
        let is_full = |from: usize| !value.is_empty() || self.buffer.len() - from >= PIECE_BYTES;
        if self.piece.is_some_and(is_full) {
            self.end_piece(group)?;
        }
        if value.len() < LARGE_BYTES || self.file.cipher().is_some() {
            let from = self.buffer.len();
            self.buffer.extend_from_slice(value);
            if !value.is_empty() {
                let at = (group.at + from as u64, &[][..]);
                self.file.seal(&mut self.buffer, from, at)?;
            }
            if self.buffer.len() >= CHUNK_BYTES {
                self.write_chunk(group, 0, &[])?;
                self.begin_chunk();
            }
        } else {
            self.write_chunk(group, 0, value)?;
            self.begin_chunk();
        }
        LogPlace::at(at, length)
    }

    /// Writes the rest: the group counts from here on, and is durable after [`Log::sync`].
    ///
    /// # Errors
    /// Those of the system: the group does not count.
    pub(crate) fn finish(&mut self, mut group: LogGroup) -> io::Result<()> {
        let written = self.write_chunk(&mut group, LAST, &[]);
        if written.is_ok() {
            self.end = group.at;
            self.last_group += 1;
            self.synced = false;
        }
        // An idle store keeps little memory, also after a large value.
        self.buffer.clear();
        self.buffer.shrink_to(CHUNK_BYTES / 8);
        written
    }

    /// Seals the entries since the last piece.
    fn end_piece(&mut self, group: &LogGroup) -> io::Result<()> {
        let (Some(from), Some(pieces)) = (self.piece.take(), self.file.pieces()) else {
            return Ok(());
        };
        let at = group.at + from as u64;
        self.file.seal(&mut self.buffer, from, (at, &[]))?;
        let length = (self.buffer.len() - from) as u32;
        self.buffer[from - LENGTH_BYTES..from].copy_from_slice(&length.to_be_bytes());
        pieces.add(at, length);
        Ok(())
    }

    fn begin_chunk(&mut self) {
        self.buffer.clear();
        self.piece = None;
        let bytes = CHUNK_HEADER_BYTES + self.file.seal_bytes();
        self.buffer.resize(bytes, 0);
    }

    /// Writes the buffer, followed by `rest`, as a chunk.
    fn write_chunk(&mut self, group: &mut LogGroup, flags: u8, rest: &[u8]) -> io::Result<()> {
        self.end_piece(group)?;
        let header = ChunkHeader {
            length: (self.buffer.len() - CHUNK_HEADER_BYTES + rest.len()) as u32,
            log: self.number,
            group: self.last_group + 1,
            chunk: group.chunk,
            flags,
        };
        header.write(&mut self.buffer, rest, (&*self.file, group.at))?;
        self.file.write_at(&self.buffer, group.at)?;
        group.at += self.buffer.len() as u64;
        if !rest.is_empty() {
            self.file.write_at(rest, group.at)?;
            group.at += rest.len() as u64;
        }
        group.chunk += 1;
        Ok(())
    }
}
