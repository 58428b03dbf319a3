//! The state of a running node that its parts share.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use audit::Recorder;
use bucket::{Buffers, Clock, MemoryWaits, Wake};
use identity::{Identity, LoginBrake, LoginTurn, Roster};
use model::VbUuid;
use parking_lot::RwLock;

use crate::advertised::Advertised;
use crate::cluster::ClusterMember;
use crate::cluster_map::AlternateAddress;
use crate::connections::Connections;
use crate::group::GroupRecord;
use crate::maps::{MapVersion, NodeReach};
use crate::served::ServedBucket;
use crate::settings::{BucketSettings, MemcachedPort, Ports, StandIn};
use crate::timings::Timings;

/// Release of the reference server whose behaviour clients may expect.
pub const COMPATIBLE_VERSION: &str = "7.6.2-1000";

/// Time limit of a TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of a wait for a bucket of the cluster that this node is about to make.
pub const BUCKET_WAIT: Duration = Duration::from_secs(5);

/// Interval between checks of a user that waits for the newest users.
const USERS_LOOK: Duration = Duration::from_millis(20);

/// Longest silence of a change consumer that gets noops.
pub const SILENCE_MAX: Duration = Duration::from_mins(6);

/// Services that the parts of a node need from outside: files, random numbers, threads.
pub trait Env: Send + Sync {
    /// Fills `bytes` with random data.
    fn fill_random(&self, bytes: &mut [u8]);

    /// Returns a random number.
    fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Returns a new UUID for a vBucket's history: 48 bits, not 0.
    fn random_vb_uuid(&self) -> VbUuid {
        VbUuid((self.random_u64() >> 16).max(1))
    }

    /// Checks whether a connection may have a thread of its own.
    fn has_thread(&self) -> bool;

    /// Notifies streams of maps that a cluster map changed.
    fn maps_changed(&self);

    /// Reads the configuration of the audit again, from a small file.
    ///
    /// # Errors
    /// The reason in one line; the configuration stays as it was.
    fn reload_audit(&self, unix_ns: u64) -> Result<(), String>;

    /// Removes every document of a bucket: each vBucket begins a new history, with the same collections. The caller
    /// wakes the connections then. Blocks for the disk.
    ///
    /// # Errors
    /// It is not allowed, or the disk failed.
    fn flush(&self, served: &ServedBucket) -> Result<(), FlushError>;

    /// Stores the UUID of a bucket and the epoch of its map, if they changed.
    fn remember(&self, bucket: &str, uuid: &str, epoch: i64);

    /// Returns the stored standing of a bucket.
    fn group_record(&self, bucket: &str) -> GroupRecord;

    /// Stores the standing of a bucket and the epoch of its map.
    fn note_standing(&self, bucket: &str, standing: GroupRecord, epoch: i64);

    /// Writes the users that this node took over from another one, for a restart. Blocks for the disk.
    ///
    /// # Errors
    /// The users could not be written.
    fn keep_users(&self, roster: &Roster) -> Result<(), String>;

    /// Applies the settings of the followed bucket, as [`BucketSettings::followed_by`] converts them, also after a
    /// restart. Returns whether they changed. Blocks for the disk.
    ///
    /// # Errors
    /// The reason; the bucket keeps its settings.
    fn follow_settings(
        &self,
        served: &ServedBucket,
        followed: BucketSettings,
    ) -> Result<bool, String>;
}

/// Reason why a bucket was not flushed. `Display` is for clients; they look for some of these texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    /// The settings of the bucket do not allow it.
    #[error("Flush is disabled for the bucket")]
    Disabled,
    /// The bucket is a copy of another node's bucket.
    #[error("The bucket follows another node's")]
    Follows,
    /// The disk or the system failed.
    #[error("{0}")]
    Failed(String),
}

/// Time limits of requests that wait for events that may never happen.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// Wait for a seqno to become durable.
    pub persistence: Duration,
    /// Wait for a pending vBucket to become active.
    pub pending: Duration,
    /// Wait for a bucket of the cluster that this node is about to make.
    pub bucket: Duration,
    /// Waits for memory.
    pub memory: MemoryWaits,
    /// Idle time of a peer whose data is held in memory while others wait for that memory. A peer that reads slowly
    /// moves some 100 KiB at a time.
    pub stillness: Duration,
    /// Wait for the end of a TLS handshake.
    pub handshake: Duration,
    /// Wait for a message of a change consumer.
    pub silence: Duration,
    /// Time that clients have to finish when the node stops. SDKs repeat a refused write after 1, 10, 50, 100 and
    /// 500 ms, so that most of them wait for the last of these when the connections close.
    pub stop: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            persistence: Duration::from_secs(30),
            pending: Duration::from_secs(30),
            bucket: BUCKET_WAIT,
            memory: MemoryWaits::default(),
            stillness: Duration::from_secs(10),
            handshake: HANDSHAKE_TIMEOUT,
            silence: SILENCE_MAX,
            stop: Duration::from_millis(250),
        }
    }
}

/// Threads that serve connections, as statistics see them.
#[derive(Debug)]
pub struct Serving {
    /// Number of threads that have connections.
    pub threads: AtomicUsize,
    /// Number of connections that moved from one thread to another.
    pub moves: AtomicU64,
}

impl Default for Serving {
    fn default() -> Self {
        Self {
            threads: AtomicUsize::new(1),
            moves: AtomicU64::new(0),
        }
    }
}

/// Totals that belong to no bucket.
#[derive(Debug, Default)]
pub struct NodeCounters {
    auth_ok: AtomicU64,
    auth_failed: AtomicU64,
}

impl NodeCounters {
    /// Counts a login that succeeded or failed.
    pub fn count_auth(&self, ok: bool) {
        let counter = if ok { &self.auth_ok } else { &self.auth_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of logins.
    pub fn logins(&self) -> u64 {
        self.auth_ok.load(Ordering::Relaxed) + self.logins_failed()
    }

    /// Returns the number of failed logins.
    pub fn logins_failed(&self) -> u64 {
        self.auth_failed.load(Ordering::Relaxed)
    }
}

/// The state that the parts of a node share.
pub struct Registry {
    /// Clock of the node.
    pub clock: Arc<dyn Clock>,
    /// Services from outside.
    pub env: Arc<dyn Env>,
    /// Users and their roles.
    pub identity: Arc<Identity>,
    /// Recorder of audit events.
    pub audit: Arc<Recorder>,
    /// Back-off of failed logins.
    pub brake: LoginBrake,
    /// Connections of the KV protocol.
    pub connections: Connections,
    /// Memory that the connections hold.
    pub buffers: Arc<Buffers>,
    /// Durations of commands, by thread.
    pub timings: Vec<Arc<Timings>>,
    /// Threads that serve the connections.
    pub serving: Arc<Serving>,
    /// Address for clients outside of the node's network.
    pub external: RwLock<Option<AlternateAddress>>,
    /// Services for which the node stands in.
    pub stands_in_for: RwLock<BTreeSet<StandIn>>,
    /// Totals that belong to no bucket.
    pub counters: NodeCounters,
    /// Ports on which the node listens; others get [`Registry::shown_ports`].
    pub ports: Ports,
    /// Rights of clients of the memcached port; `None` where it is closed.
    pub memcached: Option<MemcachedPort>,
    /// Address on which the node listens.
    pub listen: IpAddr,
    /// Address for other nodes and clients, if one was configured.
    pub advertise: Option<Advertised>,
    /// Time limits of requests.
    pub waits: Waits,
    /// Time of the node's start, seconds since 1970.
    pub started_unix_s: u32,
    /// UUID of the node, 32 hex digits.
    pub uuid: String,
    /// All buckets, by name.
    pub buckets: RwLock<BTreeMap<String, Arc<ServedBucket>>>,
    /// The map that names no bucket.
    pub global_map: RwLock<MapVersion>,
    /// The node as a member of a cluster, if it is in one.
    pub cluster: OnceLock<Arc<dyn ClusterMember>>,
}

impl Registry {
    /// Returns the address parts at which clients reach the node.
    pub fn reached<'a>(&self, external: Option<&'a AlternateAddress>) -> NodeReach<'a> {
        NodeReach::new(self.shown_ports(), &self.stands_in_for.read(), external)
    }

    /// Returns the ports at which others reach the node.
    pub fn shown_ports(&self) -> Ports {
        let advertise = self.advertise.as_ref();
        advertise.map_or(self.ports, |advertise| advertise.ports(self.ports))
    }

    /// Finds a bucket by name.
    pub fn bucket(&self, name: &str) -> Option<Arc<ServedBucket>> {
        self.buckets.read().get(name).cloned()
    }

    /// Returns all buckets, sorted by name.
    pub fn all_buckets(&self) -> Vec<Arc<ServedBucket>> {
        self.buckets.read().values().cloned().collect()
    }

    /// Returns the names of all buckets, sorted.
    pub fn bucket_names(&self) -> Vec<String> {
        self.buckets.read().keys().cloned().collect()
    }

    /// Returns the map that names no bucket.
    pub fn global_map(&self) -> MapVersion {
        self.global_map.read().clone()
    }

    /// Replaces the map that names no bucket.
    pub fn publish_global_map(&self, map: MapVersion) {
        *self.global_map.write() = map;
        self.env.maps_changed();
    }

    /// Replaces a bucket's map and notifies the connections that subscribed to it.
    pub fn publish_map(&self, bucket: &ServedBucket, map: MapVersion) {
        bucket.set_map(map);
        self.connections.map_changed();
        self.env.maps_changed();
    }

    /// Returns the sum of all buckets' quotas, bytes.
    pub fn quota_bytes(&self) -> u64 {
        let quotas = self.all_buckets().into_iter();
        quotas.map(|served| served.bucket.memory().quota()).sum()
    }

    /// Wakes every parked request.
    pub fn wake_all(&self) {
        for info in self.connections.all() {
            info.mailbox.wake();
        }
    }

    /// Notifies connections that the users changed: streams of idle connections end if their user lost the right to
    /// them, and nodes that follow this one get the users.
    pub fn users_changed(&self) {
        self.connections.map_changed();
        self.wake_all();
    }

    /// Returns the seconds since the node started.
    pub fn uptime_s(&self) -> u64 {
        u64::from(
            self.clock
                .now()
                .unix_s()
                .saturating_sub(self.started_unix_s),
        )
    }

    /// Returns the time after which to ask again, while logins and requests of users wait for the newest users.
    pub fn users_wait(&self) -> Option<Duration> {
        let member = self.cluster.get()?;
        (!member.has_newest_users()).then_some(USERS_LOOK)
    }

    /// Reserves a turn to judge a login from `peer`. Returns when the turn comes.
    pub fn login_turn(&self, peer: IpAddr) -> LoginTurn {
        self.brake.turn(peer, self.clock.mono_ns())
    }

    /// Notes a login that was right, or one that was wrong or refused unjudged.
    pub fn note_login(&self, peer: IpAddr, right: bool) {
        self.counters.count_auth(right);
        if right {
            return self.brake.succeeded(peer);
        }
        if let Some(count) = self.brake.failed(peer, self.clock.mono_ns()) {
            tell_failed(peer, count);
        }
    }

    /// Logs wrong logins that no later login would log.
    pub fn tell_failed_logins(&self) {
        for (peer, count) in self.brake.lines_due(self.clock.mono_ns()) {
            tell_failed(peer, count);
        }
    }
}

fn tell_failed(peer: IpAddr, count: u32) {
    tracing::warn!(%peer, count, "authentication failed");
}
