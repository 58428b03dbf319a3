//! Reading documents, and what only touches their expiry or lock.

use model::CollectionId;

use super::{EXTRAS, Message, OTHER_COMMAND};
use crate::bytes::Reader;
use crate::{Frame, Malformed, Opcode};

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

impl<'a> Message<'a> for Get<'a> {
    fn opcode(&self) -> Opcode {
        match (self.with_key, self.quiet) {
            (false, false) => Opcode::GET,
            (false, true) => Opcode::GETQ,
            (true, false) => Opcode::GETK,
            (true, true) => Opcode::GETKQ,
        }
    }

    #[inline]
    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let (with_key, quiet) = match frame.header.opcode {
            Opcode::GET => (false, false),
            Opcode::GETQ => (false, true),
            Opcode::GETK => (true, false),
            Opcode::GETKQ => (true, true),
            _ => return Err(OTHER_COMMAND),
        };
        Ok(Self {
            key: frame.key,
            with_key,
            quiet,
        })
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

/// GET_REPLICA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetReplica<'a> {
    /// Key of the document.
    pub key: &'a [u8],
}

impl<'a> Message<'a> for GetReplica<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::GET_REPLICA
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::GET_REPLICA => Ok(Self { key: frame.key }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

/// TOUCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// New expiry, as sent.
    pub expiry: u32,
}

impl<'a> Message<'a> for Touch<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::TOUCH
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::TOUCH => Ok(Self {
                key: frame.key,
                expiry: expiry(frame)?,
            }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.expiry.to_be_bytes());
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

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

impl<'a> Message<'a> for GetAndTouch<'a> {
    fn opcode(&self) -> Opcode {
        if self.quiet {
            Opcode::GATQ
        } else {
            Opcode::GAT
        }
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let quiet = match frame.header.opcode {
            Opcode::GAT => false,
            Opcode::GATQ => true,
            _ => return Err(OTHER_COMMAND),
        };
        Ok(Self {
            key: frame.key,
            expiry: expiry(frame)?,
            quiet,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.expiry.to_be_bytes());
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

fn expiry(frame: &Frame<'_>) -> Result<u32, Malformed> {
    Reader::new(frame.extras).u32().ok_or(EXTRAS)
}

/// GET_LOCKED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLocked<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// How long the lock holds, in seconds as sent; `None` when not said.
    pub lock_s: Option<u32>,
}

impl<'a> Message<'a> for GetLocked<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::GET_LOCKED
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::GET_LOCKED {
            return Err(OTHER_COMMAND);
        }
        Ok(Self {
            key: frame.key,
            lock_s: Reader::new(frame.extras).u32(),
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend(self.lock_s.into_iter().flat_map(u32::to_be_bytes));
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

/// UNLOCK_KEY; the CAS of its envelope is that of the lock and must be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlock<'a> {
    /// Key of the document.
    pub key: &'a [u8],
}

impl<'a> Message<'a> for Unlock<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::UNLOCK_KEY
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::UNLOCK_KEY => Ok(Self { key: frame.key }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

/// Which form the answer to GET_META has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// Without the datatype.
    V1,
    /// With it.
    V2,
}

/// GET_META, GETQ_META.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMeta<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// Form of the answer.
    pub version: MetaVersion,
    /// Whether a miss is not answered.
    pub quiet: bool,
}

impl<'a> Message<'a> for GetMeta<'a> {
    fn opcode(&self) -> Opcode {
        if self.quiet {
            Opcode::GETQ_META
        } else {
            Opcode::GET_META
        }
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let quiet = match frame.header.opcode {
            Opcode::GET_META => false,
            Opcode::GETQ_META => true,
            _ => return Err(OTHER_COMMAND),
        };
        let version = match frame.extras {
            [] | [0 | 1] => MetaVersion::V1,
            [2] => MetaVersion::V2,
            _ => return Err(Malformed::new("version of the metadata is not 0, 1 or 2")),
        };
        Ok(Self {
            key: frame.key,
            version,
            quiet,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        if self.version == MetaVersion::V2 {
            out.push(2);
        }
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

/// GET_RANDOM_KEY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetRandomKey {
    /// Collection of the document; `None` for the default one.
    pub collection: Option<CollectionId>,
    /// Whether extended attributes are wanted; only with a collection.
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
        let mut reader = Reader::new(frame.extras);
        let collection = reader.u32().map(CollectionId);
        Ok(Self {
            collection,
            include_xattrs: reader.u8().is_some_and(|byte| byte != 0),
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        if let Some(collection) = self.collection {
            out.extend_from_slice(&collection.0.to_be_bytes());
            if self.include_xattrs {
                out.push(1);
            }
        }
    }
}
