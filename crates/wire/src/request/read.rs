//! Requests that read documents, or change only their expiry or lock.

use model::CollectionId;

use crate::bytes::{Field, Reader};
use crate::message::{OTHER_COMMAND, message};
use crate::{Frame, Malformed, Message, Opcode};

/// GET, GETQ, GETK, GETKQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// Whether the answer repeats the key.
    pub with_key: bool,
    /// Whether a miss is not answered.
    pub quiet: bool,
}

message! {
    #[inline]
    Get<'a> by (with_key, quiet,) {
        GET: (false, false,),
        GETQ: (false, true,),
        GETK: (true, false,),
        GETKQ: (true, true,),
    }
    key: key;
}

/// `GET_REPLICA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetReplica<'a> {
    /// Key of the document.
    pub key: &'a [u8],
}

message! { GetReplica<'a> = GET_REPLICA; key: key; }

/// `GET_EX`, `GET_EX_REPLICA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetEx<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// Whether to read from a replica.
    pub replica: bool,
}

message! { GetEx<'a> by (replica,) { GET_EX: (false,), GET_EX_REPLICA: (true,), } key: key; }

/// TOUCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// New expiry, as sent.
    pub expiry: u32,
}

message! { Touch<'a> = TOUCH; extras: expiry; key: key; }

/// GAT, GATQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetAndTouch<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// New expiry, as sent.
    pub expiry: u32,
    /// Whether a miss is not answered.
    pub quiet: bool,
}

message! { GetAndTouch<'a> by (quiet,) { GAT: (false,), GATQ: (true,), } extras: expiry; key: key; }

/// `GET_LOCKED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLocked<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// Lock time in seconds, as sent; `None` if not given.
    pub lock_s: Option<u32>,
}

message! { GetLocked<'a> = GET_LOCKED; extras: lock_s; key: key; }

/// `UNLOCK_KEY`; the CAS of its envelope is the lock's CAS, and must be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlock<'a> {
    /// Key of the document.
    pub key: &'a [u8],
}

message! { Unlock<'a> = UNLOCK_KEY; key: key; }

/// Version of the answer to `GET_META`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// Without the datatype.
    V1,
    /// With the datatype.
    V2,
}

impl Field<'_> for MetaVersion {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.field()? {
            None | Some(0_u8 | 1) => Ok(Self::V1),
            Some(2) => Ok(Self::V2),
            _ => Err(Malformed::new("version of the metadata is not 0, 1 or 2")),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        if *self == Self::V2 {
            out.push(2);
        }
    }
}

/// `GET_META`, `GETQ_META`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMeta<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// Version of the answer.
    pub version: MetaVersion,
    /// Whether a miss is not answered.
    pub quiet: bool,
}

message! {
    GetMeta<'a> by (quiet,) { GET_META: (false,), GETQ_META: (true,), }
    extras: version;
    key: key;
}

/// `GET_RANDOM_KEY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetRandomKey {
    /// Collection of the document; `None` for the default one.
    pub collection: Option<CollectionId>,
    /// Whether extended attributes are requested; only with a collection.
    pub include_xattrs: bool,
}

impl Message<'_> for GetRandomKey {
    fn opcode(&self) -> Opcode {
        Opcode::GET_RANDOM_KEY
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::GET_RANDOM_KEY {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            collection: extras.field()?,
            include_xattrs: extras.field::<Option<bool>>()?.unwrap_or(false),
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        if let Some(collection) = self.collection {
            collection.write(out);
            if self.include_xattrs {
                out.push(1);
            }
        }
    }
}
