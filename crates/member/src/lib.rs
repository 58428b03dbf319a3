//! A node's part in a cluster, run: its thread, its messages to other nodes, its copies and their streams.
//!
//! What this crate may not do: decide what becomes of the cluster (that is [`cluster`]), speak etcd (that is [`etcd`]),
//! serve clients, make buckets (it asks its [`Host`] to).
//!
//! ```text
//!   etcd <---> driver (Participant) ---> worker: steps of copies, buckets
//!                 ^  messages                |            \
//!   other nodes --+<--- peers                v             streams (PeerLink) <--- other nodes
//!                                      bucket: vBuckets
//! ```

mod around;
mod changes;
mod copies;
mod driver;
mod events;
mod greet;
mod hosted;
mod join;
mod member;
mod packet;
mod peers;
mod shared;
mod worker;

pub use join::{JoinError, MemberOptions};
pub use member::Member;
pub use shared::Host;
