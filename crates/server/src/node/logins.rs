//! Logins of all ports: how fast they may fail, and what the log tells of that.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use identity::Identity;
use registry::Registry;

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

/// Tells of wrong logins that no later one would tell of, for as long as the node serves.
pub(super) async fn watch(node: Arc<Registry>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        node.tell_failed_logins();
    }
}
