//! Range scans: documents of one vBucket, ordered by key.

use crate::message::message;

/// `RANGE_SCAN_CREATE`, on the vBucket of its envelope. The answer has the id of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanCreate<'a> {
    /// Range and options of the scan, as JSON.
    pub json: &'a [u8],
}

message! { RangeScanCreate<'a> = RANGE_SCAN_CREATE; value: json; }

/// `RANGE_SCAN_CONTINUE`, on the vBucket of its envelope. A limit of zero means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanContinue {
    /// Id of the scan.
    pub id: [u8; 16],
    /// Maximum number of documents or keys.
    pub items_max: u32,
    /// Maximum time in milliseconds.
    pub time_ms_max: u32,
    /// Size of keys and values in bytes at which the part ends.
    pub bytes_max: u32,
}

message! { RangeScanContinue = RANGE_SCAN_CONTINUE; extras: id, items_max, time_ms_max, bytes_max; }

/// `RANGE_SCAN_CANCEL`, on the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanCancel {
    /// Id of the scan.
    pub id: [u8; 16],
}

message! { RangeScanCancel = RANGE_SCAN_CANCEL; extras: id; }
