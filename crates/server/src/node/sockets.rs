//! The sockets on which a node listens. All are bound before anything else starts.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use registry::Ports;
use session::Door;

use crate::config::{NodeConfig, StartError};
use crate::net::{Arrival, Listener, NetState, WorkerPool, bind};

/// Listening sockets; nothing is accepted yet.
pub(super) struct Sockets {
    kv: Vec<(TcpListener, Door)>,
    pub(super) http: TcpListener,
    pub(super) https: Option<TcpListener>,
    pub(super) query: Option<TcpListener>,
    pub(super) search: Option<TcpListener>,
    pub(super) ports: Ports,
}

impl Sockets {
    pub(super) fn bind(config: &NodeConfig) -> Result<Self, StartError> {
        let at = |port| SocketAddr::new(config.listen, port);
        let opened = |purpose, port: Option<u16>| port.map(|port| bind(purpose, at(port)));
        let http = bind("http", at(config.http_port))?;
        let https = opened("https", config.https_port).transpose()?;
        let stand_ins = config.provisionable;
        let query = opened("queries", stand_ins.map(|at| at.query_port)).transpose()?;
        let search = opened("search", stand_ins.map(|at| at.search_port)).transpose()?;
        let memcached = config.memcached.as_ref().map(|memcached| memcached.port);
        let doors = [
            (Door::Plain, "kv", Some(config.kv_port)),
            (Door::Tls, "kv over TLS", config.kv_tls_port),
            (Door::Classic, "memcached", memcached),
        ];
        let mut kv = Vec::new();
        for (door, purpose, port) in doors {
            if let Some(listener) = opened(purpose, port) {
                kv.push((listener?, door));
            }
        }
        let port_of = |listener: &TcpListener| {
            let at = listener.local_addr().map(|at| at.port());
            at.map_err(|error| StartError::System(error.to_string()))
        };
        let behind = |door| {
            let found = kv.iter().find(|(_, other)| *other == door);
            found.map(|(listener, _)| port_of(listener)).transpose()
        };
        let ports = Ports {
            kv: behind(Door::Plain)?.unwrap_or_default(),
            http: port_of(&http)?,
            memcached: behind(Door::Classic)?,
            kv_tls: behind(Door::Tls)?,
            https: https.as_ref().map(port_of).transpose()?,
            query: query.as_ref().map(port_of).transpose()?,
            search: search.as_ref().map(port_of).transpose()?,
        };
        Ok(Self {
            kv,
            http,
            https,
            query,
            search,
            ports,
        })
    }

    /// Starts to accept connections of the KV protocol.
    pub(super) fn accept(
        &mut self,
        node: &Arc<NetState>,
        pool: &Arc<WorkerPool<Arrival>>,
    ) -> io::Result<Vec<Listener>> {
        let start = |(listener, door)| {
            let (node, pool) = (Arc::clone(node), Arc::clone(pool));
            Listener::start(listener, door, node, pool)
        };
        self.kv.drain(..).map(start).collect()
    }
}
