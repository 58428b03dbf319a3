//! The tail: the last acknowledged commit, and the kind of the last stop.
//!
//! A log that lost its end is replayed up to that point and looks whole. This separate file shows
//! that more was acknowledged. It has two slots, which are written in turns, so that one is always
//! whole.

use std::io;
use std::sync::Arc;

use super::bytes::{CRC_BYTES, Reader, damaged, named};
use super::files::{Files, RawFile};

pub(crate) const NAME: &str = "TAIL";

/// Bytes of a slot: a sector, so that at most one is torn.
const SLOT_BYTES: usize = 512;
const SLOTS: u64 = 2;
const MAGIC: [u8; 8] = *b"SETTEETL";
/// Bytes of a slot up to the end of its checksum.
const BODY_BYTES: usize = 48;

/// Kind of the last stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LastStop {
    /// The store is open, or its process ended.
    #[default]
    Running,
    /// The store was closed.
    Clean,
    /// A sync failed.
    Poisoned,
}

/// Content of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Number of the write.
    number: u64,
    /// The last acknowledged group.
    pub(crate) group: u64,
    /// The last manifest.
    pub(crate) manifest: u64,
    pub(crate) left: LastStop,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct TailFile {
    file: Arc<dyn RawFile>,
    pub(crate) tail: Tail,
}

impl TailFile {
    /// Creates the file; its name is not durable yet.
    pub(crate) fn make(files: &dyn Files) -> io::Result<Self> {
        let file = files.create(NAME)?;
        file.set_length(SLOTS * SLOT_BYTES as u64)?;
        let mut tail = Self {
            file,
            tail: Tail::default(),
        };
        tail.note_durably(0, 0, LastStop::Running)?;
        Ok(tail)
    }

    /// Reads the newer of the undamaged slots.
    ///
    /// # Errors
    /// `NotFound`; those of the system; `InvalidData` if both are damaged.
    pub(crate) fn open(files: &dyn Files) -> io::Result<Self> {
        let file = files.open(NAME)?;
        let mut newest: Option<Tail> = None;
        for slot in 0..SLOTS {
            let mut bytes = [0; SLOT_BYTES];
            let read = file.read_at(&mut bytes, slot * SLOT_BYTES as u64);
            match read {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
                read => read?,
            }
            let found = decode(&bytes).filter(|found| found.number % SLOTS == slot);
            newest = [newest, found]
                .into_iter()
                .flatten()
                .max_by_key(|tail| tail.number);
        }
        let tail = newest.ok_or_else(|| named(NAME, damaged("none of its slots is whole")))?;
        Ok(Self { file, tail })
    }

    /// Whether all of its bytes are as written: slots that are undamaged, or were never used.
    pub(crate) fn is_whole(&self) -> io::Result<bool> {
        let bytes = self.file.read_all()?;
        let (slots, rest) = bytes.as_chunks::<SLOT_BYTES>();
        let mut slots_whole = slots.iter().zip(0..).map(|(slot, number)| {
            let found = decode(slot).filter(|found| found.number % SLOTS == number);
            let used = if found.is_some() { BODY_BYTES } else { 0 };
            slot[used..].iter().all(|byte| *byte == 0)
        });
        Ok(slots.len() as u64 == SLOTS && rest.is_empty() && slots_whole.all(|whole| whole))
    }

    /// Records the last durable commit. The write reaches the operating system at once, so that it
    /// survives the end of this process; it does not wait for the disk.
    pub(crate) fn note(&mut self, group: u64, manifest: u64, left: LastStop) -> io::Result<()> {
        let next = Tail {
            number: self.tail.number + 1,
            group,
            manifest,
            left,
        };
        let at = next.number % SLOTS * SLOT_BYTES as u64;
        self.file.write_at(&encode(next), at)?;
        self.tail = next;
        Ok(())
    }

    /// As [`TailFile::note`], durably.
    pub(crate) fn note_durably(
        &mut self,
        group: u64,
        manifest: u64,
        left: LastStop,
    ) -> io::Result<()> {
        self.note(group, manifest, left)?;
        self.file.sync()
    }
}

fn encode(tail: Tail) -> [u8; BODY_BYTES] {
    let mut slot = [0; BODY_BYTES];
    slot[..8].copy_from_slice(&MAGIC);
    slot[8..16].copy_from_slice(&tail.number.to_be_bytes());
    slot[16..24].copy_from_slice(&tail.group.to_be_bytes());
    slot[24..32].copy_from_slice(&tail.manifest.to_be_bytes());
    slot[32] = tail.left as u8;
    let crc = crc32fast::hash(&slot[..BODY_BYTES - CRC_BYTES]);
    slot[BODY_BYTES - CRC_BYTES..].copy_from_slice(&crc.to_be_bytes());
    slot
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Option<Tail> {
    let body = BODY_BYTES - CRC_BYTES;
    if slot[..8] != MAGIC || slot[body..BODY_BYTES] != crc32fast::hash(&slot[..body]).to_be_bytes()
    {
        return None;
    }
    let mut reader = Reader::new(&slot[8..body]);
    Some(Tail {
        number: reader.u64()?,
        group: reader.u64()?,
        manifest: reader.u64()?,
        left: match reader.u8()? {
            0 => LastStop::Running,
            1 => LastStop::Clean,
            _ => LastStop::Poisoned,
        },
    })
}
