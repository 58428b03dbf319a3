//! Everything of a running node that its parts share.

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
use crate::group::Standing;
use crate::maps::{MapVersion, Reached};
use crate::served::ServedBucket;
use crate::settings::{BucketSettings, MemcachedPort, Ports, StandIn};
use crate::timings::Timings;

/// The release of the reference server whose behaviour clients may expect.
pub const COMPATIBLE_VERSION: &str = "7.6.2-1000";

/// How long a handshake of TLS may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a consumer of changes may be silent that gets noops.
pub const SILENCE_MAX: Duration = Duration::from_mins(6);

/// What the parts of a node want of the world around them: files, random numbers, threads.
pub trait Env: Send + Sync {
    /// Fills `bytes` with random ones.
    fn fill_random(&self, bytes: &mut [u8]);

    /// A random number.
    fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A new identity for a vBucket's history: 48 bits, not 0.
    fn random_vb_uuid(&self) -> VbUuid {
        VbUuid((self.random_u64() >> 16).max(1))
    }

    /// Whether a connection may have a thread of its own.
    fn has_thread(&self) -> bool;

    /// A cluster map changed: streams of maps look again.
    fn maps_changed(&self);

    /// Reads the configuration of the audit again, from a small file.
    ///
    /// # Errors
    /// What is wrong with it, one line; then everything is as before.
    fn reload_audit(&self, unix_ns: u64) -> Result<(), String>;

    /// Removes every document of a bucket: each vBucket begins anew, with the same collections. Connections are to be
    /// woken then. Blocks for the disk.
    ///
    /// # Errors
    /// It is not allowed, or the disk refuses.
    fn flush(&self, served: &ServedBucket) -> Result<(), FlushError>;

    /// Writes down what a bucket is called and which epoch its map has, if that is news.
    fn remember(&self, bucket: &str, uuid: &str, epoch: i64);

    /// What is kept of the group of a bucket.
    fn standing(&self, bucket: &str) -> Standing;

    /// Writes down what is to be kept of the group of a bucket, and the epoch of its map.
    fn note_standing(&self, bucket: &str, standing: Standing, epoch: i64);

    /// The users are those of the node that this one follows from now on, over a restart as well. Blocks for the disk.
    ///
    /// # Errors
    /// They could not be written, and are as before.
    fn follow_users(&self, roster: Roster) -> Result<(), String>;

    /// The bucket obeys from now on the settings of the one that it follows, as [`BucketSettings::followed_by`] says,
    /// over a restart as well. Returns whether that is news. Blocks for the disk.
    ///
    /// # Errors
    /// Why it does not; then it tells the settings that it had.
    fn follow_settings(&self, served: &ServedBucket, told: BucketSettings) -> Result<bool, String>;
}

/// Why a bucket was not flushed. `Display` is for clients; they look for some of these texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    /// Its settings do not allow it.
    #[error("Flush is disabled for the bucket")]
    Disabled,
    /// It has what another node's bucket has.
    #[error("The bucket follows another node's")]
    Follows,
    /// The disk or the system refused.
    #[error("{0}")]
    Failed(String),
}

/// How long requests wait for what may never come.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// For a seqno to become durable.
    pub persistence: Duration,
    /// For a pending vBucket to become active.
    pub pending: Duration,
    /// For memory.
    pub memory: MemoryWaits,
    /// For a peer that moves nothing of what is held for it, while others wait for that memory.
    pub stillness: Duration,
    /// For the end of a handshake of TLS.
    pub handshake: Duration,
    /// For a sign of life of a consumer of changes.
    pub silence: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            persistence: Duration::from_secs(30),
            pending: Duration::from_secs(30),
            memory: MemoryWaits::default(),
            stillness: Duration::from_secs(2),
            handshake: HANDSHAKE_TIMEOUT,
            silence: SILENCE_MAX,
        }
    }
}

/// Threads that serve connections, as statistics see them.
#[derive(Debug)]
pub struct Serving {
    /// How many of them have connections.
    pub threads: AtomicUsize,
    /// Connections that went from one to another.
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
    /// Notes a login that went well or not.
    pub fn count_auth(&self, ok: bool) {
        let counter = if ok { &self.auth_ok } else { &self.auth_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Logins tried.
    pub fn logins(&self) -> u64 {
        self.auth_ok.load(Ordering::Relaxed) + self.logins_failed()
    }

    /// Logins that failed.
    pub fn logins_failed(&self) -> u64 {
        self.auth_failed.load(Ordering::Relaxed)
    }
}

/// What the parts of a node share.
pub struct Registry {
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The world around.
    pub env: Arc<dyn Env>,
    /// The users.
    pub identity: Arc<Identity>,
    /// What is recorded for audits.
    pub audit: Arc<Recorder>,
    /// Slows failed logins down.
    pub brake: LoginBrake,
    /// Connections of the KV protocol.
    pub connections: Connections,
    /// What they hold.
    pub buffers: Arc<Buffers>,
    /// How long commands take, by thread.
    pub timings: Vec<Arc<Timings>>,
    /// Threads that serve them.
    pub serving: Arc<Serving>,
    /// Where clients outside of its network reach the node.
    pub external: RwLock<Option<AlternateAddress>>,
    /// What clients are told that it stands in for.
    pub stands_in_for: RwLock<BTreeSet<StandIn>>,
    /// Totals that belong to no bucket.
    pub counters: NodeCounters,
    /// The ports that are listened on; others are told [`Registry::told_ports`].
    pub ports: Ports,
    /// What clients of the memcached port may reach; `None` where it is closed.
    pub memcached: Option<MemcachedPort>,
    /// The address that ports are on.
    pub listen: IpAddr,
    /// Where others are to reach this node, if that was said.
    pub advertise: Option<Advertised>,
    /// How long requests wait.
    pub waits: Waits,
    /// When the node started, seconds since 1970.
    pub started_unix_s: u32,
    /// 32 hex digits.
    pub uuid: String,
    /// All buckets, by name.
    pub buckets: RwLock<BTreeMap<String, Arc<ServedBucket>>>,
    /// The map that names no bucket.
    pub global_map: RwLock<MapVersion>,
    /// The node's part in a cluster, if it has one.
    pub cluster: OnceLock<Arc<dyn ClusterMember>>,
}

impl Registry {
    /// Where clients reach the node.
    pub fn reached<'a>(&self, external: Option<&'a AlternateAddress>) -> Reached<'a> {
        Reached::new(self.told_ports(), &self.stands_in_for.read(), external)
    }

    /// The ports at which others are to reach the node.
    pub fn told_ports(&self) -> Ports {
        let advertise = self.advertise.as_ref();
        advertise.map_or(self.ports, |advertise| advertise.ports(self.ports))
    }

    /// A bucket by name.
    pub fn bucket(&self, name: &str) -> Option<Arc<ServedBucket>> {
        self.buckets.read().get(name).cloned()
    }

    /// All buckets, sorted by name.
    pub fn all_buckets(&self) -> Vec<Arc<ServedBucket>> {
        self.buckets.read().values().cloned().collect()
    }

    /// Names of all buckets, sorted.
    pub fn bucket_names(&self) -> Vec<String> {
        self.buckets.read().keys().cloned().collect()
    }

    /// The map that names no bucket.
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

    /// Quotas of all buckets.
    pub fn quota_bytes(&self) -> u64 {
        let quotas = self.all_buckets().into_iter();
        quotas.map(|served| served.bucket.memory().quota()).sum()
    }

    /// Lets every parked request be tried again.
    pub fn wake_all(&self) {
        for info in self.connections.all() {
            info.mailbox.wake();
        }
    }

    /// The users are others: streams of idle connections end if their user may not have them any more, and nodes that
    /// follow this one are told.
    pub fn users_changed(&self) {
        self.connections.map_changed();
        self.wake_all();
    }

    /// Seconds since the node started.
    pub fn uptime_s(&self) -> u64 {
        u64::from(
            self.clock
                .now()
                .unix_s()
                .saturating_sub(self.started_unix_s),
        )
    }

    /// When a login from `peer` may be judged. The call reserves that turn.
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

    /// Tells the log of wrong logins that no later one would tell of.
    pub fn tell_failed_logins(&self) {
        for (peer, count) in self.brake.lines_due(self.clock.mono_ns()) {
            tell_failed(peer, count);
        }
    }
}

fn tell_failed(peer: IpAddr, count: u32) {
    tracing::warn!(%peer, count, "authentication failed");
}
