//! Collections: those of a bucket (the manifest), the events of a vBucket when they change (system
//! events), and the state of each collection in a vBucket.
//!
//! This crate must not know documents' tables, checkpoints, frames (`wire`) or a store; read a
//! clock, draw random numbers, lock, start threads, touch files or sockets.
//!
//! ```text
//!   Manifest, of the bucket          names, ids, settings
//!        | VBucket::apply_manifest   the difference, one SystemEvent each
//!   changes of the vBucket           in line with the documents: store, streams, replicas
//!        | opened, closed
//!   VbCollections                    since when collections are here, how many documents
//!        | shared by vBuckets
//!   CollectionTable                  the existing collections
//! ```

mod changes;
mod edit;
mod event;
mod group;
mod learn;
mod living;
mod manifest;
mod plan;
mod seqnos;
mod state;
mod summary;
mod table;
#[cfg(test)]
mod tests;

pub use changes::{SharedCollections, Superseded};
pub use edit::{WantedCollection, WantedScope};
pub use event::{CollectionChange, CollectionInfo, SystemEvent};
pub use group::{EventGroup, GroupReader, events_of};
pub use living::Living;
pub use manifest::{
    COLLECTIONS_MAX, Collection, CollectionSettings, Manifest, ManifestError, NAME_BYTES_MAX,
    SCOPES_MAX, Scope, is_valid_name,
};
pub use plan::{ManifestPlanner, Plan, Steps};
pub use state::{CollectionCounts, OpenCollection, VbCollections};
pub use summary::{EventsSummary, SummaryPoint, SummaryWriter, VbSummary};
