//! Connections on which messages go to other nodes.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{
    Address, Client, ClientError, ConnectOptions, Login, PasswordSource, Request, SaltedCache,
};
use cluster::NodeId;
use cluster::agreed::View;
use registry::cluster::{CLUSTER_USER, MESSAGE};
use wire::Opcode;

/// Messages that wait for a node at most; newer ones are dropped, as all may be.
const QUEUE: usize = 4096;
/// Messages that go out together.
const BATCH: usize = 64;
/// How long a connection, or an answer, is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Least time between two tries to connect.
const BACKOFF: Duration = Duration::from_millis(100);

/// Threads that send to other nodes.
pub(crate) struct Peers {
    secret: String,
    peers: BTreeMap<NodeId, Peer>,
}

struct Peer {
    at: (String, u16),
    queue: SyncSender<Vec<u8>>,
    /// Ends once the queue is dropped.
    _thread: JoinHandle<()>,
}

impl Peers {
    pub(crate) fn new(secret: &str) -> Self {
        Self {
            secret: secret.to_owned(),
            peers: BTreeMap::new(),
        }
    }

    /// Sends to a node, as far as its address is known.
    pub(crate) fn send(&mut self, view: &View, to: NodeId, bytes: Vec<u8>) {
        let Some(node) = view.nodes.get(&to) else {
            return;
        };
        let inside = &node.value.inside;
        let at = (inside.host.clone(), inside.kv);
        if self.peers.get(&to).is_none_or(|peer| peer.at != at) {
            match self.start(at) {
                Ok(peer) => drop(self.peers.insert(to, peer)),
                Err(error) => {
                    tracing::error!(%error, "no thread for messages to another node");
                    return;
                }
            }
        }
        if let Some(peer) = self.peers.get(&to)
            && peer.queue.try_send(bytes).is_err()
        {
            tracing::debug!(node = to.0, "a message was dropped");
        }
    }

    fn start(&self, at: (String, u16)) -> std::io::Result<Peer> {
        let (queue, queued) = sync_channel(QUEUE);
        let login = Login {
            user: CLUSTER_USER.to_owned(),
            password: self.secret.clone(),
            source: PasswordSource::Given,
            bucket: String::new(),
        };
        let address = Address {
            host: at.0.clone(),
            port: at.1,
            login: None,
            over_tls: false,
        };
        let sender = Sender {
            options: ConnectOptions {
                address,
                tls: None,
                timeout: PATIENCE,
                compressed: false,
            },
            login,
            cache: SaltedCache::default(),
        };
        let thread = std::thread::Builder::new()
            .name("messages".into())
            .spawn(move || sender.run(&queued))?;
        Ok(Peer {
            at,
            queue,
            _thread: thread,
        })
    }
}

struct Sender {
    options: ConnectOptions,
    login: Login,
    cache: SaltedCache,
}

impl Sender {
    fn run(mut self, queued: &Receiver<Vec<u8>>) {
        let (mut client, mut tried) = (None, None::<Instant>);
        while let Ok(first) = queued.recv() {
            let mut batch = vec![first];
            while batch.len() < BATCH
                && let Ok(next) = queued.try_recv()
            {
                batch.push(next);
            }
            if client.is_none() {
                // What came meanwhile is of no use any more.
                if tried.is_some_and(|tried| tried.elapsed() < BACKOFF) {
                    continue;
                }
                tried = Some(Instant::now());
                client = self.connect();
            }
            if let Some(connected) = &mut client
                && let Err(error) = send(connected, &batch)
            {
                tracing::debug!(%error, address = %self.options.address, "a node is out of reach");
                client = None;
            }
        }
    }

    fn connect(&mut self) -> Option<Client> {
        match Client::connect_to_node(&self.options, &self.login, &mut self.cache) {
            Ok(client) => Some(client),
            Err(error) => {
                tracing::debug!(%error, "a node is out of reach");
                None
            }
        }
    }
}

fn send(client: &mut Client, batch: &[Vec<u8>]) -> Result<(), ClientError> {
    let request = |bytes| Request::with(Opcode::IOCTL_SET, MESSAGE, bytes);
    let requests: Vec<_> = batch.iter().map(|bytes| request(bytes)).collect();
    client.request_all(&requests).map(drop)
}
