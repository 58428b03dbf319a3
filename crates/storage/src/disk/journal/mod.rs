//! The journal: what was committed since the tables were last written, in the order of commits.
//!
//! Drawn in `docs/format/journal.md`. It holds whole groups: all changes of one group count, or
//! none. What is read back of it is found by [`ValuePosition`].

mod chain;
mod chunk;
mod replay;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::journal_files::{NextPlace, journals, path_of, recycle};
use super::value_log::{Segments, ValueLog};
use super::value_position::ValuePosition;
use super::{names, table_lists};
use crate::record::RowKey;
use chain::{Existing, chain};
use chunk::{HEADER_BYTES, Header, LAST, PUT, REMOVE};

pub(crate) use chain::Replayed;
pub(crate) use chunk::Entry;

/// A chunk is written once it has so many bytes; only a large value makes a larger one.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes that are read and written at once when a journal is written again.
const REWRITTEN_BYTES: usize = 64 << 10;

/// Bytes that a file has from the start, at most.
const EXTENT_MAX: u64 = 64 << 20;

/// Generations after those in the tables of which there is ever a file: one that is sealed, or its place in the
/// tables is not known yet, and the next.
const AHEAD_MAX: u64 = 2;

/// A journal into which nothing is written any more.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) file: Arc<File>,
    pub(crate) generation: u64,
    /// Bytes of whole groups.
    pub(crate) bytes: u64,
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
    /// Whether everything before `end` is durable.
    synced: bool,
    last_group: u64,
    /// The file of the next generation, if it is there already.
    spare: Option<File>,
    /// Reused by every group.
    buffer: Vec<u8>,
}

impl Journal {
    /// Reads what follows generation `flushed`, all of which the tables contain, and changes nothing: hands the
    /// entries of each group to `each`, with their generation.
    ///
    /// # Errors
    /// `InvalidData`: something is damaged or missing that was durable.
    pub(crate) fn replay(
        directory: &Path,
        flushed: u64,
        each: &mut dyn FnMut(u64, Vec<Entry>),
    ) -> io::Result<Replayed> {
        let last = journals(directory)?.into_iter().max();
        if let Some((_, path)) = last.filter(|(number, _)| *number > flushed + AHEAD_MAX) {
            let tables = table_lists::end_of_tables(directory, flushed);
            let reason = format!("{} does not follow the tables: {tables}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let chain = chain(directory, flushed, true, each)?;
        Ok(Replayed { flushed, chain })
    }

    /// Opens what was replayed: gives the journal to write into,
    /// which is made if there is none, and the sealed one before it, if there is one.
    ///
    /// Journals that count for nothing are removed, durably.
    pub(crate) fn open(
        directory: &Path,
        replayed: Replayed,
        bytes_max: u64,
        in_use: &ValueLog,
    ) -> io::Result<(Option<Sealed>, Self)> {
        let extent = bytes_max.min(EXTENT_MAX);
        let Replayed { flushed, mut chain } = replayed;
        let is_kept =
            |number| in_use.has(number) || chain.iter().any(|one| one.generation == number);
        let others = journals(directory)?.into_iter();
        let others: Vec<_> = others.filter(|(number, _)| !is_kept(*number)).collect();
        for (_, path) in &others {
            names::remove_unsynced(path)?;
        }
        if !others.is_empty() {
            // Before anything is written that one of them might seem to follow.
            names::sync(directory)?;
        }
        let Some(last) = chain.pop() else {
            let file = create(directory, flushed + 1, extent)?;
            return Ok((None, Self::at(directory, file, flushed + 1, extent)));
        };
        // What is behind the last whole group shall not be taken for part of a later one.
        last.file.set_len(last.end)?;
        last.file.set_len(last.end.max(extent))?;
        last.file.sync_all()?;
        let mut journal = Self::at(directory, last.file, last.generation, extent);
        (journal.end, journal.last_group) = (last.end, last.last_group);
        let sealed = chain.pop().map(|sealed| Sealed {
            file: Arc::new(sealed.file),
            generation: sealed.generation,
            bytes: sealed.end,
        });
        Ok((sealed, journal))
    }

    /// Looks for the journal that follows generation `flushed`: from the first opening on there is
    /// one, empty or not.
    ///
    /// # Errors
    /// `InvalidData`: it, or the tables that should come before the journals that there are, are
    /// missing.
    pub(crate) fn check(directory: &Path, flushed: u64) -> io::Result<()> {
        let path = path_of(directory, flushed + 1);
        if path.try_exists()? {
            return Ok(());
        }
        let reason = format!("{}, or tables, are missing", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidData, reason))
    }

    /// Reads what follows generation `flushed` and changes nothing: the files, and all groups that
    /// are whole, those behind damage too, both with their generations.
    pub(crate) fn read_all(
        directory: &Path,
        flushed: u64,
    ) -> io::Result<(Segments, Groups, Damaged)> {
        let mut groups = Vec::new();
        let chain = chain(directory, flushed, false, &mut |generation, group| {
            groups.push((generation, group));
        })?;
        let mut damaged = Damaged::new();
        let mut files = Segments::new();
        for one in chain {
            if one.damaged > 0 {
                damaged.push((path_of(directory, one.generation), one.damaged));
            }
            files.insert(one.generation, Arc::new(one.file));
        }
        Ok((files, groups, damaged))
    }

    /// Writes the newest journal that has anything once more, as it reads, and durably: after a failed sync its pages may
    /// read as they never reached the disk, and the system takes them for written. Those before it were durable as a
    /// whole when it was begun.
    ///
    /// Cost: reads and writes it all, [`DiskOptions::journal_bytes`](super::DiskOptions::journal_bytes) and one commit.
    pub(crate) fn write_again(directory: &Path) -> io::Result<()> {
        let mut generations: Vec<u64> = journals(directory)?.iter().map(|one| one.0).collect();
        generations.sort_unstable();
        for generation in generations.into_iter().rev() {
            if let Some(journal) = Existing::open(directory, generation, true)?
                && journal.replay()?.first_group()?.is_some()
            {
                return rewrite(&journal.file);
            }
        }
        Ok(())
    }

    fn at(directory: &Path, file: File, generation: u64, extent: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            file: Arc::new(file),
            generation,
            extent,
            end: 0,
            synced: true,
            last_group: 0,
            spare: None,
            buffer: Vec::new(),
        }
    }

    /// Begins the next generation with an empty journal, and gives the full one, all of which is
    /// durable. Groups are numbered on, so that one journal is never taken for the next of another.
    ///
    /// Cost: nothing, when [`Journal::recycled`] was told of a file; else two syncs.
    pub(crate) fn rotate(&mut self) -> io::Result<Sealed> {
        if !self.synced {
            // Whatever it was, after a failed sync nothing is known of the file.
            self.sync().map_err(io::Error::other)?;
        }
        let generation = self.generation + 1;
        let next = match self.spare.take() {
            Some(file) => file,
            None => create(&self.directory, generation, self.extent)?,
        };
        let sealed = Sealed {
            file: std::mem::replace(&mut self.file, Arc::new(next)),
            generation: self.generation,
            bytes: self.end,
        };
        (self.generation, self.end) = (generation, 0);
        Ok(sealed)
    }

    /// What [`retire`] needs to know.
    pub(crate) fn next_place(&self) -> NextPlace {
        NextPlace {
            directory: self.directory.clone(),
            generation: self.generation + 1,
            extent: self.extent,
        }
    }

    /// Takes over a file that [`retire`] made that of the next generation.
    pub(crate) fn recycled(&mut self, file: File, generation: u64) {
        if generation == self.generation + 1 {
            self.spare = Some(file);
        }
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
    ///
    /// # Errors
    /// Also when the file was removed: no opening would find it.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::other("the journal's file was removed"));
        }
        self.synced = true;
        Ok(())
    }

    /// Whether everything in it is durable.
    #[cfg(test)]
    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Begins a group. One that does not come to [`Journal::finish`] never was.
    pub(crate) fn begin(&mut self) -> Group {
        self.begin_chunk();
        Group {
            at: self.end,
            chunk: 0,
        }
    }

    /// Adds a value under a row key: that which `encode` adds to the buffer, and then what it gives,
    /// which is written from where it lies.
    pub(crate) fn put<'v>(
        &mut self,
        group: &mut Group,
        key: &RowKey,
        encode: impl FnOnce(&mut Vec<u8>) -> &'v [u8],
    ) -> io::Result<ValuePosition> {
        self.buffer.push(PUT);
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(&[0; 4]);
        let start = self.buffer.len();
        let rest = encode(&mut self.buffer);
        let length = self.buffer.len() - start + rest.len();
        let place = ValuePosition::at(group.at + start as u64, length);
        self.buffer[start - 4..start].copy_from_slice(&(length as u32).to_be_bytes());
        if rest.is_empty() {
            self.write_when_full(group)?;
        } else {
            self.write_chunk(group, 0, rest)?;
            self.begin_chunk();
        }
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
        let written = self.write_chunk(&mut group, LAST, &[]);
        if written.is_ok() {
            self.end = group.at;
            self.last_group += 1;
            self.synced = false;
        }
        // An idle store keeps little, and a large value should not stay as a large buffer.
        self.buffer.clear();
        self.buffer.shrink_to(CHUNK_BYTES / 8);
        written
    }

    fn begin_chunk(&mut self) {
        self.buffer.clear();
        self.buffer.resize(HEADER_BYTES, 0);
    }

    fn write_when_full(&mut self, group: &mut Group) -> io::Result<()> {
        if self.buffer.len() >= CHUNK_BYTES {
            self.write_chunk(group, 0, &[])?;
            self.begin_chunk();
        }
        Ok(())
    }

    /// Writes the buffer, and `rest` behind it, as a chunk.
    fn write_chunk(&mut self, group: &mut Group, flags: u8, rest: &[u8]) -> io::Result<()> {
        if group.chunk == 0 && !self.synced {
            // So that whatever follows a damaged group shows that it was durable. Whatever the
            // error was, after a failed sync nothing is known of the file.
            self.sync().map_err(io::Error::other)?;
        }
        let header = Header {
            length: (self.buffer.len() - HEADER_BYTES + rest.len()) as u32,
            generation: self.generation,
            group: self.last_group + 1,
            chunk: group.chunk,
            flags,
        };
        header.write(&mut self.buffer, rest);
        self.file.write_all_at(&self.buffer, group.at)?;
        group.at += self.buffer.len() as u64;
        self.file.write_all_at(rest, group.at)?;
        group.at += rest.len() as u64;
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

/// Groups of entries, with the generation of their journal.
pub(crate) type Groups = Vec<(u64, Vec<Entry>)>;

/// Files with damage that was passed over, and how often.
pub(crate) type Damaged = Vec<(PathBuf, u64)>;

/// Ends a journal of which the tables have everything. When it has no readers any more, its file
/// becomes that of the next generation, which is given: its blocks are there and written, so that
/// syncs of new groups need not touch the file system's own journal. Else it is removed.
///
/// Cost: a sync. What fails here is cleared away by the next opening.
pub(crate) fn retire(sealed: Sealed, next: &NextPlace) -> Option<(File, u64)> {
    let old = path_of(&next.directory, sealed.generation);
    let retired = match Arc::try_unwrap(sealed.file) {
        Ok(file) => recycle(file, &old, next).map(Some),
        Err(_read) => names::remove_unsynced(&old).map(|_| None),
    };
    retired.unwrap_or_else(|error: io::Error| {
        tracing::warn!(%error, "cannot retire an old journal");
        None
    })
}

/// Makes the file of the next generation before it is needed. What fails here is tried again then.
///
/// Cost: two syncs.
pub(crate) fn prepare(next: &NextPlace) -> Option<(File, u64)> {
    let made = create(&next.directory, next.generation, next.extent);
    match made {
        Ok(file) => Some((file, next.generation)),
        Err(error) => {
            tracing::warn!(%error, "cannot make the next journal yet");
            None
        }
    }
}

/// Writes a file over itself, but for what reads as zeros, and syncs it.
fn rewrite(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut buffer = vec![0; REWRITTEN_BYTES];
    let mut at = 0;
    while at < length {
        let left = usize::try_from(length - at).unwrap_or(usize::MAX);
        let piece = &mut buffer[..left.min(REWRITTEN_BYTES)];
        file.read_exact_at(piece, at)?;
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, at)?;
        }
        at += piece.len() as u64;
    }
    file.sync_data()
}

fn create(directory: &Path, generation: u64, extent: u64) -> io::Result<File> {
    let file = names::create(&path_of(directory, generation))?;
    file.set_len(extent)?;
    file.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests;
