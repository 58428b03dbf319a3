//! State that the parts of a node share: buckets with their maps and nodes, connections, users, counters and limits.
//!
//! This crate must not open sockets or files, start threads, read a clock or draw random numbers (see [`Env`]). It
//! knows no frames, commands or HTTP.

mod admission_queue;
mod advertised;
mod auto_compaction;
mod claims;
pub mod cluster;
pub mod cluster_map;
mod cluster_status;
mod clustered;
pub mod collections;
mod connection_bytes;
mod connections;
pub mod dcp;
pub mod fake_member;
mod followed_settings;
mod group;
mod loans;
mod mailbox;
mod maps;
mod membership;
mod peer;
mod progress;
mod publish;
mod rate;
mod recaching;
mod registry;
mod roster;
mod served;
mod settings;
mod store;
mod supersede;
pub mod timings;

pub use admission_queue::{AdmissionQueue, QUEUED_BYTES_MIN};
pub use advertised::Advertised;
pub use auto_compaction::{AutoCompaction, CompactionHours, FragmentationLimit};
pub use claims::Claims;
pub use cluster_status::{
    BucketStatus, ClusterStatus, CopyCounts, NodeStatus, PromotedStatus, UnsafeStatus,
    WaitingStatus, node_state, rebalance_state,
};
pub use clustered::{
    agreed_settings, alternate_address, awaits_bucket, bucket_id, is_only_copy, makes_bucket,
    publish_cluster, publish_cluster_nodes, sends_clients_here, server_group,
};
pub use connection_bytes::ConnectionBytes;
pub use connections::{About, Addresses, CONNECTIONS_MAX, ConnectionInfo, Connections};
pub use group::{Following, Group, GroupRecord, StartAs};
pub use loans::{Loan, Loans};
pub use mailbox::{Bell, Mailbox, MailboxFlags, Ring};
pub use maps::{MapVersion, NodeReach, global_map};
pub use membership::{
    ActiveNode, NotThere, PROMOTE, REGISTER, forget_replicas, introduction, promote, register,
    registered,
};
pub use peer::{Peer, is_host};
pub use progress::{Progress, Stage};
pub use publish::{about_bucket, manifest_changed, publish};
pub use rate::{Rate, Rates};
pub use recaching::{RecacheRead, RecacheTurn, Recaching};
pub use registry::{
    BUCKET_WAIT, COMPATIBLE_VERSION, Env, FlushError, HANDSHAKE_TIMEOUT, NodeCounters, Registry,
    SILENCE_MAX, Serving, Waits,
};
pub use roster::{USERS, take_users, tell_users, users_question};
pub use served::{Follows, OpenedBucket, ServedBucket};
pub use settings::{
    BucketConfig, BucketKind, BucketSettings, ClusterSettings, EvictionPolicy, HistorySettings,
    MemcachedPort, Ports, StandIn, VBUCKET_COUNTS, VBUCKETS, Versioning,
};
pub use store::Store;
pub use supersede::{
    EpochAnswer, LaterEpoch, PROMOTED, give_way, hear, heard, heard_of_epoch, news,
};
