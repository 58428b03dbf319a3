//! All connections, for statistics, limits and notices.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bucket::Wake as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use wire::FeatureSet;

use crate::mailbox::Mailbox;

/// Largest number of connections at the same time, however many file descriptors there are.
pub const CONNECTIONS_MAX: usize = 60_000;

/// Facts of one connection. Only its worker writes the counters.
pub struct ConnectionInfo {
    /// Number of the connection; never used twice.
    pub id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    tls: bool,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    commands: AtomicU64,
    yields: AtomicU64,
    /// Bytes that the connection holds for its peer; 0 if they are few.
    held_bytes: AtomicUsize,
    /// Bytes that the peer took later than they were made.
    taken_bytes: AtomicU64,
    waits_for_room: AtomicBool,
    owes_answer: AtomicBool,
    /// Mailbox through which other threads reach the connection.
    pub mailbox: Arc<Mailbox>,
    about: Mutex<About>,
}

/// Facts that a connection told about itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Name of the client library.
    pub agent: String,
    /// Name of the connection, chosen by the client.
    pub connection_id: String,
    /// The user of the login.
    pub user: Option<Arc<str>>,
    /// The selected bucket.
    pub bucket: Option<String>,
    /// The negotiated features.
    pub features: Option<FeatureSet>,
    /// Kind of the connection; `None` means `normal`.
    pub kind: Option<&'static str>,
}

impl ConnectionInfo {
    /// Counts bytes that came from the peer.
    pub fn count_received(&self, bytes: usize) {
        self.received_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that went to the peer.
    pub fn count_sent(&self, bytes: usize) {
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts commands that were run.
    pub fn count_commands(&self, commands: u64) {
        self.commands.fetch_add(commands, Ordering::Relaxed);
    }

    /// Counts a turn that ended early, so that other connections get theirs.
    pub fn count_yield(&self) {
        self.yields.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the bytes that the connection holds for its peer: half a request, answers that are not read.
    pub fn note_held(&self, bytes: usize) {
        self.held_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that the connection holds for its peer; 0 if they are few.
    pub fn held(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Counts bytes of a waiting answer that the peer took.
    pub fn count_taken(&self, bytes: usize) {
        self.taken_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns a count that grows with all bytes that the peer sends or takes late.
    pub fn moved(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed) + self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Notes whether the connection waits until others hold less.
    pub fn note_waiting(&self, waits: bool) {
        self.waits_for_room.store(waits, Ordering::Relaxed);
    }

    /// Checks whether the connection waits until others hold less.
    pub fn waits_for_room(&self) -> bool {
        self.waits_for_room.load(Ordering::Relaxed)
    }

    /// Notes whether a request waits for its answer: for memory, a disk or replicas.
    pub fn note_owing(&self, owes: bool) {
        self.owes_answer.store(owes, Ordering::Relaxed);
    }

    /// Changes the facts of the peer.
    pub fn note(&self, change: impl FnOnce(&mut About)) {
        change(&mut self.about.lock());
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the address at which the peer reached the node.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the row of the `connections` statistics.
    pub fn to_json(&self) -> Value {
        let about = self.about.lock().clone();
        let features: Vec<&str> = about
            .features
            .map(|set| set.iter().filter_map(wire::Feature::name).collect())
            .unwrap_or_default();
        json!({
            "socket": self.id,
            "connection": format!("0x{:x}", self.id),
            "peername": self.peer.to_string(),
            "sockname": self.local.to_string(),
            "protocol": "memcached",
            "type": about.kind.unwrap_or("normal"),
            "tls": self.tls,
            "authenticated": about.user.is_some(),
            "user": {"name": about.user.as_deref().unwrap_or(""), "domain": "local"},
            "bucket": about.bucket,
            "agent_name": about.agent,
            "connection_id": about.connection_id,
            "features": features,
            "total_recv_bytes": self.received_bytes.load(Ordering::Relaxed),
            "total_send_bytes": self.sent_bytes.load(Ordering::Relaxed),
            "total_commands": self.commands.load(Ordering::Relaxed),
            "held_bytes": self.held(),
            "yields": self.yields.load(Ordering::Relaxed),
        })
    }
}

/// The two addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Address at which the peer reached the node.
    pub local: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// Traffic of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes received from peers.
    pub received: u64,
    /// Bytes sent to peers.
    pub sent: u64,
    /// Turns that ended early, so that other connections got theirs.
    pub yields: u64,
}

impl Traffic {
    fn add(&mut self, info: &ConnectionInfo) {
        self.received += info.received_bytes.load(Ordering::Relaxed);
        self.sent += info.sent_bytes.load(Ordering::Relaxed);
        self.yields += info.yields.load(Ordering::Relaxed);
    }
}

/// All connections of the node.
#[derive(Default)]
pub struct Connections {
    open: Mutex<BTreeMap<u64, Arc<ConnectionInfo>>>,
    max: usize,
    /// Number of admitted connections, registered or not.
    count: AtomicUsize,
    total: AtomicU64,
    rejected: AtomicU64,
    refuse_writes: AtomicBool,
    /// Traffic of connections that ended.
    ended: Mutex<Traffic>,
}

impl Connections {
    /// Creates a table for at most `max` connections.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// Returns the largest number of connections at the same time; further ones are closed at once.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Reserves a slot for a connection that arrived. [`Connections::register`] uses the slot, or
    /// [`Connections::give_up`] frees it. Returns `false` when no slot is left.
    pub fn admit(&self) -> bool {
        let taken = self
            .count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < self.max).then_some(count + 1)
            });
        if taken.is_err() {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Frees the slot of a connection that was not registered.
    pub fn give_up(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Registers a connection that was admitted.
    pub fn register(&self, of: Addresses, mailbox: &Arc<Mailbox>) -> Arc<ConnectionInfo> {
        let Addresses { peer, local, tls } = of;
        let id = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        let info = Arc::new(ConnectionInfo {
            id,
            peer,
            local,
            tls,
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            yields: AtomicU64::new(0),
            held_bytes: AtomicUsize::new(0),
            taken_bytes: AtomicU64::new(0),
            waits_for_room: AtomicBool::new(false),
            owes_answer: AtomicBool::new(false),
            mailbox: Arc::clone(mailbox),
            about: Mutex::default(),
        });
        self.open.lock().insert(id, Arc::clone(&info));
        info
    }

    /// Removes a connection.
    pub fn forget(&self, id: u64) {
        let mut open = self.open.lock();
        if let Some(info) = open.remove(&id) {
            self.ended.lock().add(&info);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the traffic of all connections, also of those that ended. Cost: a look at each open one.
    pub fn traffic(&self) -> Traffic {
        let open = self.open.lock();
        let mut traffic = *self.ended.lock();
        for info in open.values() {
            traffic.add(info);
        }
        traffic
    }

    /// Returns all open connections.
    pub fn all(&self) -> Vec<Arc<ConnectionInfo>> {
        self.open.lock().values().cloned().collect()
    }

    /// Returns at most `count` connections in the order of their ids, from the first id above `id`.
    pub fn some_after(&self, id: u64, count: usize) -> Vec<Arc<ConnectionInfo>> {
        let open = self.open.lock();
        let behind = open.range((Bound::Excluded(id), Bound::Unbounded));
        behind
            .take(count)
            .map(|(_, info)| Arc::clone(info))
            .collect()
    }

    /// Returns the number of admitted connections.
    pub fn open(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the number of connections since the start.
    pub fn opened(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that were closed for lack of a slot.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Checks whether a request waits for its answer. Cost: a look at each open connection.
    pub fn owe_answers(&self) -> bool {
        let open = self.open.lock();
        open.values()
            .any(|info| info.owes_answer.load(Ordering::Relaxed))
    }

    /// Refuses writes from this call on, also those that wait: the node is about to stop.
    pub fn stop_writes(&self) {
        self.refuse_writes.store(true, Ordering::SeqCst);
        for info in self.all() {
            info.mailbox.wake();
        }
    }

    /// Checks whether writes are refused.
    #[inline]
    pub fn refuse_writes(&self) -> bool {
        self.refuse_writes.load(Ordering::Relaxed)
    }

    /// Notifies every connection that the node stops.
    pub fn shut_down(&self) {
        for info in self.all() {
            info.mailbox.shut_down();
        }
    }

    /// Ends every connection that has selected this bucket.
    pub fn leave_bucket(&self, name: &str) {
        for info in self.all() {
            if info.about.lock().bucket.as_deref() == Some(name) {
                info.mailbox.shut_down();
            }
        }
    }

    /// Notifies every connection that a cluster map changed.
    pub fn map_changed(&self) {
        for info in self.all() {
            info.mailbox.map_changed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_a_slot_when_they_arrive() {
        let connections = Connections::new(2);
        assert!(connections.admit() && connections.admit());
        assert!(!connections.admit(), "two were not entered yet, and count");
        assert_eq!((connections.open(), connections.opened()), (2, 0));
        assert_eq!(connections.rejected(), 1);
        connections.give_up();
        assert!(connections.admit());
        assert_eq!((connections.open(), connections.max()), (2, 2));
    }
}
