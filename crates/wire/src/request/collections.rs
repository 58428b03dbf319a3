//! Ids of collections and scopes by name.

use crate::message::OTHER_COMMAND;
use crate::{Frame, Malformed, Message, Opcode};

/// Returns the path: in the value, or of older clients in the key; empty if it is in neither.
fn path<'a>(frame: &Frame<'a>) -> Result<&'a [u8], Malformed> {
    match (frame.key, frame.value) {
        (key, []) => Ok(key),
        ([], value) => Ok(value),
        _ => Err(Malformed::new("path is in the key and in the value")),
    }
}

/// `COLLECTIONS_GET_ID`; the vBucket must be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionsGetId<'a> {
    /// `scope.collection`; an empty name means the default one.
    pub path: &'a [u8],
}

impl<'a> Message<'a> for CollectionsGetId<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::COLLECTIONS_GET_ID
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::COLLECTIONS_GET_ID => Ok(Self { path: path(frame)? }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.path);
    }
}

/// `COLLECTIONS_GET_SCOPE_ID`; the vBucket must be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionsGetScopeId<'a> {
    /// Name of the scope; a dot and the text after it are ignored.
    pub path: &'a [u8],
}

impl<'a> Message<'a> for CollectionsGetScopeId<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::COLLECTIONS_GET_SCOPE_ID
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::COLLECTIONS_GET_SCOPE_ID => Ok(Self { path: path(frame)? }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.path);
    }
}
