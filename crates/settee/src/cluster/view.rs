//! The status of a cluster, as a member reports it, and orders to the cluster.

use client::{Address, Client, ClientError, ConnectOptions, Request, SaltedCache};
use serde::Deserialize;
use serde_json::Value;
use server::{ClusterStatus, NodeStatus};
use wire::Opcode;

use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::stderr::note;

/// Name of the statistics group, and of its only row.
const GROUP: &str = "cluster";
const ROW: &[u8] = b"status";
/// Name of the setting that takes an order.
const ORDER: &[u8] = b"cluster.order";

/// Whether an address is one of a node's addresses for clients of another network.
fn is_outside(status: &ClusterStatus, address: &Address) -> bool {
    let mut outside = status.nodes.iter().filter_map(|node| node.outside.as_ref());
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
pub(super) fn find_node<'a>(
    status: &'a ClusterStatus,
    name: &str,
) -> Result<&'a NodeStatus, Failure> {
    let found = status.nodes.iter().find(|node| node.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = status.nodes.iter().map(|node| node.name.as_str()).collect();
        let names = names.join(", ");
        let reason = format!("no node of the cluster has the name \"{name}\"; there are: {names}");
        Failure::new(Sysexit::NoInput, reason)
    })
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
    pub(super) fn status(&mut self) -> Result<(Value, ClusterStatus), Failure> {
        let mut text = Vec::new();
        self.client.stat(GROUP, |name, value| {
            if name == ROW {
                text.extend_from_slice(value);
            }
            Ok::<_, ClientError>(())
        })?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| unread(&error))?;
        let status = ClusterStatus::deserialize(&value).map_err(|error| unread(&error))?;
        Ok((value, status))
    }

    /// Returns the status that the controller sees, which is more complete. If the controller cannot be asked,
    /// prints a line to standard error and returns the status that this member sees.
    ///
    /// # Errors
    /// As [`MemberLink::status`].
    pub(super) fn status_of_controller(&mut self) -> Result<(Value, ClusterStatus), Failure> {
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
    pub(super) fn with_most(mut self) -> Result<(Self, ClusterStatus), Failure> {
        let seen = self.status()?.1;
        let others = seen.nodes.iter().filter(|node| node.name != seen.node);
        let asked = others.filter_map(|node| {
            let mut there = self.go_to(&seen, &node.name).ok()?;
            let status = there.status().ok()?.1;
            Some((there, status))
        });
        let key =
            |status: &ClusterStatus| (status.etcd_went_back, status.seen_epoch, status.revision);
        let best = asked.max_by_key(|(_, status)| key(status));
        match best.filter(|(_, status)| key(status) > key(&seen)) {
            Some(best) => Ok(best),
            None => Ok((self, seen)),
        }
    }

    fn go_to(&self, status: &ClusterStatus, name: &str) -> Result<Self, Failure> {
        let node = find_node(status, name)?;
        let mut options = self.options.clone();
        let address = &mut options.address;
        let from_outside = is_outside(status, address);
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
