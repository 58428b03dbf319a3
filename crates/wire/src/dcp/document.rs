//! Documents: written, deleted, expired. CAS and datatype are in the envelope.

use model::Seqno;

use crate::bytes::{Field, Reader};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode};

/// The extended metadata's length, 2 bytes, must be 0.
const EXTENDED_META: Malformed = Malformed::new("extended metadata is not valid");

/// `DCP_MUTATION`: a document was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation<'a> {
    /// Seqno of the change.
    pub seqno: Seqno,
    /// Revision number of the document.
    pub rev: u64,
    /// Client flags.
    pub flags: u32,
    /// Absolute expiry in Unix seconds, 0 for never.
    pub expiry: u32,
    /// Time until which the document is locked; mostly 0.
    pub lock_time: u32,
    /// Use frequency of the document, 0 to 255.
    pub heat: u8,
    /// Its key, with a collection prefix if negotiated.
    pub key: &'a [u8],
    /// Its value, in the format given by the envelope's datatype.
    pub value: &'a [u8],
}

impl<'a> Message<'a> for Mutation<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_MUTATION
    }

    #[inline]
    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_MUTATION {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            seqno: extras.field()?,
            rev: extras.field()?,
            flags: extras.field()?,
            expiry: extras.field()?,
            lock_time: extras.field()?,
            heat: match extras.field::<[u8; 3]>()? {
                [0, 0, heat] => heat,
                _ => return Err(EXTENDED_META),
            },
            key: frame.key,
            value: frame.value,
        })
    }

    #[inline]
    fn write_extras(&self, out: &mut Vec<u8>) {
        self.seqno.write(out);
        self.rev.write(out);
        self.flags.write(out);
        self.expiry.write(out);
        self.lock_time.write(out);
        [0, 0, self.heat].write(out);
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}

/// `DCP_DELETION`: a document was deleted; or expired, for a peer without [`Expiration`].
///
/// Shape: 18 bytes of extras, 21 with the time of the deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion<'a> {
    /// Seqno of the change.
    pub seqno: Seqno,
    /// Revision number of the document.
    pub rev: u64,
    /// Time of the deletion in Unix seconds; only on connections opened with delete times.
    pub delete_time: Option<u32>,
    /// Its key, with a collection prefix if negotiated.
    pub key: &'a [u8],
    /// Extended attributes that outlive it; mostly empty.
    pub value: &'a [u8],
}

/// Size of a deletion's extras without the time.
const WITHOUT_TIME: usize = 18;

impl<'a> Message<'a> for Deletion<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_DELETION
    }

    #[inline]
    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_DELETION {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            seqno: extras.field()?,
            rev: extras.field()?,
            delete_time: match frame.extras.len() {
                WITHOUT_TIME if extras.field::<[u8; 2]>()? == [0; 2] => None,
                WITHOUT_TIME => return Err(EXTENDED_META),
                _ => Some(extras.field()?),
            },
            key: frame.key,
            value: frame.value,
        })
    }

    #[inline]
    fn write_extras(&self, out: &mut Vec<u8>) {
        self.seqno.write(out);
        self.rev.write(out);
        match self.delete_time {
            None => [0; 2].write(out),
            Some(time) => {
                time.write(out);
                out.push(0);
            }
        }
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}

/// `DCP_EXPIRATION`: a document expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiration<'a> {
    /// Seqno of the change.
    pub seqno: Seqno,
    /// Revision number of the document.
    pub rev: u64,
    /// Time of the expiration in Unix seconds.
    pub delete_time: u32,
    /// Its key, with a collection prefix if negotiated.
    pub key: &'a [u8],
    /// Extended attributes that outlive it; mostly empty.
    pub value: &'a [u8],
}

message! {
    #[inline]
    Expiration<'a> = DCP_EXPIRATION;
    extras: seqno, rev, delete_time;
    key: key;
    value: value;
}
