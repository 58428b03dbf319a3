//! Shares of the process's file descriptors.
//!
//! Clients must not take all of them: a store that cannot open its next file would have to stop persisting. So the
//! limit of connections leaves the node its own share.

use registry::{BucketKind, CONNECTIONS_MAX};

use crate::config::NodeConfig;

/// Share of the node: threads, listeners, links to other nodes, and own descriptors of change consumers.
const NODE_OWN: usize = 256;
/// Share of one store: its logs, its runs, their value files, and the files that a merge reads and writes.
const STORE_OWN: usize = 512;
/// HTTP gets one part in this many of the descriptors for clients.
const HTTP_PART: usize = 8;

/// Largest numbers of open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Connections of the KV protocol.
    pub(crate) kv: usize,
    /// Connections of HTTP.
    pub(crate) http: usize,
}

impl Descriptors {
    /// Returns the numbers for the limit of this process.
    pub(crate) fn of_process(config: &NodeConfig) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let on_disk = config
            .buckets
            .iter()
            .filter(|bucket| config.data_dir.is_some() && bucket.kind == BucketKind::Couchbase);
        Self::shared_out(limit, on_disk.count())
    }

    /// Logs if clients get fewer connections than the node could serve.
    pub(crate) fn tell(self) {
        if self.kv < CONNECTIONS_MAX {
            tracing::info!(
                connections = self.kv,
                "clients are limited by the descriptors of this process (ulimit -n)"
            );
        }
    }

    /// Reserves the share of the node and its stores, at most half of the limit, and divides the rest.
    fn shared_out(limit: Option<usize>, stores: usize) -> Self {
        let Some(limit) = limit else {
            return Self {
                kv: CONNECTIONS_MAX,
                http: management::CONNECTIONS_MAX,
            };
        };
        let own = NODE_OWN.saturating_add(STORE_OWN.saturating_mul(stores));
        let clients = limit - own.min(limit / 2);
        let http = (clients / HTTP_PART).clamp(1, management::CONNECTIONS_MAX);
        Self {
            kv: clients.saturating_sub(http).clamp(1, CONNECTIONS_MAX),
            http,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_keeps_its_share_of_descriptors() {
        let all = Descriptors {
            kv: CONNECTIONS_MAX,
            http: management::CONNECTIONS_MAX,
        };
        assert_eq!(Descriptors::shared_out(None, 1), all);
        assert_eq!(Descriptors::shared_out(Some(1 << 20), 10), all);
        for (limit, stores) in [(2048, 1), (4096, 3), (20_000, 0)] {
            let shares = Descriptors::shared_out(Some(limit), stores);
            let own = limit - shares.kv - shares.http;
            assert_eq!(own, NODE_OWN + stores * STORE_OWN, "{shares:?}");
        }
        // Too few for all: half each, and never none.
        let few = Descriptors::shared_out(Some(64), 4);
        assert_eq!(few, Descriptors { kv: 28, http: 4 });
        let none = Descriptors::shared_out(Some(0), 1);
        assert_eq!(none, Descriptors { kv: 1, http: 1 });
    }
}
