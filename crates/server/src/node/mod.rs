//! The node: what all connections share, how it starts and how it stops.

mod address_space;
mod buckets;
mod data_dir;
mod descriptors;
mod logins;
mod made;
mod memory_watch;
mod node_file;
mod open;
mod private;
mod salvage;
mod sockets;
mod view;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bucket::{Wake, WarmupStage};
use model::VbUuid;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::clock::SystemClock;
use crate::cluster_map::MapRevision;
use crate::config::{ClusterSettings, MemcachedPort, NodeConfig, Ports, StartError};
use crate::connections::Connections;
use crate::http::HttpDoor;
use crate::net::{Buffers, Crew, Listener, OwnThreads, Workers, balance, watch_buffers};
use crate::replication::{Follower, Standing, StartAs, bucket_map, global_map};
use crate::served::{MapVersion, ServedBucket};
use crate::stats::timings::Timings;
use crate::stats::{self, StatScope};
use crate::tls::Tls;
use data_dir::Kept;
use descriptors::Descriptors;
use identity::{Identity, LoginBrake, NewUser, Role};
use sockets::Sockets;

pub use salvage::{SalvageStep, salvage};

/// The release of the reference server whose behaviour clients may expect.
pub(crate) const COMPATIBLE_VERSION: &str = "7.6.2-1000";

/// How long requests wait for what may never come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// For a seqno to become durable.
    pub(crate) persistence: Duration,
    /// For a pending vBucket to become active.
    pub(crate) pending: Duration,
    /// For memory for a write.
    pub(crate) room: Duration,
    /// The same while the store is being given changes: room comes with each commit, and those who
    /// are refused ask again and take the processors from whoever makes it.
    pub(crate) stored_room: Duration,
    /// For memory for a large request, before it is refused unread. Less than the timeout of most
    /// clients.
    pub(crate) large_room: Duration,
    /// For memory for a value that is to be read from the store.
    pub(crate) fetch_room: Duration,
    /// The same while others are about to leave memory, and there is still room: the value is read then all the same.
    pub(crate) relief: Duration,
    /// For other connections to hold less, before a large answer is made.
    pub(crate) answer_room: Duration,
    /// For a peer that moves nothing of what is held for it, while others wait for that.
    pub(crate) stillness: Duration,
    /// For the end of a handshake of TLS.
    pub(crate) handshake: Duration,
    /// For a sign of life of a consumer of changes.
    pub(crate) silence: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            persistence: Duration::from_secs(30),
            pending: Duration::from_secs(30),
            room: Duration::from_millis(10),
            stored_room: Duration::from_millis(250),
            large_room: Duration::from_millis(1500),
            fetch_room: Duration::from_millis(500),
            relief: Duration::from_millis(50),
            answer_room: Duration::from_secs(5),
            stillness: Duration::from_secs(2),
            handshake: crate::tls::HANDSHAKE_TIMEOUT,
            silence: crate::session::dcp::SILENCE_MAX,
        }
    }
}

/// Totals that belong to no bucket.
#[derive(Debug, Default)]
pub(crate) struct NodeCounters {
    auth_ok: AtomicU64,
    auth_failed: AtomicU64,
}

impl NodeCounters {
    /// Notes a login that went well or not.
    pub(crate) fn count_auth(&self, ok: bool) {
        let counter = if ok { &self.auth_ok } else { &self.auth_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Logins that went well, and that did not.
    pub(crate) fn auth(&self) -> (u64, u64) {
        (
            self.auth_ok.load(Ordering::Relaxed),
            self.auth_failed.load(Ordering::Relaxed),
        )
    }
}

/// What all connections share.
pub(crate) struct NodeState {
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) identity: Arc<Identity>,
    /// Slows down those who guess passwords.
    pub(crate) brake: LoginBrake,
    pub(crate) connections: Connections,
    pub(crate) buffers: Arc<Buffers>,
    /// Threads of connections that bring changes here.
    pub(crate) own_threads: OwnThreads,
    pub(crate) timings: Vec<Arc<Timings>>,
    pub(crate) crew: Arc<Crew>,
    pub(crate) counters: NodeCounters,
    pub(crate) ports: Ports,
    /// What clients of the memcached port may reach; `None` where it is closed.
    pub(crate) memcached: Option<MemcachedPort>,
    pub(crate) listen: IpAddr,
    /// The host under which others are to reach this node, if that was said.
    pub(crate) advertise: Option<String>,
    /// Where a port is served over TLS.
    pub(crate) tls: Option<Tls>,
    pub(crate) waits: Waits,
    pub(crate) started_unix_s: u32,
    /// 32 hex digits.
    pub(crate) uuid: String,
    kept: Mutex<Kept>,
    /// What is kept of the node as a whole; to be read without waiting for the disk.
    cluster: RwLock<ClusterSettings>,
    /// Held while buckets are made, changed and dropped: one at a time.
    changing: Mutex<()>,
    /// The highest revision that a map of a dropped bucket had.
    revs: AtomicI64,
    purge_age_s: u64,
    journal_bytes: u64,
    buckets_max: usize,
    /// Runs the workers of all buckets.
    pool: Arc<bucket::Pool>,
    buckets: RwLock<BTreeMap<String, Arc<ServedBucket>>>,
    global_map: RwLock<MapVersion>,
    global_changed: watch::Sender<u64>,
}

impl NodeState {
    /// A bucket by name.
    pub(crate) fn bucket(&self, name: &str) -> Option<Arc<ServedBucket>> {
        self.buckets.read().get(name).cloned()
    }

    /// Clients of the memcached port would be told nothing else than that they have no bucket.
    fn tell_of_missing_memcached_bucket(&self) {
        let named = self.memcached.as_ref().map(|port| port.bucket.as_str());
        if let Some(bucket) = named.filter(|name| self.bucket(name).is_none()) {
            tracing::warn!(
                bucket,
                "the bucket of the memcached port is not here; make it, or name another one with \
                 --memcached-bucket"
            );
        }
    }

    /// All buckets, sorted by name.
    pub(crate) fn all_buckets(&self) -> Vec<Arc<ServedBucket>> {
        self.buckets.read().values().cloned().collect()
    }

    /// Names of all buckets, sorted.
    pub(crate) fn bucket_names(&self) -> Vec<String> {
        self.buckets.read().keys().cloned().collect()
    }

    /// The map that names no bucket.
    pub(crate) fn global_map(&self) -> MapVersion {
        self.global_map.read().clone()
    }

    /// Replaces the map that names no bucket.
    pub(crate) fn publish_global_map(&self, map: MapVersion) {
        *self.global_map.write() = map;
        self.global_changed.send_modify(|changes| *changes += 1);
    }

    /// Replaces a bucket's map and tells everybody who wants to hear of it.
    pub(crate) fn publish_map(&self, bucket: &ServedBucket, map: MapVersion) {
        bucket.set_map(map);
        self.connections.map_changed();
    }

    /// Writes down what a bucket is called and which epoch its map has, if that is news.
    pub(crate) fn remember(&self, bucket: &str, uuid: &str, epoch: i64) {
        if let Err(error) = self.kept.lock().note(bucket, uuid, epoch) {
            tracing::error!(bucket, %error, "the bucket's identity is not written down");
        }
    }

    /// Quotas of all buckets.
    fn quota_bytes(&self) -> u64 {
        let quotas = self.all_buckets().into_iter();
        quotas.map(|served| served.bucket.memory().quota()).sum()
    }

    /// What is kept of the group of a bucket.
    pub(crate) fn standing(&self, bucket: &str) -> Standing {
        self.kept.lock().identities.standing(bucket)
    }

    /// Writes down what is to be kept of the group of a bucket, and the epoch of its map.
    pub(crate) fn note_standing(&self, bucket: &str, standing: Standing, epoch: i64) {
        if let Err(error) = self.kept.lock().note_standing(bucket, standing, epoch) {
            tracing::error!(bucket, %error, "what the bucket is in its group is not written down");
        }
    }

    /// Lets every parked request be tried again.
    pub(crate) fn wake_all(&self) {
        for info in self.connections.all() {
            info.mailbox.wake();
        }
    }

    /// Seconds since the node started.
    pub(crate) fn uptime_s(&self) -> u64 {
        u64::from(
            self.clock
                .now()
                .unix_s()
                .saturating_sub(self.started_unix_s),
        )
    }
}

/// Fills `bytes` from the operating system's random source.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system gives random bytes");
}

/// A random number.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A new identity for a vBucket's history: 48 bits, not 0.
pub(crate) fn random_vb_uuid() -> VbUuid {
    VbUuid((random_u64() >> 16).max(1))
}

/// 128 random bits as 32 hex digits.
fn random_uuid() -> String {
    format!("{:016x}{:016x}", random_u64(), random_u64())
}

/// A running node.
pub struct Node {
    state: Arc<NodeState>,
    listeners: Mutex<Vec<Listener>>,
    workers: Mutex<Workers>,
    http: Mutex<Option<JoinHandle<()>>>,
    stop_http: watch::Sender<bool>,
    warm: watch::Receiver<usize>,
}

impl Node {
    /// What it shares with its connections.
    #[cfg(test)]
    pub(crate) fn state(&self) -> &Arc<NodeState> {
        &self.state
    }

    /// Opens the data, binds the ports and serves. Warmup goes on in the background.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a node is started once with what was configured for it"
    )]
    pub fn start(config: NodeConfig) -> Result<Self, StartError> {
        Self::start_with(&config, Waits::default())
    }

    fn start_with(config: &NodeConfig, waits: Waits) -> Result<Self, StartError> {
        let system = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock => StartError::System(address_space::no_thread(&error)),
            _ => StartError::System(error.to_string()),
        };
        let mut sockets = Sockets::bind(config)?;
        let ports = sockets.ports;
        let (warmed, warm) = watch::channel(0);
        let (crew, doors) = Crew::new(config.threads).map_err(system)?;
        let crew = Arc::new(crew);
        let descriptors = Descriptors::of_process(config);
        let state = open_state(config, (ports, waits), (&crew, descriptors), &warmed)?;
        // Not before: whoever is refused a start is told why, and nothing else.
        descriptors.tell();
        state.tell_of_missing_memcached_bucket();
        address_space::tell(state.quota_bytes());
        let (workers, threads) = Workers::start(&state, &state.timings, doors).map_err(system)?;
        let listeners = sockets.accept(&state, &crew).map_err(system)?;
        let (stop_http, stopping) = watch::channel(false);
        let http = (sockets, descriptors.http);
        let http = start_http(http, Arc::clone(&state), threads, stopping).map_err(system)?;
        let node = Self {
            state,
            listeners: Mutex::new(listeners),
            workers: Mutex::new(workers),
            http: Mutex::new(Some(http)),
            stop_http,
            warm,
        };
        // Last, so that the active node can reach what it is told of.
        start_follower(&node.state, config).map_err(|error| {
            let stopped = node.shutdown();
            tracing::debug!(?stopped, "stopped again");
            system(error)
        })?;
        Ok(node)
    }

    /// The ports that are served.
    pub fn ports(&self) -> Ports {
        self.state.ports
    }

    /// What clients of its ports with TLS are to trust, as PEM; `None` where there is no such port.
    pub fn authority(&self) -> Option<Arc<str>> {
        self.state.tls.as_ref().map(Tls::authority)
    }

    /// Reads the certificate of its ports with TLS again; connections that are open keep theirs.
    ///
    /// # Errors
    /// What is wrong with it, one line; then the one before stays. Never where there is no such port.
    pub fn reload_certificate(&self) -> Result<(), String> {
        self.state.tls.as_ref().map_or(Ok(()), Tls::reload)
    }

    /// Waits until warmup of every bucket has ended.
    ///
    /// # Errors
    /// A bucket could not be loaded; its name and the reason.
    pub async fn warmed_up(&self) -> Result<(), String> {
        let count = self.state.all_buckets().len();
        let ended = self
            .warm
            .clone()
            .wait_for(|warm| *warm >= count)
            .await
            .is_ok();
        match self
            .state
            .all_buckets()
            .iter()
            .find(|served| served.bucket.warmup().stage() != WarmupStage::Done)
        {
            Some(served) => Err(format!("bucket {} could not be loaded", served.name())),
            None if ended => Ok(()),
            None => Err("warmup was cut short".into()),
        }
    }

    /// Gives the rows of a group of statistics to `sink`, key and value, as STAT does for a
    /// connection that selected `bucket`. `request` is the group's name and arguments, separated
    /// by spaces. Says whether there are such a bucket and such a group.
    ///
    /// Cost: O(rows), all at once; of vBuckets at most one is locked at a time.
    pub fn statistics(
        &self,
        bucket: &str,
        request: &str,
        sink: &mut dyn FnMut(&str, &str),
    ) -> bool {
        let served = self.state.bucket(bucket);
        let scope = StatScope {
            node: &self.state,
            bucket: served.as_deref(),
            connection: None,
        };
        served.is_some() && stats::collect(request, &scope, sink).is_ok()
    }

    /// Stops accepting, ends the connections, makes everything durable.
    ///
    /// # Errors
    /// What could not be made durable, one line.
    pub fn shutdown(&self) -> Result<(), String> {
        for listener in &mut *self.listeners.lock() {
            listener.stop();
        }
        for served in self.state.all_buckets() {
            if let Some(follower) = served.follower() {
                follower.stop();
            }
        }
        self.stop_http.send_replace(true);
        let threads = std::mem::take(&mut *self.workers.lock()).close();
        self.state.connections.shut_down();
        let http = self.http.lock().take();
        for thread in threads.into_iter().chain(http) {
            if thread.join().is_err() {
                tracing::error!("a thread ended by a panic");
            }
        }
        // After the workers: none of them can start one any more.
        self.state.own_threads.join();
        let mut failed = Vec::new();
        for served in self.state.all_buckets() {
            if let Err(error) = served.workers.stop() {
                failed.push(format!("bucket {}: {error}", served.name()));
            }
        }
        self.state.kept.lock().release();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(failed.join("; "))
        }
    }
}

fn open_state(
    config: &NodeConfig,
    (ports, waits): (Ports, Waits),
    (crew, descriptors): (&Arc<Crew>, Descriptors),
    warmed: &watch::Sender<usize>,
) -> Result<Arc<NodeState>, StartError> {
    let clock = Arc::new(SystemClock::new());
    let started_unix_s = clock.now().unix_s();
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| StartError::System(error.to_string()))?;
    let user = NewUser {
        name: config.username.clone(),
        password: config.password.clone(),
        role: Role::Admin,
    };
    let identity = Arc::new(Identity::new([user], secret));
    logins::prepare(&identity);
    // The revision counts seconds, so a restarted node never serves an older one.
    let revision = MapRevision {
        epoch: 1,
        rev: i64::from(started_unix_s),
    };
    let mut opened = open::open_buckets(config, &clock, warmed)?;
    let of = config.replica_of.as_ref();
    let mut buckets = BTreeMap::new();
    let mut first_group = None;
    for bucket in opened.buckets {
        let name = bucket.bucket.name().to_owned();
        if of.is_some_and(|of| of.bucket == name) {
            first_group = Some(bucket.group.clone());
        }
        buckets.insert(name, Arc::new(served_at_first(bucket, ports, revision.rev)));
    }
    Ok(Arc::new(NodeState {
        clock,
        identity,
        brake: LoginBrake::default(),
        connections: Connections::new(descriptors.kv),
        buffers: Arc::default(),
        own_threads: OwnThreads::default(),
        timings: (0..crew.len()).map(|_| Arc::new(Timings::new())).collect(),
        crew: Arc::clone(crew),
        counters: NodeCounters::default(),
        ports,
        memcached: config.memcached.clone(),
        listen: config.listen,
        advertise: config.advertise.clone(),
        tls: opened.tls.take(),
        waits,
        started_unix_s,
        uuid: opened.kept.identities.node_uuid.clone(),
        cluster: RwLock::new(opened.kept.identities.cluster.clone()),
        kept: Mutex::new(opened.kept),
        changing: Mutex::new(()),
        revs: AtomicI64::new(0),
        purge_age_s: config.purge_age_s,
        journal_bytes: config.journal_bytes,
        buckets_max: config.buckets_max,
        pool: opened.pool,
        buckets: RwLock::new(buckets),
        global_map: RwLock::new(global_map(
            ports,
            &first_group.unwrap_or_default(),
            revision,
        )),
        global_changed: watch::channel(0).0,
    }))
}

/// A bucket with the first map of this start.
fn served_at_first(opened: open::OpenedBucket, ports: Ports, rev: i64) -> ServedBucket {
    let (bucket, group, epoch) = (opened.bucket, opened.group, opened.epoch);
    let revision = if group.is_superseded() {
        MapRevision::first_of(epoch)
    } else {
        MapRevision { epoch, rev }
    };
    let manifest = bucket.manifest().uid();
    let about = (
        bucket.name(),
        opened.uuid.as_str(),
        bucket.vbuckets(),
        manifest,
    );
    let map = bucket_map(about, &opened.settings, ports, &group, revision);
    let identity = (opened.uuid, opened.settings);
    let served = ServedBucket::new(bucket, opened.workers, identity, map);
    served.set_group(group);
    served
}

/// Starts to follow another node, where that is configured.
fn start_follower(state: &Arc<NodeState>, config: &NodeConfig) -> std::io::Result<()> {
    let Some(of) = &config.replica_of else {
        return Ok(());
    };
    if let Some(served) = state.bucket(&of.bucket) {
        let promoted = state.standing(&of.bucket).start_as(Some(of)) == StartAs::Promoted;
        let follower = Follower::start(state, &served, (of.clone(), promoted))?;
        served.set_follower(follower);
    }
    Ok(())
}

fn start_http(
    (sockets, connections_max): (Sockets, usize),
    state: Arc<NodeState>,
    workers: Vec<i32>,
    stopping: watch::Receiver<bool>,
) -> std::io::Result<JoinHandle<()>> {
    let Sockets { http, https, .. } = sockets;
    // Whoever fills one of them leaves the other alone.
    let connections_max = connections_max.div_ceil(1 + usize::from(https.is_some()));
    let tls = state.tls.as_ref().map(|tls| Arc::clone(&tls.config));
    http.set_nonblocking(true)?;
    https
        .iter()
        .try_for_each(|socket| socket.set_nonblocking(true))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("http".into())
        .spawn(move || {
            runtime.block_on(async move {
                // They end with the runtime.
                drop(tokio::spawn(memory_watch::watch(Arc::clone(&state))));
                drop(tokio::spawn(watch_buffers(Arc::clone(&state))));
                drop(tokio::spawn(logins::watch(Arc::clone(&state))));
                drop(tokio::spawn(balance(Arc::clone(&state.crew), workers)));
                let listen = tokio::net::TcpListener::from_std;
                let door = |socket, tls| {
                    let listener = listen(socket)?;
                    std::io::Result::Ok(HttpDoor::new(listener, connections_max, tls))
                };
                let https = https.map(|socket| door(socket, tls)).transpose();
                match door(http, None).and_then(|http| Ok((http, https?))) {
                    Ok(doors) => crate::http::serve(doors, state, stopping).await,
                    Err(error) => tracing::error!(%error, "HTTP is not served"),
                }
            });
        })
}
