//! Answers of the two observe operations.

use model::{Cas, Seqno, VbId, VbUuid};

use crate::Malformed;
use crate::bytes::Reader;

/// How far a document has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyState {
    /// In memory only.
    FoundNotPersisted = 0x00,
    /// On disk as well.
    Persisted = 0x01,
    /// Not there.
    NotFound = 0x80,
    /// Deleted, but the deletion is not on disk.
    LogicallyDeleted = 0x81,
}

impl KeyState {
    fn from_number(number: u8) -> Option<Self> {
        match number {
            0x00 => Some(Self::FoundNotPersisted),
            0x01 => Some(Self::Persisted),
            0x80 => Some(Self::NotFound),
            0x81 => Some(Self::LogicallyDeleted),
            _ => None,
        }
    }
}

/// One key in the answer to OBSERVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveEntry<'a> {
    /// vBucket as asked for.
    pub vbucket: VbId,
    /// Key as asked for, at most 65,535 bytes.
    pub key: &'a [u8],
    /// What became of it.
    pub state: KeyState,
    /// Its revision, 0 when it is not there.
    pub cas: Cas,
}

impl<'a> ObserveEntry<'a> {
    /// Appends the entry. Panics when the key has more than 65,535 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let key_len = u16::try_from(self.key.len()).expect("a key has at most 65535 bytes");
        out.extend_from_slice(&self.vbucket.0.to_be_bytes());
        out.extend_from_slice(&key_len.to_be_bytes());
        out.extend_from_slice(self.key);
        out.push(self.state as u8);
        out.extend_from_slice(&self.cas.0.to_be_bytes());
    }

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let vbucket = VbId(reader.u16()?);
        let key_len = reader.u16()?;
        let key = reader.bytes(usize::from(key_len))?;
        let state = KeyState::from_number(reader.u8()?)?;
        Some(Self {
            vbucket,
            key,
            state,
            cas: Cas(reader.u64()?),
        })
    }
}

/// The entries of an answer to OBSERVE, checked to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveEntries<'a> {
    bytes: &'a [u8],
}

impl<'a> ObserveEntries<'a> {
    /// The entries in a value.
    ///
    /// # Errors
    /// The value ends within an entry, or a state is unknown.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(value);
        while !reader.is_empty() {
            ObserveEntry::read(&mut reader).ok_or(Malformed::new("observed key is cut off"))?;
        }
        Ok(Self { bytes: value })
    }

    /// The entries in their order.
    pub fn iter(self) -> impl Iterator<Item = ObserveEntry<'a>> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || ObserveEntry::read(&mut reader))
    }
}

/// The history that a client asked about, when it is not the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// The client's history.
    pub old_uuid: VbUuid,
    /// The last change that was made under it.
    pub last_seqno: Seqno,
}

/// The answer to OBSERVE_SEQNO.
///
/// Shape: 27 bytes, with a failover 43.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqnoReply {
    /// vBucket as asked for.
    pub vbucket: VbId,
    /// Its current history.
    pub uuid: VbUuid,
    /// Last change on disk.
    pub persisted: Seqno,
    /// Last change.
    pub current: Seqno,
    /// Set when the client's history has ended.
    pub failover: Option<Failover>,
}

impl ObserveSeqnoReply {
    /// Appends the value of the answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.failover.is_some()));
        out.extend_from_slice(&self.vbucket.0.to_be_bytes());
        out.extend_from_slice(&self.uuid.0.to_be_bytes());
        out.extend_from_slice(&self.persisted.0.to_be_bytes());
        out.extend_from_slice(&self.current.0.to_be_bytes());
        if let Some(Failover {
            old_uuid,
            last_seqno,
        }) = self.failover
        {
            out.extend_from_slice(&old_uuid.0.to_be_bytes());
            out.extend_from_slice(&last_seqno.0.to_be_bytes());
        }
    }

    /// Reads the value of the answer.
    ///
    /// # Errors
    /// The length does not fit the format, or the format is unknown.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        Self::read(value).ok_or(Malformed::new("answer to observe is not valid"))
    }

    fn read(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value);
        let format = reader.u8()?;
        let mut reply = Self {
            vbucket: VbId(reader.u16()?),
            uuid: VbUuid(reader.u64()?),
            persisted: Seqno(reader.u64()?),
            current: Seqno(reader.u64()?),
            failover: None,
        };
        match format {
            0 => {}
            1 => {
                let old_uuid = VbUuid(reader.u64()?);
                reply.failover = Some(Failover {
                    old_uuid,
                    last_seqno: Seqno(reader.u64()?),
                });
            }
            _ => return None,
        }
        reader.is_empty().then_some(reply)
    }
}
