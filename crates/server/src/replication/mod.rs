//! A whole bucket as the replica of a bucket of another node.
//!
//! ```text
//!   active node --- DCP ---> link (socket) -> Consumer -> Target -> bucket: replica vBuckets
//!                                 \-- Orders: stop, promote
//! ```
//!
//! Or some of its vBuckets, on a connection that a cluster manager opened here (`Inbound`); what is
//! done with the messages (`Intake`) is the same.
//!
//! One thread per replicated bucket: it applies changes where it reads them, so the threads that
//! serve clients have nothing to do with it. A promotion is done by the same thread, between two
//! reads: nothing of the old active node can come after it. Before it, what the other nodes of the group
//! have and this one has not is fetched from them (`CatchUp`); if too few can be asked, it is declined.

mod catch_up;
mod consumer;
mod dialogue;
mod link;
mod notice;
mod setup;
mod socket;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use registry::{Following, Follows, Peer, Progress, Registry, ServedBucket, Stage};
use tokio::sync::watch;

use crate::tls::Trust;

/// The node and bucket that a bucket of this node is to follow.
#[derive(Clone, PartialEq, Eq)]
pub struct ReplicaOf {
    /// Host name or address of the active node.
    pub host: String,
    /// Its KV port.
    pub port: u16,
    /// User to log in as there.
    pub username: String,
    /// Password of that user.
    pub password: String,
    /// Name of the bucket, there and here.
    pub bucket: String,
    /// Whom to trust over TLS, to this node and to others of its group; `None` without TLS.
    pub tls: Option<Trust>,
    /// Whether documents that this node has as the active one may become a replica's, which
    /// gives up what the other node does not have.
    pub demote: bool,
}

impl fmt::Debug for ReplicaOf {
    /// All but the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaOf")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("username", &self.username)
            .field("bucket", &self.bucket)
            .field("tls", &self.tls)
            .field("demote", &self.demote)
            .finish_non_exhaustive()
    }
}

impl ReplicaOf {
    /// The node to follow, as far as settings tell.
    pub(crate) fn following(&self) -> Following {
        Following {
            active: Peer::configured(&self.host, self.port, self.tls.is_some()),
            demote: self.demote,
        }
    }
}

/// What the replica's thread is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Follow,
    /// Unless too few nodes can be asked what they have; with `force` all the same.
    Promote {
        force: bool,
    },
    Stop,
}

/// A bucket that follows another one.
pub(crate) struct Follower {
    progress: Arc<Progress>,
    orders: watch::Sender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Follower {
    /// Starts following, for which the vBuckets must be replicas by now; or, of a bucket that was `promoted`,
    /// telling others of it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        node: &Arc<Registry>,
        served: &Arc<ServedBucket>,
        (of, promoted): (ReplicaOf, bool),
    ) -> std::io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let progress = Arc::new(Progress::new(served.bucket.vbuckets()));
        let (orders, received) = watch::channel(Order::Follow);
        let link = link::Link {
            node: Arc::clone(node),
            served: Arc::clone(served),
            demote: Arc::new(of.demote.into()),
            of,
            progress: Arc::clone(&progress),
        };
        if promoted {
            progress.set_stage(Stage::Promoted);
        }
        let thread = std::thread::Builder::new()
            .name("replica".into())
            .spawn(move || {
                if promoted {
                    runtime.block_on(link.tell_again(received));
                } else {
                    runtime.block_on(link.follow(received));
                }
            })?;
        Ok(Arc::new(Self {
            progress,
            orders,
            thread: Mutex::new(Some(thread)),
        }))
    }
}

impl Follows for Follower {
    fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Asks for the promotion; [`Progress::stage`] tells when it is done and
    /// [`Progress::declined`] that it will not be, and all sessions are woken then.
    fn promote(&self, force: bool) {
        let wanted = Order::Promote { force };
        self.orders.send_if_modified(|order| {
            let declined = self.progress.take_declined().is_some();
            let stronger = force && *order == Order::Promote { force: false };
            let tells = *order != Order::Stop && (*order == Order::Follow || declined || stronger);
            if tells {
                *order = wanted;
            }
            tells
        });
    }

    /// Whether it still does, or will again.
    fn follows(&self) -> bool {
        !matches!(self.progress.stage(), Stage::Promoted | Stage::Stopped)
    }

    /// Ends the connection and waits until the thread has ended.
    fn stop(&self) {
        self.orders.send_replace(Order::Stop);
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the replica's thread ended by a panic");
        }
    }
}
