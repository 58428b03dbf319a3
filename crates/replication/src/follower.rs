//! A bucket that follows a bucket of another node, and its thread.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use registry::{Follows, Progress, Registry, ServedBucket, Stage};
use tokio::sync::watch;

use crate::link::Link;
use crate::order::Order;
use crate::replica_of::ReplicaOf;

/// A bucket that follows a bucket of another node.
pub struct Follower {
    progress: Arc<Progress>,
    orders: watch::Sender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Follower {
    /// Starts to follow; the vBuckets must already be replicas. If the bucket was `promoted`, starts to notify
    /// the other nodes instead.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        node: &Arc<Registry>,
        served: &Arc<ServedBucket>,
        of: ReplicaOf,
        promoted: bool,
    ) -> std::io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let progress = Arc::new(Progress::new(served.bucket.vbuckets()));
        let (orders, received) = watch::channel(Order::Follow);
        let link = Link {
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

    /// Orders the promotion. [`Progress::stage`] shows when it is done, [`Progress::declined`] why it was
    /// declined; both wake all sessions.
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

    /// Whether the bucket follows, or will connect again.
    fn follows(&self) -> bool {
        !matches!(self.progress.stage(), Stage::Promoted | Stage::Stopped)
    }

    /// Closes the connection and waits until the thread has ended.
    fn stop(&self) {
        self.orders.send_replace(Order::Stop);
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the replica's thread ended by a panic");
        }
    }
}
