//! How documents and vBucket records lie in the store. Drawn in `docs/format/record.md`.
//!
//! Numbers are big endian. Every value opens with a CRC-32 (IEEE) over its row key and the rest
//! of the value, so a row that lies in a wrong place is found out as well as a damaged one.

mod key;
mod reference;
mod row;
mod sealed;
mod vb;

pub(crate) use key::{ROW_KEY_BYTES, RowKey, row_key, split_row_key, vb_key};
pub(crate) use reference::{REFERENCE_BYTES, decode_reference, encode_reference};
pub(crate) use row::{
    decode_row, encode_history, encode_row, encode_row_head, history_time, open_row, row_meta,
};
pub(crate) use sealed::DecodeError;
pub(crate) use vb::{StoredVb, VbValue, decode_vb, encode_vb};

#[cfg(test)]
mod tests;
