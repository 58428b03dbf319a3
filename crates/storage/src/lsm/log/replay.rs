//! Replay of a log, group after group.

use std::io;
use std::sync::Arc;

use cipher::SEAL_BYTES;

use super::chunk::{CHUNK_HEADER_BYTES, ChunkHeader, Entry, LAST};
use super::piece::LENGTH_BYTES;
use crate::lsm::bytes::{FileKind, HEADER_BYTES, Reader, damaged};
use crate::lsm::files::Files;
use crate::lsm::sealed::{self, StoreFile};

/// Bytes of a search window, and the overlap of two windows, because a header may cross their border.
const SEARCH_BYTES: usize = 64 << 10;
const SEARCH_OVERLAP: usize = CHUNK_HEADER_BYTES - 1;
/// Number of zeros that count as the end of the written part.
const SEARCH_ZEROS_MAX: usize = 1 << 20;

/// An existing log.
#[derive(Debug)]
pub(crate) struct ExistingLog {
    pub(crate) file: Arc<StoreFile>,
    pub(crate) number: u64,
    length: u64,
}

/// Returns the error of log `number`, which lacks durable groups after offset `end`.
pub(crate) fn lacks_groups(number: u64, end: u64) -> io::Error {
    let name = FileKind::Log.name(number);
    damaged(format!(
        "{name} is damaged at byte {end}, and commits follow it"
    ))
}

/// Returns what is lacking if commits up to `acknowledged` are not there; `last` is the last one, in log `number`.
pub(crate) fn lacking_commits((number, last): (u64, u64), acknowledged: u64) -> Option<String> {
    // The next commit was the last one of this log, or the first one of the next log, which may be missing.
    let next = FileKind::Log.name(number + 1);
    (last < acknowledged).then(|| {
        format!(
            "commits up to {acknowledged} were acknowledged, and {last} is the last one that is there; the next one was in this file or in {next}"
        )
    })
}

/// The chunks of a group with their offsets, and the end of the group.
pub(super) type GroupChunks = (Vec<(u64, Vec<u8>)>, u64);

/// Position in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// Offset after the last whole group.
    pub(crate) end: u64,
    /// Number of that group, or of the last group before the log.
    pub(crate) last_group: u64,
}

impl ExistingLog {
    /// Opens a log, and checks the header.
    pub(crate) fn open(files: &dyn Files, number: u64) -> io::Result<Self> {
        Self::of(sealed::open(files, FileKind::Log, number)?, number)
    }

    pub(super) fn of(file: Arc<StoreFile>, number: u64) -> io::Result<Self> {
        let length = file.length()?;
        Ok(Self {
            file,
            number,
            length,
        })
    }

    /// Passes the entries of all whole groups after group `last_group` to `each`, up to the first incomplete group.
    ///
    /// # Errors
    /// Those of the system and of `each`; `InvalidData` if a durable group is incomplete: one that
    /// is followed by others.
    pub(crate) fn replay(
        &self,
        last_group: u64,
        each: &mut dyn FnMut(Entry<'_>) -> io::Result<()>,
    ) -> io::Result<Groups> {
        let mut groups = Groups {
            end: HEADER_BYTES as u64,
            last_group,
        };
        while self.pass_group(&mut groups, each)? {}
        if self.is_damaged(groups)? {
            return Err(lacks_groups(self.number, groups.end));
        }
        Ok(groups)
    }

    /// Passes the entries of the next group to `each`, and advances behind it. Returns whether it is whole.
    pub(super) fn pass_group(
        &self,
        groups: &mut Groups,
        each: &mut dyn FnMut(Entry<'_>) -> io::Result<()>,
    ) -> io::Result<bool> {
        let Some((chunks, end)) = self.group(*groups)? else {
            return Ok(false);
        };
        for (at, mut bytes) in chunks {
            self.read_entries(&mut bytes, at, each)?;
        }
        (groups.end, groups.last_group) = (end, groups.last_group + 1);
        Ok(true)
    }

    /// Returns the number of the first group; `None` if its first chunk is missing or incomplete.
    pub(crate) fn first_group(&self) -> io::Result<Option<u64>> {
        let first = self.chunk(HEADER_BYTES as u64)?;
        Ok(first.map(|(first, _)| first.group))
    }

    /// Whether the log has a whole group.
    pub(crate) fn has_groups(&self) -> io::Result<bool> {
        let Some(first) = self.first_group()? else {
            return Ok(false);
        };
        let groups = Groups {
            end: HEADER_BYTES as u64,
            last_group: first.saturating_sub(1),
        };
        Ok(self.group(groups)?.is_some())
    }

    /// Returns the chunks of the next group with their offsets, and its end; `None` if the group is incomplete.
    pub(super) fn group(&self, before: Groups) -> io::Result<Option<GroupChunks>> {
        let mut chunks = Vec::new();
        let mut at = before.end;
        loop {
            let Some((header, bytes)) = self.chunk(at)? else {
                return Ok(None);
            };
            let expected = (self.number, before.last_group + 1, chunks.len() as u32);
            if (header.log, header.group, header.chunk) != expected {
                return Ok(None);
            }
            let from = at;
            at += bytes.len() as u64;
            chunks.push((from, bytes));
            if header.flags == LAST {
                return Ok(Some((chunks, at)));
            }
        }
    }

    /// Whether a later group than the missing one has a whole chunk. Since a group is begun only
    /// when all earlier ones are durable, the missing one was durable.
    ///
    /// Cost: reads the rest of the file, up to a MiB of zeros.
    fn is_damaged(&self, groups: Groups) -> io::Result<bool> {
        let found = self.find_header(groups, SEARCH_ZEROS_MAX, |at, header| {
            let is_later = header.group > groups.last_group + 1 && self.chunk(at)?.is_some();
            Ok(is_later.then_some(()))
        })?;
        Ok(found.is_some())
    }

    /// Passes what may be headers of later groups' chunks to `find`, with their offsets, until it finds something.
    /// So many zeros end the search.
    pub(super) fn find_header<T>(
        &self,
        groups: Groups,
        zeros_max: usize,
        mut find: impl FnMut(u64, ChunkHeader) -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        let (mut at, mut zeros) = (groups.end, 0);
        let mut buffer = vec![0; SEARCH_BYTES + SEARCH_OVERLAP];
        while at < self.length && zeros < zeros_max {
            let left = usize::try_from(self.length - at).unwrap_or(usize::MAX);
            let window = &mut buffer[..left.min(SEARCH_BYTES + SEARCH_OVERLAP)];
            self.file.read_at(window, at)?;
            zeros += window.len();
            if window.iter().any(|byte| *byte != 0) {
                zeros = 0;
                for (head, at) in window.array_windows::<CHUNK_HEADER_BYTES>().zip(at..) {
                    let header = ChunkHeader::read(head);
                    if header.log == self.number
                        && header.group > groups.last_group
                        && let Some(found) = find(at, header)?
                    {
                        return Ok(Some(found));
                    }
                }
            }
            at += SEARCH_BYTES as u64;
        }
        Ok(None)
    }

    /// Returns the chunk at `at`, with its header; `None` if it is missing or incomplete.
    fn chunk(&self, at: u64) -> io::Result<Option<(ChunkHeader, Vec<u8>)>> {
        let left = self.length.saturating_sub(at);
        let mut head = [0; CHUNK_HEADER_BYTES];
        if left < CHUNK_HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.file.read_at(&mut head, at)?;
        let header = ChunkHeader::read(&head);
        if u64::from(header.length) > left - CHUNK_HEADER_BYTES as u64 || header.log != self.number
        {
            return Ok(None);
        }
        let mut bytes = vec![0; CHUNK_HEADER_BYTES + header.length as usize];
        self.file.read_at(&mut bytes, at)?;
        let whole = ChunkHeader::is_whole(&bytes, (&*self.file, at));
        Ok(whole.then_some((header, bytes)))
    }

    /// Passes the entries of a chunk at offset `at` to `each`.
    pub(super) fn read_entries(
        &self,
        chunk: &mut [u8],
        at: u64,
        each: &mut dyn FnMut(Entry<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = at + chunk.len() as u64;
        let head = CHUNK_HEADER_BYTES + self.file.seal_bytes();
        let wrong = || damaged("an entry of a log makes no sense");
        let mut rest = chunk.get_mut(head..).unwrap_or_default();
        let (Some(cipher), Some(pieces)) = (self.file.cipher(), self.file.pieces()) else {
            let mut reader = Reader::new(rest);
            while !reader.rest.is_empty() {
                let here = end - reader.rest.len() as u64;
                let entry = Entry::next(&mut reader, here).ok_or_else(wrong)?;
                let value = entry.value_bytes().ok_or_else(wrong)?;
                reader.bytes(value).ok_or_else(wrong)?;
                each(entry)?;
            }
            return Ok(());
        };
        while let Some((length, behind)) = rest.split_first_chunk_mut::<LENGTH_BYTES>() {
            let (length, from) = (u32::from_be_bytes(*length), end - behind.len() as u64);
            let split = behind.split_at_mut_checked(length as usize);
            let (piece, behind) = split.ok_or_else(wrong)?;
            let plain = cipher.open(piece, from, &[])?;
            pieces.add(from, length);
            let mut reader = Reader::new(&piece[..plain]);
            let mut value = 0;
            while !reader.rest.is_empty() {
                let here = from + (plain - reader.rest.len()) as u64;
                let entry = Entry::next(&mut reader, here).ok_or_else(wrong)?;
                value = entry.value_bytes().ok_or_else(wrong)?;
                each(entry)?;
            }
            if value > 0 {
                value += SEAL_BYTES;
            }
            rest = behind.get_mut(value..).ok_or_else(wrong)?;
        }
        Ok(())
    }
}
