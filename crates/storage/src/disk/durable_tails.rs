//! The side file that remembers the last acknowledged commit of each vBucket.
//!
//! A journal that lost pages is replayed up to the first damage and looks whole. This file, which
//! is apart from it, tells that more had been acknowledged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use model::{Seqno, VbId};

use super::names;

/// Bytes of a slot: high seqno, commit number, CRC-32 over vBucket and both, four zero bytes.
const SLOT_BYTES: usize = 24;

/// Slots that a new file has, written out so that later writes need no new space.
const SLOTS_NEW: usize = 1024;

/// How many commits may pass between two syncs of the file.
const COMMITS_PER_SYNC: u32 = 64;

/// The last commit of a vBucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DurableTail {
    /// Highest seqno.
    pub(crate) high_seqno: Seqno,
    /// Number of the commit.
    pub(crate) commit: u64,
}

/// The open file and its content.
#[derive(Debug)]
pub(crate) struct DurableTails {
    file: File,
    bytes: Vec<u8>,
    unsynced: u32,
}

impl DurableTails {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = names::open_or_create(path)?;
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut bytes = vec![0; length.next_multiple_of(SLOT_BYTES)];
        file.read_exact_at(&mut bytes[..length], 0)?;
        let mut tails = Self {
            file,
            bytes,
            unsynced: 0,
        };
        if tails.bytes.len() < SLOTS_NEW * SLOT_BYTES {
            tails.bytes.resize(SLOTS_NEW * SLOT_BYTES, 0);
            tails.file.write_all_at(&tails.bytes, 0)?;
        }
        Ok(tails)
    }

    /// Every slot that is written and whole. A torn one counts as empty.
    pub(crate) fn all(&self) -> impl Iterator<Item = (VbId, DurableTail)> {
        decode_all(&self.bytes)
    }

    /// Notes that commits are durable: `None` forgets a vBucket. One write for all of them.
    ///
    /// The write reaches the operating system at once, so it outlives this process; it is synced
    /// to the device only now and then.
    pub(crate) fn note(
        &mut self,
        notes: impl Iterator<Item = (VbId, Option<DurableTail>)>,
    ) -> io::Result<()> {
        let (mut low, mut high) = (usize::MAX, 0);
        for (vb, tail) in notes {
            let start = usize::from(vb.0) * SLOT_BYTES;
            let end = start + SLOT_BYTES;
            if self.bytes.len() < end {
                self.bytes.resize(end, 0);
            }
            self.bytes[start..end]
                .copy_from_slice(&tail.map_or([0; SLOT_BYTES], |t| encode(vb, t)));
            (low, high) = (low.min(start), high.max(end));
        }
        if low < high {
            self.file.write_all_at(&self.bytes[low..high], low as u64)?;
            self.unsynced += 1;
        }
        if self.unsynced >= COMMITS_PER_SYNC {
            self.sync()
        } else {
            Ok(())
        }
    }

    /// Writes all of it again, durably: it may read as it never reached the disk.
    pub(crate) fn write_again(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.bytes, 0)?;
        self.sync()
    }

    /// Puts everything on the device.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.unsynced = 0;
        self.file.sync_data()
    }
}

/// What a file says that may be missing, without changing anything.
pub(crate) fn read(path: &Path) -> io::Result<Vec<(VbId, DurableTail)>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(decode_all(&bytes).collect())
}

fn decode_all(bytes: &[u8]) -> impl Iterator<Item = (VbId, DurableTail)> {
    let slots = (0..=u16::MAX).map(VbId).zip(bytes.chunks_exact(SLOT_BYTES));
    slots.filter_map(|(vb, slot)| Some((vb, decode(vb, slot)?)))
}

fn checksum(vb: VbId, numbers: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&vb.0.to_be_bytes());
    hasher.update(numbers);
    hasher.finalize().to_be_bytes()
}

fn encode(vb: VbId, tail: DurableTail) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&tail.high_seqno.0.to_be_bytes());
    slot[8..16].copy_from_slice(&tail.commit.to_be_bytes());
    let crc = checksum(vb, &slot[..16]);
    slot[16..20].copy_from_slice(&crc);
    slot
}

fn decode(vb: VbId, slot: &[u8]) -> Option<DurableTail> {
    let (high_seqno, rest) = slot.split_first_chunk::<8>()?;
    let (commit, rest) = rest.split_first_chunk::<8>()?;
    // An empty slot is all zeros, and its checksum does not match those.
    let whole = rest.starts_with(&checksum(vb, &slot[..16]));
    whole.then(|| DurableTail {
        high_seqno: Seqno(u64::from_be_bytes(*high_seqno)),
        commit: u64::from_be_bytes(*commit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(number: u64) -> DurableTail {
        DurableTail {
            high_seqno: Seqno(number),
            commit: number + 1,
        }
    }

    #[test]
    fn tails_come_back_and_torn_slots_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tails");
        let mut tails = DurableTails::open(&path).unwrap();
        assert_eq!(tails.all().count(), 0);
        let notes = [
            (VbId(0), Some(tail(1))),
            (VbId(7), Some(tail(2))),
            (VbId(2000), Some(tail(3))),
        ];
        tails.note(notes.into_iter()).unwrap();
        tails.note([(VbId(0), None)].into_iter()).unwrap();
        let again = DurableTails::open(&path).unwrap();
        let expected = [(VbId(7), tail(2)), (VbId(2000), tail(3))];
        assert_eq!(again.all().collect::<Vec<_>>(), expected);

        tails
            .file
            .write_all_at(&[9], 7 * SLOT_BYTES as u64 + 3)
            .unwrap();
        let torn = DurableTails::open(&path).unwrap();
        assert_eq!(torn.all().collect::<Vec<_>>(), [(VbId(2000), tail(3))]);
    }

    #[test]
    fn an_empty_slot_is_no_tail_of_any_vbucket() {
        assert!((0..=u16::MAX).all(|vb| decode(VbId(vb), &[0; SLOT_BYTES]).is_none()));
    }
}
