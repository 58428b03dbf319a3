//! Where snapshots begin and end, and seqnos that pass without a document.

use model::{Seqno, SnapshotRange};

use super::bits::bits;
use crate::bytes::{Field, Reader};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode};

bits! {
    /// What is special about a snapshot.
    MarkerFlags {
        /// It comes from memory.
        MEMORY 0x1;
        /// It comes from disk.
        DISK 0x2;
        /// The consumer shall begin a new checkpoint with it.
        CHECKPOINT 0x4;
        /// The consumer shall answer the marker once it has the whole snapshot.
        ACK 0x8;
        /// Nothing in it was de-duplicated.
        HISTORY 0x10;
        /// A key may be there more than once.
        MAY_CONTAIN_DUPLICATES 0x20;
    }
}

const V2_0: u8 = 0;
const V2_2: u8 = 2;

/// How much a marker tells beyond its range; agreed on when the connection is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerVersion {
    /// Nothing more.
    V1,
    /// Since sync writes are replicated.
    V2_0 {
        /// Last seqno of the snapshot that a reader of documents sees.
        visible_end: Seqno,
        /// Up to here every prepare is committed or aborted; 0 when not told.
        high_completed: Seqno,
    },
    /// Since replicas keep the purge seqno.
    V2_2 {
        /// Last seqno of the snapshot that a reader of documents sees.
        visible_end: Seqno,
        /// Up to here every prepare is committed or aborted; 0 when not told.
        high_completed: Seqno,
        /// Tombstones up to here may be gone.
        purge_seqno: Seqno,
        /// Up to here the producer has every prepare as its level demands; of disk snapshots.
        high_prepared: Seqno,
    },
}

/// DCP_SNAPSHOT_MARKER: the messages up to a seqno are one snapshot.
///
/// Shape: version 1 has 20 bytes of extras; later ones one byte that tells the version, and 36
/// (2.0) or 52 (2.2) bytes of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMarker {
    /// Seqnos from the first to the last one. Not checked here, not even that it is ascending.
    pub range: SnapshotRange,
    /// What is special about it.
    pub flags: MarkerFlags,
    /// What more is told.
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

/// DCP_SEQNO_ADVANCED: the consumer has everything up to a seqno whose own document it is not
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoAdvanced {
    /// The seqno.
    pub seqno: Seqno,
}

message! { SeqnoAdvanced = DCP_SEQNO_ADVANCED; extras: seqno; }

/// DCP_OSO_SNAPSHOT: begin or end of a snapshot whose documents come in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OsoSnapshot {
    /// It begins.
    Start,
    /// It ends.
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
