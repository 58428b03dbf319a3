//! A row: the stored form of a document, of a removal, or of a version in the history.
//!
//! Inside its vBucket a row has a name: a tag, then the key (in the history the seqno, then the
//! key). Of several rows with one name only the one with the highest seqno is valid. Drawn in
//! `docs/format/row.md`.

use std::io;

use model::{Cas, CollectionId, Datatype, Document, DurabilityLevel, Kind, Meta, Seqno, VbId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bytes::{FileKind, Reader, damaged};
use super::sealed::StoreFile;

/// Tag of a committed document, or of its tombstone.
pub(crate) const DOCUMENT: u8 = 0;
/// Tag of a prepare or an abort.
pub(crate) const PREPARED: u8 = 1;
/// Tag of a version in the history.
pub(crate) const HISTORY: u8 = 2;

/// Bytes before the name.
const HEAD_BYTES: usize = 42;
/// Bytes of the place of a value that is stored apart.
const PLACE_BYTES: usize = 20;

/// Flag: the value is stored apart.
const THERE: u8 = 1;
/// Flag of a removal: the rows of the name up to its seqno are invalid; there is no document and no tombstone.
const GONE: u8 = 2;

const LEVEL_SHIFT: u32 = 4;
const KIND: u8 = 0x0f;

/// Position of a value that is stored apart from its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValuePlace {
    /// Number of its file, see [`ValuePlace::of_log`].
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) crc: u32,
}

impl ValuePlace {
    /// Returns the file number of a log.
    pub(crate) fn of_log(number: u64) -> u64 {
        number << 1 | 1
    }

    /// Returns the file number of a file of values.
    pub(crate) fn of_values(number: u64) -> u64 {
        number << 1
    }

    /// Reads the value from its file into `value`, which has its length.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if it is not the written value.
    pub(crate) fn read_into(self, file: &StoreFile, value: &mut [u8]) -> io::Result<()> {
        file.read_value(value, self.offset)?;
        if crc32fast::hash(value) == self.crc {
            Ok(())
        } else {
            Err(damaged("a value is damaged"))
        }
    }
}

/// Returns kind and number of a file of values, numbered as in [`ValuePlace`].
pub(crate) fn value_file(file: u64) -> (FileKind, u64) {
    let is_log = file & 1 == 1;
    let kind = if is_log {
        FileKind::Log
    } else {
        FileKind::Values
    };
    (kind, file >> 1)
}

/// Returns the tag of a document's row.
pub(crate) fn tag_of(document: &Document) -> u8 {
    if document.kind().is_prepared() {
        PREPARED
    } else {
        DOCUMENT
    }
}

/// Returns the name of a row.
pub(crate) fn name(tag: u8, key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(1 + key.len());
    name.push(tag);
    name.extend_from_slice(key);
    name
}

/// Returns the name of the first row of the history from a seqno on.
pub(crate) fn history_from(seqno: Seqno) -> [u8; 9] {
    let mut name = [HISTORY; 9];
    name[1..].copy_from_slice(&seqno.0.to_be_bytes());
    name
}

/// Class of the names of events of collections.
pub(crate) const EVENT: u8 = 3;
/// Number of classes.
pub(crate) const CLASSES: u8 = 4;

/// Returns the class of a name: its tag, or that of events.
pub(crate) fn class(name: &[u8]) -> u8 {
    match name {
        [DOCUMENT, event, ..] if u32::from(*event) == CollectionId::SYSTEM.0 => EVENT,
        [tag, ..] => *tag,
        [] => DOCUMENT,
    }
}

/// Returns the hash of a row's name in its vBucket. Filters on disk contain it: it may never change.
pub(crate) fn hash(vb: VbId, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, u64::from(vb.0))
}

/// Purpose of a written row.
#[derive(Clone, Copy)]
pub(crate) enum Written {
    /// The row of its key.
    Newest,
    /// A version of the history, with its write time in Unix seconds.
    Version(u32),
}

/// Appends the row of a document to `out`, with its value or its place, whose offset counts from
/// the end of the row. A commit becomes a plain mutation or deletion.
pub(crate) fn encode(
    document: &Document,
    written: Written,
    apart: Option<ValuePlace>,
    out: &mut Vec<u8>,
) {
    assert!(
        document.is_resident(),
        "only a document with its value can be stored"
    );
    let (meta, key) = (document.meta(), document.key());
    let value = document.value();
    let (tag, seqno_bytes, extra) = match written {
        Written::Version(_) => (HISTORY, 8, 4),
        Written::Newest => {
            let extra = if meta.kind == Kind::Abort { 8 } else { 0 };
            (tag_of(document), 0, extra)
        }
    };
    let level = meta.level.map_or(0, |level| level as u8);
    let kind = meta.kind.plain() as u8 | level << LEVEL_SHIFT;
    let flags = if apart.is_some() { THERE } else { 0 };
    let name_len = (1 + seqno_bytes + key.len()) as u16;
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&[flags, kind, meta.datatype.0, extra]);
    head[4..6].copy_from_slice(&name_len.to_be_bytes());
    head[6..10].copy_from_slice(&(value.len() as u32).to_be_bytes());
    head[10..18].copy_from_slice(&meta.seqno.0.to_be_bytes());
    head[18..26].copy_from_slice(&meta.cas.0.to_be_bytes());
    head[26..34].copy_from_slice(&meta.rev.to_be_bytes());
    head[34..38].copy_from_slice(&meta.flags.to_be_bytes());
    head[38..].copy_from_slice(&meta.expiry.to_be_bytes());
    let from = out.len();
    out.extend_from_slice(&head);
    out.push(tag);
    match written {
        Written::Newest => {
            out.extend_from_slice(key);
            if extra > 0 {
                out.extend_from_slice(&meta.prepare_seqno.0.to_be_bytes());
            }
        }
        Written::Version(at_s) => {
            out.extend_from_slice(&meta.seqno.0.to_be_bytes());
            out.extend_from_slice(key);
            out.extend_from_slice(&at_s.to_be_bytes());
        }
    }
    match apart {
        Some(mut place) => {
            place.offset += (out.len() - from + PLACE_BYTES) as u64;
            encode_place(place, out);
        }
        None => out.extend_from_slice(value),
    }
}

fn encode_place(place: ValuePlace, out: &mut Vec<u8>) {
    out.extend_from_slice(&place.file.to_be_bytes());
    out.extend_from_slice(&place.offset.to_be_bytes());
    out.extend_from_slice(&place.crc.to_be_bytes());
}

/// Appends the removal of the row with `name` and `seqno` to `out`.
pub(crate) fn encode_gone(name: &[u8], seqno: Seqno, out: &mut Vec<u8>) {
    let mut head = [0; HEAD_BYTES];
    head[0] = GONE;
    head[4..6].copy_from_slice(&(name.len() as u16).to_be_bytes());
    head[10..18].copy_from_slice(&seqno.0.to_be_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(name);
}

/// A row in memory.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    /// All bytes of the row.
    pub(crate) bytes: &'a [u8],
    name_end: usize,
    value_at: usize,
}

impl<'a> Row<'a> {
    /// Returns the row at the beginning of `bytes`; `None` if they are too short.
    #[inline]
    pub(crate) fn first_of(bytes: &'a [u8]) -> Option<Self> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        let name_end = HEAD_BYTES + usize::from(u16::from_be_bytes([head[4], head[5]]));
        let value_at = name_end + usize::from(head[3]);
        let end = if head[0] & THERE != 0 {
            value_at + PLACE_BYTES
        } else {
            value_at + u32::from_be_bytes([head[6], head[7], head[8], head[9]]) as usize
        };
        let bytes = bytes.get(..end)?;
        (name_end > HEAD_BYTES).then_some(Self {
            bytes,
            name_end,
            value_at,
        })
    }

    /// Returns the row that consists of all `bytes`.
    ///
    /// # Errors
    /// They are not exactly one row.
    pub(crate) fn of(bytes: &'a [u8]) -> io::Result<Self> {
        Self::first_of(bytes)
            .filter(|row| row.bytes.len() == bytes.len())
            .ok_or_else(|| damaged("a row is not whole"))
    }

    pub(crate) fn name(&self) -> &'a [u8] {
        &self.bytes[HEAD_BYTES..self.name_end]
    }

    pub(crate) fn tag(&self) -> u8 {
        self.bytes[HEAD_BYTES]
    }

    /// Returns the document's key.
    pub(crate) fn key(&self) -> &'a [u8] {
        let name = self.name();
        let from = if name[0] == HISTORY { 9 } else { 1 };
        name.get(from..).unwrap_or_default()
    }

    fn number<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.bytes[at + i])
    }

    #[inline]
    pub(crate) fn seqno(&self) -> Seqno {
        Seqno(u64::from_be_bytes(self.number(10)))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.bytes[0] & GONE != 0
    }

    /// Returns the bytes of the value.
    pub(crate) fn value_bytes(&self) -> u32 {
        u32::from_be_bytes(self.number(6))
    }

    /// Returns the place of the value, if it is stored apart.
    pub(crate) fn place(&self) -> Option<ValuePlace> {
        if self.bytes[0] & THERE == 0 {
            return None;
        }
        let mut reader = Reader::new(&self.bytes[self.value_at..]);
        Some(ValuePlace {
            file: reader.u64()?,
            offset: reader.u64()?,
            length: self.value_bytes(),
            crc: reader.u32()?,
        })
    }

    /// Appends the row to `out`, with its value at another place.
    pub(crate) fn moved(&self, place: ValuePlace, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[..self.value_at]);
        encode_place(place, out);
    }

    /// Returns the write time of a version of the history, in Unix seconds.
    pub(crate) fn written_at_s(&self) -> u32 {
        let extra = &self.bytes[self.name_end..self.value_at];
        Reader::new(extra).u32().unwrap_or(0)
    }

    /// Returns the metadata.
    ///
    /// # Errors
    /// The metadata is invalid.
    pub(crate) fn meta(&self) -> io::Result<Meta> {
        let kind = Kind::from_number(self.bytes[1] & KIND)
            .filter(|kind| !kind.is_commit() && !self.is_gone())
            .ok_or_else(|| damaged("the kind of a row"))?;
        let level = DurabilityLevel::from_number(self.bytes[1] >> LEVEL_SHIFT);
        if level.is_some() != kind.is_prepare() {
            return Err(damaged("the durability level of a row"));
        }
        let mut extra = Reader::new(&self.bytes[self.name_end..self.value_at]);
        let prepare_seqno = match kind {
            Kind::Abort => extra
                .u64()
                .ok_or_else(|| damaged("an abort is too short"))?,
            _ => 0,
        };
        Ok(Meta {
            cas: Cas(u64::from_be_bytes(self.number(18))),
            seqno: self.seqno(),
            rev: u64::from_be_bytes(self.number(26)),
            flags: u32::from_be_bytes(self.number(34)),
            expiry: u32::from_be_bytes(self.number(38)),
            datatype: Datatype(self.bytes[2]),
            kind,
            level,
            prepare_seqno: Seqno(prepare_seqno),
        })
    }

    /// Returns the document, with its value from the row, or read with `read` from its place.
    pub(crate) fn document(
        &self,
        read: impl FnOnce(ValuePlace, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<Document> {
        let (meta, key) = (self.meta()?, self.key());
        if let Some(place) = self.place() {
            let read = |value: &mut [u8]| read(place, value);
            return Document::read(key, place.length as usize, &meta, read);
        }
        if self.name_end == self.value_at {
            let from = self.name_end - key.len();
            return Ok(Document::from_joined(&self.bytes[from..], key.len(), &meta));
        }
        Ok(Document::from_parts(
            key,
            &self.bytes[self.value_at..],
            &meta,
        ))
    }
}
