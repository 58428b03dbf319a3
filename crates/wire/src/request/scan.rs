//! Range scans: documents of one vBucket in the order of their keys.

use crate::message::message;

/// RANGE_SCAN_CREATE, on the vBucket of its envelope. Answered with the name of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanCreate<'a> {
    /// What is looked for, as JSON.
    pub json: &'a [u8],
}

message! { RangeScanCreate<'a> = RANGE_SCAN_CREATE; value: json; }

/// RANGE_SCAN_CONTINUE, on the vBucket of its envelope. Limits of zero are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanContinue {
    /// The name of the scan.
    pub id: [u8; 16],
    /// Documents or keys at most.
    pub items_max: u32,
    /// Milliseconds at most.
    pub time_ms_max: u32,
    /// Bytes of keys and values, at which it is enough.
    pub bytes_max: u32,
}

message! { RangeScanContinue = RANGE_SCAN_CONTINUE; extras: id, items_max, time_ms_max, bytes_max; }

/// RANGE_SCAN_CANCEL, on the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanCancel {
    /// The name of the scan.
    pub id: [u8; 16],
}

message! { RangeScanCancel = RANGE_SCAN_CANCEL; extras: id; }
