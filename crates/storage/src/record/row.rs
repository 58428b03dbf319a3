//! The row of a document.

use model::{Cas, Datatype, Document, DurabilityLevel, Kind, Meta, Seqno, VbId};

use super::key::row_key;
use super::sealed::{CRC_BYTES, DecodeError, Reader, seal, unseal};
use crate::history::{is_history, place_of, seqno_at};

/// Rows of committed documents, rows of prepares and aborts, and rows of the history.
const VERSION: u8 = 1;
const VERSION_PREPARED: u8 = 2;
const VERSION_HISTORY: u8 = 3;

/// Where the level lies beside the kind in a row of a prepare.
const LEVEL_SHIFT: u32 = 4;
const KIND: u8 = 0x0f;

/// Documents of so many bytes are not copied to be written.
const LARGE_BYTES: usize = 256 << 10;

/// Bytes before the key.
pub(crate) const ROW_HEADER_BYTES: usize = CRC_BYTES + 28;

/// Adds the value of `document`'s row to `out`. A commit becomes the row of a plain mutation or
/// deletion.
pub(crate) fn encode_row(vb: VbId, document: &Document, out: &mut Vec<u8>) {
    encode(vb, None, document, out);
}

/// Adds the begin of that value to `out`, and gives the rest of it, which lies in the document: nothing, where a
/// copy costs little.
pub(crate) fn encode_row_head<'d>(vb: VbId, document: &'d Document, out: &mut Vec<u8>) -> &'d [u8] {
    let rest = document.key_and_value();
    if rest.len() < LARGE_BYTES || document.kind() == Kind::Abort {
        encode_row(vb, document, out);
        return &[];
    }
    let start = out.len();
    encode_header(None, document, out);
    seal(&row_key(vb, document.seqno()), &mut out[start..], rest);
    rest
}

/// Adds the value of the row that `document` has in the history to `out`; `at_s` is when that is
/// written, Unix seconds.
pub(crate) fn encode_history(vb: VbId, document: &Document, at_s: u32, out: &mut Vec<u8>) {
    encode(vb, Some(at_s), document, out);
}

/// The whole row; with `at_s` that of the history.
fn encode(vb: VbId, at_s: Option<u32>, document: &Document, out: &mut Vec<u8>) {
    let start = out.len();
    out.reserve(ROW_HEADER_BYTES + document.key_and_value().len());
    encode_header(at_s, document, out);
    out.extend_from_slice(document.key_and_value());
    let meta = document.meta();
    if meta.kind == Kind::Abort {
        out.extend_from_slice(&meta.prepare_seqno.0.to_be_bytes());
    }
    let place = at_s.map_or(meta.seqno, |_| place_of(meta.seqno));
    seal(&row_key(vb, place), &mut out[start..], &[]);
}

/// What comes before the key, with room for the checksum.
fn encode_header(at_s: Option<u32>, document: &Document, out: &mut Vec<u8>) {
    assert!(
        document.is_resident(),
        "only a document with its value can be stored"
    );
    let meta = document.meta();
    let key_len = u8::try_from(document.key().len()).expect("a stored key has at most 251 bytes");
    let version = match at_s {
        Some(_) => VERSION_HISTORY,
        None if meta.kind.is_prepared() => VERSION_PREPARED,
        None => VERSION,
    };
    out.extend_from_slice(&[0; CRC_BYTES]);
    let level = meta.level.map_or(0, |level| level as u8);
    let kind = meta.kind.plain() as u8 | level << LEVEL_SHIFT;
    out.extend_from_slice(&[version, kind, meta.datatype.0, key_len]);
    out.extend_from_slice(&meta.cas.0.to_be_bytes());
    out.extend_from_slice(&meta.rev.to_be_bytes());
    out.extend_from_slice(&meta.flags.to_be_bytes());
    out.extend_from_slice(&meta.expiry.to_be_bytes());
    if let Some(at_s) = at_s {
        out.extend_from_slice(&at_s.to_be_bytes());
    }
}

/// Reads the row that lies at `seqno` of `vb`: at the place of a row of the history, that one.
///
/// # Errors
/// Whatever keeps `value` from being a row of that place.
pub(crate) fn decode_row(vb: VbId, seqno: Seqno, value: &[u8]) -> Result<Document, DecodeError> {
    let (meta, key_len, key_and_value) = open_row(vb, seqno, value)?;
    Ok(Document::from_joined(key_and_value, key_len, &meta))
}

/// Reads metadata and key of the row that lies at `seqno` of `vb`, without a copy.
///
/// # Errors
/// Whatever keeps `value` from being a row of that place.
pub(crate) fn row_meta(vb: VbId, seqno: Seqno, value: &[u8]) -> Result<(Meta, &[u8]), DecodeError> {
    let (meta, key_len, key_and_value) = open_row(vb, seqno, value)?;
    Ok((meta, &key_and_value[..key_len]))
}

/// When a row of the history was written, Unix seconds; its checksum is not looked at.
///
/// # Errors
/// It is too short.
pub(crate) fn history_time(value: &[u8]) -> Result<u32, DecodeError> {
    let rest = value.get(ROW_HEADER_BYTES..).unwrap_or_default();
    Reader::new(rest).u32()
}

/// Metadata, length of the key, key and value.
pub(crate) fn open_row(
    vb: VbId,
    seqno: Seqno,
    value: &[u8],
) -> Result<(Meta, usize, &[u8]), DecodeError> {
    let mut reader = Reader::new(unseal(&row_key(vb, seqno), value)?);
    let version = reader.u8()?;
    if !(VERSION..=VERSION_HISTORY).contains(&version) {
        return Err(DecodeError::Version(version));
    }
    if is_history(seqno) != (version == VERSION_HISTORY) {
        return Err(DecodeError::Content("the version"));
    }
    let kind_and_level = reader.u8()?;
    let kind = Kind::from_number(kind_and_level & KIND)
        .filter(|kind| !kind.is_commit() && kind.is_prepared() == (version == VERSION_PREPARED))
        .ok_or(DecodeError::Content("the kind"))?;
    let level = DurabilityLevel::from_number(kind_and_level >> LEVEL_SHIFT);
    if level.is_some() != kind.is_prepare() {
        return Err(DecodeError::Content("the durability level"));
    }
    let datatype = Datatype(reader.u8()?);
    let key_len = usize::from(reader.u8()?);
    let mut meta = Meta {
        cas: Cas(reader.u64()?),
        seqno: seqno_at(seqno),
        rev: reader.u64()?,
        flags: reader.u32()?,
        expiry: reader.u32()?,
        datatype,
        kind,
        level,
        prepare_seqno: Seqno::ZERO,
    };
    if version == VERSION_HISTORY {
        reader.u32()?;
    }
    let mut key_and_value = reader.rest;
    if kind == Kind::Abort {
        let (rest, prepare) = key_and_value
            .split_last_chunk::<8>()
            .ok_or(DecodeError::Content("it is too short"))?;
        meta.prepare_seqno = Seqno(u64::from_be_bytes(*prepare));
        key_and_value = rest;
    }
    if key_and_value.len() < key_len {
        return Err(DecodeError::Content("the key is longer than the row"));
    }
    Ok((meta, key_len, key_and_value))
}
