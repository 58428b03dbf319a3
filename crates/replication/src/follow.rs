//! The loop of a replica: it follows over one connection after the other, until a promotion.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bucket::WarmupStage;
use consumer::{Active, Followed};
use registry::{Peer, Progress, Stage};
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;

use super::catch_up::CatchUp;
use super::connection_io::ConnectionIo;
use super::consumer::Consumer;
use super::link::{
    BACKOFF_MAX, BACKOFF_MIN, End, FETCH_CONNECT_LIMIT, FETCH_STALL_LIMIT, Link, READ_BYTES,
};
use super::socket::{connect, send, timed_out};
use crate::order::Order;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

impl Link {
    /// Follows until there is another order.
    pub(super) async fn follow(self, mut orders: watch::Receiver<Order>) {
        let mut backoff = BACKOFF_MIN;
        let mut at = self.configured();
        loop {
            if orders.has_changed().is_err() {
                return self.progress.set_stage(Stage::Stopped);
            }
            let order = *orders.borrow_and_update();
            match order {
                Order::Follow => {}
                // A declined promotion is not repeated until it is ordered again.
                Order::Promote { .. } if self.progress.declined().is_some() => {}
                Order::Promote { force } => {
                    if let Some(asked) = self.fetch_from_others(&mut orders).await
                        && self.may_promote(asked, force)
                    {
                        let others = self.promote();
                        return self.tell_others(others, true, orders).await;
                    }
                    continue;
                }
                Order::Stop => return self.progress.set_stage(Stage::Stopped),
            }
            if self.served.bucket.warmup().stage() != WarmupStage::Done {
                self.pause(BACKOFF_MIN, &mut orders).await;
                continue;
            }
            self.progress.set_stage(Stage::Connecting);
            let changes = self.progress.changes.load(Ordering::Relaxed);
            let (end, elsewhere) = match self.converse(&at, &mut orders).await {
                Ok(()) | Err(End::Ordered) => continue,
                Err(lost @ End::Lost(_)) => (lost.to_string(), None),
                Err(End::Broken(broken)) => (broken.to_string(), broken.elsewhere()),
            };
            let was = at.clone();
            // A node that was followed is tried again before other nodes.
            let followed = self.progress.stage() == Stage::Streaming;
            match elsewhere {
                Some(other) => at = other,
                None if followed => {}
                None => at = self.another_than(&at),
            }
            self.progress.streams.store(0, Ordering::Relaxed);
            if self.progress.changes.load(Ordering::Relaxed) > changes {
                backoff = BACKOFF_MIN;
            }
            // Each reason is logged once, not for each attempt.
            if self.progress.last_error() != end {
                let (bucket, active) = (self.served.name(), format!("{}:{}", was.0, was.1));
                tracing::warn!(
                    bucket,
                    active,
                    reason = end,
                    "the active node is not followed"
                );
                self.progress.set_last_error(&end);
            }
            self.progress.set_stage(Stage::Connecting);
            self.pause(backoff, &mut orders).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Returns the next node to try: the configured node and the others of the group in turn. One of the replicas
    /// may be active since.
    fn another_than(&self, at: &(String, u16)) -> (String, u16) {
        let mut nodes = vec![self.configured()];
        let over_tls = self.of.tls.is_some();
        for peer in self.served.group().peers {
            let Some(node) = peer.endpoint(over_tls) else {
                continue;
            };
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        let place = nodes.iter().position(|node| node == at);
        nodes.swap_remove(place.map_or(0, |place| (place + 1) % nodes.len()))
    }

    async fn converse(
        &self,
        at: &(String, u16),
        orders: &mut watch::Receiver<Order>,
    ) -> Result<(), End> {
        let mut stream = tokio::select! {
            connected = connect(&at.0, at.1, self.of.tls_config()?, CONNECT_LIMIT) => connected?,
            _ = orders.changed() => return Err(End::Ordered),
        };
        Progress::add(&self.progress.connects, 1);
        self.progress.set_stage(Stage::Introducing);
        let about = self.introduction(at);
        let target = Followed {
            node: Arc::clone(&self.node),
            served: Arc::clone(&self.served),
            active: Some(Active {
                at: at.clone(),
                over_tls: self.of.tls.is_some(),
                demote: Arc::clone(&self.demote),
            }),
            may_block: |work| work(),
        };
        let progress = Arc::clone(&self.progress);
        let mut output = Vec::new();
        let now_ns = self.node.clock.mono_ns();
        let mut consumer = Consumer::new(&target, &about, progress, now_ns, &mut output)?;
        let carrier = ConnectionIo::new(&self.node, &self.served);
        let conversation = carrier.carry(&mut stream, &mut consumer, output);
        tokio::select! {
            biased;
            _ = orders.changed() => Err(End::Ordered),
            ended = conversation => Err(ended),
        }
    }

    /// Whether enough other nodes were asked so that, with this one, every write that a majority acknowledged is
    /// here. If not, and without `force`, declines the promotion with a reason.
    fn may_promote(&self, asked: usize, force: bool) -> bool {
        let others = self.served.group().peers.len();
        // Any majority of all nodes then includes this node or one of those that were asked.
        let wanted = others / 2;
        if asked >= wanted || force {
            return true;
        }
        let reason = format!(
            "{asked} of {others} other nodes could be asked what they have, {wanted} are needed: \
             writes that a majority acknowledged may be missing here; it can be forced"
        );
        tracing::warn!(bucket = self.served.name(), reason, "not promoted");
        self.progress.decline(reason);
        self.node.wake_all();
        false
    }

    /// Fetches the changes that reachable nodes of the group have and this one has not. Returns the number of
    /// nodes that were asked; `None` if there is another order.
    async fn fetch_from_others(&self, orders: &mut watch::Receiver<Order>) -> Option<usize> {
        let mut asked = 0;
        let over_tls = self.of.tls.is_some();
        for peer in self.served.group().peers {
            let Some(from) = peer.endpoint(over_tls) else {
                let (bucket, node) = (self.served.name(), peer.name());
                tracing::warn!(
                    bucket,
                    node,
                    "that node has no port for TLS and is not asked"
                );
                continue;
            };
            let fetched = tokio::select! {
                fetched = self.fetch_from(&from) => fetched,
                _ = orders.changed() => return None,
            };
            let (bucket, node) = (self.served.name(), format!("{}:{}", from.0, from.1));
            match fetched {
                Ok((changes, 0)) => {
                    asked += 1;
                    tracing::info!(bucket, node, changes, "fetched before the promotion");
                }
                Ok((changes, vbuckets)) => {
                    asked += 1;
                    let reason = "that node did not give some of its vBuckets before the promotion";
                    tracing::warn!(bucket, node, changes, vbuckets, "{reason}");
                }
                Err(why) => {
                    let text = "what only that node has is not part of the promotion";
                    tracing::warn!(bucket, node, reason = %why, "{text}");
                }
            }
        }
        Some(asked)
    }

    /// Returns the number of fetched changes and the number of vBuckets that could not be fetched.
    async fn fetch_from(&self, from: &(String, u16)) -> Result<(u64, usize), End> {
        let mut stream =
            connect(&from.0, from.1, self.of.tls_config()?, FETCH_CONNECT_LIMIT).await?;
        let mut about = self.introduction(from);
        about.name = format!("catch-up:{}:{}", self.node.uuid, self.of.bucket);
        about.about.clear();
        about.wishes.consumer.clear();
        let target = Followed {
            node: Arc::clone(&self.node),
            served: Arc::clone(&self.served),
            active: None,
            may_block: |work| work(),
        };
        let progress = Arc::new(Progress::new(self.served.bucket.vbuckets()));
        let (mut input, mut output) = (Vec::new(), Vec::new());
        let now_ns = self.node.clock.mono_ns();
        let streams = Arc::clone(&progress);
        let mut catch_up = CatchUp::new(&target, &about, streams, now_ns, &mut output)?;
        while !catch_up.is_done() {
            send(&mut stream, &output, FETCH_STALL_LIMIT).await?;
            output.clear();
            input.reserve(READ_BYTES);
            let read = tokio::time::timeout(FETCH_STALL_LIMIT, stream.read_buf(&mut input));
            if read.await.map_err(|_| timed_out("reading"))?? == 0 {
                return Err(End::Lost(ErrorKind::UnexpectedEof.into()));
            }
            let now_ns = self.node.clock.mono_ns();
            let done_with = catch_up.receive(&input, now_ns, &mut output)?;
            input.drain(..done_with);
        }
        let changes = progress.changes.load(Ordering::Relaxed);
        Ok((changes, catch_up.refused()))
    }

    /// Makes this node active; returns the nodes to notify.
    fn promote(&self) -> Vec<Peer> {
        let mut others = self.served.group().peers;
        self.with_configured(&mut others);
        registry::promote(&self.node, &self.served, others.clone());
        self.progress.set_stage(Stage::Promoted);
        self.node.wake_all();
        others
    }
}
