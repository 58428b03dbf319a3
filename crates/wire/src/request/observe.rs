//! Requests about the durability of changes.

use model::{VbId, VbUuid};

use crate::bytes::{Field, Reader};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode, TooLong};

/// One key of OBSERVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveKey<'a> {
    /// Its vBucket.
    pub vbucket: VbId,
    /// The key, with its collection prefix if negotiated.
    pub key: &'a [u8],
}

impl<'a> ObserveKey<'a> {
    /// Appends the key in the form that [`ObserveKeys`] reads.
    ///
    /// # Errors
    /// The key has more than 65,535 bytes; `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let key_len = u16::try_from(self.key.len()).map_err(|_| TooLong { part: "key" })?;
        self.vbucket.write(out);
        key_len.write(out);
        self.key.write(out);
        Ok(())
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let vbucket = reader.field()?;
        let key_len: u16 = reader.field()?;
        let key = reader.bytes(key_len.into())?;
        Ok(Self { vbucket, key })
    }
}

/// Keys in the value of OBSERVE, checked to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveKeys<'a> {
    bytes: &'a [u8],
}

impl<'a> ObserveKeys<'a> {
    /// Parses the keys in a value.
    ///
    /// # Errors
    /// There is no key, or the value ends within one.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        if value.is_empty() {
            return Err(Malformed::new("no key to observe"));
        }
        let mut reader = Reader::new(value);
        while !reader.is_empty() {
            ObserveKey::read(&mut reader).map_err(|_| Malformed::new("observed key is cut off"))?;
        }
        Ok(Self { bytes: value })
    }

    /// The keys in order.
    pub fn iter(self) -> impl Iterator<Item = ObserveKey<'a>> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || ObserveKey::read(&mut reader).ok())
    }
}

impl<'a> Field<'a> for ObserveKeys<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Self::parse(reader.field()?)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.bytes.write(out);
    }
}

/// OBSERVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observe<'a> {
    /// Keys to observe.
    pub keys: ObserveKeys<'a>,
}

message! { Observe<'a> = OBSERVE; value: keys; }

/// `OBSERVE_SEQNO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqno {
    /// UUID of the history that the client knows.
    pub uuid: VbUuid,
}

impl Message<'_> for ObserveSeqno {
    fn opcode(&self) -> Opcode {
        Opcode::OBSERVE_SEQNO
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::OBSERVE_SEQNO {
            return Err(OTHER_COMMAND);
        }
        let uuid = Field::whole(frame.value, Malformed::new("value is not 8 bytes"))?;
        Ok(Self { uuid })
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        self.uuid.write(out);
    }
}
