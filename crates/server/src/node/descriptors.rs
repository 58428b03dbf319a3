//! Shares of the process's file descriptors.
//!
//! Clients must not get all of them: a store that cannot open its next file would have to give
//! up persisting. So connections end where the node's own share begins.

use registry::{BucketKind, CONNECTIONS_MAX};

use crate::config::NodeConfig;

/// For threads, listeners, links to other nodes and what consumers of changes have of their own.
const NODE_OWN: usize = 256;
/// For the files of one store: its logs, its runs, what they refer to, those that a merge reads and writes.
const STORE_OWN: usize = 512;
/// Of what is left to clients, HTTP gets this part.
const HTTP_PART: usize = 8;

/// Connections that may be open at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Of the KV protocol.
    pub(crate) kv: usize,
    /// Of HTTP.
    pub(crate) http: usize,
}

impl Descriptors {
    /// What the limit of this process leaves to clients.
    pub(crate) fn of_process(config: &NodeConfig) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let on_disk = config
            .buckets
            .iter()
            .filter(|bucket| config.data_dir.is_some() && bucket.kind == BucketKind::Couchbase);
        Self::shared_out(limit, on_disk.count())
    }

    /// Says so where clients get fewer than the node could serve.
    pub(crate) fn tell(self) {
        if self.kv < CONNECTIONS_MAX {
            tracing::info!(
                connections = self.kv,
                "clients are limited by the descriptors of this process (ulimit -n)"
            );
        }
    }

    /// The node has what it and so many stores need, or half when there are too few for that.
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
