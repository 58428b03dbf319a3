//! Another node that has a bucket, and how nodes tell each other where they are.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster_map::{
    MapRevision, NodeAddress, SERVER_GROUP, StandInPorts, TlsPorts, bracketed,
};

/// Where HTTP management is until the node itself says so.
const HTTP_PORT_GUESS: u16 = 8091;
/// Where the KV port without TLS is until the node itself says so.
const KV_PORT_GUESS: u16 = 11210;
/// Longest name of a host.
const HOST_BYTES_MAX: usize = 255;

/// Another node that has the bucket.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Peer {
    /// Its name in topologies, 32 hex digits; empty if it is not known.
    pub(crate) node: String,
    /// Its host.
    pub host: String,
    /// Its port of the KV protocol without TLS.
    pub kv_port: u16,
    /// Its port of HTTP management.
    pub http_port: u16,
    pub(crate) tls: TlsPorts,
}

impl Peer {
    /// Where its HTTP management is.
    pub fn management(&self) -> String {
        format!("http://{}:{}", bracketed(&self.host), self.http_port)
    }

    /// The host and the port of its HTTP management, or of that over TLS.
    pub fn management_endpoint(&self, over_tls: bool) -> Option<(String, u16)> {
        let port = if over_tls {
            self.tls.http?
        } else {
            self.http_port
        };
        Some((self.host.clone(), port))
    }

    /// The node that settings name, as far as they tell.
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

    /// The active node as it tells of itself to a replica that reached it at `at`.
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

    /// `host:port`, for people.
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

    /// Whether both mean the same node, which may have moved.
    pub fn is(&self, other: &Self) -> bool {
        let named = !self.node.is_empty() && self.node == other.node;
        named || (self.host == other.host && self.kv_port == other.kv_port)
    }

    /// A node at `host` as it tells of itself; `None` if that cannot be understood.
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

    /// Where it is followed, and told of a promotion.
    pub fn endpoint(&self, over_tls: bool) -> Option<(String, u16)> {
        let port = if over_tls { self.tls.kv? } else { self.kv_port };
        Some((self.host.clone(), port))
    }

    /// As nodes tell each other of it.
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

/// The host of a node that tells about itself on a connection from `source`.
pub(crate) fn host_of(about: &Value, source: IpAddr) -> String {
    let told = about["host"].as_str().filter(|host| is_host(host));
    let loopback = |host: &str| host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    // A loopback address means something on its own machine only.
    let told = told.filter(|host| source.is_loopback() || !loopback(host));
    told.map_or_else(|| source.to_string(), str::to_owned)
}

/// Whether a text may be the name or the address of a host.
pub fn is_host(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    (1..=HOST_BYTES_MAX).contains(&text.len()) && text.chars().all(plain)
}

pub(crate) fn port(about: &Value, name: &str) -> Option<u16> {
    u16::try_from(about[name].as_u64()?)
        .ok()
        .filter(|port| *port != 0)
}

/// The revision of a map as nodes tell each other of it.
pub(crate) fn revision(about: &Value) -> Option<MapRevision> {
    let (epoch, rev) = (about["epoch"].as_i64()?, about["rev"].as_i64()?);
    (epoch >= 1 && rev >= 1).then_some(MapRevision { epoch, rev })
}

/// Whether a text is the name of a node or of a bucket.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
