//! vBuckets: their states, seqnos and compaction.

use model::{CollectionId, Seqno, VbState};

use crate::bytes::{Field, Reader, vb_state};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode};

/// `SET_VBUCKET`, for the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetVbucket<'a> {
    /// New state.
    pub state: VbState,
    /// Further data as JSON, such as the replication topology; mostly empty.
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
        let mut extras = Reader::new(frame.extras);
        let state = match frame.extras.len() {
            1 => extras.field()?,
            _ => vb_state(extras.field()?)?,
        };
        let meta = frame.value;
        Ok(Self { state, meta })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        self.state.write(out);
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.meta);
    }
}

/// `COMPACT_DB`, for the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactDb {
    /// Time before which tombstones are purged, in Unix seconds.
    pub before_s: u64,
    /// Last seqno to purge; zero for no limit.
    pub up_to: Seqno,
    /// Whether all tombstones are purged.
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
        let (before_s, up_to) = (extras.field()?, extras.field()?);
        let drop_deletes = match extras.field()? {
            0_u8 => false,
            1 => true,
            _ => return Err(Malformed::new("drop_deletes is neither 0 nor 1")),
        };
        if extras.field::<[u8; 7]>()? != [0; 7] {
            return Err(Malformed::new("padding is not zero"));
        }
        Ok(Self {
            before_s,
            up_to,
            drop_deletes,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        self.before_s.write(out);
        self.up_to.write(out);
        self.drop_deletes.write(out);
        [0; 7].write(out);
    }
}

/// `GET_ALL_VB_SEQNOS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetAllVbSeqnos {
    /// Only vBuckets in this state; `None` for all that are not dead.
    pub state: Option<VbState>,
    /// Only seqnos of this collection.
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
        let state = match extras.field()? {
            None | Some(0_u32) => None,
            Some(number) => Some(vb_state(number)?),
        };
        Ok(Self {
            state,
            collection: extras.field()?,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        if self.state.is_some() || self.collection.is_some() {
            let number = self.state.map_or(0, |state| u32::from(state as u8));
            number.write(out);
        }
        self.collection.write(out);
    }
}

/// `SEQNO_PERSISTENCE`, for the vBucket of its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoPersistence {
    /// Seqno that must be persisted.
    pub seqno: Seqno,
}

message! { SeqnoPersistence = SEQNO_PERSISTENCE; extras: seqno; }
