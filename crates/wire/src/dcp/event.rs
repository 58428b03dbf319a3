//! Changes of collections and scopes, in line with the documents.

use model::{CollectionId, ManifestUid, Seqno};

use crate::Malformed;
use crate::bytes::{Field, Reader, layout, wrappers};
use crate::message::message;

const LENGTH: Malformed = Malformed::new("system event has a wrong length");

/// What happened; any number, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId(pub u32);

wrappers! { EventId }

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

/// Version of the system events whose values are tables of FlatBuffers.
pub const FLAT_VERSION: u8 = 2;

/// DCP_SYSTEM_EVENT: a collection or a scope changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemEvent<'a> {
    /// Position of the event.
    pub seqno: Seqno,
    /// What happened.
    pub event: EventId,
    /// How `value` is to be read: 0 and 1 are a [`CollectionEvent`], [`FLAT_VERSION`] is a flat buffer.
    pub version: u8,
    /// Name of what was created; empty when it was dropped.
    pub name: &'a [u8],
    /// More about it.
    pub value: &'a [u8],
}

message! { SystemEvent<'a> = DCP_SYSTEM_EVENT; extras: seqno, event, version; key: name; value: value; }

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
        Self::whole(value, LENGTH)
    }

    /// Appends the value. An expiry without a collection is left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }
}

impl Field<'_> for CollectionEvent {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            manifest: reader.field()?,
            scope: reader.field()?,
            collection: reader.field()?,
            expiry_max_s: reader.field()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.manifest.write(out);
        self.scope.write(out);
        self.collection.write(out);
        let expiry_max_s = self.collection.and(self.expiry_max_s);
        expiry_max_s.write(out);
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

layout! { CollectionModified { manifest, collection, expiry_max_s, scope } }

impl CollectionModified {
    /// Reads a value of 20 bytes.
    ///
    /// # Errors
    /// The value has another length.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        Self::whole(value, LENGTH)
    }

    /// Appends the value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }
}
