//! Another node that has a bucket, and the form in which nodes send each other their addresses.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster_map::{
    MapRevision, NodeAddress, SERVER_GROUP, StandInPorts, TlsPorts, bracketed,
};

/// Port of HTTP management until the node itself sends it.
const HTTP_PORT_GUESS: u16 = 8091;
/// KV port without TLS until the node itself sends it.
const KV_PORT_GUESS: u16 = 11210;
/// Longest name of a host, bytes.
const HOST_BYTES_MAX: usize = 255;

/// Another node that has the bucket.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Peer {
    /// Name of the node in topologies, 32 hex digits; empty if it is not known.
    pub(crate) node: String,
    /// Host of the node.
    pub host: String,
    /// KV port without TLS.
    pub kv_port: u16,
    /// Port of HTTP management.
    pub http_port: u16,
    pub(crate) tls: TlsPorts,
}

impl Peer {
    /// Returns the URL of the node's HTTP management.
    pub fn management(&self) -> String {
        format!("http://{}:{}", bracketed(&self.host), self.http_port)
    }

    /// Returns host and port of the node's HTTP management, with or without TLS.
    pub fn management_endpoint(&self, over_tls: bool) -> Option<(String, u16)> {
        let port = if over_tls {
            self.tls.http?
        } else {
            self.http_port
        };
        Some((self.host.clone(), port))
    }

    /// Creates the node that settings name. Settings give host and KV port only; other ports are guesses.
    pub fn configured(host: &str, port: u16, over_tls: bool) -> Self {
        let (kv_port, kv_tls) = if over_tls {
            (KV_PORT_GUESS, Some(port))
        } else {
            (port, None)
        };
        Self {
            node: String::new(),
            host: host.to_owned(),
            kv_port,
            http_port: HTTP_PORT_GUESS,
            tls: TlsPorts {
                kv: kv_tls,
                http: None,
            },
        }
    }

    /// Reads the active node from its answer to a replica that reached it at `at`.
    pub(crate) fn active(about: &Value, at: &(String, u16), over_tls: bool) -> Option<Self> {
        let mut active = Self::read(about, &at.0)?;
        let advertised = about["advertised"] == true;
        if let Some(host) = about["host"]
            .as_str()
            .filter(|host| advertised && is_host(host))
        {
            host.clone_into(&mut active.host);
        } else if over_tls {
            active.tls.kv = Some(at.1);
        } else {
            active.kv_port = at.1;
        }
        Some(active)
    }

    /// Returns `host:port` for people.
    pub fn name(&self) -> String {
        format!("{}:{}", self.host, self.kv_port)
    }

    pub(crate) fn address(&self) -> NodeAddress<'_> {
        NodeAddress {
            host: &self.host,
            this_node: false,
            group: SERVER_GROUP,
            kv_port: Some(self.kv_port),
            http_port: self.http_port,
            tls: self.tls,
            stand_ins: StandInPorts::default(),
            external: None,
        }
    }

    /// Checks whether both are the same node, which may have moved.
    pub fn is(&self, other: &Self) -> bool {
        let named = !self.node.is_empty() && self.node == other.node;
        named || (self.host == other.host && self.kv_port == other.kv_port)
    }

    /// Reads a node at `host` from its own message; `None` if the message cannot be understood.
    pub fn read(about: &Value, host: &str) -> Option<Self> {
        let node = about["node"].as_str().filter(|name| is_uuid(name));
        Some(Self {
            node: node.unwrap_or_default().to_owned(),
            host: host.to_owned(),
            kv_port: port(about, "kv")?,
            http_port: port(about, "http")?,
            tls: TlsPorts {
                kv: port(about, "kv_tls"),
                http: port(about, "https"),
            },
        })
    }

    /// Returns the KV host and port at which the node is followed, and notified of a promotion.
    pub fn endpoint(&self, over_tls: bool) -> Option<(String, u16)> {
        let port = if over_tls { self.tls.kv? } else { self.kv_port };
        Some((self.host.clone(), port))
    }

    /// Returns the form in which nodes send each other addresses.
    pub fn to_json(&self) -> Value {
        json!({
            "node": self.node,
            "host": self.host,
            "kv": self.kv_port,
            "http": self.http_port,
            "kv_tls": self.tls.kv,
            "https": self.tls.http,
        })
    }
}

/// Returns the host of a node that sends its address on a connection from `source`.
pub(crate) fn host_of(about: &Value, source: IpAddr) -> String {
    let stated = about["host"].as_str().filter(|host| is_host(host));
    let loopback = |host: &str| host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    // A loopback address is valid only on its own machine.
    let stated = stated.filter(|host| source.is_loopback() || !loopback(host));
    stated.map_or_else(|| source.to_string(), str::to_owned)
}

/// Checks whether a text may be the name or the address of a host.
pub fn is_host(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    (1..=HOST_BYTES_MAX).contains(&text.len()) && text.chars().all(plain)
}

pub(crate) fn port(about: &Value, name: &str) -> Option<u16> {
    u16::try_from(about[name].as_u64()?)
        .ok()
        .filter(|port| *port != 0)
}

/// Reads the revision of a map from another node's message.
pub(crate) fn revision(about: &Value) -> Option<MapRevision> {
    let (epoch, rev) = (about["epoch"].as_i64()?, about["rev"].as_i64()?);
    (epoch >= 1 && rev >= 1).then_some(MapRevision { epoch, rev })
}

/// Checks whether a text is the UUID of a node or of a bucket.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
