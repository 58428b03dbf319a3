//! System events: changes of collections and scopes, in line with the documents.

use model::{CollectionId, ManifestUid, Seqno};

use crate::Malformed;
use crate::bytes::{Field, Reader, layout, wrappers};
use crate::message::message;

const LENGTH: Malformed = Malformed::new("system event has a wrong length");

/// Kind of a system event; any number, known or not.
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

/// Version of the system events with `FlatBuffers` tables as values.
pub const FLAT_VERSION: u8 = 2;

/// `DCP_SYSTEM_EVENT`: a collection or a scope changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemEvent<'a> {
    /// Seqno of the event.
    pub seqno: Seqno,
    /// Kind of the event.
    pub event: EventId,
    /// Format of `value`: [`CollectionEvent`] for 0 and 1, a `FlatBuffers` table for
    /// [`FLAT_VERSION`].
    pub version: u8,
    /// Name of the created scope or collection; empty for a dropped one.
    pub name: &'a [u8],
    /// Details of the event.
    pub value: &'a [u8],
}

message! { SystemEvent<'a> = DCP_SYSTEM_EVENT; extras: seqno, event, version; key: name; value: value; }

/// Value of a system event of version 0 or 1.
///
/// Shape: manifest; scope; collection, if the event is about one; in version 1, the maximum expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionEvent {
    /// UID of the manifest with this change.
    pub manifest: ManifestUid,
    /// Id of the scope.
    pub scope: u32,
    /// Id of the collection; `None` for an event about a scope.
    pub collection: Option<CollectionId>,
    /// Maximum expiry of a new collection's documents in seconds; only in version 1.
    pub expiry_max_s: Option<u32>,
}

impl CollectionEvent {
    /// Parses a value: 12 bytes for a scope, 16 for a collection, 20 with its expiry.
    ///
    /// # Errors
    /// The value has another length.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        Self::whole(value, LENGTH)
    }

    /// Appends the value. Leaves out an expiry without a collection.
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

/// Value of a [`EventId::MODIFY_COLLECTION`] of version 0 or 1.
///
/// Shape: manifest, collection and maximum expiry, as gocbcore parses it; then the scope, which
/// only Settee nodes send each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionModified {
    /// UID of the manifest with this change.
    pub manifest: ManifestUid,
    /// Id of the collection.
    pub collection: CollectionId,
    /// Maximum expiry of its documents in seconds. 0 also if there is none; the event's version
    /// makes the difference.
    pub expiry_max_s: u32,
    /// Id of the scope.
    pub scope: u32,
}

layout! { CollectionModified { manifest, collection, expiry_max_s, scope } }

impl CollectionModified {
    /// Parses a value of 20 bytes.
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
