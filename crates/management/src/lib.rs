//! HTTP management: requests of SDKs at bootstrap, probes of operators, and feeds of changes.
//!
//! This crate must not know KV sockets or KV sessions, and changes a bucket only through [`NodeView`].
//!
//! A node without an administrator asks for no credentials. On any other node, every path needs credentials, except
//! for the two probes, `/pools` in brief, and the certificate. The rights of a user are in one table that denies by
//! default (`permits`).
//!
//! Source: protocol specification, section 12, and the observed clients' requests.

mod access;
mod answers;
mod audit_settings;
mod audited;
mod auto_compaction;
mod bucket_form;
mod buckets;
mod certificate;
mod change_stream;
mod check_permissions;
mod client_certificates;
mod closing;
mod clustered;
mod collections;
mod documents;
mod feed;
mod figures;
mod form;
mod forwarding;
mod host;
mod listener;
mod monitoring;
mod node_settings;
mod origin;
mod peer;
mod permission;
mod permits;
mod provision;
mod rbac;
mod refusals;
mod requests;
mod routes;
mod setup;
mod stand_in;
mod state;
mod streaming;
mod tools;
mod turn;
mod view;
mod visible;

#[cfg(test)]
mod tests;

pub use feed::{ChangeSelection, Feed, FeedEvent, FeedReader, FeedTurn, NoFeed, Start};
pub use listener::{CONNECTIONS_MAX, HttpDoor, HttpDoors, serve};
pub use refusals::Refusals;
pub use routes::router;
pub use view::{
    ActiveNode, BucketChange, BucketSummary, BucketsError, ClusterChange, EditSettings, Machine,
    MachineCpu, MachineFiles, MachineMemory, NodeSummary, NodeView, UsersError,
};
