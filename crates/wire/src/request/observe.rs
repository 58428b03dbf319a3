//! Asking how far changes have come.

use model::{VbId, VbUuid};

use super::{Message, OTHER_COMMAND};
use crate::bytes::Reader;
use crate::{Frame, Malformed, Opcode, TooLong};

/// One key of OBSERVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveKey<'a> {
    /// Its vBucket.
    pub vbucket: VbId,
    /// The key, with its collection prefix where negotiated.
    pub key: &'a [u8],
}

impl<'a> ObserveKey<'a> {
    /// Appends the key in the form that [`ObserveKeys`] reads.
    ///
    /// # Errors
    /// The key has more than 65,535 bytes; `out` is as before.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let key_len = u16::try_from(self.key.len()).map_err(|_| TooLong { part: "key" })?;
        out.extend_from_slice(&self.vbucket.0.to_be_bytes());
        out.extend_from_slice(&key_len.to_be_bytes());
        out.extend_from_slice(self.key);
        Ok(())
    }

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let vbucket = VbId(reader.u16()?);
        let key_len = reader.u16()?;
        Some(Self {
            vbucket,
            key: reader.bytes(usize::from(key_len))?,
        })
    }
}

/// Keys as they lie in the value of OBSERVE, checked to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveKeys<'a> {
    bytes: &'a [u8],
}

impl<'a> ObserveKeys<'a> {
    /// The keys in a value.
    ///
    /// # Errors
    /// There is none, or the value ends within one.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        if value.is_empty() {
            return Err(Malformed::new("no key to observe"));
        }
        let mut reader = Reader::new(value);
        while !reader.is_empty() {
            ObserveKey::read(&mut reader).ok_or(Malformed::new("observed key is cut off"))?;
        }
        Ok(Self { bytes: value })
    }

    /// The keys in their order.
    pub fn iter(self) -> impl Iterator<Item = ObserveKey<'a>> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || ObserveKey::read(&mut reader))
    }
}

/// OBSERVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observe<'a> {
    /// What to look at.
    pub keys: ObserveKeys<'a>,
}

impl<'a> Message<'a> for Observe<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::OBSERVE
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::OBSERVE => Ok(Self {
                keys: ObserveKeys::parse(frame.value)?,
            }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.keys.bytes);
    }
}

/// OBSERVE_SEQNO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqno {
    /// The history that the client knows.
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
        let uuid = frame
            .value
            .try_into()
            .map_err(|_| Malformed::new("value is not 8 bytes"))?;
        Ok(Self {
            uuid: VbUuid(u64::from_be_bytes(uuid)),
        })
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.uuid.0.to_be_bytes());
    }
}
