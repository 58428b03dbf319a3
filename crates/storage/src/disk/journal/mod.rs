//! The journal: what was committed since the tables were last written, in the order of commits.
//!
//! Drawn in `docs/format/journal.md`. It holds whole groups: all changes of one group count, or
//! none. What is read back of it is found by [`Place`].

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::Slice;
use model::{Seqno, VbId};

use crate::record::{ROW_KEY_BYTES, RowKey, split_row_key};

/// Bytes of a chunk's header: crc, length of the body, generation, group, chunk of it, flags.
const HEADER_BYTES: usize = 29;

/// A chunk is written once it has so many bytes; only a large value makes a larger one.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes that a file has from the start, at most.
const EXTENT_MAX: u64 = 64 << 20;

const PUT: u8 = 1;
const REMOVE: u8 = 2;

/// Flag of the last chunk of a group.
const LAST: u8 = 1;

/// Where a value lies in the journal.
///
/// Shape: the offset in the upper 38 bits, the length in the lower 26.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Place {
    const LENGTH_BITS: u32 = 26;

    /// The place of `length` bytes at `offset`.
    pub(crate) fn at(offset: u64, length: usize) -> Self {
        assert!(
            offset >> (64 - Self::LENGTH_BITS) == 0 && length >> Self::LENGTH_BITS == 0,
            "journal and values are limited in size"
        );
        Self(offset << Self::LENGTH_BITS | length as u64)
    }

    /// Where it begins.
    pub(crate) fn offset(self) -> u64 {
        self.0 >> Self::LENGTH_BITS
    }

    /// Bytes of the value.
    pub(crate) fn length(self) -> usize {
        (self.0 & ((1 << Self::LENGTH_BITS) - 1)) as usize
    }

    /// Reads the value.
    pub(crate) fn read(self, file: &File) -> io::Result<Slice> {
        let mut value = vec![0; self.length()];
        file.read_exact_at(&mut value, self.offset())?;
        Ok(Slice::from(value))
    }
}

/// Reads places that lie mostly one after the other with few reads.
#[derive(Debug)]
pub(crate) struct Window {
    file: Arc<File>,
    start: u64,
    bytes: Vec<u8>,
    /// Bytes to read beyond what is asked for; more as long as places follow one another.
    ahead: usize,
}

impl Window {
    /// Bytes read ahead, at most.
    const AHEAD_MAX: usize = 32 << 10;
    /// Places follow one another when there are at most so many bytes between them.
    const GAP_MAX: u64 = 4096;

    pub(crate) fn new(file: Arc<File>) -> Self {
        Self {
            file,
            start: 0,
            bytes: Vec::new(),
            ahead: 0,
        }
    }

    /// The value at a place.
    pub(crate) fn get(&mut self, place: Place) -> io::Result<&[u8]> {
        let inside = |window: &Self| {
            let from = place.offset().checked_sub(window.start)?;
            let from = usize::try_from(from).ok()?;
            let range = from..from.checked_add(place.length())?;
            (range.end <= window.bytes.len()).then_some(range)
        };
        let range = if let Some(range) = inside(self) {
            range
        } else {
            self.read(place)?;
            0..place.length()
        };
        self.bytes
            .get(range)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn read(&mut self, place: Place) -> io::Result<()> {
        let end = self.start + self.bytes.len() as u64;
        let follows = place.offset() >= self.start && place.offset() <= end + Self::GAP_MAX;
        self.ahead = if follows {
            (2 * self.ahead + 1024).min(Self::AHEAD_MAX)
        } else {
            0
        };
        self.bytes.resize(place.length() + self.ahead, 0);
        self.start = place.offset();
        let mut filled = 0;
        while filled < self.bytes.len() {
            let at = self.start + filled as u64;
            match self.file.read_at(&mut self.bytes[filled..], at) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.truncate(filled);
        Ok(())
    }
}

/// One change as the journal holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A row or, at seqno 2^64-1, the record of the vBucket.
    Put(VbId, Seqno, Place),
    /// It is gone.
    Remove(VbId, Seqno),
}

/// The open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    file: Arc<File>,
    generation: u64,
    /// Bytes that the file has from the start, as a hole: a sync after writing into it does not
    /// have to make a new length durable as well, which takes a file system many times as long.
    extent: u64,
    /// Where the next group begins; everything before is whole groups.
    end: u64,
    last_group: u64,
    /// Reused by every group.
    buffer: Vec<u8>,
}

impl Journal {
    /// Opens the journal of `generation` and hands the entries of each group to `each`, or makes
    /// it. Those of earlier generations, which the tables contain, are removed.
    pub(crate) fn open(
        directory: &Path,
        (generation, bytes_max): (u64, u64),
        each: &mut dyn FnMut(Vec<Entry>),
    ) -> io::Result<Self> {
        let extent = bytes_max.min(EXTENT_MAX);
        for (number, path) in journals(directory)? {
            if number < generation {
                fs::remove_file(path)?;
            }
        }
        let path = path_of(directory, generation);
        if !path.exists() {
            return Self::create(directory, generation, extent);
        }
        let file = File::options().read(true).write(true).open(path)?;
        let mut replay = Replay {
            file: &file,
            generation,
            length: file.metadata()?.len(),
            at: 0,
        };
        let (mut end, mut last_group) = (0, 0);
        while let Some(entries) = replay.group(last_group + 1)? {
            each(entries);
            (end, last_group) = (replay.at, last_group + 1);
        }
        // What is behind the last whole group shall not be taken for part of a later one.
        file.set_len(end)?;
        file.set_len(end.max(extent))?;
        file.sync_all()?;
        Ok(Self {
            directory: directory.to_owned(),
            file: Arc::new(file),
            generation,
            extent,
            end,
            last_group,
            buffer: Vec::new(),
        })
    }

    fn create(directory: &Path, generation: u64, extent: u64) -> io::Result<Self> {
        let path = path_of(directory, generation);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.set_len(extent)?;
        file.sync_all()?;
        File::open(directory)?.sync_all()?;
        Ok(Self {
            directory: directory.to_owned(),
            file: Arc::new(file),
            generation,
            extent,
            end: 0,
            last_group: 0,
            buffer: Vec::new(),
        })
    }

    /// Begins the next generation with an empty journal; the old one is removed.
    pub(crate) fn begin_next(&mut self) -> io::Result<()> {
        let next = Self::create(&self.directory, self.generation + 1, self.extent)?;
        let old = path_of(&self.directory, self.generation);
        let buffer = std::mem::take(&mut self.buffer);
        *self = Self { buffer, ..next };
        // Should this fail, the next opening removes it.
        if let Err(error) = fs::remove_file(old) {
            tracing::warn!(%error, "cannot remove an old journal");
        }
        Ok(())
    }

    /// The file, from which places are read.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// How often there has been a journal.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of whole groups.
    pub(crate) fn bytes(&self) -> u64 {
        self.end
    }

    /// Makes everything written durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Begins a group. One that does not come to [`Journal::finish`] never was.
    pub(crate) fn begin(&mut self) -> Group {
        self.begin_chunk();
        Group {
            at: self.end,
            chunk: 0,
        }
    }

    /// Adds a value under a row key: that which `encode` adds to the buffer.
    pub(crate) fn put(
        &mut self,
        group: &mut Group,
        key: &RowKey,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<Place> {
        self.buffer.push(PUT);
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(&[0; 4]);
        let start = self.buffer.len();
        encode(&mut self.buffer);
        let length = self.buffer.len() - start;
        let place = Place::at(group.at + start as u64, length);
        self.buffer[start - 4..start].copy_from_slice(&(length as u32).to_be_bytes());
        self.write_when_full(group)?;
        Ok(place)
    }

    /// Adds the removal of a row key.
    pub(crate) fn remove(&mut self, group: &mut Group, key: &RowKey) -> io::Result<()> {
        self.buffer.push(REMOVE);
        self.buffer.extend_from_slice(key);
        self.write_when_full(group)
    }

    /// Writes the rest: the group counts from now on, and is durable after [`Journal::sync`].
    pub(crate) fn finish(&mut self, mut group: Group) -> io::Result<()> {
        let written = self.write_chunk(&mut group, LAST);
        if written.is_ok() {
            self.end = group.at;
            self.last_group += 1;
        }
        // A large value should not stay as a large buffer.
        self.buffer.clear();
        self.buffer.shrink_to(2 * CHUNK_BYTES);
        written
    }

    fn begin_chunk(&mut self) {
        self.buffer.clear();
        self.buffer.resize(HEADER_BYTES, 0);
    }

    fn write_when_full(&mut self, group: &mut Group) -> io::Result<()> {
        if self.buffer.len() >= CHUNK_BYTES {
            self.write_chunk(group, 0)?;
            self.begin_chunk();
        }
        Ok(())
    }

    fn write_chunk(&mut self, group: &mut Group, flags: u8) -> io::Result<()> {
        let header = Header {
            length: (self.buffer.len() - HEADER_BYTES) as u32,
            generation: self.generation,
            group: self.last_group + 1,
            chunk: group.chunk,
            flags,
        };
        header.write(&mut self.buffer);
        self.file.write_all_at(&self.buffer, group.at)?;
        group.at += self.buffer.len() as u64;
        group.chunk += 1;
        Ok(())
    }
}

/// A group on its way into the journal.
#[derive(Debug)]
pub(crate) struct Group {
    /// Where the chunk in the buffer will lie.
    at: u64,
    chunk: u32,
}

/// What stands before the body of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    length: u32,
    generation: u64,
    group: u64,
    chunk: u32,
    flags: u8,
}

impl Header {
    /// Fills it in, with the checksum over all that follows the checksum.
    fn write(self, chunk: &mut [u8]) {
        chunk[4..8].copy_from_slice(&self.length.to_be_bytes());
        chunk[8..16].copy_from_slice(&self.generation.to_be_bytes());
        chunk[16..24].copy_from_slice(&self.group.to_be_bytes());
        chunk[24..28].copy_from_slice(&self.chunk.to_be_bytes());
        chunk[28] = self.flags;
        let crc = crc32fast::hash(&chunk[4..]);
        chunk[..4].copy_from_slice(&crc.to_be_bytes());
    }

    fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            length: u32_at(4),
            generation: u64_at(8),
            group: u64_at(16),
            chunk: u32_at(24),
            flags: bytes[28],
        }
    }
}

/// Reads groups from the front.
struct Replay<'a> {
    file: &'a File,
    generation: u64,
    length: u64,
    at: u64,
}

impl Replay<'_> {
    /// The entries of group `number`, if all of it is there; moves behind it then.
    fn group(&mut self, number: u64) -> io::Result<Option<Vec<Entry>>> {
        let mut entries = Vec::new();
        let (mut at, mut chunk) = (self.at, 0);
        loop {
            let Some((header, bytes)) = self.chunk(at)? else {
                return Ok(None);
            };
            if (header.generation, header.group, header.chunk) != (self.generation, number, chunk) {
                return Ok(None);
            }
            if !read_entries(&bytes, at, &mut entries) {
                return Ok(None);
            }
            at += bytes.len() as u64;
            chunk += 1;
            if header.flags == LAST {
                self.at = at;
                return Ok(Some(entries));
            }
        }
    }

    /// The chunk at `at`, header included; `None` when there is none or it is not whole.
    fn chunk(&self, at: u64) -> io::Result<Option<(Header, Vec<u8>)>> {
        let left = self.length.saturating_sub(at);
        let mut head = [0; HEADER_BYTES];
        if left < HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut head, at)?;
        let header = Header::read(&head);
        if u64::from(header.length) > left - HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; HEADER_BYTES + header.length as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        let whole = bytes[..4] == crc32fast::hash(&bytes[4..]).to_be_bytes();
        Ok(whole.then_some((header, bytes)))
    }
}

/// Adds the entries of a chunk that lies at `at`; `false` when it makes no sense.
fn read_entries(chunk: &[u8], at: u64, entries: &mut Vec<Entry>) -> bool {
    let mut rest = &chunk[HEADER_BYTES..];
    while let Some((what, tail)) = rest.split_first() {
        let Some((key, tail)) = tail.split_at_checked(ROW_KEY_BYTES) else {
            return false;
        };
        let Some((vb, seqno)) = split_row_key(key) else {
            return false;
        };
        if *what == REMOVE {
            entries.push(Entry::Remove(vb, seqno));
            rest = tail;
            continue;
        }
        let Some((length, tail)) = tail.split_first_chunk::<4>() else {
            return false;
        };
        let length = u32::from_be_bytes(*length) as usize;
        let Some((_, behind)) = tail.split_at_checked(length).filter(|_| *what == PUT) else {
            return false;
        };
        let offset = at + (chunk.len() - tail.len()) as u64;
        entries.push(Entry::Put(vb, seqno, Place::at(offset, length)));
        rest = behind;
    }
    true
}

fn path_of(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("journal-{generation}"))
}

/// The journals in a directory, with their generations.
pub(crate) fn journals(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("journal-"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            found.push((number, entry.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
