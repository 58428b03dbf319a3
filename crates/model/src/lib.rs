//! The shared vocabulary of all crates: identifiers, keys, documents, states, time.
//!
//! This crate must not depend on any other crate of Settee. It holds types rather than behaviour;
//! code for only one crate belongs to that crate.

mod compression;
mod conflict;
mod datatype;
mod document;
mod ids;
mod key;
mod kind;
mod moment;
mod reader;
mod record;
mod time;
mod xattr;

pub use compression::CompressionMode;
pub use conflict::ConflictResolution;
pub use datatype::Datatype;
pub use document::{DOCUMENT_OVERHEAD_BYTES, Document, Draft, Meta};
pub use ids::{Cas, CollectionId, ManifestUid, ScopeId, Seqno, VbId, VbUuid};
pub use key::{KEY_BYTES_MAX, collection_key, push_leb128, split_key};
pub use kind::{DurabilityLevel, Kind};
pub use moment::utc;
pub use reader::Reader;
pub use record::{
    CollectionCount, FailoverEntry, FailoverLog, SnapshotRange, VbCounts, VbRecord, VbState,
};
pub use time::Now;
pub use xattr::{
    AttributeBytes, Attributes, Entries, STALE, body_at, encode_attributes, is_stale, is_system,
    section_behind, system_section,
};
