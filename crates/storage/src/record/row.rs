//! The row of a document.

use model::{Cas, Datatype, Document, Kind, Meta, Seqno, VbId};

use super::{CRC_BYTES, DecodeError, Reader, row_key, seal, unseal};

const VERSION: u8 = 1;

/// Bytes before the key.
pub(crate) const ROW_HEADER_BYTES: usize = CRC_BYTES + 28;

/// Writes the value of `document`'s row over whatever `out` held.
pub(crate) fn encode_row(vb: VbId, document: &Document, out: &mut Vec<u8>) {
    assert!(
        document.is_resident(),
        "only a document with its value can be stored"
    );
    let meta = document.meta();
    let key_len = u8::try_from(document.key().len()).expect("a stored key has at most 251 bytes");
    out.clear();
    out.reserve(ROW_HEADER_BYTES + document.key_and_value().len());
    out.extend_from_slice(&[0; CRC_BYTES]);
    out.extend_from_slice(&[VERSION, meta.kind as u8, meta.datatype.0, key_len]);
    out.extend_from_slice(&meta.cas.0.to_be_bytes());
    out.extend_from_slice(&meta.rev.to_be_bytes());
    out.extend_from_slice(&meta.flags.to_be_bytes());
    out.extend_from_slice(&meta.expiry.to_be_bytes());
    out.extend_from_slice(document.key_and_value());
    seal(&row_key(vb, meta.seqno), out);
}

/// Reads the row that lies at `seqno` of `vb`.
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

/// Metadata, length of the key, key and value.
fn open_row(vb: VbId, seqno: Seqno, value: &[u8]) -> Result<(Meta, usize, &[u8]), DecodeError> {
    let mut reader = Reader::new(unseal(&row_key(vb, seqno), value)?);
    let version = reader.u8()?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let kind = Kind::from_number(reader.u8()?).ok_or(DecodeError::Content("the kind"))?;
    let datatype = Datatype(reader.u8()?);
    let key_len = usize::from(reader.u8()?);
    let meta = Meta {
        cas: Cas(reader.u64()?),
        seqno,
        rev: reader.u64()?,
        flags: reader.u32()?,
        expiry: reader.u32()?,
        datatype,
        kind,
    };
    if reader.rest.len() < key_len {
        return Err(DecodeError::Content("the key is longer than the row"));
    }
    Ok((meta, key_len, reader.rest))
}
