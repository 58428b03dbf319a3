//! Logins of all ports: how fast they may fail, and what the log tells of that.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use identity::{Identity, LoginTurn};

use super::NodeState;

/// How often it is looked for lines that are due.
const PERIOD: Duration = Duration::from_millis(500);

/// Derives the keys of all users in a thread of its own, so that the start does not wait for it. Without a
/// thread they are derived when they are needed.
pub(super) fn prepare(identity: &Arc<Identity>) {
    let identity = Arc::clone(identity);
    let spawned = thread::Builder::new()
        .name("scram-keys".into())
        .spawn(move || identity.prepare());
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to derive credentials in; first logins will be slower");
    }
}

impl NodeState {
    /// When a login from `peer` may be judged. The call reserves that turn.
    pub(crate) fn login_turn(&self, peer: IpAddr) -> LoginTurn {
        self.brake.turn(peer, self.clock.mono_ns())
    }

    /// Notes a login that was right, or one that was wrong or refused unjudged.
    pub(crate) fn note_login(&self, peer: IpAddr, right: bool) {
        self.counters.count_auth(right);
        if right {
            return self.brake.succeeded(peer);
        }
        if let Some(count) = self.brake.failed(peer, self.clock.mono_ns()) {
            tell(peer, count);
        }
    }
}

/// Tells of wrong logins that no later one would tell of, for as long as the node serves.
pub(super) async fn watch(node: Arc<NodeState>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (peer, count) in node.brake.lines_due(node.clock.mono_ns()) {
            tell(peer, count);
        }
    }
}

fn tell(peer: IpAddr, count: u32) {
    tracing::warn!(%peer, count, "authentication failed");
}
