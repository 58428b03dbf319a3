//! The runtime of a node's part in a cluster: its thread, its messages to other nodes, its copies and their streams.
//!
//! This crate must not decide about the cluster (crate [`cluster`] does), speak to etcd (crate [`etcd`]
//! does), serve clients, or make buckets (it asks its [`Host`]).
//!
//! ```text
//!   etcd <---> driver (Participant) ---> worker: steps of copies, buckets
//!                 ^  messages                |            \
//!   other nodes --+<--- peers                v             streams (PeerLink) <--- other nodes
//!                                      bucket: vBuckets
//! ```

mod certificate_check;
mod changes;
mod clean_stop;
mod copies;
mod driver;
mod etcd_failures;
mod events;
mod host;
mod hosted;
mod join;
mod member;
mod news;
mod node_services;
mod packet;
mod pause;
mod peers;
mod retry;
mod shared;
mod worker;

pub use host::{BucketNotMade, CleanStop, Host, MemberRecord};
pub use join::{JoinError, MemberOptions};
pub use member::Member;
