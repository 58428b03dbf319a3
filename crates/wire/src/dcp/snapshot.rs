//! Start and end of snapshots, and seqnos without a document.

use model::{Seqno, SnapshotRange};

use super::bits::bits;
use crate::bytes::{Field, Reader};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode};

bits! {
    /// Properties of a snapshot.
    MarkerFlags {
        /// From memory.
        MEMORY 0x1;
        /// From disk.
        DISK 0x2;
        /// The consumer begins a new checkpoint with it.
        CHECKPOINT 0x4;
        /// The consumer acknowledges the marker once it has the whole snapshot.
        ACK 0x8;
        /// No change in it was de-duplicated.
        HISTORY 0x10;
        /// A key may occur several times.
        MAY_CONTAIN_DUPLICATES 0x20;
    }
}

const V2_0: u8 = 0;
const V2_2: u8 = 2;

/// Version of a marker, negotiated for the connection, with its additional fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerVersion {
    /// No additional fields.
    V1,
    /// Version 2.0, for replication of durable writes.
    V2_0 {
        /// Last seqno of the snapshot that is visible to clients.
        visible_end: Seqno,
        /// Every prepare up to this seqno is committed or aborted; 0 if unknown.
        high_completed: Seqno,
    },
    /// Version 2.2, with the purge seqno.
    V2_2 {
        /// Last seqno of the snapshot that is visible to clients.
        visible_end: Seqno,
        /// Every prepare up to this seqno is committed or aborted; 0 if unknown.
        high_completed: Seqno,
        /// Tombstones up to this seqno may have been purged.
        purge_seqno: Seqno,
        /// Last prepare that the producer acknowledges; for disk snapshots.
        high_prepared: Seqno,
    },
}

/// `DCP_SNAPSHOT_MARKER`: the messages up to a seqno are one snapshot.
///
/// Shape: version 1 has 20 bytes of extras. Later versions have one byte with the version, and 36
/// (2.0) or 52 (2.2) bytes of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMarker {
    /// First and last seqno. Not checked here, not even the order.
    pub range: SnapshotRange,
    /// Properties of the snapshot.
    pub flags: MarkerFlags,
    /// Version with its additional fields.
    pub version: MarkerVersion,
}

impl SnapshotMarker {
    fn read_range(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            range: reader.field()?,
            flags: reader.field()?,
            version: MarkerVersion::V1,
        })
    }

    fn read_value(version: u8, value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let marker = Self::read_range(&mut reader).ok()?;
        let mut seqno = || reader.field().ok();
        let (visible_end, high_completed) = (seqno()?, seqno()?);
        let version = match version {
            V2_0 => MarkerVersion::V2_0 {
                visible_end,
                high_completed,
            },
            V2_2 => MarkerVersion::V2_2 {
                visible_end,
                high_completed,
                purge_seqno: seqno()?,
                high_prepared: seqno()?,
            },
            _ => return None,
        };
        reader.is_empty().then_some(Self { version, ..marker })
    }

    fn write_range(&self, out: &mut Vec<u8>) {
        self.range.write(out);
        self.flags.write(out);
    }
}

impl Message<'_> for SnapshotMarker {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_SNAPSHOT_MARKER
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_SNAPSHOT_MARKER {
            return Err(OTHER_COMMAND);
        }
        match *frame.extras {
            [version] => Self::read_value(version, frame.value)
                .ok_or(Malformed::new("snapshot marker is not valid")),
            _ if frame.value.is_empty() => Self::read_range(&mut Reader::new(frame.extras)),
            _ => Err(Malformed::new("value must be empty")),
        }
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        match self.version {
            MarkerVersion::V1 => self.write_range(out),
            MarkerVersion::V2_0 { .. } => out.push(V2_0),
            MarkerVersion::V2_2 { .. } => out.push(V2_2),
        }
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        let mut write = |seqnos: &[Seqno]| {
            self.write_range(out);
            for seqno in seqnos {
                seqno.write(out);
            }
        };
        match self.version {
            MarkerVersion::V1 => {}
            MarkerVersion::V2_0 {
                visible_end,
                high_completed,
            } => write(&[visible_end, high_completed]),
            MarkerVersion::V2_2 {
                visible_end,
                high_completed,
                purge_seqno,
                high_prepared,
            } => write(&[visible_end, high_completed, purge_seqno, high_prepared]),
        }
    }
}

/// `DCP_SEQNO_ADVANCED`: the consumer has everything up to a seqno whose change the stream leaves
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoAdvanced {
    /// The seqno.
    pub seqno: Seqno,
}

message! { SeqnoAdvanced = DCP_SEQNO_ADVANCED; extras: seqno; }

/// `DCP_OSO_SNAPSHOT`: start or end of an out-of-order snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OsoSnapshot {
    /// The snapshot begins.
    Start,
    /// The snapshot ends.
    End,
}

impl Message<'_> for OsoSnapshot {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_OSO_SNAPSHOT
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_OSO_SNAPSHOT {
            return Err(OTHER_COMMAND);
        }
        match Reader::new(frame.extras).field()? {
            1_u32 => Ok(Self::Start),
            2 => Ok(Self::End),
            _ => Err(Malformed::new("flags are not valid")),
        }
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        match self {
            Self::Start => 1_u32,
            Self::End => 2,
        }
        .write(out);
    }
}
