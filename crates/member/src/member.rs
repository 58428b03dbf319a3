//! Handle of a node's part in a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use cluster::agreed::{Node, View};
use cluster::{Identity, NodeId, Order, Participant, Settings};
use copies::ConfirmationReceiver;
use etcd::Etcd;
use parking_lot::{Mutex, RwLock};
use registry::Registry;
use registry::cluster::{AgreedChange, ChangeError, ClusterMember, MemberStatus};
use tls::PeerTls;

use crate::copies::HostedTable;
use crate::driver::{Driver, PublishedMaps};
use crate::events::DriverEvent;
use crate::host::{CleanStop, Host};
use crate::hosted::Hosted;
use crate::join::{JoinError, Joined, MemberOptions, take_users};
use crate::packet::Envelope;
use crate::pause::Pause;
use crate::peers::Peers;
use crate::shared::Shared;
use crate::worker::Worker;

/// A node's part in a cluster, with its threads. It ends with [`Member::stop`].
pub struct Member {
    shared: Arc<Shared>,
    events: Sender<DriverEvent>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Member {
    /// Joins a cluster: finds it in etcd, registers the node there, and starts the threads.
    ///
    /// # Errors
    /// etcd or the cluster is not found, or does not accept this node.
    pub fn start(
        node: &Arc<Registry>,
        host: Arc<dyn Host>,
        options: &MemberOptions,
    ) -> Result<Arc<Self>, JoinError> {
        let (events, received) = channel();
        let etcd = start_etcd(options, events.clone())?;
        let joined = Joined::join(&etcd, node, &*host, options)?;
        let uuid = format!("{:032x}", joined.cluster.0);
        host.note_cluster(&options.cluster, &uuid)
            .map_err(JoinError::System)?;
        host.admit_peers(&joined.meta.secret);
        take_users(&etcd, joined.cluster, &joined.seen, node)?;
        let shared = Arc::new(Shared {
            node: Arc::clone(node),
            host,
            etcd,
            cluster: joined.cluster,
            me: joined.me,
            described: joined.node.clone(),
            boot: node.env.random_u64(),
            secret: joined.meta.secret.clone(),
            tls: joined.tls.clone(),
            table: HostedTable::new(joined.me),
            status: RwLock::default(),
            taken: Mutex::default(),
            users: AtomicU64::default(),
            pause: Pause::new(node.clock.mono_ns() / 1_000_000),
            etcd_failures: Mutex::default(),
            problems: Arc::default(),
            peer_threads: Arc::default(),
            no_space: AtomicBool::default(),
            unmade: Mutex::default(),
            stopped: AtomicBool::default(),
        });
        host_buckets(&shared);
        if let Some(stop) = joined.stop {
            stop.take(&shared);
        }
        let settings = Settings::of_lease(joined.meta.lease_ms);
        let identity = Identity {
            cluster: joined.cluster,
            node: joined.me,
            boot: shared.boot,
            new: joined.node,
        };
        let (work, queued) = channel();
        let driver = Driver {
            settings,
            participant: Participant::new(identity, settings, joined.seen),
            events: received,
            work,
            peers: Peers::new(&shared.secret, shared.tls.clone()),
            busy: BTreeSet::new(),
            own: Vec::new(),
            published: 0,
            kept: joined.seen,
            published_maps: PublishedMaps::default(),
            confirms_to: BTreeMap::new(),
            confirmed_by: ConfirmationReceiver::default(),
            heard_ms: shared.now_ms(),
            got_on: false,
            shared: Arc::clone(&shared),
        };
        let worker = Worker::new(Arc::clone(&shared), queued, events.clone());
        let threads = [
            spawn("cluster", move || driver.run())?,
            spawn("copies", move || worker.run())?,
        ];
        Ok(Arc::new(Self {
            shared,
            events,
            threads: Mutex::new(threads.into()),
        }))
    }

    /// Ends the threads, the streams and what waits for a change; the node's lease ends by time.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.send(DriverEvent::Stop);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the cluster ended by a panic");
            }
        }
        for hosted in self.shared.table.all() {
            hosted.links.lock().clear();
        }
    }

    /// Records that everything is on disk; call it after [`Self::stop`], once all stores are closed. Its next start then
    /// needs no other copies to elect those that were active.
    pub fn note_clean_stop(&self) {
        if let Err(reason) = CleanStop::record(&self.shared) {
            tracing::warn!(
                reason,
                "the clean stop is not recorded: the next start needs other copies"
            );
        }
    }

    /// TLS of connections to other nodes; `None` if these do not use it.
    pub fn tls(&self) -> Option<&Arc<PeerTls>> {
        self.shared.tls.as_ref()
    }

    /// Uses another login of etcd and, for later connections, its certificates, whose files are read again.
    ///
    /// # Errors
    /// One line about the invalid file; the former settings stay.
    pub fn renew_etcd(&self, options: &etcd::Options) -> Result<(), String> {
        let renewed = self.shared.etcd.renew(options);
        renewed.map_err(|error| error.to_string())
    }

    fn send(&self, event: DriverEvent) {
        // The receiving thread has ended once the node stops.
        drop(self.events.send(event));
    }
}

/// Starts the client of etcd, whose answers are events.
fn start_etcd(options: &MemberOptions, events: Sender<DriverEvent>) -> Result<Etcd, JoinError> {
    let published_maps = move |id, answer| drop(events.send(DriverEvent::Answer(id, answer)));
    let etcd = Etcd::start(options.etcd.clone(), Box::new(published_maps));
    etcd.map_err(|error| JoinError::System(error.to_string()))
}

/// Adds the buckets from an earlier start.
fn host_buckets(shared: &Shared) {
    for served in shared.node.all_buckets() {
        if let Ok(id) = u128::from_str_radix(&served.uuid, 16) {
            let hosted = Hosted::new(cluster::BucketId(id), served);
            shared.table.insert(Arc::new(hosted));
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, JoinError> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(|error| JoinError::System(error.to_string()))
}

impl ClusterMember for Member {
    fn me(&self) -> NodeId {
        self.shared.me
    }

    fn described(&self) -> &Node {
        &self.shared.described
    }

    fn view(&self) -> Arc<View> {
        self.shared.view()
    }

    fn status(&self) -> MemberStatus {
        self.shared.status.read().clone()
    }

    fn order(&self, order: Order) -> Result<(), String> {
        let without = matches!(order, Order::Adopt { .. } | Order::Recover(_));
        if !without && self.view().controller.is_none() {
            return Err("there is no controller now: is etcd away?".into());
        }
        self.send(DriverEvent::Order(order));
        Ok(())
    }

    fn change(&self, change: AgreedChange) -> Result<(), ChangeError> {
        self.shared.change(change)
    }

    fn has_newest_users(&self) -> bool {
        !self.shared.pause.holds_users(self.shared.now_ms())
    }

    fn message(&self, bytes: &[u8]) {
        if let Some(envelope) = Envelope::read(bytes) {
            self.send(DriverEvent::Packet(envelope));
        }
    }
}
