//! Answers to `RANGE_SCAN_CONTINUE`: a sequence of keys, or of documents with their keys.

use model::{Cas, Datatype, Seqno, push_leb128};

use crate::Malformed;
use crate::bytes::{EXTRAS, Field, Reader};

/// Size of a document's metadata before its key, in bytes.
const META_BYTES: usize = 25;

/// Content of the answers' values; the extras of each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanContent {
    /// Keys.
    Keys,
    /// Documents.
    Documents,
}

impl ScanContent {
    /// Encodes the 4 bytes.
    pub fn to_bytes(self) -> [u8; 4] {
        let number: u32 = match self {
            Self::Keys => 0,
            Self::Documents => 1,
        };
        number.to_be_bytes()
    }

    /// Parses the extras of an answer.
    ///
    /// # Errors
    /// The extras are invalid.
    pub fn parse(extras: &[u8]) -> Result<Self, Malformed> {
        match extras {
            [0, 0, 0, 0] => Ok(Self::Keys),
            [0, 0, 0, 1] => Ok(Self::Documents),
            _ => Err(Malformed::new("extras of a range scan are not valid")),
        }
    }
}

/// A document found by a range scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanDocument<'a> {
    /// Client flags.
    pub flags: u32,
    /// Expiry in Unix seconds; zero for never.
    pub expiry: u32,
    /// Seqno of the change.
    pub seqno: Seqno,
    /// CAS of the revision.
    pub cas: Cas,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// The key, without its collection prefix.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// Appends a key.
pub fn push_scan_key(key: &[u8], out: &mut Vec<u8>) {
    push_bytes(key, out);
}

/// Appends a document.
pub fn push_scan_document(document: &ScanDocument<'_>, out: &mut Vec<u8>) {
    out.reserve(
        document
            .value
            .len()
            .saturating_add(document.key.len())
            .saturating_add(META_BYTES)
            .saturating_add(10),
    );
    document.flags.write(out);
    document.expiry.write(out);
    document.seqno.write(out);
    document.cas.write(out);
    document.datatype.write(out);
    push_bytes(document.key, out);
    push_bytes(document.value, out);
}

fn push_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    // No part of a document is longer than a frame can carry.
    push_leb128(u32::try_from(bytes.len()).unwrap_or(u32::MAX), out);
    out.extend_from_slice(bytes);
}

/// Parses the keys in an answer.
///
/// # Errors
/// A length is malformed or exceeds the value; returned as the last item.
pub fn scan_keys(value: &[u8]) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    each(value, read_bytes)
}

/// Parses the documents in an answer.
///
/// # Errors
/// As [`scan_keys`].
pub fn scan_documents(value: &[u8]) -> impl Iterator<Item = Result<ScanDocument<'_>, Malformed>> {
    each(value, |reader| {
        Ok(ScanDocument {
            flags: reader.field()?,
            expiry: reader.field()?,
            seqno: reader.field()?,
            cas: reader.field()?,
            datatype: reader.field()?,
            key: read_bytes(reader)?,
            value: read_bytes(reader)?,
        })
    })
}

fn each<'a, T>(
    value: &'a [u8],
    read: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>,
) -> impl Iterator<Item = Result<T, Malformed>> {
    let mut reader = Reader::new(value);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let item = read(&mut reader);
        if item.is_err() {
            reader = Reader::new(&[]);
        }
        Some(item.map_err(|_| Malformed::new("range scan item is cut off")))
    })
}

fn read_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let mut length: u64 = 0;
    for shift in [0, 7, 14, 21, 28] {
        let byte: u8 = reader.field()?;
        length |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return reader.bytes(usize::try_from(length).map_err(|_| EXTRAS)?);
        }
    }
    Err(EXTRAS)
}
