//! The node: how it starts and how it stops.
//!
//! Stop (SIGTERM): accept no more, close connections, flush what is dirty, close the stores (each notes a clean stop).
//! Start: bind the ports, lock the directory, check its format, open the stores, serve. The ports file and the ready
//! line come once warmup is over: until then data operations answer TemporaryFailure, and `/readyz` says why. After an
//! *unclean* stop each active vBucket begins a new branch in its failover log, so that consumers that saw lost seqnos
//! can tell. CAS values go on above the highest one on disk, whatever the clock says.

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
mod world;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::thread::JoinHandle;

use bucket::{Clock, Pool, WarmupStage};
use identity::{Identity, LoginBrake, NewUser, Role};
use management::HttpDoor;
use model::VbUuid;
use parking_lot::{Mutex, RwLock};
use registry::cluster_map::MapRevision;
use registry::timings::Timings;
use registry::{
    ClusterSettings, Connections, Env, Group, MapOf, NodeCounters, Ports, Registry, ServedBucket,
    StartAs, Waits, bucket_map, global_map,
};
use replication::Follower;
use stats::StatScope;
use tls::Tls;
use tokio::sync::watch;

use crate::clock::SystemClock;
use crate::config::{NodeConfig, StartError};
use crate::net::{
    Arrival, Listener, NetState, OwnThreads, WorkerPool, Workers, balance, watch_buffers,
};
use descriptors::Descriptors;
use open::Launcher;
use sockets::Sockets;
use world::World;

pub use salvage::{SalvageStep, salvage};

/// What the threads of the node share: what its parts do, and what sockets, files and TLS need.
pub(crate) struct NodeState {
    pub(crate) registry: Arc<Registry>,
    pub(crate) net: Arc<NetState>,
    pub(crate) pool: Arc<WorkerPool<Arrival>>,
    /// Where a port is served over TLS.
    pub(crate) tls: Option<Tls>,
    world: Arc<World>,
    /// What is kept of the node as a whole; to be read without waiting for the disk.
    cluster: RwLock<ClusterSettings>,
    /// The highest revision that a map of a dropped bucket had.
    revs: AtomicI64,
    buckets_max: usize,
    /// What each bucket is opened with.
    launcher: Launcher,
}

impl Deref for NodeState {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl NodeState {
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
}

/// Fills `bytes` from the operating system's random source.
fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system gives random bytes");
}

/// A random number.
fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A new identity for a vBucket's history: 48 bits, not 0.
fn random_vb_uuid() -> VbUuid {
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
        let (pool, inboxes) = WorkerPool::new(config.threads).map_err(system)?;
        let pool = Arc::new(pool);
        let descriptors = Descriptors::of_process(config);
        let state = open_state(config, (ports, waits), (&pool, descriptors), &warmed)?;
        // Not before: a refused start prints its reason, and nothing else.
        descriptors.tell();
        state.tell_of_missing_memcached_bucket();
        address_space::tell(state.quota_bytes());
        let (workers, threads) = Workers::start(&state.net, &pool, inboxes).map_err(system)?;
        let listeners = sockets.accept(&state.net, &pool).map_err(system)?;
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

    /// Writes the rows of a group of statistics to `sink`, key and value, as STAT does for a
    /// connection that selected `bucket`. `request` is the group's name and arguments, separated
    /// by spaces. Returns whether there are such a bucket and such a group.
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
            node: &self.state.registry,
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
        self.state.net.own_threads.join();
        let mut failed = Vec::new();
        for served in self.state.all_buckets() {
            if let Err(error) = served.workers.stop() {
                failed.push(format!("bucket {}: {error}", served.name()));
            }
        }
        self.state.world.kept().release();
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
    (pool, descriptors): (&Arc<WorkerPool<Arrival>>, Descriptors),
    warmed: &watch::Sender<usize>,
) -> Result<Arc<NodeState>, StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let started_unix_s = clock.now().unix_s();
    let identity = users(config)?;
    // The revision counts seconds, so a restarted node never serves an older one.
    let revision = MapRevision {
        epoch: 1,
        rev: i64::from(started_unix_s),
    };
    let launcher = Launcher {
        clock: Arc::clone(&clock),
        pool: Arc::new(Pool::new()),
        purge_age_s: config.purge_age_s,
        journal_bytes: config.journal_bytes,
    };
    let mut opened = open::open_buckets(config, &launcher, warmed)?;
    let of = config.replica_of.as_ref();
    let mut buckets = BTreeMap::new();
    let mut group = Group::default();
    for bucket in opened.buckets {
        let name = bucket.bucket.name().to_owned();
        if of.is_some_and(|of| of.bucket == name) {
            group.clone_from(&bucket.group);
        }
        buckets.insert(name, Arc::new(served_at_first(bucket, ports, revision.rev)));
    }
    let pool = Arc::clone(pool);
    let own_threads = Arc::new(OwnThreads::default());
    let kept = &opened.kept.identities;
    let (uuid, cluster) = (kept.node_uuid.clone(), kept.cluster.clone());
    let world = Arc::new(World::new(opened.kept, Arc::clone(&own_threads)));
    let registry = Arc::new(Registry {
        clock,
        env: Arc::clone(&world) as Arc<dyn Env>,
        identity,
        brake: LoginBrake::default(),
        connections: Connections::new(descriptors.kv),
        buffers: Arc::default(),
        timings: (0..pool.len())
            .map(|_| Arc::new(Timings::default()))
            .collect(),
        serving: Arc::clone(pool.serving()),
        counters: NodeCounters::default(),
        ports,
        memcached: config.memcached.clone(),
        listen: config.listen,
        advertise: config.advertise.clone(),
        waits,
        started_unix_s,
        uuid,
        buckets: RwLock::new(buckets),
        global_map: RwLock::new(global_map(ports, &group, revision)),
    });
    let tls = opened.tls.take();
    let net = Arc::new(NetState {
        registry: Arc::clone(&registry),
        tls: tls.as_ref().map(|tls| Arc::clone(&tls.config)),
        own_threads,
    });
    Ok(Arc::new(NodeState {
        registry,
        net,
        pool,
        tls,
        world,
        cluster: RwLock::new(cluster),
        revs: AtomicI64::new(0),
        buckets_max: config.buckets_max,
        launcher,
    }))
}

/// The users that are configured; their keys are derived in the background.
fn users(config: &NodeConfig) -> Result<Arc<Identity>, StartError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| StartError::System(error.to_string()))?;
    let user = NewUser {
        name: config.username.clone(),
        password: config.password.clone(),
        role: Role::Admin,
    };
    let identity = Arc::new(Identity::new([user], secret));
    logins::prepare(&identity);
    Ok(identity)
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
    let of = MapOf {
        name: bucket.name(),
        uuid: &opened.uuid,
        vbuckets: bucket.vbuckets(),
        manifest,
        settings: &opened.settings,
    };
    let map = bucket_map(of, ports, &group, revision);
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
        let standing = state.env.standing(&of.bucket);
        let promoted = standing.start_as(Some(&of.following())) == StartAs::Promoted;
        let follower = Follower::start(&state.registry, &served, (of.clone(), promoted))?;
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
    // Connections that fill one of them leave the other alone.
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
                drop(tokio::spawn(memory_watch::watch(Arc::clone(
                    &state.registry,
                ))));
                drop(tokio::spawn(watch_buffers(Arc::clone(&state.registry))));
                drop(tokio::spawn(logins::watch(Arc::clone(&state.registry))));
                drop(tokio::spawn(balance(Arc::clone(&state.pool), workers)));
                let listen = tokio::net::TcpListener::from_std;
                let door = |socket, tls| {
                    let listener = listen(socket)?;
                    std::io::Result::Ok(HttpDoor::new(listener, connections_max, tls))
                };
                let https = https.map(|socket| door(socket, tls)).transpose();
                match door(http, None).and_then(|http| Ok((http, https?))) {
                    Ok(doors) => management::serve(doors, state, stopping).await,
                    Err(error) => tracing::error!(%error, "HTTP is not served"),
                }
            });
        })
}
