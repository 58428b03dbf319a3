//! vBuckets: their state, seqnos and histories.

use model::{CollectionId, Seqno, VbState};

use super::{EXTRAS, Message, OTHER_COMMAND};
use crate::bytes::Reader;
use crate::{Frame, Malformed, Opcode};

const STATE: Malformed = Malformed::new("vBucket state is not valid");

fn state(number: u32) -> Result<VbState, Malformed> {
    u8::try_from(number)
        .ok()
        .and_then(VbState::from_wire)
        .ok_or(STATE)
}

/// SET_VBUCKET, for the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetVbucket<'a> {
    /// New state.
    pub state: VbState,
    /// More about it as JSON, such as the replication topology; mostly empty.
    pub meta: &'a [u8],
}

impl<'a> Message<'a> for SetVbucket<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::SET_VBUCKET
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::SET_VBUCKET {
            return Err(OTHER_COMMAND);
        }
        let number = match *frame.extras {
            [number] => u32::from(number),
            [b0, b1, b2, b3] => u32::from_be_bytes([b0, b1, b2, b3]),
            _ => return Err(EXTRAS),
        };
        Ok(Self {
            state: state(number)?,
            meta: frame.value,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.push(self.state as u8);
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.meta);
    }
}

/// DEL_VBUCKET, for the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelVbucket<'a> {
    /// Options as text: empty, or `async=0` to be answered when it is gone.
    pub options: &'a [u8],
}

impl<'a> Message<'a> for DelVbucket<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DEL_VBUCKET
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::DEL_VBUCKET => Ok(Self {
                options: frame.value,
            }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.options);
    }
}

/// COMPACT_DB, for the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactDb {
    /// Tombstones from before this go, in seconds since 1970.
    pub before_s: u64,
    /// Only those up to this seqno; zero for all.
    pub up_to: Seqno,
    /// All tombstones go.
    pub drop_deletes: bool,
}

impl Message<'_> for CompactDb {
    fn opcode(&self) -> Opcode {
        Opcode::COMPACT_DB
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::COMPACT_DB {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        let before_s = extras.u64().ok_or(EXTRAS)?;
        let up_to = Seqno(extras.u64().ok_or(EXTRAS)?);
        let last = extras.u64().ok_or(EXTRAS)?;
        let drop_deletes = match last >> 56 {
            0 => false,
            1 => true,
            _ => return Err(Malformed::new("drop_deletes is neither 0 nor 1")),
        };
        if last << 8 != 0 {
            return Err(Malformed::new("padding is not zero"));
        }
        Ok(Self {
            before_s,
            up_to,
            drop_deletes,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_s.to_be_bytes());
        out.extend_from_slice(&self.up_to.0.to_be_bytes());
        out.push(u8::from(self.drop_deletes));
        out.extend_from_slice(&[0; 7]);
    }
}

/// GET_FAILOVER_LOG, also under its number of the change stream protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFailoverLog {
    /// Whether it came as DCP_GET_FAILOVER_LOG.
    pub dcp: bool,
}

impl Message<'_> for GetFailoverLog {
    fn opcode(&self) -> Opcode {
        if self.dcp {
            Opcode::DCP_GET_FAILOVER_LOG
        } else {
            Opcode::GET_FAILOVER_LOG
        }
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::GET_FAILOVER_LOG => Ok(Self { dcp: false }),
            Opcode::DCP_GET_FAILOVER_LOG => Ok(Self { dcp: true }),
            _ => Err(OTHER_COMMAND),
        }
    }
}

/// GET_ALL_VB_SEQNOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetAllVbSeqnos {
    /// Only vBuckets of this state; `None` for all that are not dead.
    pub state: Option<VbState>,
    /// Seqnos of this collection only.
    pub collection: Option<CollectionId>,
}

impl Message<'_> for GetAllVbSeqnos {
    fn opcode(&self) -> Opcode {
        Opcode::GET_ALL_VB_SEQNOS
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::GET_ALL_VB_SEQNOS {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        let state = match extras.u32() {
            None | Some(0) => None,
            Some(number) => Some(state(number)?),
        };
        Ok(Self {
            state,
            collection: extras.u32().map(CollectionId),
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        if self.state.is_some() || self.collection.is_some() {
            let number = self.state.map_or(0, |state| u32::from(state as u8));
            out.extend_from_slice(&number.to_be_bytes());
        }
        if let Some(collection) = self.collection {
            out.extend_from_slice(&collection.0.to_be_bytes());
        }
    }
}

/// SEQNO_PERSISTENCE, for the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoPersistence {
    /// The change that is to be on disk.
    pub seqno: Seqno,
}

impl Message<'_> for SeqnoPersistence {
    fn opcode(&self) -> Opcode {
        Opcode::SEQNO_PERSISTENCE
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::SEQNO_PERSISTENCE {
            return Err(OTHER_COMMAND);
        }
        Ok(Self {
            seqno: Seqno(Reader::new(frame.extras).u64().ok_or(EXTRAS)?),
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seqno.0.to_be_bytes());
    }
}
