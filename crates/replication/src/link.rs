//! The replica's connection: it connects, reads, writes and connects again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use consumer::{ConsumerOptions, StandingOptions};
use registry::{Progress, Registry, ServedBucket};
use tokio::sync::watch;

use super::broken::Broken;
use super::setup::Introduction;
use crate::order::Order;
use crate::replica_of::ReplicaOf;

/// Shortest pause between two connections; doubled after each connection that brought no change.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(100);
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Time limits of a connection that fetches changes before a promotion.
pub(super) const FETCH_CONNECT_LIMIT: Duration = Duration::from_secs(2);
pub(super) const FETCH_STALL_LIMIT: Duration = Duration::from_secs(5);
pub(super) const READ_BYTES: usize = 256 << 10;
/// Divisor of the quota for the flow-control window, and bounds of the window.
const WINDOW_SHARE: u64 = 20;
const WINDOW_BYTES_MIN: u64 = 1 << 20;
const WINDOW_BYTES_MAX: u64 = 256 << 20;

/// Returns the size of the flow-control window of a connection that fills a bucket.
pub(super) fn window_bytes(served: &ServedBucket) -> u32 {
    let quota = served.bucket.memory().quota();
    (quota / WINDOW_SHARE).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX) as u32
}

/// State of the replica's thread.
pub(super) struct Link {
    pub(super) node: Arc<Registry>,
    pub(super) served: Arc<ServedBucket>,
    pub(super) of: ReplicaOf,
    /// Whether local data may still be discarded for a node of an earlier epoch or for another bucket. Cleared
    /// once a node was followed.
    pub(super) demote: Arc<AtomicBool>,
    pub(super) progress: Arc<Progress>,
}

/// Reason why a conversation ended.
pub(super) enum End {
    Ordered,
    Lost(io::Error),
    Broken(Broken),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered => f.write_str("there is another order"),
            // Over TLS, the text of the error is an address of documentation.
            Self::Lost(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("the other node closed the connection")
            }
            Self::Lost(error) => error.fmt(f),
            Self::Broken(broken) => broken.fmt(f),
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Broken> for End {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl Link {
    pub(super) fn configured(&self) -> (String, u16) {
        (self.of.host.clone(), self.of.port)
    }

    pub(super) async fn pause(&self, length: Duration, orders: &mut watch::Receiver<Order>) {
        tokio::select! {
            () = tokio::time::sleep(length) => {}
            _ = orders.changed() => {}
        }
    }

    pub(super) fn introduction(&self, at: &(String, u16)) -> Introduction {
        Introduction {
            user: self.of.username.clone(),
            password: self.of.password.clone(),
            certified: self.of.tls.as_ref().is_some_and(|tls| tls.own.is_some()),
            nonce: format!(
                "{:016x}{:016x}",
                self.node.env.random_u64(),
                self.node.env.random_u64()
            ),
            bucket: self.of.bucket.clone(),
            name: format!("replica:{}:{}", self.node.uuid, self.of.bucket),
            wishes: ConsumerOptions {
                window_bytes: window_bytes(&self.served),
                consumer: self.node.uuid.clone(),
                bucket_uuid: String::new(),
            },
            about: registry::introduction(
                &self.node,
                &self.served,
                self.demote.load(Ordering::Relaxed),
            ),
            must_register: *at != self.configured(),
            tells: false,
            streams: StandingOptions::default(),
        }
    }
}
