//! Range scans: documents of one vBucket in the order of their keys.

use super::{EXTRAS, Message, OTHER_COMMAND};
use crate::bytes::Reader;
use crate::{Frame, Malformed, Opcode};

/// RANGE_SCAN_CREATE, on the vBucket of its envelope. Answered with the name of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanCreate<'a> {
    /// What is looked for, as JSON.
    pub json: &'a [u8],
}

impl<'a> Message<'a> for RangeScanCreate<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::RANGE_SCAN_CREATE
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::RANGE_SCAN_CREATE => Ok(Self { json: frame.value }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.json);
    }
}

fn id(extras: &mut Reader<'_>) -> Result<[u8; 16], Malformed> {
    let bytes = extras.bytes(16).ok_or(EXTRAS)?;
    bytes.try_into().map_err(|_| EXTRAS)
}

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

impl Message<'_> for RangeScanContinue {
    fn opcode(&self) -> Opcode {
        Opcode::RANGE_SCAN_CONTINUE
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::RANGE_SCAN_CONTINUE {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            id: id(&mut extras)?,
            items_max: extras.u32().ok_or(EXTRAS)?,
            time_ms_max: extras.u32().ok_or(EXTRAS)?,
            bytes_max: extras.u32().ok_or(EXTRAS)?,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id);
        for limit in [self.items_max, self.time_ms_max, self.bytes_max] {
            out.extend_from_slice(&limit.to_be_bytes());
        }
    }
}

/// RANGE_SCAN_CANCEL, on the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanCancel {
    /// The name of the scan.
    pub id: [u8; 16],
}

impl Message<'_> for RangeScanCancel {
    fn opcode(&self) -> Opcode {
        Opcode::RANGE_SCAN_CANCEL
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::RANGE_SCAN_CANCEL => Ok(Self {
                id: id(&mut Reader::new(frame.extras))?,
            }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id);
    }
}
