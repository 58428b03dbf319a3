//! Changes of collections and scopes, in line with the documents.

use model::{CollectionId, ManifestUid, Seqno};

use crate::bytes::Reader;
use crate::request::{EXTRAS, Message, OTHER_COMMAND};
use crate::{Frame, Malformed, Opcode};

/// What happened; any number, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId(pub u32);

impl EventId {
    /// A collection was created.
    pub const BEGIN_COLLECTION: Self = Self(0);
    /// A collection was dropped.
    pub const END_COLLECTION: Self = Self(1);
    /// A scope was created.
    pub const CREATE_SCOPE: Self = Self(3);
    /// A scope was dropped.
    pub const DROP_SCOPE: Self = Self(4);
    /// A setting of a collection was changed.
    pub const MODIFY_COLLECTION: Self = Self(5);
}

/// DCP_SYSTEM_EVENT: a collection or a scope changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemEvent<'a> {
    /// Position of the event.
    pub seqno: Seqno,
    /// What happened.
    pub event: EventId,
    /// How `value` is to be read: 0 and 1 are a [`CollectionEvent`], 2 is a flat buffer.
    pub version: u8,
    /// Name of what was created; empty when it was dropped.
    pub name: &'a [u8],
    /// More about it.
    pub value: &'a [u8],
}

impl<'a> Message<'a> for SystemEvent<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_SYSTEM_EVENT
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_SYSTEM_EVENT {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            seqno: Seqno(extras.u64().ok_or(EXTRAS)?),
            event: EventId(extras.u32().ok_or(EXTRAS)?),
            version: extras.u8().ok_or(EXTRAS)?,
            name: frame.key,
            value: frame.value,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seqno.0.to_be_bytes());
        out.extend_from_slice(&self.event.0.to_be_bytes());
        out.push(self.version);
    }

    fn key(&self) -> &[u8] {
        self.name
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}

/// The value of a system event of the versions 0 and 1.
///
/// Shape: the manifest, then the scope, then the collection if it is about one, then in version
/// 1 the longest expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionEvent {
    /// The manifest that brought it.
    pub manifest: ManifestUid,
    /// The scope.
    pub scope: u32,
    /// The collection; `None` for an event about a scope.
    pub collection: Option<CollectionId>,
    /// The longest expiry of a new collection's documents, in seconds; told in version 1.
    pub expiry_max_s: Option<u32>,
}

impl CollectionEvent {
    /// Reads a value: 12 bytes for a scope, 16 for a collection, 20 with its expiry.
    ///
    /// # Errors
    /// The value has another length.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(value);
        let mut read = || {
            Some(Self {
                manifest: ManifestUid(reader.u64()?),
                scope: reader.u32()?,
                collection: reader.u32().map(CollectionId),
                expiry_max_s: reader.u32(),
            })
        };
        let event = read().filter(|_| reader.is_empty());
        event.ok_or(Malformed::new("system event has a wrong length"))
    }

    /// Appends the value. An expiry without a collection is left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.manifest.0.to_be_bytes());
        out.extend_from_slice(&self.scope.to_be_bytes());
        let Some(CollectionId(collection)) = self.collection else {
            return;
        };
        out.extend_from_slice(&collection.to_be_bytes());
        if let Some(expiry_max_s) = self.expiry_max_s {
            out.extend_from_slice(&expiry_max_s.to_be_bytes());
        }
    }
}

/// The value of a [`EventId::MODIFY_COLLECTION`] of the versions 0 and 1.
///
/// Shape: manifest, collection, the longest expiry, as gocbcore reads it; then the scope, which
/// only nodes of this kind tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionModified {
    /// The manifest that brought it.
    pub manifest: ManifestUid,
    /// The collection.
    pub collection: CollectionId,
    /// The longest expiry of its documents, in seconds; 0 where there is none, too, which the
    /// version tells apart.
    pub expiry_max_s: u32,
    /// The scope.
    pub scope: u32,
}

impl CollectionModified {
    /// Reads a value of 20 bytes.
    ///
    /// # Errors
    /// The value has another length.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(value);
        let mut read = || {
            Some(Self {
                manifest: ManifestUid(reader.u64()?),
                collection: CollectionId(reader.u32()?),
                expiry_max_s: reader.u32()?,
                scope: reader.u32()?,
            })
        };
        let event = read().filter(|_| reader.is_empty());
        event.ok_or(Malformed::new("system event has a wrong length"))
    }

    /// Appends the value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.manifest.0.to_be_bytes());
        out.extend_from_slice(&self.collection.0.to_be_bytes());
        out.extend_from_slice(&self.expiry_max_s.to_be_bytes());
        out.extend_from_slice(&self.scope.to_be_bytes());
    }
}
