//! Filters of a run, by name. Each filter covers the names of some blocks.

use std::io;
use std::sync::Arc;

use xorf::{BinaryFuse8, BinaryFuse8Ref, DmaSerializable, Filter as _, FilterRef as _};

use super::format::{FILTER_ROWS, FilterAt};
use crate::lsm::bytes::{FileKind, HEADER_BYTES, damaged};
use crate::lsm::file_draft::FileDraft;
use crate::lsm::files::Files;
use crate::lsm::sealed::StoreFile;

/// Bytes of filters in a temporary file that are written and read at once.
const ASIDE_BYTES: usize = 256 << 10;
/// Additional data that is authenticated with a filter, beside its offset from the first filter.
const ABOUT: &[u8] = b"filter";

/// Filters that are built while rows are added, and are written after all blocks. Until then they
/// are in memory, or in a temporary file.
#[derive(Default)]
pub(super) struct FilterWriter {
    hashes: Vec<u64>,
    /// First block of the next filter.
    first_block: u32,
    made: Vec<FilterAt>,
    waiting: Vec<u8>,
    /// The temporary file of finished filters, and their bytes.
    aside: Option<FileDraft>,
    aside_bytes: u64,
    /// Bytes returned by `next_piece`.
    given: u64,
}

impl FilterWriter {
    /// Creates a writer for run `number` with a temporary file. No file of values has that number.
    pub(super) fn aside(files: &Arc<dyn Files>, number: u64) -> io::Result<Self> {
        let (made, header) = FileDraft::create(files, FileKind::Values, number)?;
        made.file.write_at(&header, 0)?;
        Ok(Self {
            aside: Some(made),
            ..Self::default()
        })
    }

    /// Adds the hash of a name.
    pub(super) fn add(&mut self, hash: u64) {
        self.hashes.push(hash);
    }

    /// Ends a block of `run`, before the block `next`.
    pub(super) fn end_block(&mut self, run: &StoreFile, next: u32) -> io::Result<()> {
        if self.hashes.len() >= FILTER_ROWS {
            self.end_filter(run, next)?;
        }
        Ok(())
    }

    /// Ends the filter of the blocks before the block `next`.
    fn end_filter(&mut self, run: &StoreFile, next: u32) -> io::Result<()> {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        if self.hashes.is_empty() {
            self.hashes.push(0);
        }
        let filter = BinaryFuse8::try_from(&self.hashes).map_err(io::Error::other)?;
        self.hashes.clear();
        let from = self.waiting.len();
        let at = self.aside_bytes + from as u64;
        let head = from + BinaryFuse8::DESCRIPTOR_LEN;
        self.waiting.resize(head, 0);
        filter.dma_copy_descriptor_to(&mut self.waiting[from..]);
        self.waiting.extend_from_slice(filter.dma_fingerprints());
        run.seal(&mut self.waiting, from, (at, ABOUT))?;
        self.made.push(FilterAt {
            first_block: self.first_block,
            at,
            length: (self.waiting.len() - from) as u32,
        });
        self.first_block = next;
        if self.waiting.len() >= ASIDE_BYTES {
            self.put_aside()?;
        }
        Ok(())
    }

    /// Writes finished filters into the temporary file, if there is one.
    fn put_aside(&mut self) -> io::Result<()> {
        if let Some(aside) = &self.aside {
            let at = HEADER_BYTES as u64 + self.aside_bytes;
            aside.file.write_at(&self.waiting, at)?;
            self.aside_bytes += self.waiting.len() as u64;
            self.waiting.clear();
        }
        Ok(())
    }

    /// Ends the last filter.
    pub(super) fn finish(&mut self, run: &StoreFile) -> io::Result<()> {
        if !self.hashes.is_empty() || self.made.is_empty() {
            self.end_filter(run, 0)?;
        }
        self.hashes = Vec::new();
        self.put_aside()
    }

    /// Returns the next bytes of all filters; `None` at the end.
    pub(super) fn next_piece(&mut self) -> io::Result<Option<&[u8]>> {
        if let Some(aside) = &self.aside {
            let left = usize::try_from(self.aside_bytes - self.given).unwrap_or(usize::MAX);
            self.waiting.resize(left.min(ASIDE_BYTES), 0);
            let at = HEADER_BYTES as u64 + self.given;
            aside.file.read_at(&mut self.waiting, at)?;
        } else if self.given > 0 {
            self.waiting.clear();
        }
        self.given += self.waiting.len() as u64;
        Ok((!self.waiting.is_empty()).then_some(&self.waiting))
    }

    /// Returns the position of each filter, if the first one is at `filters_at`.
    pub(super) fn places(&self, filters_at: u64) -> Vec<FilterAt> {
        let place = |filter: &FilterAt| FilterAt {
            at: filters_at + filter.at,
            ..*filter
        };
        self.made.iter().map(place).collect()
    }
}

/// Unseals the filters of a run in `bytes`, in place.
///
/// # Errors
/// `InvalidData` if they are not the written filters.
pub(super) fn unseal(run: &StoreFile, filters: &[FilterAt], bytes: &mut [u8]) -> io::Result<()> {
    let filters_at = filters.first().map_or(0, |filter| filter.at);
    for filter in filters {
        let at = filter.at.saturating_sub(filters_at);
        let from = at as usize;
        let unit = bytes.get_mut(from..from + filter.length as usize);
        let unit = unit.ok_or_else(|| damaged("a filter is not where it should be"))?;
        run.unseal_in_place(unit, (at, ABOUT))?;
    }
    Ok(())
}

/// Whether a filter may have a hash; `None` for bytes that are no filter.
pub(super) fn may_have(filter: &[u8], hash: u64) -> Option<bool> {
    let (descriptor, fingerprints) = filter.split_at_checked(BinaryFuse8::DESCRIPTOR_LEN)?;
    let filter = BinaryFuse8Ref::from_dma(descriptor, fingerprints);
    Some(filter.contains(&hash))
}

#[cfg(test)]
mod tests {
    use cipher::EncryptionKeys;

    use super::*;
    use crate::lsm::files::Directory;
    use crate::lsm::sealed::{self, StoreFile};

    /// Returns the bytes and positions of the filters of a run with `count` names, 100 in each block.
    fn written(run: &StoreFile, mut writer: FilterWriter, count: u64) -> (Vec<u8>, Vec<FilterAt>) {
        for name in 0..count {
            writer.add(hash(name));
            if name % 100 == 99 {
                let next = (name / 100) as u32 + 1;
                writer.end_block(run, next).expect("there is room");
            }
        }
        writer.finish(run).expect("there is room");
        let mut bytes = Vec::new();
        while let Some(piece) = writer.next_piece().expect("it is read") {
            bytes.extend_from_slice(piece);
        }
        (bytes, writer.places(1000))
    }

    fn hash(name: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&name.to_be_bytes())
    }

    #[test]
    fn filters_in_a_file_equal_filters_in_memory() {
        let place = tempfile::tempdir().expect("a directory");
        let line = EncryptionKeys::line("k1", &[1; 32]).expect("an ID");
        let keys = Arc::new(EncryptionKeys::parse(&line, || 7).expect("a key"));
        for (keys, seal) in [(None, 0), (Some(&keys), 24)] {
            let files: Arc<dyn Files> = Arc::new(Directory::at(place.path(), keys));
            let made = sealed::create(&*files, "run-00000009", (FileKind::Run, 9));
            let run = &*made.expect("a run").0;
            let aside = || FilterWriter::aside(&files, 9).expect("a file");
            for count in [0, 1, 100, 400_000] {
                let (mut one, at) = written(run, FilterWriter::default(), count);
                let (mut other, other_at) = written(run, aside(), count);
                assert_eq!(at, other_at);
                unseal(run, &at, &mut one).expect("they are whole");
                unseal(run, &at, &mut other).expect("they are whole");
                for filter in &at {
                    let from = (filter.at - 1000) as usize;
                    let filter = from..from + filter.length as usize - seal;
                    assert_eq!(one[filter.clone()], other[filter]);
                }
                for name in 0..count {
                    let after =
                        at.partition_point(|filter| filter.first_block <= (name / 100) as u32);
                    let filter = at[after - 1];
                    let filter = &one[(filter.at - 1000) as usize..][..filter.length as usize];
                    assert_eq!(may_have(filter, hash(name)), Some(true));
                }
            }
        }
        let names = Directory::at(place.path(), None)
            .list()
            .expect("it is there");
        assert_eq!(names, ["run-00000009"], "nothing stays aside");
    }

    #[test]
    fn moved_filter_is_detected() {
        let place = tempfile::tempdir().expect("a directory");
        let line = EncryptionKeys::line("k1", &[1; 32]).expect("an ID");
        let keys = Arc::new(EncryptionKeys::parse(&line, || 7).expect("a key"));
        let files = Directory::at(place.path(), Some(&keys));
        let made = sealed::create(&files, "run-00000009", (FileKind::Run, 9));
        let run = &*made.expect("a run").0;
        let (bytes, at) = written(run, FilterWriter::default(), 128_000);
        let [one, other, ..] = at[..] else {
            panic!("{at:?}");
        };
        assert_eq!(one.length, other.length, "of as many names");
        let mut moved = bytes.clone();
        let length = one.length as usize;
        moved[..length].copy_from_slice(&bytes[length..2 * length]);
        moved[length..2 * length].copy_from_slice(&bytes[..length]);
        assert!(unseal(run, &at, &mut bytes.clone()).is_ok());
        let error = unseal(run, &at, &mut moved).expect_err("they changed places");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
