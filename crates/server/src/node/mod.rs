//! The node: its start and its stop.
//!
//! Start: bind the ports, lock the directory, check its format, open the stores, join the cluster, serve. The ports file
//! and the ready line come once warmup is over. Until then data operations answer TemporaryFailure, and `/readyz` contains the
//! reason. After an *unclean* stop each active vBucket begins a new branch in its failover log, so that consumers that
//! saw lost seqnos notice. CAS values continue above the highest one on disk, whatever the clock shows.
//!
//! Stop (SIGTERM): accept no connections, refuse writes until clients have their answers, close connections, flush dirty
//! documents, close the stores (each records a clean stop).

mod agreed;
mod audit_log;
mod buckets;
mod check;
mod client_certificates;
mod configured;
mod data_dir;
mod descriptors;
mod encryption;
mod identities;
mod load;
mod logins;
mod machine_memory;
mod member;
mod memory_limits;
mod memory_watch;
mod node_record;
mod open;
mod private;
mod random;
mod salvage;
mod sealed_file;
mod sockets;
mod state;
mod users;
mod view;
mod world;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::member::Member;
use bucket::{Clock, WarmupStage};
use identity::LoginBrake;
use management::{HttpDoor, HttpDoors};
use parking_lot::{Mutex, RwLock};
use registry::cluster_map::MapRevision;
use registry::{
    Connections, Env, Group, NodeCounters, NodeReach, OpenedBucket, Ports, Registry, ServedBucket,
    StartAs, Waits, global_map,
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
use audit_log::AuditThread;
use descriptors::Descriptors;
use load::Load;
use member::start_member;
use open::{Launcher, NodeData, open_buckets};
use sockets::Sockets;
use world::World;

pub use check::{CheckStep, check};
pub use encryption::{BucketEncryption, encryption_keys, encryption_of, new_encryption_key};
pub use salvage::{SalvageStep, salvage};
pub(crate) use state::NodeState;

/// A running node.
pub struct Node {
    state: Arc<NodeState>,
    listeners: Mutex<Vec<Listener>>,
    workers: Mutex<Workers>,
    http: Mutex<Option<JoinHandle<()>>>,
    /// The audit thread; it ends when it is dropped.
    audit: Mutex<Option<AuditThread>>,
    /// The node as a member of a cluster.
    member: Mutex<Option<Arc<Member>>>,
    stop_http: watch::Sender<bool>,
    warm: watch::Receiver<usize>,
}

impl Node {
    /// Returns the state that the node shares with its connections.
    #[cfg(test)]
    pub(crate) fn state(&self) -> &Arc<NodeState> {
        &self.state
    }

    /// Opens the data, binds the ports and serves. Warmup continues in the background.
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
            std::io::ErrorKind::WouldBlock => StartError::System(memory_limits::no_thread(&error)),
            _ => StartError::System(error.to_string()),
        };
        let mut sockets = Sockets::bind(config)?;
        let (warmed, warm) = watch::channel(0);
        let (pool, inboxes) = WorkerPool::new(config.threads).map_err(system)?;
        let pool = Arc::new(pool);
        let descriptors = Descriptors::of_process(config);
        let state = open_state(NodeParts {
            config,
            ports: sockets.ports,
            waits,
            pool: Arc::clone(&pool),
            connections_max: descriptors.kv,
            warmed,
        })?;
        // Log this late: a refused start prints its reason, and nothing else.
        descriptors.tell();
        state.tell_of_missing_memcached_bucket();
        state.tell_of_missing_administrator();
        let audit = state.world.audit.start(&state.clock).map_err(system)?;
        let (workers, threads) = Workers::start(&state.net, &pool, inboxes).map_err(system)?;
        let (stop_http, stopping) = watch::channel(false);
        let node = Self {
            state,
            listeners: Mutex::default(),
            workers: Mutex::new(workers),
            http: Mutex::default(),
            audit: Mutex::new(Some(audit)),
            member: Mutex::default(),
            stop_http,
            warm,
        };
        let started = node.take_part(config).and_then(|()| {
            *node.listeners.lock() = sockets.accept(&node.state.net, &pool).map_err(system)?;
            let shared = Arc::clone(&node.state);
            let http = start_http(sockets, descriptors.http, shared, threads, stopping);
            *node.http.lock() = Some(http.map_err(system)?);
            Ok(())
        });
        if let Err(error) = started {
            let stopped = node.shutdown();
            tracing::debug!(?stopped, "stopped again");
            return Err(error);
        }
        Ok(node)
    }

    /// Starts to follow another node, or joins a cluster, as configured. The sockets listen, so that other nodes can
    /// connect, but nothing is served: before it has joined, a node would change only its own buckets and users.
    fn take_part(&self, config: &NodeConfig) -> Result<(), StartError> {
        let followed = start_follower(&self.state, config);
        followed.map_err(|error| StartError::System(error.to_string()))?;
        *self.member.lock() = start_member(&self.state, config)?;
        Ok(())
    }

    /// Returns the ports on which the node listens.
    pub fn ports(&self) -> Ports {
        self.state.ports
    }

    /// Returns the authority that clients of the ports with TLS must trust, as PEM; `None` if there is no such port.
    pub fn authority(&self) -> Option<Arc<str>> {
        self.state.tls.as_ref().map(Tls::authority)
    }

    /// Reads the certificate of the ports with TLS, the authorities of clients, and what connections to other nodes of a
    /// cluster use again. Open connections keep theirs.
    ///
    /// # Errors
    /// The reason in one line; all previous ones stay. A node without such a port never fails.
    pub fn reload_certificate(&self) -> Result<(), String> {
        self.state.reload_certificates()
    }

    /// Uses another login of etcd and, for later connections, its certificates, if the node is in a cluster.
    ///
    /// # Errors
    /// One line about the invalid file; the former settings stay.
    pub fn renew_etcd(&self, options: &etcd::Options) -> Result<(), String> {
        let member = self.member.lock();
        member
            .as_ref()
            .map_or(Ok(()), |member| member.renew_etcd(options))
    }

    /// Waits until warmup of every bucket has ended.
    ///
    /// # Errors
    /// A bucket could not be loaded; with its name and the reason.
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

    /// Adds the system collections to buckets that were configured, or created by an older version. Buckets that are
    /// created over HTTP begin with them. Call this after warmup, and before clients learn of the node.
    ///
    /// Cost: blocks for a sync of the store of each bucket that lacks some, and nothing for others.
    pub fn complete_collections(&self) {
        self.state.complete_collections();
    }

    /// Writes the rows of a group of statistics to `sink`, key and value, like STAT on a connection that selected
    /// `bucket`. `request` is the name and the arguments of the group, separated by spaces. Returns whether the bucket
    /// and the group exist.
    ///
    /// Cost: O(rows), all at once; at most one vBucket is locked at a time.
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
            access: None,
        };
        served.is_some() && stats::collect(request, &scope, sink).is_ok()
    }

    /// Refuses writes for a moment, so that the answers to earlier ones are sent and SDKs repeat later ones elsewhere,
    /// or here after the start. A write on a connection that closes is an error that SDKs show: it may have happened.
    /// The moment ends when no client sent anything for a while and no answer waits.
    fn let_clients_finish(&self) {
        // A client that is busy with the answers to many requests sends nothing for some 50 ms.
        const QUIET: Duration = Duration::from_millis(100);
        let connections = &self.state.connections;
        connections.stop_writes();
        let deadline = Instant::now() + self.state.waits.stop;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if connections.open() == 0 || left.is_zero() {
                return;
            }
            let before = connections.traffic().received;
            std::thread::sleep(QUIET.min(left));
            if connections.traffic().received == before && !connections.owe_answers() {
                return;
            }
        }
    }

    /// Stops accepting, ends the connections, makes everything durable.
    ///
    /// # Errors
    /// The data that could not be made durable, one line.
    pub fn shutdown(&self) -> Result<(), String> {
        for listener in &mut *self.listeners.lock() {
            listener.stop();
        }
        self.let_clients_finish();
        let member = self.member.lock().take();
        if let Some(member) = &member {
            member.stop();
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
        // After the workers: only they start such threads.
        self.state.net.own_threads.join();
        // No thread is left that records events.
        drop(self.audit.lock().take());
        let mut failed = Vec::new();
        for served in self.state.all_buckets() {
            if let Err(error) = served.workers.stop() {
                failed.push(format!("bucket {}: {error}", served.name()));
            }
        }
        if let Some(member) = member.filter(|_| failed.is_empty()) {
            member.note_clean_stop();
        }
        self.state.world.kept().release();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(failed.join("; "))
        }
    }
}

/// Returns the buckets as clients see them, by name, and the group of the bucket that follows another node.
fn served(
    opened: Vec<OpenedBucket>,
    config: &NodeConfig,
    at: NodeReach<'_>,
    revision: MapRevision,
) -> (BTreeMap<String, Arc<ServedBucket>>, Group) {
    let of = config.replica_of.as_ref();
    let mut buckets = BTreeMap::new();
    let mut group = Group::default();
    for bucket in opened {
        let name = bucket.bucket.name().to_owned();
        if of.is_some_and(|of| of.bucket == name) {
            group.clone_from(&bucket.group);
        }
        let revision = if bucket.group.is_superseded() {
            MapRevision::first_of(bucket.epoch)
        } else {
            MapRevision {
                epoch: bucket.epoch,
                ..revision
            }
        };
        buckets.insert(name, Arc::new(ServedBucket::new(bucket, at, revision)));
    }
    (buckets, group)
}

/// Parts of a node that exist before its data is opened.
struct NodeParts<'a> {
    config: &'a NodeConfig,
    ports: Ports,
    waits: Waits,
    pool: Arc<WorkerPool<Arrival>>,
    /// Largest number of connections of the KV ports.
    connections_max: usize,
    /// Counts the buckets whose warmup ended.
    warmed: watch::Sender<usize>,
}

fn open_state(made_of: NodeParts<'_>) -> Result<Arc<NodeState>, StartError> {
    let (config, ports, pool) = (made_of.config, made_of.ports, made_of.pool);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let started_unix_s = clock.now().unix_s();
    // The revision counts seconds, so a restarted node never serves an older one.
    let revision = MapRevision {
        epoch: 1,
        rev: i64::from(started_unix_s),
    };
    let launcher = Launcher::new(config, Arc::clone(&clock), made_of.waits.memory);
    let NodeData {
        kept,
        users,
        audit,
        buckets,
        tls,
    } = open_buckets(config, &launcher, &made_of.warmed)?;
    let users = users.in_force(config);
    let identity = Arc::clone(&users.identity);
    logins::prepare(&identity);
    let cluster = kept.identities.cluster.clone();
    identity.set_certificates(client_certificates::at_start(config, &cluster));
    let uuid = kept.identities.node_uuid.clone();
    let external = cluster.external.as_ref();
    let at = NodeReach::new(config.shown_ports(ports), &cluster.stands_in_for, external);
    let (buckets, group) = served(buckets, config, at, revision);
    let own_threads = Arc::new(OwnThreads::default());
    let world = World::new(&launcher.configured, kept, users, &own_threads, audit);
    let world = Arc::new(world);
    let registry = Arc::new(Registry {
        clock,
        env: Arc::clone(&world) as Arc<dyn Env>,
        identity,
        audit: Arc::clone(&world.audit.recorder),
        brake: LoginBrake::default(),
        connections: Connections::new(made_of.connections_max),
        buffers: Arc::clone(&launcher.buffers),
        timings: (0..pool.len()).map(|_| Arc::default()).collect(),
        serving: Arc::clone(pool.serving()),
        external: RwLock::new(cluster.external.clone()),
        stands_in_for: RwLock::new(cluster.stands_in_for.clone()),
        counters: NodeCounters::default(),
        ports,
        memcached: config.memcached.clone(),
        listen: config.listen,
        advertise: config.advertise.clone(),
        waits: made_of.waits,
        started_unix_s,
        uuid,
        buckets: RwLock::new(buckets),
        global_map: RwLock::new(global_map(at, &group, revision)),
        cluster: OnceLock::new(),
    });
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
        peer_tls: OnceLock::new(),
        revs: AtomicI64::new(0),
        buckets_max: config.buckets_max,
        replica_of: config.replica_of.clone(),
        launcher,
        load: Load::default(),
    }))
}

/// Starts to follow another node, if one is configured.
fn start_follower(state: &Arc<NodeState>, config: &NodeConfig) -> std::io::Result<()> {
    let Some(of) = &config.replica_of else {
        return Ok(());
    };
    if let Some(served) = state.bucket(&of.bucket) {
        let standing = state.env.group_record(&of.bucket);
        let promoted = standing.start_as(Some(&of.following())) == StartAs::Promoted;
        let follower = Follower::start(&state.registry, &served, of.clone(), promoted)?;
        served.set_follower(follower);
    }
    Ok(())
}

fn start_http(
    sockets: Sockets,
    connections_max: usize,
    state: Arc<NodeState>,
    workers: Vec<i32>,
    stopping: watch::Receiver<bool>,
) -> std::io::Result<JoinHandle<()>> {
    let Sockets {
        http,
        https,
        query,
        search,
        ..
    } = sockets;
    let others = [&https, &query, &search].map(|socket| socket.iter());
    let sockets = || std::iter::once(&http).chain(others.clone().into_iter().flatten());
    // Each socket has its own limit, so that connections that fill one leave the others alone.
    let connections_max = connections_max.div_ceil(sockets().count());
    let tls = state.tls.as_ref().map(|tls| Arc::clone(&tls.config));
    sockets().try_for_each(|socket| socket.set_nonblocking(true))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("http".into())
        .spawn(move || {
            runtime.block_on(async move {
                // These tasks end with the runtime.
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
                let doors = || {
                    let stand_in = |socket: Option<_>| {
                        let door = socket.map(|socket| door(socket, None));
                        door.transpose()
                    };
                    std::io::Result::Ok(HttpDoors {
                        http: door(http, None)?,
                        https: https.map(|socket| door(socket, tls)).transpose()?,
                        query: stand_in(query)?,
                        search: stand_in(search)?,
                    })
                };
                match doors() {
                    Ok(doors) => management::serve(doors, state, stopping).await,
                    Err(error) => tracing::error!(%error, "HTTP is not served"),
                }
            });
        })
}
