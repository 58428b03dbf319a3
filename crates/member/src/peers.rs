//! Connections for messages to other nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{
    Address, Client, ClientError, ConnectOptions, Login, PasswordSource, Request, SaltedCache,
};
use cluster::NodeId;
use cluster::agreed::View;
use registry::cluster::{CLUSTER_USER, MESSAGE};
use tls::{PeerTls, tls_refusal};
use wire::Opcode;

use crate::shared::reach;

/// Maximum number of queued messages for a node; newer ones are dropped. Every message may be lost.
const QUEUE: usize = 4096;
/// Number of messages that are sent together.
const BATCH: usize = 64;
/// Longest wait for a connection or an answer. It doubles with each attempt to connect that fails, up to `MAX_PATIENCE`:
/// a node on a slow network is reached in the end, and one that stands still does not gather many connections.
const PATIENCE: Duration = Duration::from_secs(1);
const MAX_PATIENCE: Duration = Duration::from_secs(4);
/// Minimum interval between two attempts to connect.
const BACKOFF: Duration = Duration::from_millis(100);

/// Threads that send to other nodes.
pub(crate) struct Peers {
    secret: String,
    /// TLS between the nodes.
    tls: Option<Arc<PeerTls>>,
    by_node: BTreeMap<NodeId, PeerQueue>,
}

struct PeerQueue {
    at: (String, u16),
    queue: SyncSender<Vec<u8>>,
    /// The thread ends once the queue is dropped.
    _thread: JoinHandle<()>,
}

impl Peers {
    pub(crate) fn new(secret: &str, tls: Option<Arc<PeerTls>>) -> Self {
        Self {
            secret: secret.to_owned(),
            tls,
            by_node: BTreeMap::new(),
        }
    }

    /// Sends to a node, if its address is known.
    pub(crate) fn send(&mut self, view: &View, to: NodeId, bytes: Vec<u8>) {
        let Some(node) = view.nodes.get(&to) else {
            return;
        };
        let Some(at) = reach(&node.value, self.tls.is_some()) else {
            return;
        };
        if self.by_node.get(&to).is_none_or(|peer| peer.at != at) {
            match self.start(at, &node.value.name) {
                Ok(peer) => drop(self.by_node.insert(to, peer)),
                Err(error) => {
                    tracing::error!(%error, "no thread for messages to another node");
                    return;
                }
            }
        }
        if let Some(peer) = self.by_node.get(&to)
            && peer.queue.try_send(bytes).is_err()
        {
            tracing::debug!(node = to.0, "a message was dropped");
        }
    }

    fn start(&self, at: (String, u16), name: &str) -> std::io::Result<PeerQueue> {
        let (queue, queued) = sync_channel(QUEUE);
        let sender = Sender {
            name: name.to_owned(),
            at: at.clone(),
            tls: self.tls.clone(),
            login: login(&self.secret),
            cache: SaltedCache::default(),
            patience: PATIENCE,
            problem: None,
        };
        let thread = std::thread::Builder::new()
            .name("messages".into())
            .spawn(move || sender.run(&queued))?;
        Ok(PeerQueue {
            at,
            queue,
            _thread: thread,
        })
    }
}

/// Returns the login of nodes at other nodes.
pub(crate) fn login(secret: &str) -> Login {
    Login {
        user: CLUSTER_USER.to_owned(),
        password: secret.to_owned(),
        source: PasswordSource::Given,
        bucket: String::new(),
    }
}

/// Returns the options of a connection to a node.
pub(crate) fn options_of((host, port): (String, u16), tls: Option<&PeerTls>) -> ConnectOptions {
    ConnectOptions {
        address: Address {
            host,
            port,
            login: None,
            over_tls: tls.is_some(),
        },
        tls: tls.map(PeerTls::config),
        timeout: PATIENCE,
        compressed: false,
    }
}

/// Returns the reason if an error is a refused certificate, on this side or on the other one.
pub(crate) fn refusal(error: &ClientError) -> Option<String> {
    match error {
        ClientError::Unreachable { source, .. } | ClientError::Lost { source, .. } => {
            tls_refusal(source)
        }
        _ => None,
    }
}

struct Sender {
    name: String,
    at: (String, u16),
    tls: Option<Arc<PeerTls>>,
    login: Login,
    cache: SaltedCache,
    /// Longest wait of the next attempt to connect.
    patience: Duration,
    /// Last TLS problem of the connection; it is logged once.
    problem: Option<String>,
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
                // Messages from the time without a connection are useless.
                if tried.is_some_and(|tried| tried.elapsed() < BACKOFF) {
                    continue;
                }
                tried = Some(Instant::now());
                client = self.connect();
            }
            if let Some(connected) = &mut client
                && let Err(error) = send(connected, &batch)
            {
                tracing::debug!(%error, node = self.name, "a node is out of reach");
                client = None;
            }
        }
    }

    fn connect(&mut self) -> Option<Client> {
        let options = ConnectOptions {
            timeout: self.patience,
            ..options_of(self.at.clone(), self.tls.as_deref())
        };
        match Client::connect_to_node(&options, &self.login, &mut self.cache) {
            Ok(client) => {
                self.patience = PATIENCE;
                self.problem = None;
                Some(client)
            }
            Err(error) => {
                tracing::debug!(%error, node = self.name, "a node is out of reach");
                let problem = refusal(&error);
                if let Some(reason) = problem.as_ref().filter(|_| problem != self.problem) {
                    let (host, port) = &self.at;
                    tracing::error!(
                        node = self.name,
                        host,
                        port,
                        reason,
                        "a node is no peer over TLS"
                    );
                }
                self.problem = problem;
                self.patience = (2 * self.patience).min(MAX_PATIENCE);
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use client::testing::{FakeServer, Fault, PASSWORD};

    use super::*;

    /// Starts a relay to a server, whose answers are late by `delay`. It ends with the test process.
    fn slow_way_to(server: &FakeServer, delay: Duration) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let (near, far) = (listener.local_addr().expect("bound"), server.port());
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let to = TcpStream::connect((Ipv4Addr::LOCALHOST, far)).expect("a server");
                let back = (to.try_clone(), from.try_clone());
                let (mut answers, mut asked) = (back.0.expect("a socket"), from);
                let (mut to, mut near) = (to, back.1.expect("a socket"));
                std::thread::spawn(move || std::io::copy(&mut asked, &mut to));
                std::thread::spawn(move || {
                    std::thread::sleep(delay);
                    std::io::copy(&mut answers, &mut near)
                });
            }
        });
        near.port()
    }

    fn sender(port: u16) -> Sender {
        Sender {
            name: "slow".to_owned(),
            at: (Ipv4Addr::LOCALHOST.to_string(), port),
            tls: None,
            login: Login {
                user: "user".to_owned(),
                ..login(PASSWORD)
            },
            cache: SaltedCache::default(),
            patience: PATIENCE,
            problem: None,
        }
    }

    #[test]
    fn a_node_that_answers_late_is_reached_with_a_longer_patience() {
        let server = FakeServer::start(true, Fault::None);
        let mut sender = sender(slow_way_to(&server, Duration::from_millis(50)));
        sender.patience = Duration::from_millis(1);
        let mut attempts = (0..12).map(|_| sender.connect());
        assert!(attempts.next().expect("an attempt").is_none(), "too early");
        assert!(attempts.any(|client| client.is_some()), "never reached");
        assert_eq!(sender.patience, PATIENCE);
    }

    #[test]
    fn the_patience_with_a_node_that_is_away_has_a_bound() {
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = closed.local_addr().expect("bound").port();
        std::thread::spawn(move || closed.incoming().for_each(drop));
        let mut sender = sender(port);
        let patience = [2, 4, 4].map(|_| {
            assert!(sender.connect().is_none());
            sender.patience.as_secs()
        });
        assert_eq!(patience, [2, 4, 4]);
    }
}
