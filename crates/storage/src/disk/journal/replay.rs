//! Reading a journal back, group after group.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::chunk::{Entry, HEADER_BYTES, Header, LAST, PUT, REMOVE};
use crate::disk::value_position::ValuePosition;
use crate::record::{ROW_KEY_BYTES, split_row_key};

/// Bytes that are searched at a time, and those of them that the next time sees as well: a header
/// may lie across.
const SEARCH_BYTES: usize = 64 << 10;
const SEARCH_OVERLAP: usize = HEADER_BYTES - 1;
/// So many zeros are taken for the end of what was ever written.
const SEARCH_ZEROS_MAX: usize = 1 << 20;
static ZEROS: [u8; SEARCH_BYTES + SEARCH_OVERLAP] = [0; SEARCH_BYTES + SEARCH_OVERLAP];

/// Reads groups from the beginning.
pub(super) struct Replay<'a> {
    file: &'a File,
    generation: u64,
    length: u64,
    /// Behind the last group that was read.
    pub(super) at: u64,
    /// Number of the last group that was read, or the one before the first.
    pub(super) last_group: u64,
}

impl<'a> Replay<'a> {
    /// Before the first group of a journal.
    pub(super) fn new(file: &'a File, generation: u64) -> io::Result<Self> {
        let mut replay = Self {
            file,
            generation,
            length: file.metadata()?.len(),
            at: 0,
            last_group: 0,
        };
        replay.last_group = replay.first_group()?.map_or(0, |first| first - 1);
        Ok(replay)
    }

    /// The number that the first group has, whole or not, if the journal has any.
    pub(super) fn first_group(&self) -> io::Result<Option<u64>> {
        let first = self.chunk(0)?.map(|(header, _)| header);
        let ours = first.filter(|first| first.generation == self.generation && first.chunk == 0);
        Ok(ours
            .map(|first| first.group)
            .filter(|group| (1..u64::MAX).contains(group)))
    }

    /// The entries of the next group, if all of it is there; moves behind it then.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<Entry>>> {
        let number = self.last_group + 1;
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
                (self.at, self.last_group) = (at, number);
                return Ok(Some(entries));
            }
        }
    }

    /// Whether a whole chunk that was written after group `missing` lies at `at` or behind. A group
    /// is begun when all before it are durable, so that one was. Without a number it is the first
    /// one of which there is a chunk.
    ///
    /// Cost: reads what is behind, up to a MiB of zeros.
    pub(super) fn is_damaged(&self, at: u64, mut missing: Option<u64>) -> io::Result<bool> {
        let found = self.search(at, &mut |header| {
            header.group > *missing.get_or_insert(header.group)
        })?;
        Ok(found.is_some())
    }

    /// Goes on behind the damage where [`Replay::next`] ended, with the next group that begins
    /// whole; `false` when there is none.
    pub(super) fn skip_damage(&mut self) -> io::Result<bool> {
        let after = self.last_group;
        let found = self.search(self.at + 1, &mut |header| {
            header.chunk == 0 && header.group > after
        })?;
        if let Some((at, header)) = found {
            (self.at, self.last_group) = (at, header.group - 1);
        }
        Ok(found.is_some())
    }

    /// The first whole chunk of this generation at `at` or behind that is `wanted`, and where.
    fn search(
        &self,
        mut at: u64,
        wanted: &mut dyn FnMut(&Header) -> bool,
    ) -> io::Result<Option<(u64, Header)>> {
        let mut zeros = 0;
        let mut buffer = vec![0; SEARCH_BYTES + SEARCH_OVERLAP];
        while at < self.length && zeros < SEARCH_ZEROS_MAX {
            let left = usize::try_from(self.length - at).unwrap_or(usize::MAX);
            let window = &mut buffer[..left.min(SEARCH_BYTES + SEARCH_OVERLAP)];
            self.file.read_exact_at(window, at)?;
            if *window == ZEROS[..window.len()] {
                zeros += window.len();
            } else {
                zeros = 0;
                let found = self.search_in(window, at, wanted)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            at += SEARCH_BYTES as u64;
        }
        Ok(None)
    }

    /// The same within `window`, which lies at `at`.
    fn search_in(
        &self,
        window: &[u8],
        at: u64,
        wanted: &mut dyn FnMut(&Header) -> bool,
    ) -> io::Result<Option<(u64, Header)>> {
        let ours = self.generation.to_be_bytes();
        for (offset, head) in window.windows(HEADER_BYTES).enumerate() {
            let here = at + offset as u64;
            if head[8..16] == ours
                && let Some((header, _)) = self.chunk(here)?
                && wanted(&header)
            {
                return Ok(Some((here, header)));
            }
        }
        Ok(None)
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
        entries.push(Entry::Put(vb, seqno, ValuePosition::at(offset, length)));
        rest = behind;
    }
    true
}
