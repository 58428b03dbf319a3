//! The status of a cluster, as a member reports it, and orders to the cluster.

use std::collections::BTreeMap;

use client::{Address, Client, ClientError, ConnectOptions, Request, SaltedCache};
use serde::Deserialize;
use serde_json::Value;
use wire::Opcode;

use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::stderr::note;

/// Name of the statistics group, and of its only row.
const GROUP: &str = "cluster";
const ROW: &[u8] = b"status";
/// Name of the setting that takes an order.
const ORDER: &[u8] = b"cluster.order";

/// The status of a cluster, as a member sees it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Status {
    pub(super) cluster: String,
    pub(super) epoch: u64,
    pub(super) revision: u64,
    /// Name of the reporting member.
    pub(super) node: String,
    pub(super) controller: Option<String>,
    pub(super) etcd_silent_ms: u64,
    /// Why etcd did not carry out a request of the reporting member.
    #[serde(default)]
    pub(super) etcd_problem: Option<String>,
    pub(super) lease_left_ms: u64,
    /// Whether etcd was restored from a backup; the members do not follow it then.
    #[serde(default)]
    pub(super) etcd_went_back: bool,
    /// Newest epoch that the reporting member has seen, even before its start.
    #[serde(default)]
    pub(super) seen_epoch: u64,
    /// Nodes for whose copies an adoption, ordered at the reporting member, waits.
    #[serde(default)]
    pub(super) adoption_waits: Vec<String>,
    /// Buckets of which an adoption found only copies.
    #[serde(default)]
    pub(super) unknown_buckets: Vec<String>,
    pub(super) rebalance: String,
    pub(super) failovers: u32,
    pub(super) elections: usize,
    pub(super) moves: usize,
    /// Number of moves left; known only to the controller.
    pub(super) moves_left: Option<usize>,
    /// Number of vBuckets that a rebalance would change.
    #[serde(default)]
    pub(super) misplaced: Option<usize>,
    /// Known only to the controller.
    #[serde(default)]
    pub(super) moves_without_space: Option<usize>,
    /// Known only to the controller.
    #[serde(default)]
    pub(super) moves_without_memory: Option<usize>,
    /// Known only to the controller.
    #[serde(default)]
    pub(super) waiting: Option<Vec<WaitingVBuckets>>,
    /// Known only to the controller.
    #[serde(default)]
    pub(super) promoted: Option<Vec<Promoted>>,
    #[serde(default)]
    pub(super) damaged: Vec<Damaged>,
    pub(super) nodes: Vec<NodeView>,
    pub(super) buckets: Vec<BucketView>,
}

/// vBuckets of a bucket that wait for copies.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct WaitingVBuckets {
    pub(super) bucket: String,
    pub(super) vbuckets: usize,
    pub(super) missing: usize,
    pub(super) first: Vec<u16>,
}

/// A node.
#[derive(Clone, Debug, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent facts of a document"
)]
pub(super) struct NodeView {
    pub(super) name: String,
    pub(super) id: u16,
    pub(super) state: String,
    pub(super) alive: bool,
    pub(super) disk_dead: bool,
    #[serde(default)]
    pub(super) disk_full: bool,
    #[serde(default)]
    pub(super) unmade: Vec<String>,
    /// Buckets without memory for changes of other nodes.
    #[serde(default)]
    pub(super) starved: Vec<String>,
    pub(super) zone: u16,
    pub(super) host: String,
    pub(super) kv: u16,
    #[serde(default)]
    pub(super) kv_tls: Option<u16>,
    #[serde(default)]
    outside: Option<ExternalHost>,
    pub(super) version: String,
    pub(super) active: usize,
    pub(super) replicas: usize,
    pub(super) held: Option<String>,
    /// Time in milliseconds since the reporting member last heard the node.
    #[serde(default)]
    pub(super) silent_ms: Option<u64>,
    /// Running nodes whose messages do not reach the node.
    #[serde(default)]
    pub(super) unheard: Vec<String>,
    /// Whether a graceful failover of the node can begin.
    #[serde(default)]
    pub(super) can_hand_over: bool,
    /// vBuckets that an unsafe failover of the node would promote.
    #[serde(default)]
    pub(super) unsafe_failover: Vec<UnsafeFailover>,
}

/// vBuckets of a bucket for which an unsafe failover promotes the best remaining copy.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct UnsafeFailover {
    pub(super) bucket: String,
    pub(super) vbuckets: usize,
    pub(super) ranges: String,
    pub(super) missing: usize,
    pub(super) without: Vec<String>,
}

/// A vBucket promoted by an unsafe failover.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Promoted {
    pub(super) bucket: String,
    pub(super) vbucket: u16,
    pub(super) node: String,
    pub(super) term: u64,
    pub(super) seqno: u64,
}

/// Damaged copies of a bucket on a node.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Damaged {
    pub(super) bucket: String,
    pub(super) node: String,
    pub(super) ranges: String,
    /// The damaged copies that cannot be read at all.
    pub(super) unreadable: String,
}

/// Address of a node for clients of another network.
#[derive(Clone, Debug, Deserialize)]
struct ExternalHost {
    host: String,
    kv: u16,
    #[serde(default)]
    kv_tls: Option<u16>,
}

/// A bucket.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct BucketView {
    pub(super) name: String,
    pub(super) vbuckets: u16,
    pub(super) copies: usize,
    pub(super) served: usize,
    pub(super) lacking: usize,
    pub(super) nodes: BTreeMap<String, CopyCounts>,
}

/// Numbers of copies on a node.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct CopyCounts {
    pub(super) active: usize,
    pub(super) replicas: usize,
}

impl Status {
    /// Whether an address is one of a node's addresses for clients of another network.
    fn is_outside(&self, address: &Address) -> bool {
        let mut outside = self.nodes.iter().filter_map(|node| node.outside.as_ref());
        outside.any(|at| {
            let port = if address.over_tls {
                at.kv_tls
            } else {
                Some(at.kv)
            };
            at.host == address.host && port == Some(address.port)
        })
    }

    /// Returns a node by its name.
    ///
    /// # Errors
    /// It does not exist; the message names the existing nodes.
    pub(super) fn node(&self, name: &str) -> Result<&NodeView, Failure> {
        let found = self.nodes.iter().find(|node| node.name == name);
        found.ok_or_else(|| {
            let names: Vec<_> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            let names = names.join(", ");
            let reason = format!("no node of the cluster is called {name}; there are: {names}");
            Failure::new(Sysexit::NoInput, reason)
        })
    }
}

/// A connection to a member.
pub(super) struct MemberLink {
    options: ConnectOptions,
    client: Client,
}

impl MemberLink {
    /// Connects by the flags; needs no bucket.
    ///
    /// # Errors
    /// The member cannot be reached, or refuses the login.
    pub(super) fn connect(args: &ConnectArgs) -> Result<Self, Failure> {
        Self::open(args.options()?)
    }

    pub(super) fn open(options: ConnectOptions) -> Result<Self, Failure> {
        let Some(login) = &options.address.login else {
            return Err(Failure::usage(
                "memcached has no clusters; use couchbase://",
            ));
        };
        let client = Client::connect_to_node(&options, login, &mut SaltedCache::default())?;
        Ok(Self { options, client })
    }

    /// Returns the status that this member sees, as JSON and parsed.
    ///
    /// # Errors
    /// The member is in no cluster, or cannot be asked.
    pub(super) fn status(&mut self) -> Result<(Value, Status), Failure> {
        let mut text = Vec::new();
        self.client.stat(GROUP, |name, value| {
            if name == ROW {
                text.extend_from_slice(value);
            }
            Ok::<_, ClientError>(())
        })?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| unread(&error))?;
        let status = Status::deserialize(&value).map_err(|error| unread(&error))?;
        Ok((value, status))
    }

    /// Returns the status that the controller sees, which is more complete. If the controller cannot be asked,
    /// prints a line to standard error and returns the status that this member sees.
    ///
    /// # Errors
    /// As [`MemberLink::status`].
    pub(super) fn status_of_controller(&mut self) -> Result<(Value, Status), Failure> {
        let seen = self.status()?;
        let controller = seen.1.controller.clone();
        let Some(controller) = controller.filter(|_| seen.1.moves_left.is_none()) else {
            return Ok(seen);
        };
        let asked = self.go_to(&seen.1, &controller).and_then(|mut there| {
            let found = there.status()?;
            *self = there;
            Ok(found)
        });
        asked.or_else(|failure| {
            note(format_args!(
                "the controller, {controller}, cannot be asked: {failure}"
            ));
            Ok(seen)
        })
    }

    /// Of the members that know that etcd was restored, returns the one that has seen most, and its status;
    /// returns this member if there is none.
    ///
    /// # Errors
    /// As [`MemberLink::status`].
    pub(super) fn with_most(mut self) -> Result<(Self, Status), Failure> {
        let seen = self.status()?.1;
        let others = seen.nodes.iter().filter(|node| node.name != seen.node);
        let asked = others.filter_map(|node| {
            let mut there = self.go_to(&seen, &node.name).ok()?;
            let status = there.status().ok()?.1;
            Some((there, status))
        });
        let key = |status: &Status| (status.etcd_went_back, status.seen_epoch, status.revision);
        let best = asked.max_by_key(|(_, status)| key(status));
        match best.filter(|(_, status)| key(status) > key(&seen)) {
            Some(best) => Ok(best),
            None => Ok((self, seen)),
        }
    }

    fn go_to(&self, status: &Status, name: &str) -> Result<Self, Failure> {
        let node = status.node(name)?;
        let mut options = self.options.clone();
        let address = &mut options.address;
        let from_outside = status.is_outside(address);
        let (host, kv, kv_tls) = match node.outside.as_ref().filter(|_| from_outside) {
            Some(outside) => (&outside.host, outside.kv, outside.kv_tls),
            None => (&node.host, node.kv, node.kv_tls),
        };
        address.host.clone_from(host);
        address.port = if address.over_tls {
            let reason = format!("{name} has no port for TLS");
            kv_tls.ok_or_else(|| Failure::new(Sysexit::Unavailable, reason))?
        } else {
            kv
        };
        Self::open(options)
    }

    /// Sends an order to the controller, through this member.
    ///
    /// # Errors
    /// There is no controller at present, or the member refuses.
    pub(super) fn order(&mut self, order: &Value) -> Result<(), Failure> {
        let text = order.to_string();
        let request = Request::with(Opcode::IOCTL_SET, ORDER, text.as_bytes());
        self.client.expect_success(&request)?;
        Ok(())
    }
}

fn unread(error: &serde_json::Error) -> Failure {
    let reason = format!("what the member tells of its cluster cannot be read: {error}");
    Failure::new(Sysexit::Protocol, reason)
}
