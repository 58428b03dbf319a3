//! Collections: what exists in a bucket (the manifest), what a vBucket notes when that changes
//! (system events), and what it keeps of each collection.
//!
//! ```text
//!   Manifest, of the bucket          names, numbers, settings
//!        | VBucket::apply_manifest   the difference, one SystemEvent each
//!   changes of the vBucket           in line with the documents: store, streams, replicas
//!        | opened, closed
//!   VbCollections                    which collections are here, since when, how many documents
//! ```

mod event;
mod learn;
mod living;
mod manifest;
mod state;
#[cfg(test)]
mod tests;

pub use event::{CollectionChange, SystemEvent};
pub use living::Living;
pub use manifest::{
    COLLECTIONS_MAX, Collection, CollectionSettings, Manifest, ManifestError, NAME_BYTES_MAX,
    SCOPES_MAX, Scope, WantedCollection, WantedScope, is_valid_name,
};
pub(crate) use state::VbCollections;
pub use state::{CollectionCounts, OpenCollection};
