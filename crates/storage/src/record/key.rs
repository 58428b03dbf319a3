//! Keys of rows: vBucket, then seqno.

use model::{Seqno, VbId};

/// Bytes of a row key.
pub(crate) const ROW_KEY_BYTES: usize = 10;

/// The key of a row: vBucket, seqno.
pub(crate) type RowKey = [u8; ROW_KEY_BYTES];

/// Where a document lies.
pub(crate) fn row_key(vb: VbId, seqno: Seqno) -> RowKey {
    let mut key = [0; ROW_KEY_BYTES];
    key[..2].copy_from_slice(&vb.0.to_be_bytes());
    key[2..].copy_from_slice(&seqno.0.to_be_bytes());
    key
}

/// Where the record of a vBucket lies: behind all its documents.
pub(crate) fn vb_key(vb: VbId) -> RowKey {
    row_key(vb, Seqno(u64::MAX))
}

/// The place that a row key names; `None` when it has the wrong length.
pub(crate) fn split_row_key(key: &[u8]) -> Option<(VbId, Seqno)> {
    let (vb, seqno) = key.split_first_chunk::<2>()?;
    let seqno: &[u8; 8] = seqno.try_into().ok()?;
    Some((
        VbId(u16::from_be_bytes(*vb)),
        Seqno(u64::from_be_bytes(*seqno)),
    ))
}
